//! Ended stacks: keeps them warm, trims them, then gives them back.

use super::guard;
use super::pool::{Locked, Pool};
use super::record::{SIZES, Size, StackRecord, State};
use crate::base::policy::{Age, KEPT_BYTES, TRIM_BYTES, most_idle_stacks};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::os::{Os, Populated, Purged};
use crate::pages::PageHeap;
use core::ptr::{NonNull, null_mut};

/// Most stacks given up at once.
const BATCH: usize = 16;

/// Bytes below the stack pointer that a function may use without moving it.
const RED_ZONE: usize = if cfg!(target_arch = "x86_64") { 128 } else { 0 };

/// Stacks to give up.
pub(super) struct Batch<'h> {
    stacks: [Option<&'h StackRecord>; BATCH],
    count: usize,
}

impl<'h> Batch<'h> {
    fn new() -> Self {
        Self {
            stacks: [None; BATCH],
            count: 0,
        }
    }

    fn push(&mut self, stack: &'h StackRecord) {
        self.stacks[self.count] = Some(stack);
        self.count += 1;
    }

    pub(super) fn stacks(&mut self) -> &mut [Option<&'h StackRecord>] {
        &mut self.stacks[..self.count]
    }
}

impl<'p> Locked<'p> {
    /// Keeps a returned stack warm. Returns the surplus.
    pub(super) fn keep<'h>(&mut self, stack: &'h StackRecord, size: Size) -> Batch<'h> {
        self.end_use();
        stack.set_state(State::Idle);
        let idle = &mut self.inner.idle[size.number()];
        idle.push(stack);
        let most = most_idle_stacks(size.bytes());
        if idle.len() <= most {
            return Batch::new();
        }
        self.idle_since(size, u64::MAX, (most / 4).clamp(1, BATCH))
    }

    /// Removes up to `most` stacks from a list, oldest first, that ended at `until_ms` or before.
    fn idle_since<'h>(&mut self, size: Size, until_ms: u64, most: usize) -> Batch<'h> {
        let idle = &mut self.inner.idle[size.number()];
        let mut batch = Batch::new();
        while batch.count < most
            && let Some(stack) = idle.oldest().filter(|stack| stack.ended_at() <= until_ms)
        {
            idle.remove(stack);
            stack.set_state(State::Leaving);
            batch.push(stack);
        }
        batch
    }
}

impl Pool {
    /// Gives up the stacks that ended at `before_ms` (of the page heap's clock) or before. Returns
    /// the bytes of address space that went to the page heap.
    pub fn retire_idle<O: Os>(&self, pages: &PageHeap<O>, before_ms: u64) -> usize {
        self.check_guards(pages);
        let sizes = (0..SIZES).map(Size::numbered);
        sizes
            .map(|size| self.retire_size(pages, size, before_ms))
            .sum()
    }

    /// Gives up all idle stacks. Returns the same as [`Pool::retire_idle`].
    pub fn retire_all<O: Os>(&self, pages: &PageHeap<O>) -> usize {
        self.retire_idle(pages, u64::MAX)
    }

    fn retire_size<O: Os>(&self, pages: &PageHeap<O>, size: Size, until_ms: u64) -> usize {
        let mut bytes = 0;
        loop {
            let mut batch = self.locked().idle_since(size, until_ms, BATCH);
            if batch.count == 0 {
                return bytes;
            }
            bytes += batch.count * size.span_bytes();
            // SAFETY: taken out of the list, by this thread.
            unsafe { self.retire(pages, batch.stacks(), Age::Old) };
        }
    }

    /// Gives stacks up.
    ///
    /// # Safety
    /// - They are [`State::Leaving`], of one size, and held by this thread.
    pub(super) unsafe fn retire<O: Os>(
        &self,
        pages: &PageHeap<O>,
        stacks: &mut [Option<&StackRecord>],
        age: Age,
    ) {
        stacks.sort_unstable_by_key(|stack| stack.map(StackRecord::base));
        let is_next = |stack: &Option<&StackRecord>, next: &Option<&StackRecord>| {
            stack.map(StackRecord::top) == next.map(StackRecord::base)
        };
        for neighbours in stacks.chunk_by(is_next) {
            // SAFETY: the caller's promise.
            unsafe { self.give_up(pages, neighbours, age) };
        }
    }

    /// Removes the guards of neighbouring stacks and frees their spans.
    ///
    /// # Safety
    /// - They are neighbours without a gap, lowest first, and only this thread uses them.
    #[inline(never)]
    pub(super) unsafe fn give_up<O: Os>(
        &self,
        pages: &PageHeap<O>,
        stacks: &[Option<&StackRecord>],
        age: Age,
    ) {
        let stacks = stacks.iter().flatten().copied();
        let Some(first) = stacks.clone().next() else {
            return;
        };
        let page = pages.os().page_bytes();
        for stack in stacks.clone() {
            self.counts.remove(stack.size(), page);
        }
        // SAFETY: the caller's promise.
        if !unsafe { self.remove_guards(pages.os(), stacks.clone()) } {
            // While a guard may be in it, the span must never be reused.
            self.counts.lost.fetch_add(stacks.count(), Relaxed);
            return;
        }
        for stack in stacks.clone() {
            if let Some(place) = pages.locate(stack.base()) {
                // No address leads to the record from now on.
                // SAFETY: the span is still in use, and this thread's.
                unsafe { place.set_user_data(null_mut()) };
            }
            stack.set_state(State::Blank);
        }
        let (base, bytes) = (first.base() as *mut u8, guard::bytes_of(stacks.clone()));
        if let Some(base) = NonNull::new(base) {
            // SAFETY: spans allocated by `make`, without guards and out of use.
            unsafe { pages.free_querying_kernel(base, bytes, age) };
        }
        let locked = self.locked();
        stacks.for_each(|stack| locked.inner.store.give(stack));
    }

    /// Trims a stack that just ended, if a trim is due.
    ///
    /// # Safety
    /// - Only this thread uses the stack.
    pub(super) unsafe fn cool<O: Os>(os: &O, stack: &StackRecord) {
        let limit = stack.limit(os.page_bytes());
        let kept = stack.top().saturating_sub(KEPT_BYTES.max(os.page_bytes()));
        if kept > limit && stack.size().bytes() > 2 * KEPT_BYTES && stack.is_due(TRIM_BYTES) {
            // SAFETY: the caller's promise.
            unsafe { purge(os, limit, kept) };
        }
    }

    /// Purges the whole pages of a stack in use below a stack pointer and its red zone. Returns how
    /// many of their bytes were populated, as far as the kernel tells.
    ///
    /// # Safety
    /// - No coroutine runs on the stack meanwhile, and none uses the contents below `pointer`
    ///   again, except the red zone.
    /// - `pointer` is not above the stack's top.
    pub unsafe fn trim<O: Os>(os: &O, stack: &StackRecord, pointer: usize) -> usize {
        let page = os.page_bytes();
        let limit = stack.limit(page);
        let end = pointer.saturating_sub(RED_ZONE) / page * page;
        let Some(start) = NonNull::new(limit as *mut u8).filter(|_| end > limit) else {
            return 0;
        };
        let (mut lowest, mut bytes) = (end, 0);
        let visit = |run: Populated| {
            lowest = lowest.min(run.start);
            bytes += run.bytes;
        };
        // SAFETY: the caller's promise: a part of the stack, which is committed.
        if unsafe { os.populated(start, end - limit, visit) }.is_err() {
            (lowest, bytes) = (limit, end - limit);
        }
        // SAFETY: as above, and not in use.
        let purged = unsafe { purge(os, lowest, end) };
        if purged == Purged::Zero { bytes } else { 0 }
    }
}

/// Purges the pages between two addresses.
///
/// # Safety
/// - They are committed and not in use.
unsafe fn purge<O: Os>(os: &O, from: usize, to: usize) -> Purged {
    match NonNull::new(from as *mut u8) {
        // SAFETY: the caller's promise.
        Some(start) if from < to => unsafe { os.purge(start, to - from) },
        _ => Purged::Zero,
    }
}
