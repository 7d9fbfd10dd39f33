//! The figures of the whole heap at one moment, and the ledger: where every byte is.
//!
//! The survey asks the kernel once which pages of the arenas are in RAM. It then visits every slice
//! and assigns each resident page to one line of the ledger ([`tally`]). It holds no lock of the
//! page heap, so it sees a concurrent change either before or after. In a busy process, lines may
//! be off by what changed during the survey, but they always add up.

mod brief;
mod tally;

pub use brief::{Brief, brief};

use crate::{check, sizes};
use core::mem::MaybeUninit;
use neap_heap::base::sync::{Ordering, UnsafeCell};
use neap_heap::base::units::SLICE_SHIFT;
use neap_heap::cache::heap::HEAP;
use neap_heap::os::Os;
use neap_heap::os::areas;
use neap_heap::os::linux::{self, Linux};
use neap_heap::os::process;
use neap_heap::pages::{Totals, Use};
use neap_heap::slab::class::Class;
use neap_heap::stacks::stack;
use neap_shared::stats::{ClassFigures, Counted, Snapshot, SpanFigures};
use tally::Tally;

/// Takes the figures of the heap. Visits all slabs and asks the kernel about all pages, which takes
/// milliseconds per GiB: for reports, not for hot paths. Exact while no other thread allocates.
/// Uses 20 KiB of stack; see [`with_snapshot`].
pub fn snapshot() -> Snapshot {
    let mut figures = Snapshot::default();
    snapshot_into(&mut figures);
    figures
}

/// Calls `report` with the figures of [`snapshot`], which are in memory of their own, because the
/// caller may be on a coroutine's stack. All figures are 0 if memory for them is short.
pub fn with_snapshot<R>(report: impl FnOnce(&Snapshot) -> R) -> R {
    /// All figures 0. The cell keeps the compiler from making it a constant, which would take room
    /// in the library's file.
    #[unsafe(link_section = ".bss.neap_tables")]
    static UNKNOWN: Unknown = Unknown(UnsafeCell::new(MaybeUninit::zeroed()));
    let mut report = Some(report);
    let mut say = |figures: &Snapshot| report.take().map(|report| report(figures));
    let said = areas::with(|figures| {
        snapshot_into(figures);
        say(figures)
    });
    // SAFETY: zeros are a value, and are never written.
    match said.unwrap_or_else(|| say(unsafe { (*UNKNOWN.0.get()).assume_init_ref() })) {
        Some(said) => said,
        None => unreachable!("the report is made once"),
    }
}

struct Unknown(UnsafeCell<MaybeUninit<Snapshot>>);

// SAFETY: never written.
unsafe impl Sync for Unknown {}

/// Like [`snapshot`], in place.
pub fn snapshot_into(figures: &mut Snapshot) {
    let began = process::processor_ns();
    let totals = HEAP.pages.totals();
    note_totals(figures, &totals);
    note_process(figures);
    figures.stacks = stack::figures();
    let residence = HEAP.pages.residence();
    let mut tally = Tally::new(&residence);
    figures.slab_purged = 0;
    figures.classes.fill(ClassFigures::default());
    for class in Class::all() {
        figures.classes[class.index() - 1].bytes = class.bytes() as u64;
    }
    sizes::note_classes(&mut figures.classes);
    tally.slices(figures);
    tally.guarded(figures);
    tally.magazines(figures);
    sum_up(figures);
    figures.ledger = tally.ledger(figures);
    drop(residence);
    figures.at_ms = Linux.now_ms();
    figures.cost_ns = process::processor_ns().saturating_sub(began);
}

fn note_totals(figures: &mut Snapshot, totals: &Totals) {
    let large = &totals.by_use[Use::Large as usize - 1];
    let meta = totals.by_use[Use::Meta as usize - 1].slices << SLICE_SHIFT;
    figures.reserved = totals.reserved as u64;
    figures.committed = totals.committed as u64;
    figures.metadata = (totals.metadata + meta) as u64;
    figures.free_spans = totals.free as u64;
    figures.free_dirty = totals.free_dirty as u64;
    figures.large_bytes = large.bytes as u64;
    figures.large_blocks = large.spans as u64;
    figures.peak_spans = totals.peak as u64;
    figures.purges = totals.purges as u64;
    figures.purged_bytes = totals.purged_bytes as u64;
    figures.regretted_bytes = totals.regretted_bytes as u64;
    figures.zeroed = totals.zeroing.written as u64;
    figures.zero_spared = totals.zeroing.spared as u64;
    figures.zero_purged = totals.zeroing.purged as u64;
    figures.questions = totals.zeroing.asked as u64;
    figures.unanswered = totals.zeroing.unknown as u64;
    for (figure, by_use) in figures.spans.iter_mut().zip(&totals.by_use) {
        *figure = SpanFigures {
            spans: by_use.spans as u64,
            slices: by_use.slices as u64,
        };
    }
}

fn note_process(figures: &mut Snapshot) {
    figures.began_ms = Linux.now_ms();
    figures.resident = linux::resident_bytes().unwrap_or(0) as u64;
    // The kernel updates its peak only at intervals, so the peak may lag behind the current count.
    let peak = linux::peak_resident_bytes().unwrap_or(0) as u64;
    figures.peak_resident = peak.max(figures.resident);
    [figures.minor_faults, figures.major_faults] = process::faults();
    figures.quarantine = check::held().bytes as u64;
    figures.refused = HEAP.pressure.refused.load(Ordering::Relaxed);
    figures.granted = HEAP.budget.granted() as u64;
    figures.counted = Counted::default();
    if HEAP.is_counting() {
        let [allocations, frees, requested] = HEAP.registry.counted();
        figures.counted = Counted {
            known: 1,
            allocations,
            frees,
            requested,
        };
    }
}

/// Sums up the classes.
fn sum_up(figures: &mut Snapshot) {
    (figures.slab_free, figures.magazines, figures.live) = (0, 0, 0);
    for class in &figures.classes {
        figures.slab_free += class.free * class.bytes;
        figures.magazines += class.cached * class.bytes;
        figures.live += class.live() * class.bytes;
    }
    // Freed blocks in quarantine are not live, large ones among them.
    let held = check::held();
    figures.large_bytes = figures.large_bytes.saturating_sub(held.large_bytes as u64);
    figures.large_blocks = figures
        .large_blocks
        .saturating_sub(held.large_blocks as u64);
    let in_slabs = (held.bytes - held.large_bytes) as u64;
    figures.live = figures.live.saturating_sub(in_slabs) + figures.large_bytes;
}
