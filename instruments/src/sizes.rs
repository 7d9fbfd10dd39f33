//! The sizes that the program requests, counted in the counting mode. `neap tune` computes the best
//! size classes from them.
//!
//! If the alignment of a request requires a larger block than its size alone, the request counts
//! with the size of that block, because a smaller one would not be aligned. So classes computed
//! from these sizes have room for it.

use bytemuck::Zeroable;
use neap_heap::base::sync::{AtomicU64, Ordering};
use neap_heap::os::areas::Late;
use neap_heap::slab::class::{CLASSES, Class};
use neap_shared::stats::ClassFigures;
use neap_shared::status_page::{SIZE_STEP, SIZES, SizeFigure};

/// Allocations and their bytes.
struct Tally {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    const fn new() -> Tally {
        Tally {
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    fn add(&self, bytes: usize) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn figure(&self) -> SizeFigure {
        SizeFigure {
            count: self.count.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

// SAFETY: integers only, and 0 is a value of each.
unsafe impl Zeroable for Tally {}

/// As [`neap_shared::status_page`] describes. Mapped when something is counted.
static BY_SIZE: Late<[Tally; SIZES]> = Late::new();
/// By class index; 0: those that no slab serves.
static BY_CLASS: [Tally; CLASSES + 1] = [const { Tally::new() }; CLASSES + 1];

/// Notes a request of `size` bytes, which a slab of `class` serves, or none.
pub(crate) fn note(size: usize, class: Option<Class>) {
    BY_CLASS[class.map_or(0, Class::index)].add(size);
    if let Some(by_size) = BY_SIZE.open() {
        // SAFETY: mapped for good, and written by atomics only.
        let by_size = unsafe { by_size.as_ref() };
        by_size[class.map_or(SIZES - 1, |class| step(size, class))].add(size);
    }
}

/// The entry of a size.
fn step(size: usize, class: Class) -> usize {
    let by_size = class == Class::serving(size) || class == Class::of_size_align8(size);
    let served = if by_size { size } else { class.bytes() };
    served.div_ceil(SIZE_STEP)
}

/// Calls `visit` with every entry that holds something: its number, and what it holds.
pub(crate) fn each(mut visit: impl FnMut(usize, SizeFigure)) {
    let Some(by_size) = BY_SIZE.find() else {
        return;
    };
    // SAFETY: as in `note`.
    let by_size = unsafe { by_size.as_ref() };
    for (entry, tally) in by_size.iter().enumerate() {
        let figure = tally.figure();
        if figure.count > 0 {
            visit(entry, figure);
        }
    }
}

/// Writes what was asked for into the figures of the classes.
pub(crate) fn note_classes(classes: &mut [ClassFigures; CLASSES]) {
    for (figures, tally) in classes.iter_mut().zip(&BY_CLASS[1..]) {
        let SizeFigure { count, bytes } = tally.figure();
        (figures.allocations, figures.requested) = (count, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_counts_at_its_step_and_an_aligned_one_at_its_block() {
        let malloc = |size| step(size, Class::serving(size));
        assert_eq!(malloc(0), 0);
        assert_eq!(malloc(1), 1);
        assert_eq!(malloc(8), 1);
        assert_eq!(malloc(24), 3);
        assert_eq!(malloc(1000), 125);
        assert_eq!(step(24, Class::of_size_align8(24)), 3);
        let aligned = |size, align| step(size, Class::of_layout(size, align).unwrap());
        assert_eq!(aligned(130, 64), 192 / 8);
        assert_eq!(aligned(5, 4096), 4096 / 8);
        // The same block as without an alignment: nothing tells them apart.
        assert_eq!(aligned(4000, 4096), 4000 / 8);
    }
}
