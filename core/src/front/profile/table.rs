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
        Table { places: None }
    }

    /// Gets the memory. False if there is none.
    pub(super) fn open(&mut self) -> bool {
        let bytes = (PLACES * size_of::<Place>()).next_multiple_of(Linux.page_bytes());
        let Some(base) = Linux.reserve(bytes, Linux.page_bytes()) else {
            return false;
        };
        // SAFETY: a reservation of our own, all of it.
        if unsafe { Linux.commit(base, bytes) }.is_err() {
            // SAFETY: the same, which nobody uses.
            unsafe { Linux.release(base, bytes) };
            return false;
        }
        self.places = Some(base.cast());
        true
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
