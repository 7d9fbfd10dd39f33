//! The figures of the page heap.

use super::USES;
use super::calloc::ZeroingTotals;
use super::heap::{Locked, PageHeap};
use crate::base::sync::plain::Ordering::{Relaxed, Release};
use crate::base::sync::plain::{AtomicU64, AtomicUsize, fence};
use crate::base::units::SLICE_BYTES;
use crate::os::{Os, shared};

/// Spans of one use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UseTotals {
    /// How many.
    pub spans: usize,
    /// Their slices.
    pub slices: usize,
    /// Bytes asked for.
    pub bytes: usize,
}

/// How often the kernel was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Reservations tried.
    pub reserve: usize,
    /// Commits tried.
    pub commit: usize,
    /// Uncommits tried.
    pub uncommit: usize,
    /// Purges tried.
    pub purge: usize,
    /// Moves of pages tried.
    pub move_pages: usize,
}

/// The figures of the page heap at one moment, in bytes unless said otherwise.
///
/// `in_use + free = ` all spans; `committed` holds the metadata too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of arenas.
    pub arenas: usize,
    /// Address space of all arenas.
    pub reserved: usize,
    /// Readable and writable, metadata included.
    pub committed: usize,
    /// Tables of the arenas, as committed.
    pub metadata: usize,
    /// Spans in use.
    pub in_use: usize,
    /// Most bytes that spans in use ever had at once.
    pub peak: usize,
    /// Free spans.
    pub free: usize,
    /// OS pages of free spans that may be resident.
    pub free_dirty: usize,
    /// Spans in use, by [`super::Use`]; the first entry is the first use.
    pub by_use: [UseTotals; USES],
    /// Times that pages were given back (purged or uncommitted).
    pub purges: usize,
    /// Bytes given back, clean pages among dirty ones included.
    pub purged_bytes: usize,
    /// Purges that the kernel refused.
    pub refused_purges: usize,
    /// What the kernel was asked.
    pub calls: Calls,
    /// What zeroed blocks cost.
    pub zeroing: ZeroingTotals,
}

/// The running counts behind [`Totals`], in the units they change by.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) reserved_slices: usize,
    pub(super) committed_slices: usize,
    pub(super) metadata_bytes: usize,
    pub(super) used_slices: usize,
    pub(super) peak_slices: usize,
    pub(super) free_slices: usize,
    pub(super) free_dirty_pages: usize,
    pub(super) by_use: [UseTotals; USES],
    pub(super) purges: usize,
    pub(super) purged_bytes: usize,
    pub(super) refused_purges: usize,
}

/// The running counts behind [`Calls`]: calls are made without the lock.
#[derive(Debug)]
pub(super) struct CallCounts {
    reserve: AtomicUsize,
    commit: AtomicUsize,
    uncommit: AtomicUsize,
    purge: AtomicUsize,
    move_pages: AtomicUsize,
}

impl CallCounts {
    pub(super) const fn new() -> Self {
        Self {
            reserve: AtomicUsize::new(0),
            commit: AtomicUsize::new(0),
            uncommit: AtomicUsize::new(0),
            purge: AtomicUsize::new(0),
            move_pages: AtomicUsize::new(0),
        }
    }

    pub(super) fn note_reserve(&self) {
        self.reserve.fetch_add(1, Relaxed);
    }

    pub(super) fn note_commit(&self) {
        self.commit.fetch_add(1, Relaxed);
    }

    pub(super) fn note_uncommit(&self) {
        self.uncommit.fetch_add(1, Relaxed);
    }

    pub(super) fn note_purge(&self) {
        self.purge.fetch_add(1, Relaxed);
    }

    pub(super) fn note_move(&self) {
        self.move_pages.fetch_add(1, Relaxed);
    }

    fn calls(&self) -> Calls {
        Calls {
            reserve: self.reserve.load(Relaxed),
            commit: self.commit.load(Relaxed),
            uncommit: self.uncommit.load(Relaxed),
            purge: self.purge.load(Relaxed),
            move_pages: self.move_pages.load(Relaxed),
        }
    }
}

impl Counts {
    pub(super) const fn new() -> Self {
        Self {
            reserved_slices: 0,
            committed_slices: 0,
            metadata_bytes: 0,
            used_slices: 0,
            peak_slices: 0,
            free_slices: 0,
            free_dirty_pages: 0,
            by_use: [UseTotals {
                spans: 0,
                slices: 0,
                bytes: 0,
            }; USES],
            purges: 0,
            purged_bytes: 0,
            refused_purges: 0,
        }
    }

    /// Slices become part of spans in use.
    pub(super) fn take(&mut self, slices: usize) {
        self.used_slices += slices;
        self.peak_slices = self.peak_slices.max(self.used_slices);
    }
}

impl<O: Os> PageHeap<O> {
    /// The figures now.
    pub fn totals(&self) -> Totals {
        self.locked().totals()
    }
}

/// Where the running figures are copied to, for other processes to see: one word each.
#[derive(Clone, Copy, Debug)]
pub struct Mirror {
    /// A sequence number, odd while the rest is being written; spans and slices by use; bytes of
    /// large blocks, free spans, their pages that may be resident, tables, committed, reserved;
    /// times that pages were given back; bytes of these.
    pub figures: &'static [AtomicU64; MIRROR_WORDS],
    /// How many arenas, then first address and bytes of each.
    pub arenas: &'static [AtomicU64],
}

/// The mirror is out by less than this part of the slices in use ...
const MIRROR_PART: usize = 64;
/// ... and where fewer than these are in use, by less than this part of these.
const MIRROR_SLICES: usize = 1024;

/// Words of [`Mirror::figures`].
pub const MIRROR_WORDS: usize = 1 + 2 * USES + 8;

impl<O: Os> PageHeap<O> {
    /// From now on the figures are copied there whenever they are out by a sixty-fourth of the
    /// spans in use, or by a MiB in a small heap, and after a purge. `None`: no more.
    pub fn set_mirror(&self, mirror: Option<Mirror>) {
        let mut locked = self.locked();
        locked.inner.mirror = mirror;
        locked.reflect_now();
    }
}

impl<O: Os> Locked<'_, O> {
    /// Copies the figures to the mirror, if there is one and they are no longer about the same:
    /// writing them costs some ns, and a thread that allocates and frees one large block again and
    /// again should not pay them each time.
    #[inline]
    pub(super) fn reflect(&mut self) {
        let used = self.inner.counts.used_slices;
        let moved = used.abs_diff(self.inner.reflected);
        // From the first span on, however small it is, it is told where the arena is.
        let is_first = self.inner.reflected == 0 && used != 0;
        if is_first || moved * MIRROR_PART >= used.max(MIRROR_SLICES) {
            self.reflect_now();
        }
    }

    /// The same, in any case.
    #[cold]
    pub(super) fn reflect_now(&mut self) {
        self.inner.reflected = self.inner.counts.used_slices;
        let Some(mirror) = self.inner.mirror.filter(|_| shared::is_mine()) else {
            return;
        };
        let sequence = mirror.figures[0].load(Relaxed) | 1;
        mirror.figures[0].store(sequence, Relaxed);
        fence(Release);
        for (word, figure) in mirror.figures[1..].iter().zip(self.reflected()) {
            word.store(figure as u64, Relaxed);
        }
        mirror.figures[0].store(sequence.wrapping_add(1), Release);
        self.reflect_arenas(&mirror);
    }

    fn reflected(&self) -> impl Iterator<Item = usize> {
        let counts = &self.inner.counts;
        let spans = counts.by_use.iter().flat_map(|by| [by.spans, by.slices]);
        spans.chain([
            counts.by_use[super::Use::Large as usize - 1].bytes,
            counts.free_slices * SLICE_BYTES,
            counts.free_dirty_pages * self.page_bytes(),
            counts.metadata_bytes,
            counts.committed_slices * SLICE_BYTES + counts.metadata_bytes,
            counts.reserved_slices * SLICE_BYTES,
            counts.purges,
            counts.purged_bytes,
        ])
    }

    fn reflect_arenas(&self, mirror: &Mirror) {
        let arenas = self.heap.arenas();
        for (pair, arena) in mirror.arenas[1..].chunks_exact(2).zip(arenas) {
            pair[0].store(arena.layout().base as u64, Relaxed);
            pair[1].store((arena.end() * SLICE_BYTES) as u64, Relaxed);
        }
        mirror.arenas[0].store(arenas.len() as u64, Release);
    }
}

impl<O: Os> Locked<'_, O> {
    fn totals(&self) -> Totals {
        let counts = &self.inner.counts;
        Totals {
            arenas: self.heap.arenas().len(),
            reserved: counts.reserved_slices * SLICE_BYTES,
            committed: counts.committed_slices * SLICE_BYTES + counts.metadata_bytes,
            metadata: counts.metadata_bytes,
            in_use: counts.used_slices * SLICE_BYTES,
            peak: counts.peak_slices * SLICE_BYTES,
            free: counts.free_slices * SLICE_BYTES,
            free_dirty: counts.free_dirty_pages * self.page_bytes(),
            by_use: counts.by_use,
            purges: counts.purges,
            purged_bytes: counts.purged_bytes,
            refused_purges: counts.refused_purges,
            calls: self.heap.calls.calls(),
            zeroing: self.heap.zeroing.totals(),
        }
    }
}
