//! Bounds on what the heap holds: of dirty free pages, and of everything.
//!
//! Memory that may be resident counts: spans in use, and the dirty pages of free spans, including
//! those that are being purged. Pages that slabs withhold do not count until they are readmitted
//! ([`super::PageHeap::readmit`]). A coroutine stack counts as [`STACK_BYTES`], because most of it
//! is never touched. The heap's own tables do not count.
//!
//! Near the soft limit, free pages are given back before their time, if necessary all of them. A
//! request that would exceed the hard limit even with every free page given back is refused.

use super::figures::Counts;
use super::span::Use;
use crate::base::policy::{self, CACHE_SHARD_BYTES, DECAY_MS, Driver, FIRST_READ};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::sync::plain::{AtomicBool, AtomicU64, AtomicUsize};
use crate::base::units::SLICE_BYTES;

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
        // What goes at once waits for no thread.
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
