//! Giving memory back on request, and the figures of the whole heap.

use super::check;
use crate::base::units::SLICE_SHIFT;
use crate::cache::heap::{HEAP, Mode};
use crate::cache::magazine::Tag;
use crate::os::linux;
use crate::page::Use;
use crate::slab::Slab;
use crate::slab::class::Class;
use crate::slab::depot::Round;
use crate::stats::{ClassFigures, Counted, Snapshot};

/// Empties all magazines, lets empty slabs go, and gives all free pages back to the kernel, those inside slabs that are partly
/// in use among them. `keep`,
/// the bytes that `malloc_trim` may leave at the top, has no meaning here. True if any page went back.
pub fn trim(_keep: usize) -> bool {
    HEAP.decay_round(Round::All) > 0
}

/// The figures of the heap now. Walks all slabs: for reports, not for hot paths. Exact while no other
/// thread allocates.
pub fn snapshot() -> Snapshot {
    let totals = HEAP.pages.totals();
    let mut figures = Snapshot {
        reserved: totals.reserved as u64,
        committed: totals.committed as u64,
        metadata: (totals.metadata + (totals.by_use[Use::Meta as usize - 1].slices << SLICE_SHIFT))
            as u64,
        free_spans: totals.free as u64,
        free_dirty: totals.free_dirty as u64,
        large_bytes: totals.by_use[Use::Large as usize - 1].bytes as u64,
        large_blocks: totals.by_use[Use::Large as usize - 1].spans as u64,
        peak_spans: totals.peak as u64,
        purges: totals.purges as u64,
        purged_bytes: totals.purged_bytes as u64,
        zeroed: totals.zeroing.written as u64,
        zero_spared: totals.zeroing.spared as u64,
        zero_purged: totals.zeroing.purged as u64,
        questions: totals.zeroing.asked as u64,
        unanswered: totals.zeroing.unknown as u64,
        resident: linux::resident_bytes().unwrap_or(0) as u64,
        peak_resident: linux::peak_resident_bytes().unwrap_or(0) as u64,
        quarantine: check::held() as u64,
        granted: HEAP.budget.granted() as u64,
        ..Snapshot::default()
    };
    // The kernel notes its peak now and then, later than what it counts now.
    figures.peak_resident = figures.peak_resident.max(figures.resident);
    spans(&mut figures, &totals);
    slabs(&mut figures);
    magazines(&mut figures);
    for class in &figures.classes {
        figures.slab_free += class.free * class.bytes;
        figures.magazines += class.cached * class.bytes;
        figures.live += class.live() * class.bytes;
    }
    figures.live = (figures.live + figures.large_bytes).saturating_sub(figures.quarantine);
    if HEAP.mode() == Mode::Counting {
        let [allocations, frees, requested] = HEAP.registry.counted();
        figures.counted = Counted {
            known: 1,
            allocations,
            frees,
            requested,
        };
    }
    figures
}

fn spans(figures: &mut Snapshot, totals: &crate::page::Totals) {
    for (figure, by_use) in figures.spans.iter_mut().zip(&totals.by_use) {
        figure.spans = by_use.spans as u64;
        figure.slices = by_use.slices as u64;
    }
}

/// Blocks of every slab, by class.
fn slabs(figures: &mut Snapshot) {
    for class in Class::all() {
        figures.classes[class.index() - 1].bytes = class.bytes() as u64;
    }
    HEAP.pages.for_each_span(Use::Slab, |place| {
        let Some(class) = Tag(place.tag()).class() else {
            return;
        };
        // SAFETY: the side table's entry of a slice is its slab record (see `Heap::find`).
        let slab = unsafe { place.side().cast::<Slab>().as_ref() };
        let figure = &mut figures.classes[class.index() - 1];
        figure.slabs += 1;
        figure.blocks += class.blocks() as u64;
        figure.free += (slab.free_blocks() + slab.withheld_blocks(class)) as u64;
        figures.slab_purged += slab.withheld().bytes() as u64;
    });
}

/// Blocks in the magazines of all threads, by class.
fn magazines(figures: &mut Snapshot) {
    let classes = &mut figures.classes;
    let threads = &mut figures.threads;
    HEAP.registry.for_each(|cache| {
        *threads += 1;
        let mut open = cache.open();
        for class in Class::all() {
            let figure: &mut ClassFigures = &mut classes[class.index() - 1];
            figure.cached += open.filled(class) as u64;
            let store = open.store(class);
            figure.refills += u64::from(store.refills);
            figure.flushes += u64::from(store.flushes);
        }
    });
}

/// Looks whether the page heap's invariants hold; says which one does not. Takes its lock for long: for tests.
///
/// # Errors
/// The invariant that is broken.
pub fn check_consistency() -> Result<(), &'static str> {
    HEAP.pages.check()
}
