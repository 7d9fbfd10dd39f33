//! The large blocks of macOS's libmalloc-116 (2016), written from its published description. Freed
//! regions wait in a ring of sixteen. A request takes the best fit among them if at most half of
//! the region is wasted, and `calloc` zeroes such a region whole, touched or not. Without a fit, a
//! request gets fresh pages. Regions over 128 MiB go back at once.
//!
//! Two parts that the description lacks are left out: its advice to the kernel about cached
//! regions, and its small blocks (up to 127 KiB), which the C library's heap and a memset replace.

use super::heap;
use super::policy::Policy;
use crate::pagemap::page_size;

/// Most cached regions.
const RING: usize = 16;
/// Larger regions are never cached: 2 GiB divided by the places of the ring.
const LONGEST_CACHED: usize = (2 << 30) / RING;
/// Larger blocks are regions of their own.
const LARGEST_SMALL: usize = 127 << 10;

/// The source of regions.
pub trait Pages {
    /// `len` bytes of fresh zero pages; null if there are none.
    fn map(&mut self, len: usize) -> *mut u8;

    /// # Safety
    /// - `map(len)` gave `start`; it has not been unmapped since, and is no longer in use.
    unsafe fn unmap(&mut self, start: *mut u8, len: usize);
}

/// The kernel's pages.
pub struct Kernel;

impl Pages for Kernel {
    fn map(&mut self, len: usize) -> *mut u8 {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let p = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, kind, -1, 0) };
        if p == libc::MAP_FAILED {
            std::ptr::null_mut()
        } else {
            p.cast()
        }
    }

    unsafe fn unmap(&mut self, start: *mut u8, len: usize) {
        // SAFETY: the caller's promise; it cannot fail for a whole mapping.
        unsafe { libc::munmap(start.cast(), len) };
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Region {
    start: *mut u8,
    len: usize,
}

/// The policy.
pub struct Libmalloc116<P: Pages> {
    pages: P,
    ring: [Option<Region>; RING],
    /// The ring's place for the next freed region.
    next: usize,
    live: Vec<Region>,
}

impl<P: Pages> Libmalloc116<P> {
    /// A policy without cached or live regions.
    pub fn new(pages: P) -> Libmalloc116<P> {
        Libmalloc116 {
            pages,
            ring: [None; RING],
            next: 0,
            live: Vec::with_capacity(RING),
        }
    }

    /// The smallest cached region of at least `len` bytes of which at most half is wasted.
    fn best_fit(&self, len: usize) -> Option<usize> {
        let fits = |region: &Region| region.len >= len && region.len - len <= region.len / 2;
        let cached = self.ring.iter().enumerate();
        let fitting = cached.filter_map(|(place, r)| r.filter(fits).map(|r| (r.len, place)));
        fitting.min().map(|(_, place)| place)
    }

    /// A zeroed region, cached or fresh.
    fn large(&mut self, len: usize) -> Region {
        match self.best_fit(len).and_then(|place| self.ring[place].take()) {
            Some(region) => {
                // SAFETY: a cached region is a mapping of this policy that is not in use.
                unsafe { region.start.write_bytes(0, region.len) };
                heap::escape(region.start);
                region
            }
            None => Region {
                start: self.pages.map(len),
                len,
            },
        }
    }

    fn cache(&mut self, region: Region) {
        let oldest = self.ring[self.next].replace(region);
        self.next = (self.next + 1) % RING;
        if let Some(oldest) = oldest {
            // SAFETY: a region from the ring is a mapping that is not in use.
            unsafe { self.pages.unmap(oldest.start, oldest.len) };
        }
    }
}

impl<P: Pages> Policy for Libmalloc116<P> {
    fn calloc(&mut self, size: usize) -> *mut u8 {
        if size <= LARGEST_SMALL {
            return heap::zeroed_malloc(size);
        }
        let region = self.large(size.next_multiple_of(page_size() as usize));
        if !region.start.is_null() {
            self.live.push(region);
        }
        region.start
    }

    unsafe fn free(&mut self, p: *mut u8) {
        let Some(place) = self.live.iter().position(|region| region.start == p) else {
            // SAFETY: not a region, so a small block of the C library's heap.
            return unsafe { heap::free(p) };
        };
        let region = self.live.swap_remove(place);
        if region.len <= LONGEST_CACHED {
            self.cache(region);
        } else {
            // SAFETY: the region was live, and the caller gives it up.
            unsafe { self.pages.unmap(region.start, region.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// The kernel's pages, with a log of mappings and unmappings.
    #[derive(Default)]
    struct Counted {
        mapped: Vec<usize>,
        unmapped: Vec<usize>,
    }

    impl Pages for Counted {
        fn map(&mut self, len: usize) -> *mut u8 {
            self.mapped.push(len);
            Kernel.map(len)
        }

        unsafe fn unmap(&mut self, start: *mut u8, len: usize) {
            self.unmapped.push(len);
            // SAFETY: the caller's promise is the kernel's precondition.
            unsafe { Kernel.unmap(start, len) };
        }
    }

    fn policy() -> Libmalloc116<Counted> {
        Libmalloc116::new(Counted::default())
    }

    /// Allocates blocks of these sizes, then frees them all.
    fn cache(policy: &mut Libmalloc116<Counted>, sizes: &[usize]) {
        let blocks: Vec<*mut u8> = sizes.iter().map(|&size| policy.calloc(size)).collect();
        // SAFETY: each block was given above and is freed once.
        blocks.into_iter().for_each(|p| unsafe { policy.free(p) });
    }

    fn all_zero(p: *const u8, len: usize) -> bool {
        // SAFETY: the tests hand over live blocks of that length.
        unsafe { std::slice::from_raw_parts(p, len) }
            .iter()
            .all(|&b| b == 0)
    }

    #[test]
    fn the_best_fit_is_taken_and_half_may_be_wasted() {
        let mut policy = policy();
        cache(&mut policy, &[8 * MIB, 4 * MIB, 6 * MIB]);
        assert_eq!(
            policy
                .best_fit(5 * MIB)
                .map(|p| policy.ring[p].unwrap().len),
            Some(6 * MIB)
        );
        assert_eq!(
            policy
                .best_fit(2 * MIB)
                .map(|p| policy.ring[p].unwrap().len),
            Some(4 * MIB)
        );
        assert!(
            policy.best_fit(2 * MIB - 4_096).is_none(),
            "more than half of 4 MiB is wasted"
        );
        assert!(
            policy.best_fit(8 * MIB + 4_096).is_none(),
            "nothing is large enough"
        );
    }

    #[test]
    fn a_hit_is_zeroed_whole_and_maps_nothing() {
        let mut policy = policy();
        let first = policy.calloc(2 * MIB);
        // SAFETY: the block is live and has 2 MiB.
        unsafe { first.write_bytes(0xaa, 2 * MIB) };
        // SAFETY: the block is live.
        unsafe { policy.free(first) };
        let second = policy.calloc(MIB + 1);
        assert_eq!(second, first);
        assert!(
            all_zero(second, 2 * MIB),
            "the region behind the request too"
        );
        assert_eq!(policy.pages.mapped, [2 * MIB]);
        // SAFETY: the block is live.
        unsafe { policy.free(second) };
        assert!(policy.pages.unmapped.is_empty());
    }

    #[test]
    fn over_the_limit_regions_go_back_at_once() {
        let mut policy = policy();
        cache(&mut policy, &[128 * MIB]);
        assert!(policy.pages.unmapped.is_empty());
        cache(&mut policy, &[128 * MIB + 4_096]);
        assert_eq!(policy.pages.unmapped, [128 * MIB + 4_096]);
    }

    #[test]
    fn the_seventeenth_region_drives_out_the_first() {
        let mut policy = policy();
        let sizes: Vec<usize> = (1..=17).map(|number| number * MIB).collect();
        cache(&mut policy, &sizes[..16]);
        assert!(policy.pages.unmapped.is_empty());
        cache(&mut policy, &[40 * MIB]);
        assert_eq!(policy.pages.unmapped, [MIB]);
        assert!(policy.ring.iter().all(Option::is_some));
    }

    #[test]
    fn small_blocks_are_the_c_librarys() {
        let mut policy = policy();
        let p = policy.calloc(LARGEST_SMALL);
        assert!(all_zero(p, LARGEST_SMALL) && policy.pages.mapped.is_empty());
        // SAFETY: the block is live.
        unsafe { policy.free(p) };
    }
}
