//! The figures of the page heap: running counts, their values at one moment, and the copy that
//! other processes read.

use super::arena::Arena;
use super::span::{USES, Use};
use crate::base::sync::plain::Ordering::{Relaxed, Release};
use crate::base::sync::plain::{AtomicU64, AtomicUsize, fence};
use crate::base::units::SLICE_BYTES;
use core::ptr;

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

/// The figures of the page heap at one moment, in bytes unless said otherwise.
///
/// `in_use + free = ` all spans; `committed` includes the metadata.
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
    /// The most bytes that spans in use had at any time.
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
    /// Of these, bytes of free spans that were wanted again within the decay time.
    pub regretted_bytes: usize,
    /// The cost of zeroed blocks.
    pub zeroing: ZeroingTotals,
}

/// The running counts behind [`Totals`], in the units they change by.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) reserved_bytes: usize,
    pub(super) committed_slices: usize,
    pub(super) metadata_bytes: usize,
    pub(super) used_slices: usize,
    pub(super) peak_slices: usize,
    pub(super) free_slices: usize,
    pub(super) free_dirty_pages: usize,
    pub(super) by_use: [UseTotals; USES],
    pub(super) purges: usize,
    pub(super) purged_bytes: usize,
    pub(super) regretted_bytes: usize,
    /// Purged lately of the heap's own accord, and not wanted again so far.
    purged_lately: Recent,
}

/// A sum of bytes over the last decay time, in two generations.
#[derive(Debug, Default)]
struct Recent {
    young: usize,
    old: usize,
    /// When the young generation began, in ms.
    since: u64,
}

impl Recent {
    /// Forgets what was added more than a decay time ago, and maybe some of the older half of the
    /// rest.
    fn forget(&mut self, now: u64, decay_ms: u64) {
        let half = decay_ms / 2;
        match now.saturating_sub(self.since).checked_div(half) {
            Some(0) => return,
            Some(1) => (self.old, self.since) = (self.young, self.since + half),
            Some(_) | None => (self.old, self.since) = (0, now),
        }
        self.young = 0;
    }
}

impl Counts {
    pub(super) const fn new() -> Self {
        Self {
            reserved_bytes: 0,
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
            regretted_bytes: 0,
            purged_lately: Recent {
                young: 0,
                old: 0,
                since: 0,
            },
        }
    }

    /// Notes that `bytes` resident bytes were purged of the heap's own accord, at `now` (ms).
    pub(super) fn note_purged(&mut self, bytes: usize, now: u64, decay_ms: u64) {
        self.purged_lately.forget(now, decay_ms);
        self.purged_lately.young += bytes;
    }

    /// Notes that `bytes` bytes are about to be faulted in, at `now` (ms). The heap does not
    /// remember which pages it purged. Up to as many bytes as it purged within the last decay time
    /// count as regretted: without the purge these pages, or others in their place, would have
    /// been resident.
    pub(super) fn note_wanted(&mut self, bytes: usize, now: impl FnOnce() -> (u64, u64)) {
        let purged = &mut self.purged_lately;
        if bytes == 0 || purged.young + purged.old == 0 {
            return;
        }
        let (now, decay_ms) = now();
        purged.forget(now, decay_ms);
        let old = bytes.min(purged.old);
        let young = (bytes - old).min(purged.young);
        purged.old -= old;
        purged.young -= young;
        self.regretted_bytes += old + young;
    }

    /// As many of these [cached](super::span_cache) spans as there are large ones: what changes
    /// hands meanwhile may be none of them.
    pub(super) fn most_cached(&self, cached: UseTotals) -> UseTotals {
        let large = self.by_use[Use::Large as usize - 1];
        UseTotals {
            spans: cached.spans.min(large.spans),
            slices: cached.slices.min(large.slices),
            bytes: cached.bytes.min(large.bytes),
        }
    }

    /// Slices become part of spans in use.
    pub(super) fn take(&mut self, slices: usize) {
        self.used_slices += slices;
        self.peak_slices = self.peak_slices.max(self.used_slices);
    }
}

/// Where the running figures are copied for other processes to read, one word each.
#[derive(Clone, Copy, Debug)]
pub struct Mirror {
    /// A sequence number, odd while the rest is being written; spans and slices by use; bytes of
    /// large blocks, free spans, their pages that may be resident, tables, committed, reserved;
    /// times that pages were given back; bytes of these; bytes of them that were regretted.
    pub figures: &'static [AtomicU64; MIRROR_WORDS],
    /// How many arenas, then first address and bytes of each.
    pub arenas: &'static [AtomicU64],
}

/// The mirror is off by less than this part of the slices in use ...
pub(super) const MIRROR_PART: usize = 64;
/// ... and where fewer than these are in use, by less than this part of these.
pub(super) const MIRROR_SLICES: usize = 1024;

/// Words of [`Mirror::figures`].
pub const MIRROR_WORDS: usize = 1 + 2 * USES + 9;

impl Mirror {
    /// Copies the figures there, with cached spans as free ones.
    pub(super) fn write(
        &self,
        counts: &Counts,
        cached: UseTotals,
        page_bytes: usize,
        arenas: &[Arena],
    ) {
        let sequence = self.figures[0].load(Relaxed) | 1;
        self.figures[0].store(sequence, Relaxed);
        fence(Release);
        let figures = counts.mirrored(cached, page_bytes);
        for (word, figure) in self.figures[1..].iter().zip(figures) {
            word.store(figure as u64, Relaxed);
        }
        self.figures[0].store(sequence.wrapping_add(1), Release);
        for (pair, arena) in self.arenas[1..].chunks_exact(2).zip(arenas) {
            pair[0].store(arena.layout().base as u64, Relaxed);
            pair[1].store((arena.end() * SLICE_BYTES) as u64, Relaxed);
        }
        self.arenas[0].store(arenas.len() as u64, Release);
    }
}

impl Counts {
    fn mirrored(&self, cached: UseTotals, page_bytes: usize) -> impl Iterator<Item = usize> {
        let large = &self.by_use[Use::Large as usize - 1];
        let spans = self.by_use.iter().flat_map(move |by| {
            let is_large = usize::from(ptr::eq(by, large));
            let (spans, slices) = (cached.spans * is_large, cached.slices * is_large);
            [by.spans - spans, by.slices - slices]
        });
        let bytes = cached.slices * SLICE_BYTES;
        spans.chain([
            large.bytes - cached.bytes,
            self.free_slices * SLICE_BYTES + bytes,
            self.free_dirty_pages * page_bytes + bytes,
            self.metadata_bytes,
            self.committed_slices * SLICE_BYTES + self.metadata_bytes,
            self.reserved_bytes,
            self.purges,
            self.purged_bytes,
            self.regretted_bytes,
        ])
    }
}

/// What making spans zero has cost and saved, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroingTotals {
    /// Written with zeros.
    pub written: usize,
    /// Asked for as zero, and neither written nor purged.
    pub spared: usize,
    /// Purged instead of written, populated or not.
    pub purged: usize,
    /// How often the kernel was asked which pages are populated.
    pub asked: usize,
    /// How often it could not be asked, or gave an incomplete answer.
    pub unknown: usize,
}

/// The running counts behind [`ZeroingTotals`].
#[derive(Debug)]
pub(super) struct Zeroing {
    pub(super) written: AtomicUsize,
    pub(super) spared: AtomicUsize,
    pub(super) purged: AtomicUsize,
    pub(super) asked: AtomicUsize,
    pub(super) unknown: AtomicUsize,
}

impl Zeroing {
    pub(super) const fn new() -> Self {
        Self {
            written: AtomicUsize::new(0),
            spared: AtomicUsize::new(0),
            purged: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
            unknown: AtomicUsize::new(0),
        }
    }

    pub(super) fn totals(&self) -> ZeroingTotals {
        ZeroingTotals {
            written: self.written.load(Relaxed),
            spared: self.spared.load(Relaxed),
            purged: self.purged.load(Relaxed),
            asked: self.asked.load(Relaxed),
            unknown: self.unknown.load(Relaxed),
        }
    }
}
