//! Hands out stacks and takes them back.

use super::guard::{Counts, StackTotals};
use super::list::List;
use super::record::{
    MOST_SLICES, NotInUse, Overflow, SIZES, Size, StackError, StackRecord, State, Store, TAG,
    pointer, record,
};
use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::SLICE_BYTES;
use crate::os::Os;
use crate::os::lock::{FutexGuard, FutexLock, Rank};
use crate::pages::{Age, Dirty, PageHeap, SliceRef, Span, Use, Zero};
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
        let mut surplus = self.guarded(pages).keep(stack, size);
        // SAFETY: taken out of the list of idle stacks, by this thread.
        unsafe { self.retire(pages, surplus.stacks(), Age::New) };
        Ok(surplus.stacks().len())
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
            guards: counts.advised.load(Relaxed),
            mapped_guards: counts.mapped.load(Relaxed),
            write_guards: counts.written.load(Relaxed),
            unguarded: counts.unguarded.load(Relaxed),
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
        let idle = &mut self.inner.idle[size.number()];
        let stack = idle.newest()?;
        idle.remove(stack);
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

    /// Counts a stack that came back.
    pub(super) fn end_use(&mut self) {
        self.inner.used -= 1;
    }
}
