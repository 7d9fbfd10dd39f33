//! The guards of stacks.
//!
//! A guard is by advice. Where the kernel has no such advice, a guard is against writes. Where the
//! kernel refuses that as well, a guard is a mapping, of which there may be few.
//!
//! All guards against writes are of one generation. They are gone in a fork's child, and when the
//! program closes the descriptor behind them. Neap puts them back before `fork` returns in the
//! child. In a child that was made in a way that Neap does not see, it does so before the child
//! gets a stack or gives one back, and in the program, at the next new stack or round. Records
//! change from and to [`Guard::Write`] under the pool's lock, which is held across the system calls
//! for that.

use super::pool::{Locked, Pool};
use super::record::{Counts, Guard, StackError, StackRecord, bytes_of};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::{HUGE_BYTES, SLICE_BYTES};
use crate::os::{GuardRefused, Os, Purged, fault};
use crate::pages::PageHeap;
use core::ptr::NonNull;

/// Mappings per guard made by `mprotect`: the guard splits its mapping in two and adds its own.
const MAPPINGS_EACH: usize = 2;
/// Such guards may use this part of the process's mappings. By default, half of the rest suffices
/// for the stacks of 8,000 threads.
const SHARE: usize = 2;

impl Pool {
    /// [`Pool::locked`], after the guards against writes were installed again, if this process is
    /// the child of the one that did it.
    #[inline]
    pub(super) fn guarded<O: Os>(&self, pages: &PageHeap<O>) -> Locked<'_> {
        let mut locked = self.locked();
        if locked.inner.generation != 0 {
            locked.restore_lost(pages, &self.counts, false);
        }
        locked
    }

    /// Installs the guards against writes again if they are gone: in the child of the process that
    /// did it, or if the program closed a descriptor that it does not know.
    pub fn check_guards<O: Os>(&self, pages: &PageHeap<O>) {
        let mut locked = self.locked();
        if locked.inner.generation != 0 {
            locked.restore_lost(pages, &self.counts, true);
        }
    }

    /// Whether there are guards against writes, or were before a fork.
    pub fn has_write_guards(&self) -> bool {
        self.counts.of(Guard::Write).load(Relaxed) != 0
    }

    /// Installs the guards against writes again, in a child that `fork` made.
    pub fn after_fork_in_child<O: Os>(&self, pages: &PageHeap<O>) {
        // A thread that stayed behind may hold it for good.
        if let Some(mut locked) = self.try_locked() {
            locked.restore_lost(pages, &self.counts, false);
        }
    }

    /// Installs a guard below a stack that has none: by advice, by write protection, or by a
    /// mapping.
    ///
    /// # Safety
    /// - The stack's memory is committed, and only this thread uses it.
    pub(super) unsafe fn install_guard<O: Os>(
        &self,
        pages: &PageHeap<O>,
        stack: &StackRecord,
    ) -> Result<(), StackError> {
        debug_assert_eq!(stack.guard(), Guard::None);
        let (start, bytes) = range_of(pages.os(), stack);
        // SAFETY: the caller's promise; the guard's pages are the span's lowest.
        if unsafe { pages.os().install_guard(start, bytes) }.is_ok() {
            self.counts.note(stack, Guard::Advice);
            return Ok(());
        }
        // SAFETY: the caller's promise. Behind the other guards, pages would stay resident.
        let purged = unsafe { pages.os().purge_locked(start, bytes) };
        // SAFETY: as above.
        let protect = || unsafe { self.locked().protect_writes(pages, &self.counts, stack) };
        if purged == Purged::Zero && protect() {
            // Without the lock, under which nothing may allocate.
            fault::expect_bus_errors();
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { protect_by_mapping(pages.os(), &self.counts, stack) }
    }

    /// Removes the guards of neighbouring stacks. Returns false if the kernel refuses; some guards
    /// may then remain.
    ///
    /// # Safety
    /// - The stacks are neighbours without a gap, lowest first, committed, and only this thread
    ///   uses them.
    pub(super) unsafe fn remove_guards<'h, O: Os>(
        &self,
        os: &O,
        stacks: impl Iterator<Item = &'h StackRecord> + Clone,
    ) -> bool {
        for stack in stacks.clone().filter(|stack| stack.guard() == Guard::Write) {
            // Under the lock, another thread cannot install it again. It may just have, by a
            // mapping.
            let _locked = self.locked();
            let (start, bytes) = range_of(os, stack);
            if stack.guard() == Guard::Write
                // SAFETY: the caller's promise.
                && unsafe { os.remove_write_guard(start, bytes) }.is_ok()
            {
                self.counts.note(stack, Guard::None);
            }
        }
        let Some(first) = stacks.clone().next() else {
            return true;
        };
        let (start, bytes) = (range_of(os, first).0, bytes_of(stacks.clone()));
        let has = |guard| stacks.clone().any(|stack| stack.guard() == guard);
        // SAFETY: the caller's promise: everything between the guards is committed and belongs to
        // the stacks.
        let (advised, mapped) = unsafe {
            (
                !has(Guard::Advice) || os.remove_guard(start, bytes).is_ok(),
                !has(Guard::Mapping) || os.commit(start, bytes).is_ok(),
            )
        };
        for stack in stacks.clone() {
            let is_gone = match stack.guard() {
                Guard::Advice => advised,
                Guard::Mapping => mapped,
                Guard::Write => false,
                Guard::None | Guard::Lost => true,
            };
            if is_gone {
                self.counts.note(stack, Guard::None);
            }
        }
        stacks.into_iter().all(|stack| stack.guard() == Guard::None)
    }
}

impl Locked<'_> {
    /// Installs a guard against writes below a stack. If the earlier ones turn out to be lost,
    /// installs them again. False if the kernel refuses.
    ///
    /// # Safety
    /// - As [`Pool::install_guard`].
    unsafe fn protect_writes<O: Os>(
        &mut self,
        pages: &PageHeap<O>,
        counts: &Counts,
        stack: &StackRecord,
    ) -> bool {
        // SAFETY: the caller's promise; the pool's lock keeps other threads out.
        let Ok(generation) = (unsafe { write_guard(pages, stack) }) else {
            return false;
        };
        if generation != self.inner.generation {
            self.restore(pages, counts);
        }
        self.inner.generation = generation;
        counts.note(stack, Guard::Write);
        true
    }

    /// Installs the guards against writes again if they are gone.
    fn restore_lost<O: Os>(&mut self, pages: &PageHeap<O>, counts: &Counts, is_asked: bool) {
        if self.inner.generation != pages.os().write_guards(is_asked) {
            self.restore(pages, counts);
        }
    }

    /// Installs all guards against writes again. Where the kernel refuses, `mprotect` makes one,
    /// and where that is refused as well, the stack has none.
    #[cold]
    fn restore<O: Os>(&mut self, pages: &PageHeap<O>, counts: &Counts) {
        self.inner.generation = 0;
        let all = self.inner.store.all();
        for stack in all.filter(|stack| stack.guard() == Guard::Write) {
            // SAFETY: the guard's pages are not the program's, and `remove_guards` takes the lock
            // before it gives the pages up.
            unsafe {
                match write_guard(pages, stack) {
                    // If they are lost once more meanwhile, the next look at them shows it.
                    Ok(generation) if self.inner.generation == 0 => {
                        self.inner.generation = generation;
                    }
                    Ok(_) => {}
                    Err(_) if protect_by_mapping(pages.os(), counts, stack).is_ok() => {}
                    Err(_) => counts.note(stack, Guard::Lost),
                }
            }
        }
    }
}

/// Installs a guard against writes below a stack. Returns its generation.
///
/// # Safety
/// - As [`Pool::install_guard`], and the caller holds the pool's lock.
unsafe fn write_guard<O: Os>(
    pages: &PageHeap<O>,
    stack: &StackRecord,
) -> Result<u64, GuardRefused> {
    let around = |unit: usize| stack.base() / unit * unit..stack.top().next_multiple_of(unit);
    let (wide, least) = (around(HUGE_BYTES), around(SLICE_BYTES));
    let within = match pages.maps(&wide) {
        true => wide,
        false => least.clone(),
    };
    let (start, bytes) = range_of(pages.os(), stack);
    // SAFETY: the caller's promise, and what an arena has mapped is the heap's.
    unsafe { pages.os().install_write_guard(start, bytes, within, least) }
}

/// Installs a guard that is a mapping of its own, if there may be another.
///
/// # Safety
/// - The stack's memory is committed, and only this thread uses the guard's pages.
unsafe fn protect_by_mapping<O: Os>(
    os: &O,
    counts: &Counts,
    stack: &StackRecord,
) -> Result<(), StackError> {
    let most = os.most_mappings() / SHARE / MAPPINGS_EACH;
    let (mapped, (guard, bytes)) = (counts.of(Guard::Mapping), range_of(os, stack));
    // `mprotect` fails here only if there are too many mappings.
    // SAFETY: the caller's promise.
    if mapped.fetch_add(1, Relaxed) >= most || unsafe { os.protect(guard, bytes) }.is_err() {
        mapped.fetch_sub(1, Relaxed);
        return Err(StackError::OutOfMappings);
    }
    // Only now, because a thread that gives up a stack with a guard against writes waits for the
    // lock.
    counts.of(stack.guard()).fetch_sub(1, Relaxed);
    stack.set_guard(Guard::Mapping);
    Ok(())
}

/// The stack's guard: its first byte, and its bytes.
fn range_of<O: Os>(os: &O, stack: &StackRecord) -> (NonNull<u8>, usize) {
    debug_assert_ne!(stack.base(), 0);
    // SAFETY: the base of a stack is an address in an arena.
    let start = unsafe { NonNull::new_unchecked(stack.base() as *mut u8) };
    (start, stack.limit(os.page_bytes()) - stack.base())
}
