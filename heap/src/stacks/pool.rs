//! Hands out stacks and takes them back.

use super::guard::{Counts, StackTotals};
use super::list::List;
use super::record::{
    MOST_BYTES, NotInUse, Overflow, SIZES, Size, StackError, StackRecord, State, Store, TAG, record,
};
use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::SLICE_BYTES;
use crate::os::Os;
use crate::os::lock::{FutexGuard, FutexLock, Rank};
use crate::pages::{Age, Dirty, PageHeap, Span, Use, Zero};
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

/// The stacks of one size that are not in use.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) idle: List,
    /// Cells without memory; only for sizes below a slice.
    pub(super) spare: List,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) shelves: [Shelf; SIZES],
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
            shelves: [const {
                Shelf {
                    idle: List::new(),
                    spare: List::new(),
                }
            }; SIZES],
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

    /// A stack of at least `bytes` of address space, guard included. Its contents are undefined.
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

    /// A stack from the page heap. Its neighbours in the same slice become spare.
    #[cold]
    fn make<'h, O: Os>(
        &'h self,
        pages: &'h PageHeap<O>,
        size: Size,
    ) -> Result<&'h StackRecord, StackError> {
        let bytes = size.slices() * SLICE_BYTES;
        let span = pages
            .alloc(size.slices(), 1, Use::Stack, bytes)
            .ok_or(StackError::OutOfMemory)?;
        let records = |slices| record_span(pages, slices);
        let row = self.locked().inner.store.take(size.per_span(), records);
        let Some(row) = row else {
            // SAFETY: allocated above and still untouched; no other thread has its address.
            unsafe { pages.free(span.base, Dirty::AsBefore) };
            return Err(StackError::OutOfMemory);
        };
        for (number, stack) in row.iter().enumerate() {
            stack.begin(span.base.as_ptr().addr() + number * size.bytes(), size);
        }
        self.counts.add_span(size, pages.os().page_bytes());
        forget_contents(pages, &span, size);
        // SAFETY: just given out; readers of stacks' spans take it for the first record.
        unsafe { span.place.set_user_data(row.as_ptr().cast_mut().cast()) };
        self.install(pages, row)?;
        // SAFETY: as above: it holds stacks.
        unsafe { span.place.set_tag(TAG) };
        self.locked().open(row);
        Ok(&row[0])
    }

    /// Installs the guards of a new span. Gives the span back on failure.
    fn install<O: Os>(&self, pages: &PageHeap<O>, row: &[StackRecord]) -> Result<(), StackError> {
        let installed = row.iter().try_for_each(|stack| {
            // SAFETY: the span is committed, and no other thread has its address.
            unsafe { self.install_guard(pages, stack) }
        });
        if installed.is_err() {
            // SAFETY: as above.
            unsafe { self.give_up_row(pages, row, Age::New) };
        }
        installed
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
        let place = (0..MOST_BYTES / SLICE_BYTES)
            .map_while(slice)
            .find(|place| place.tag() != 0)
            .filter(|place| place.tag() == TAG)?;
        let row: *mut StackRecord = place.user_data().cast();
        // SAFETY: null, or the first record of this span's row. If the span is given up meanwhile,
        // the pointer still leads to 64 readable bytes of tables: the values may be wrong, but
        // reading them is safe.
        let size = unsafe { record(row) }?.size();
        let cell = (address - place.slice_base()) / size.bytes();
        // SAFETY: rows have as many records as the span has stacks.
        let stack = (cell < size.per_span()).then(|| unsafe { record(row.add(cell)) })??;
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
        (address - stack.base() < page).then(|| Overflow {
            bytes: stack.size().bytes() - page,
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
        let [used, idle, spare, recycled] = self.locked().figures();
        let counts = &self.counts;
        StackTotals {
            used,
            idle,
            spare,
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
fn forget_contents<O: Os>(pages: &PageHeap<O>, span: &Span<'_>, size: Size) {
    let page = pages.os().page_bytes();
    let kept = if size.per_span() > 1 { 0 } else { page };
    let bytes = size.slices() * SLICE_BYTES - kept;
    if span.zero == Zero::AllZero || is_clean_below(span, bytes / page) {
        return;
    }
    // SAFETY: within the span, which was just allocated. If the kernel refuses, old pages stay
    // resident, which is harmless.
    unsafe { pages.os().purge(span.base, bytes) };
}

/// Whether the lowest pages of a span are known to be zero. Used for at most one slice.
fn is_clean_below(span: &Span<'_>, count: usize) -> bool {
    span.slices == 1 && span.place.dirty_mask() & ((1u32 << count) - 1) as u16 == 0
}

impl<'p> Locked<'p> {
    /// A stack that was in use before.
    fn reuse<'h>(&mut self, size: Size) -> Option<&'h StackRecord> {
        let shelf = &mut self.inner.shelves[size.number()];
        let list = if shelf.idle.len() > 0 {
            &mut shelf.idle
        } else {
            &mut shelf.spare
        };
        let stack = list.newest()?;
        list.remove(stack);
        self.inner.recycled += usize::from(stack.state() == State::Idle);
        self.hand_out(stack);
        Some(stack)
    }

    fn hand_out(&mut self, stack: &StackRecord) {
        // SAFETY: null.
        unsafe { stack.set_owner(null_mut()) };
        stack.set_state(State::Used);
        self.inner.used += 1;
    }

    /// Adds a new row of stacks, of which the first is handed out.
    fn open(&mut self, row: &[StackRecord]) {
        let Some((first, rest)) = row.split_first() else {
            return;
        };
        self.hand_out(first);
        for stack in rest.iter().rev() {
            stack.set_state(State::Spare);
            self.inner.shelves[stack.size().number()].spare.push(stack);
        }
    }

    /// How many stacks are used, idle and spare, and how often one was recycled.
    pub(super) fn figures(&self) -> [usize; 4] {
        let sum = |of: fn(&Shelf) -> usize| self.inner.shelves.iter().map(of).sum();
        [
            self.inner.used,
            sum(|shelf| shelf.idle.len()),
            sum(|shelf| shelf.spare.len()),
            self.inner.recycled,
        ]
    }

    /// Counts a stack that came back.
    pub(super) fn end_use(&mut self) {
        self.inner.used -= 1;
    }
}
