//! Finds the site of a list of frames: a hash table in private memory that no other process sees.

use core::ptr::NonNull;
use neap_heap::os::Os;
use neap_heap::os::linux::Linux;
use neap_shared::sites::MOST_SITES;

/// Places in the table: a power of two, of which at most half are taken.
const PLACES: usize = MOST_SITES * 2;

/// Indexed by hash, with linear probing. A hash of 0 marks an empty place.
pub(super) struct Table {
    places: Option<NonNull<Place>>,
    /// Indexed by site.
    sums: Option<NonNull<Sums>>,
}

/// What a site's samples represent: objects in parts, requested bytes, usable bytes. In the order
/// of [`neap_shared::sites::Site`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Sums {
    /// All allocations so far.
    pub(super) allocated: [u64; 3],
    /// Live blocks.
    pub(super) live: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Place {
    hash: u64,
    site: u64,
}

impl Table {
    /// A table without memory.
    pub(super) const fn new() -> Self {
        Table {
            places: None,
            sums: None,
        }
    }

    /// Reserves the memory. False if there is none.
    pub(super) fn open(&mut self) -> bool {
        self.places = self.places.or_else(|| zeros(PLACES));
        self.sums = self.sums.or_else(|| zeros(MOST_SITES));
        self.places.is_some() && self.sums.is_some()
    }

    /// The sums of a site.
    pub(super) fn sums(&mut self, site: u32) -> Option<&mut Sums> {
        debug_assert!((site as usize) < MOST_SITES);
        // SAFETY: committed for [`MOST_SITES`], zero at first; only this table points there.
        self.sums
            .map(|sums| unsafe { sums.add(site as usize).as_mut() })
    }

    /// The site of a hash. For an unknown hash, `next`, which the table keeps if it is a site.
    #[inline(never)]
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
        // SAFETY: committed for [`PLACES`], zero at first, which marks an empty place; only this
        // table points there.
        self.places
            .map(|places| unsafe { core::slice::from_raw_parts_mut(places.as_ptr(), PLACES) })
    }
}

/// Hash of the frames; 0 means no frames. The mixing is that of MurmurHash3's finalizer (Austin
/// Appleby, public domain).
#[inline(never)]
pub(super) fn hash_of(frames: &[u64]) -> u64 {
    let mix = |hash: u64, &frame: &u64| {
        let mut mixed = hash.rotate_left(23) ^ frame;
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        mixed ^ mixed >> 33
    };
    frames.iter().fold(frames.len() as u64, mix).max(1)
}

/// Memory for `count` zeroed values outside the arenas. Untouched pages cost nothing.
pub(super) fn zeros<T>(count: usize) -> Option<NonNull<T>> {
    map((count * size_of::<T>()).next_multiple_of(Linux.page_bytes())).map(NonNull::cast)
}

#[inline(never)]
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let base = Linux.reserve(bytes, Linux.page_bytes())?;
    // SAFETY: a reservation of our own, all of it.
    if unsafe { Linux.commit(base, bytes) }.is_err() {
        // SAFETY: the whole reservation above, which holds no value yet.
        unsafe { Linux.unmap(base, bytes) };
        return None;
    }
    Some(base)
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
