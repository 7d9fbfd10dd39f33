//! The figures of the page heap: running counts, their values at one moment, the copy that other
//! processes read, and the bounds on dirty free pages and on everything.
//!
//! For the bounds, memory that may be resident counts: spans in use, and the dirty pages of free
//! spans, including those that are being purged. Pages that slabs withhold do not count until they
//! are readmitted ([`super::PageHeap::readmit`]). A coroutine stack counts as [`STACK_BYTES`],
//! because most of it is never touched. The heap's own tables do not count.
//!
//! Near the soft limit, free pages are given back before their time, if necessary all of them. A
//! request that would exceed the hard limit even with every free page given back is refused.

use super::arena::Arena;
use super::span::{USES, Use};
use crate::base::policy::{self, CACHE_SHARD_BYTES, DECAY_MS, Driver, FIRST_READ};
use crate::base::sync::plain::Ordering::{Relaxed, Release};
use crate::base::sync::plain::{AtomicBool, AtomicU64, AtomicUsize, fence};
use crate::base::units::SLICE_BYTES;

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
    /// Copies the figures to the mirror.
    pub(super) fn write(&self, totals: &Totals, arenas: &[Arena]) {
        let sequence = self.figures[0].load(Relaxed) | 1;
        self.figures[0].store(sequence, Relaxed);
        fence(Release);
        let (spans, rest) = self.figures[1..].split_at(2 * USES);
        for (pair, by) in spans.chunks_exact(2).zip(&totals.by_use) {
            pair[0].store(by.spans as u64, Relaxed);
            pair[1].store(by.slices as u64, Relaxed);
        }
        rest[0].store(totals.by_use[Use::Large as usize - 1].bytes as u64, Relaxed);
        rest[1].store(totals.free as u64, Relaxed);
        rest[2].store(totals.free_dirty as u64, Relaxed);
        rest[3].store(totals.metadata as u64, Relaxed);
        rest[4].store(totals.committed as u64, Relaxed);
        rest[5].store(totals.reserved as u64, Relaxed);
        rest[6].store(totals.purges as u64, Relaxed);
        rest[7].store(totals.purged_bytes as u64, Relaxed);
        rest[8].store(totals.regretted_bytes as u64, Relaxed);
        self.figures[0].store(sequence.wrapping_add(1), Release);
        for (pair, arena) in self.arenas[1..].chunks_exact(2).zip(arenas) {
            pair[0].store(arena.layout().base as u64, Relaxed);
            pair[1].store((arena.end.get() * SLICE_BYTES) as u64, Relaxed);
        }
        self.arenas[0].store(arenas.len() as u64, Release);
    }
}

/// What making spans zero has cost and saved, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zeroing<T> {
    /// Written with zeros.
    pub written: T,
    /// Asked for as zero, and neither written nor purged.
    pub spared: T,
    /// Purged instead of written, populated or not.
    pub purged: T,
    /// How often the kernel was asked which pages are populated.
    pub asked: T,
    /// How often it could not be asked, or gave an incomplete answer.
    pub unknown: T,
}

/// These figures at one moment.
pub type ZeroingTotals = Zeroing<usize>;

impl Zeroing<AtomicUsize> {
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

/// What a stack in use counts as, in bytes, however long its span: a parked coroutine touches a
/// page or two.
pub const STACK_BYTES: usize = 8 << 10;

/// The bounds, in bytes; `usize::MAX` means none.
#[derive(Debug)]
pub struct Limits {
    hard: AtomicUsize,
    soft: AtomicUsize,
    /// The fields of the [`GroupShare`] that was set last.
    group: AtomicUsize,
    group_near: AtomicUsize,
    group_demand: AtomicUsize,
    group_step: AtomicUsize,
    /// The group must be read again once free spans have this many bytes of dirty pages.
    read_at: AtomicUsize,
    /// The group must be read again.
    outdated: AtomicBool,
    dirty: AtomicUsize,
    /// Bytes of free pages that stay resident at any age.
    kept: AtomicUsize,
    decay_ms: AtomicU64,
    has_thread: AtomicBool,
    pressed: AtomicBool,
    /// See [`Limits::cache_slices`].
    cache_slices: AtomicUsize,
}

/// What the process's control group leaves the heap, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupShare {
    /// A second soft limit.
    pub most: usize,
    /// With more bytes than this, the heap is near that limit.
    pub near: usize,
    /// What the program may soon need outside of the heap. Free pages leave room for it, or are
    /// few.
    pub demand: usize,
    /// The group must be read again when dirty pages have grown by this.
    pub step: usize,
}

impl GroupShare {
    /// The share in a group without a limit.
    pub const ALL: GroupShare = GroupShare {
        most: usize::MAX,
        near: usize::MAX,
        demand: 0,
        step: usize::MAX,
    };
}

/// Whether a request may be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It may.
    Granted,
    /// It may, once at most this number of bytes of free pages are dirty.
    AfterPurge(usize),
    /// It may not.
    Refused,
}

impl Limits {
    pub(super) const fn new() -> Self {
        Self {
            hard: AtomicUsize::new(usize::MAX),
            soft: AtomicUsize::new(usize::MAX),
            group: AtomicUsize::new(usize::MAX),
            group_near: AtomicUsize::new(usize::MAX),
            group_demand: AtomicUsize::new(0),
            group_step: AtomicUsize::new(FIRST_READ),
            read_at: AtomicUsize::new(FIRST_READ),
            outdated: AtomicBool::new(false),
            dirty: AtomicUsize::new(usize::MAX),
            kept: AtomicUsize::new(0),
            decay_ms: AtomicU64::new(DECAY_MS),
            has_thread: AtomicBool::new(false),
            pressed: AtomicBool::new(false),
            cache_slices: AtomicUsize::new(CACHE_SHARD_BYTES / SLICE_BYTES),
        }
    }

    /// Sets the hard limit in bytes: requests that would pass it are refused.
    pub fn set_hard(&self, bytes: usize) {
        self.hard.store(bytes, Relaxed);
        self.note_cache();
    }

    /// Sets the soft limit in bytes: near it, free pages go back before their time.
    pub fn set_soft(&self, bytes: usize) {
        self.soft.store(bytes, Relaxed);
        self.note_cache();
    }

    /// Sets what the process's control group leaves the heap. Free spans have `dirty` bytes of
    /// dirty pages.
    pub fn set_group(&self, share: GroupShare, dirty: usize) {
        self.group.store(share.most, Relaxed);
        self.group_near.store(share.near, Relaxed);
        self.group_demand.store(share.demand, Relaxed);
        self.group_step.store(share.step, Relaxed);
        self.note_cache();
        self.put_off_reading(dirty);
    }

    /// Whether the process's control group has a limit.
    pub fn has_group(&self) -> bool {
        self.group.load(Relaxed) != usize::MAX
    }

    /// Whether the group leaves too little for huge pages that the program may not fill.
    pub(super) fn has_small_group(&self) -> bool {
        policy::is_small_group(self.group.load(Relaxed), self.group_demand.load(Relaxed))
    }

    /// Notes that the group was read, or cannot be. Free spans have `dirty` bytes of dirty pages.
    pub fn put_off_reading(&self, dirty: usize) {
        let step = self.group_step.load(Relaxed);
        self.read_at.store(dirty.saturating_add(step), Relaxed);
        self.outdated.store(false, Relaxed);
    }

    /// Whether free pages have grown so much that the group must be read again.
    #[inline]
    pub fn is_outdated(&self) -> bool {
        self.outdated.load(Relaxed)
    }

    /// Notes that free spans have `dirty` bytes of dirty pages.
    pub(super) fn note_dirty(&self, dirty: usize) {
        let read_at = self.read_at.load(Relaxed);
        let step = self.group_step.load(Relaxed);
        if dirty >= read_at {
            self.outdated.store(true, Relaxed);
        } else if dirty.saturating_add(step) < read_at {
            self.read_at.store(dirty + step, Relaxed);
        }
    }

    /// Sets the most bytes of free pages that may be resident.
    pub fn set_dirty(&self, bytes: usize) {
        self.dirty.store(bytes, Relaxed);
        self.note_cache();
    }

    /// Sets how many bytes of free pages stay resident at any age; `usize::MAX`: all. The other
    /// bounds, and a request to purge, still take them.
    pub fn set_kept(&self, bytes: usize) {
        self.kept.store(bytes, Relaxed);
    }

    /// Bytes of free pages that stay resident at any age.
    pub fn kept(&self) -> usize {
        self.kept.load(Relaxed)
    }

    /// Sets the decay time in ms; 0 purges free spans at once.
    pub fn set_decay_ms(&self, ms: u64) {
        self.decay_ms.store(ms, Relaxed);
        self.note_cache();
    }

    /// The decay time in ms: for how long free pages may be dirty.
    pub fn decay_ms(&self) -> u64 {
        self.decay_ms.load(Relaxed)
    }

    /// Sets whether memory was short when a caller last came by.
    pub fn set_pressed(&self, pressed: bool) {
        if pressed != self.is_pressed() {
            self.pressed.store(pressed, Relaxed);
            self.note_cache();
        }
    }

    /// Whether memory was short when a caller last came by.
    pub fn is_pressed(&self) -> bool {
        self.pressed.load(Relaxed)
    }

    /// Most slices of a shard of [cached spans](super::span_cache): none while free memory is
    /// bounded, or is to go back at once.
    #[inline]
    pub fn cache_slices(&self) -> usize {
        self.cache_slices.load(Relaxed)
    }

    /// Bounds the cache of spans anew, by what the other bounds are now.
    #[inline(never)]
    pub fn note_cache(&self) {
        let bounds = [&self.hard, &self.soft, &self.dirty];
        let is_set = |bound: &&AtomicUsize| bound.load(Relaxed) != usize::MAX;
        let is_bounded = self.is_pressed() || self.decay_ms() == 0 || bounds.iter().any(is_set);
        let bytes = policy::cache_shard_bytes(self.group.load(Relaxed)) * usize::from(!is_bounded);
        self.cache_slices.store(bytes / SLICE_BYTES, Relaxed);
    }

    /// Sets what purges pages past the decay time.
    pub fn set_driver(&self, driver: Driver) {
        self.has_thread.store(driver == Driver::Thread, Relaxed);
    }

    /// What purges pages past the decay time.
    pub fn driver(&self) -> Driver {
        match self.has_thread.load(Relaxed) {
            true => Driver::Thread,
            false => Driver::Callers,
        }
    }

    /// The decay time by which callers purge, in ms; `None`: they leave it to the thread.
    pub(super) fn decay_for_callers(&self) -> Option<u64> {
        let decay_ms = self.decay_ms();
        // Pages that go at once do not wait for the thread.
        (self.driver() == Driver::Callers || decay_ms == 0).then_some(decay_ms)
    }

    /// The hard limit in bytes.
    pub fn hard(&self) -> usize {
        self.hard.load(Relaxed)
    }

    /// The soft limit in bytes, the group's if that is lower.
    pub fn soft(&self) -> usize {
        self.soft.load(Relaxed).min(self.group.load(Relaxed))
    }

    /// The soft limit that was set, in bytes.
    pub fn own_soft(&self) -> usize {
        self.soft.load(Relaxed)
    }

    /// The most bytes of free pages that may be resident.
    pub fn dirty(&self) -> usize {
        self.dirty.load(Relaxed)
    }

    /// From how many bytes on free memory goes back before its time; `usize::MAX`: never.
    pub fn near(&self) -> usize {
        policy::near(self.soft.load(Relaxed)).min(self.group_near.load(Relaxed))
    }
}

/// What the heap holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Of spans in use.
    pub used: usize,
    /// Free pages that may be resident.
    pub dirty: usize,
}

impl Footprint {
    /// Both together.
    pub fn total(&self) -> usize {
        self.used + self.dirty
    }

    /// The bytes held according to the counts, with `absent` bytes of spans in use not resident.
    pub(super) fn of(counts: &Counts, absent: usize, page_bytes: usize) -> Self {
        let stacks = counts.by_use[Use::Stack as usize - 1];
        let other = counts.used_slices - stacks.slices;
        let used = other * SLICE_BYTES + stacks.spans * STACK_BYTES;
        Self {
            used: used.saturating_sub(absent),
            dirty: counts.free_dirty_pages * page_bytes,
        }
    }
}

impl Limits {
    /// Most bytes of dirty pages that free spans may have beside `used` bytes in use; `usize::MAX`
    /// if there is no bound.
    pub(super) fn most_dirty(&self, used: impl FnOnce() -> usize) -> usize {
        let (bound, own, group) = (self.dirty(), self.own_soft(), self.group.load(Relaxed));
        if bound.min(own).min(group) == usize::MAX {
            return usize::MAX;
        }
        let demand = self.group_demand.load(Relaxed);
        bound.min(policy::most_dirty(used(), own, group, demand))
    }

    /// Whether `wanted` more bytes in use stay within the hard limit. `warm` of them are dirty
    /// pages of free spans already.
    pub(super) fn judge(
        &self,
        wanted: usize,
        warm: usize,
        held: impl FnOnce() -> Footprint,
    ) -> Admission {
        let hard = self.hard();
        if hard == usize::MAX {
            return Admission::Granted;
        }
        let held = held();
        match hard
            .checked_sub(held.used)
            .and_then(|room| room.checked_sub(wanted))
        {
            None => Admission::Refused,
            Some(room) if held.dirty > room.saturating_add(warm) => {
                Admission::AfterPurge(room + warm)
            }
            Some(_) => Admission::Granted,
        }
    }
}
