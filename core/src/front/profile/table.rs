//! Which site has which frames: a table of hashes, in memory of its own that no other process sees.

use crate::os::Os;
use crate::os::linux::Linux;
use crate::sites::MOST_SITES;
use core::ptr::NonNull;

/// Places: a power of two, at most half of them taken.
const PLACES: usize = MOST_SITES * 2;

/// By hash, linear probing; a hash of 0 is an empty place.
pub(super) struct Table {
    places: Option<NonNull<Place>>,
    /// By site.
    sums: Option<NonNull<Sums>>,
}

/// What the samples of a site stand for: objects in parts, bytes asked for, usable bytes. In the order of [`crate::sites::Site`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Sums {
    /// All so far.
    pub(super) allocated: [u64; 3],
    /// Those that live.
    pub(super) live: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Place {
    hash: u64,
    site: u64,
}

impl Table {
    /// Without memory.
    pub(super) const fn new() -> Self {
        Table {
            places: None,
            sums: None,
        }
    }

    /// Gets the memory. False if there is none.
    pub(super) fn open(&mut self) -> bool {
        self.places = self.places.or_else(|| zeros(PLACES));
        self.sums = self.sums.or_else(|| zeros(MOST_SITES));
        self.places.is_some() && self.sums.is_some()
    }

    /// The sums of a site.
    pub(super) fn sums(&mut self, site: u32) -> Option<&mut Sums> {
        debug_assert!((site as usize) < MOST_SITES);
        // SAFETY: committed for so many, zero at first; nobody else reaches them.
        self.sums
            .map(|sums| unsafe { sums.add(site as usize).as_mut() })
    }

    /// The site of a hash; where there is none, `next` from now on, if that is one.
    pub(super) fn find(&mut self, hash: u64, next: Option<u32>) -> Option<u32> {
        let places = self.places()?;
        let home = hash as usize % PLACES;
        let probes = (0..PLACES).map(|step| (home + step) % PLACES);
        let mut at = probes.skip_while(|&at| places[at].hash != 0 && places[at].hash != hash);
        let place = &mut places[at.next()?];
        if place.hash == 0 {
            *place = Place {
                hash,
                site: u64::from(next?),
            };
        }
        u32::try_from(place.site).ok()
    }

    fn places(&mut self) -> Option<&mut [Place]> {
        // SAFETY: committed for so many places, zero at first, which is an empty one; nobody else reaches them.
        self.places
            .map(|places| unsafe { core::slice::from_raw_parts_mut(places.as_ptr(), PLACES) })
    }
}

/// Memory for `count` values, all zero, outside of the arenas; untouched it costs nothing.
fn zeros<T>(count: usize) -> Option<NonNull<T>> {
    let bytes = (count * size_of::<T>()).next_multiple_of(Linux.page_bytes());
    let base = Linux.reserve(bytes, Linux.page_bytes())?;
    // SAFETY: a reservation of our own, all of it.
    if unsafe { Linux.commit(base, bytes) }.is_err() {
        // SAFETY: the same, which nobody uses.
        unsafe { Linux.release(base, bytes) };
        return None;
    }
    Some(base.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_found_again_and_collisions_kept_apart() {
        let mut table = Table::new();
        assert_eq!(table.find(5, Some(1)), None);
        assert!(table.open());
        assert_eq!(table.find(5, Some(1)), Some(1));
        assert_eq!(table.find(5 + PLACES as u64, Some(2)), Some(2));
        assert_eq!(table.find(5, Some(3)), Some(1));
        assert_eq!(table.find(5 + PLACES as u64, None), Some(2));
        assert_eq!(table.find(6, None), None);
        assert_eq!(table.find(6, Some(3)), Some(3));
    }
}
