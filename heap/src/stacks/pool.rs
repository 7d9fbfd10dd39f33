//! Hands out stacks and takes them back; keeps ended ones warm, trims them, then gives them to the
//! page heap.

use super::record::{
    Counts, Guard, List, MOST_SLICES, NotInUse, Overflow, SIZES, Size, StackError, StackRecord,
    StackTotals, State, Store, TAG, bytes_of, from, pointer, record,
};
use crate::base::policy::{Age, KEPT_BYTES, TRIM_BYTES, most_idle_stacks};
use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::SLICE_BYTES;
use crate::os::lock::{FutexGuard, FutexLock, Rank};
use crate::os::{Os, Populated, Purged};
use crate::pages::{Dirty, PageHeap, SliceRef, Span, Use, Zero};
use core::ptr::{NonNull, null_mut};

/// Stacks for coroutines. All calls on one pool pass the same page heap.
#[derive(Debug)]
pub struct Pool {
    lock: FutexLock,
    /// guarded by: lock
    inner: UnsafeCell<Inner>,
    pub(super) counts: Counts,
}

// SAFETY: `inner` is reached only under `lock`; the rest is atomics.
unsafe impl Sync for Pool {}
// SAFETY: nothing in it is tied to a thread.
unsafe impl Send for Pool {}

#[derive(Debug)]
pub(super) struct Inner {
    /// The stacks of each size that are not in use.
    pub(super) idle: [List; SIZES],
    pub(super) store: Store,
    /// That of all guards against writes; 0 if there were none yet.
    pub(super) generation: u64,
    used: usize,
    recycled: usize,
}

/// The pool while its lock is held.
pub(super) struct Locked<'p> {
    pub(super) inner: &'p mut Inner,
    _guard: FutexGuard<'p>,
}

impl Pool {
    /// An empty pool.
    pub const fn new() -> Self {
        let inner = Inner {
            idle: [const { List::new() }; SIZES],
            store: Store::new(),
            generation: 0,
            used: 0,
            recycled: 0,
        };
        Self {
            lock: FutexLock::new(Rank::Stacks),
            inner: UnsafeCell::new(inner),
            counts: Counts::new(),
        }
    }

    pub(super) fn locked(&self) -> Locked<'_> {
        self.with(self.lock.lock())
    }

    /// [`Pool::locked`], if the lock is free.
    pub(super) fn try_locked(&self) -> Option<Locked<'_>> {
        Some(self.with(self.lock.try_lock()?))
    }

    fn with<'p>(&'p self, _guard: FutexGuard<'p>) -> Locked<'p> {
        // SAFETY: guard and reference are in one value, so the lock is held as long as the
        // reference lives.
        let inner = unsafe { &mut *self.inner.get() };
        Locked { inner, _guard }
    }

    /// A stack of at least `bytes`, one OS page of its guard included. Its contents are undefined.
    pub fn take<'h, O: Os>(
        &'h self,
        pages: &'h PageHeap<O>,
        bytes: usize,
    ) -> Result<&'h StackRecord, StackError> {
        match self.recycle(pages, bytes)? {
            Some(stack) => Ok(stack),
            None => self.make(pages, size_of(pages, bytes)?),
        }
    }

    /// Like [`Pool::take`], but only from the stacks at hand; `None` if there are none.
    pub fn recycle<'h, O: Os>(
        &'h self,
        pages: &'h PageHeap<O>,
        bytes: usize,
    ) -> Result<Option<&'h StackRecord>, StackError> {
        let size = size_of(pages, bytes)?;
        let mut locked = self.guarded(pages);
        Ok(locked.reuse(size))
    }

    /// A stack from the page heap.
    #[cold]
    fn make<'h, O: Os>(
        &'h self,
        pages: &'h PageHeap<O>,
        size: Size,
    ) -> Result<&'h StackRecord, StackError> {
        let span = pages
            .alloc(size.slices(), 1, Use::Stack, size.span_bytes())
            .ok_or(StackError::OutOfMemory)?;
        let records = |slices| record_span(pages, slices);
        let stack = self.locked().inner.store.take(records);
        let Some(stack) = stack else {
            // SAFETY: allocated above and still untouched; no other thread has its address.
            unsafe { pages.free(span.base, Dirty::AsBefore) };
            return Err(StackError::OutOfMemory);
        };
        stack.begin(span.base.as_ptr().addr(), size);
        self.counts.add(size, pages.os().page_bytes());
        forget_contents(pages, &span);
        // SAFETY: just given out; readers of stacks' spans take it for the record.
        unsafe { span.place.set_user_data(pointer(stack).cast()) };
        // SAFETY: the span is committed, and no other thread has its address.
        if let Err(refused) = unsafe { self.install_guard(pages, stack) } {
            // SAFETY: as above.
            unsafe { self.give_up(pages, &[Some(stack)], Age::New) };
            return Err(refused);
        }
        // SAFETY: as above: it holds a stack.
        unsafe { span.place.set_tag(TAG) };
        self.locked().hand_out(stack);
        Ok(stack)
    }

    /// Takes back a stack that no coroutine runs on. Returns how many surplus stacks it gave to the
    /// page heap.
    pub fn give<O: Os>(&self, pages: &PageHeap<O>, stack: &StackRecord) -> Result<usize, NotInUse> {
        if !stack.leave_use() {
            return Err(NotInUse);
        }
        // SAFETY: only this thread has the stack, since it took it out of use.
        unsafe { Self::cool(pages.os(), stack) };
        stack.set_ended_at(pages.os().now_ms());
        let size = stack.size();
        let surplus = match pages.is_stack_mapped_over(stack.base()) {
            true => self.locked().leave(stack),
            false => self.guarded(pages).keep(stack, size),
        };
        // SAFETY: taken out of the list of idle stacks, by this thread.
        Ok(unsafe { self.retire(pages, surplus, Age::New) })
    }

    /// The stack that contains `address`, guard included; `None` if there is none. Takes no lock.
    pub fn stack_at<O: Os>(pages: &PageHeap<O>, address: usize) -> Option<&StackRecord> {
        let slice = |back: usize| pages.locate(address.checked_sub(back * SLICE_BYTES)?);
        let place = (0..MOST_SLICES)
            .map_while(slice)
            .find(|place| place.tag() != 0)
            .filter(|place| place.tag() == TAG)?;
        // SAFETY: null, or this span's record. If the span is given up meanwhile, the pointer still
        // leads to 64 readable bytes of tables: the values may be wrong, but reading them is safe.
        let stack = unsafe { record(place.user_data().cast()) }?;
        (stack.base()..stack.top())
            .contains(&address)
            .then_some(stack)
    }

    /// The stack in use that ends at `top`.
    pub fn stack_in_use<O: Os>(pages: &PageHeap<O>, top: usize) -> Option<&StackRecord> {
        let stack = Self::stack_at(pages, top.checked_sub(1)?)?;
        (stack.top() == top && stack.state() == State::Used).then_some(stack)
    }

    /// The stack whose guard contains `address`. Takes no lock, because fault handlers call it.
    pub fn overflow_at<O: Os>(pages: &PageHeap<O>, address: usize) -> Option<Overflow> {
        let (stack, page) = (Self::stack_at(pages, address)?, pages.os().page_bytes());
        (address < stack.limit(page)).then(|| Overflow {
            bytes: stack.size().usable(page),
            owner: stack.owner(),
            state: stack.state(),
        })
    }

    /// Whether the lock is free.
    pub fn is_quiet(&self) -> bool {
        self.lock.try_lock().is_some()
    }

    /// The pool's lock, for a fork. A stack that another thread is giving up meanwhile is lost to
    /// the child.
    pub fn lock(&self) -> &FutexLock {
        &self.lock
    }

    /// The figures now.
    pub fn totals(&self) -> StackTotals {
        let [used, idle, recycled] = self.locked().figures();
        let counts = &self.counts;
        StackTotals {
            used,
            idle,
            address: counts.address.load(Relaxed),
            guards: counts.of(Guard::Advice).load(Relaxed),
            mapped_guards: counts.of(Guard::Mapping).load(Relaxed),
            write_guards: counts.of(Guard::Write).load(Relaxed),
            unguarded: counts.of(Guard::Lost).load(Relaxed),
            created: counts.created.load(Relaxed),
            recycled,
            lost: counts.lost.load(Relaxed),
            page_tables: counts.page_tables.load(Relaxed),
        }
    }
}

fn size_of<O: Os>(pages: &PageHeap<O>, bytes: usize) -> Result<Size, StackError> {
    Size::of(bytes, pages.os().page_bytes()).ok_or(StackError::Size)
}

/// A zeroed span for records.
fn record_span<O: Os>(pages: &PageHeap<O>, slices: usize) -> Option<NonNull<u8>> {
    let bytes = slices * SLICE_BYTES;
    let span = pages.alloc(slices, 1, Use::Meta, bytes)?;
    if span.zero == Zero::MaybeDirty {
        // SAFETY: given out just now, unused so far.
        unsafe { pages.zero_dirty(span.base, bytes) };
    }
    Some(span.base)
}

/// Purges the old pages of a new span, except the page that a stack uses first. A stack touches few
/// of its pages, and the others would stay resident as long as it lives.
fn forget_contents<O: Os>(pages: &PageHeap<O>, span: &Span<'_>) {
    if span.zero == Zero::AllZero || is_clean_below_top(pages, span) {
        return;
    }
    let bytes = span.slices * SLICE_BYTES - pages.os().page_bytes();
    // SAFETY: within the span, which was just allocated. If the kernel refuses, old pages stay
    // resident, which is harmless.
    unsafe { pages.os().purge(span.base, bytes) };
}

/// Whether all pages of a span but the highest are known to be zero.
fn is_clean_below_top<O: Os>(pages: &PageHeap<O>, span: &Span<'_>) -> bool {
    let (start, last) = (span.base.as_ptr().addr(), span.slices - 1);
    let top = 1 << (SLICE_BYTES / pages.os().page_bytes() - 1);
    (0..=last).all(|slice| {
        let dirty = |place: SliceRef<'_>| place.dirty_mask() & !(u16::from(slice == last) * top);
        pages.locate(start + slice * SLICE_BYTES).map(dirty) == Some(0)
    })
}

impl<'p> Locked<'p> {
    /// A stack that was in use before.
    fn reuse<'h>(&mut self, size: Size) -> Option<&'h StackRecord> {
        let stack = self.inner.idle[size.number()].pop()?;
        self.inner.recycled += 1;
        self.hand_out(stack);
        Some(stack)
    }

    fn hand_out(&mut self, stack: &StackRecord) {
        // SAFETY: null.
        unsafe { stack.set_owner(null_mut()) };
        stack.set_state(State::Used);
        self.inner.used += 1;
    }

    /// How many stacks are used and idle, and how often one was recycled.
    pub(super) fn figures(&self) -> [usize; 3] {
        let idle = self.inner.idle.iter().map(List::len).sum();
        [self.inner.used, idle, self.inner.recycled]
    }
}

/// Most stacks given up at once.
const BATCH: usize = 16;

/// Bytes below the stack pointer that a function may use without moving it.
const RED_ZONE: usize = if cfg!(target_arch = "x86_64") { 128 } else { 0 };

impl<'p> Locked<'p> {
    /// Keeps a returned stack warm. Returns the first of the surplus.
    pub(super) fn keep<'h>(&mut self, stack: &StackRecord, size: Size) -> Option<&'h StackRecord> {
        self.inner.used -= 1;
        stack.set_state(State::Idle);
        let idle = &mut self.inner.idle[size.number()];
        idle.push(stack);
        let most = most_idle_stacks(size.bytes());
        if idle.len() <= most {
            return None;
        }
        let left = idle.len() - (most / 4).clamp(1, BATCH);
        self.take_idle(size, |newer, _| newer < left)
    }

    /// Gives up a returned stack, as [`Locked::keep`] does surplus ones.
    #[cold]
    fn leave<'h>(&mut self, stack: &'h StackRecord) -> Option<&'h StackRecord> {
        self.inner.used -= 1;
        stack.set_state(State::Leaving);
        Some(stack)
    }

    /// Takes idle stacks out of their list, by [`List::cut`]. Returns the first of them.
    fn take_idle<'h>(
        &mut self,
        size: Size,
        stays: impl Fn(usize, &StackRecord) -> bool,
    ) -> Option<&'h StackRecord> {
        let first = self.inner.idle[size.number()].cut(stays);
        from(first).for_each(|stack| stack.set_state(State::Leaving));
        first
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
        let stays = |_, stack: &StackRecord| stack.ended_at() > until_ms;
        let old = self.locked().take_idle(size, stays);
        // SAFETY: taken out of the list, by this thread.
        unsafe { self.retire(pages, old, Age::Old) * size.span_bytes() }
    }

    /// Gives up a stack, and those that follow it in its list. Returns how many.
    ///
    /// # Safety
    /// - They are [`State::Leaving`], of one size, and held by this thread.
    unsafe fn retire<O: Os>(
        &self,
        pages: &PageHeap<O>,
        first: Option<&StackRecord>,
        age: Age,
    ) -> usize {
        let (mut stacks, mut given_up) = (from(first), 0);
        loop {
            let (mut batch, mut count) = ([None; BATCH], 0);
            for (place, stack) in batch.iter_mut().zip(&mut stacks) {
                *place = Some(stack);
                count += 1;
            }
            if count == 0 {
                return given_up;
            }
            given_up += count;
            let batch = &mut batch[..count];
            batch.sort_unstable_by_key(|stack| stack.map(StackRecord::base));
            let is_next = |stack: &Option<&StackRecord>, next: &Option<&StackRecord>| {
                stack.map(StackRecord::top) == next.map(StackRecord::base)
            };
            for neighbours in batch.chunk_by(is_next) {
                // SAFETY: the caller's promise.
                unsafe { self.give_up(pages, neighbours, age) };
            }
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
        let (base, bytes) = (first.base() as *mut u8, bytes_of(stacks.clone()));
        if let Some(base) = NonNull::new(base) {
            // SAFETY: spans allocated by `make`, without guards and out of use.
            unsafe { pages.free_querying_kernel(base, bytes, age) };
        }
        let locked = self.locked();
        stacks.for_each(|stack| locked.inner.store.free.push(stack));
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
