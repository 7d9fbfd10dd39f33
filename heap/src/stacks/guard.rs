//! Guards that are mappings, how many there may be, and the figures of stacks.

use super::record::{Guard, Size, StackError, StackRecord};
use crate::base::sync::plain::{AtomicUsize, Ordering::Relaxed};
use crate::os::Os;
use core::ptr::NonNull;

/// Mappings per guard made by `mprotect`: the guard splits its mapping in two and adds its own.
const MAPPINGS_EACH: usize = 2;
/// Such guards may use one part in this many of the process's mappings. Of the rest, ranges of
/// write guards may use half. A quarter remains for the program and the page heap: by default as
/// many as 8,000 threads need for their stacks.
const SHARE: usize = 2;

/// Installs a guard that is a mapping of its own, if there may be another.
///
/// # Safety
/// - The stack's memory is committed, and only this thread uses the guard's pages.
pub(super) unsafe fn protect<O: Os>(
    os: &O,
    counts: &Counts,
    stack: &StackRecord,
) -> Result<(), StackError> {
    let most = os.most_mappings() / SHARE / MAPPINGS_EACH;
    if counts.mapped.fetch_add(1, Relaxed) >= most {
        counts.mapped.fetch_sub(1, Relaxed);
        return Err(StackError::OutOfMappings);
    }
    let (guard, bytes) = range_of(os, stack);
    // SAFETY: the caller's promise.
    if unsafe { os.protect(guard, bytes) }.is_err() {
        counts.mapped.fetch_sub(1, Relaxed);
        // `mprotect` fails here only if there are too many mappings.
        return Err(StackError::OutOfMappings);
    }
    stack.set_guard(Guard::Mapping);
    Ok(())
}

/// Removes the guards of neighbouring stacks that are not against writes. Returns false if the
/// kernel refuses; some guards may then remain.
///
/// # Safety
/// - The stacks are neighbours without a gap, lowest first, committed, and only this thread uses
///   them.
pub(super) unsafe fn remove<'h, O: Os>(
    os: &O,
    stacks: impl Iterator<Item = &'h StackRecord> + Clone,
    counts: &Counts,
) -> bool {
    let (Some(first), bytes) = (stacks.clone().next(), bytes_of(stacks.clone())) else {
        return true;
    };
    let having = |guard| stacks.clone().filter(move |stack| stack.guard() == guard);
    let (start, _) = range_of(os, first);
    // SAFETY: the caller's promise: everything between the guards is committed and belongs to the
    // stacks.
    let (advised, mapped) = unsafe {
        (
            having(Guard::Advice).count() == 0 || os.remove_guard(start, bytes).is_ok(),
            having(Guard::Mapping).count() == 0 || os.commit(start, bytes).is_ok(),
        )
    };
    if advised {
        counts
            .advised
            .fetch_sub(clear(having(Guard::Advice)), Relaxed);
    }
    if mapped {
        counts
            .mapped
            .fetch_sub(clear(having(Guard::Mapping)), Relaxed);
    }
    let lost = clear(having(Guard::Lost));
    counts.unguarded.fetch_sub(lost, Relaxed);
    advised && mapped
}

/// Marks stacks as unguarded. Returns how many.
fn clear<'h>(stacks: impl Iterator<Item = &'h StackRecord>) -> usize {
    stacks.map(|stack| stack.set_guard(Guard::None)).count()
}

/// Total address space of some stacks, in bytes.
pub(super) fn bytes_of<'h>(stacks: impl Iterator<Item = &'h StackRecord>) -> usize {
    stacks.map(|stack| stack.size().span_bytes()).sum()
}

/// The stack's guard: its first byte, and its bytes.
pub(super) fn range_of<O: Os>(os: &O, stack: &StackRecord) -> (NonNull<u8>, usize) {
    debug_assert_ne!(stack.base(), 0);
    // SAFETY: the base of a stack is an address in an arena.
    let start = unsafe { NonNull::new_unchecked(stack.base() as *mut u8) };
    (start, stack.limit(os.page_bytes()) - stack.base())
}

/// The figures of stacks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackTotals {
    /// Stacks in the program's hands.
    pub used: usize,
    /// Ended stacks that are kept warm.
    pub idle: usize,
    /// Bytes of address space of all of these, guards included.
    pub address: usize,
    /// Guards that cost no mapping.
    pub guards: usize,
    /// Guards that cost two mappings each.
    pub mapped_guards: usize,
    /// Guards against writes, which cost no mapping.
    pub write_guards: usize,
    /// Stacks that have lost a guard against writes, because the kernel refused another.
    pub unguarded: usize,
    /// Stacks taken from the page heap so far.
    pub created: usize,
    /// How often a stack was handed out again.
    pub recycled: usize,
    /// Stacks never used again, because the kernel would not remove their guards.
    pub lost: usize,
    /// Estimated bytes of page tables for these stacks. A table of one OS page describes as many
    /// pages as it has entries of 8 bytes (2 MiB of address space on x86-64). A stack needs its
    /// share of a table for its address space, and at most two tables: one for its guard, one for
    /// the pages in use.
    pub page_tables: usize,
}

/// The running counts behind [`StackTotals`].
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) advised: AtomicUsize,
    pub(super) mapped: AtomicUsize,
    pub(super) written: AtomicUsize,
    pub(super) unguarded: AtomicUsize,
    pub(super) created: AtomicUsize,
    pub(super) lost: AtomicUsize,
    pub(super) address: AtomicUsize,
    pub(super) page_tables: AtomicUsize,
}

impl Counts {
    pub(super) const fn new() -> Self {
        Self {
            advised: AtomicUsize::new(0),
            mapped: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
            unguarded: AtomicUsize::new(0),
            created: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            address: AtomicUsize::new(0),
            page_tables: AtomicUsize::new(0),
        }
    }

    /// Counts a stack that came from the page heap.
    pub(super) fn add(&self, size: Size, page: usize) {
        self.created.fetch_add(1, Relaxed);
        self.address.fetch_add(size.span_bytes(), Relaxed);
        self.page_tables.fetch_add(tables(size, page), Relaxed);
    }

    /// Counts a stack that went back or was lost.
    pub(super) fn remove(&self, size: Size, page: usize) {
        self.address.fetch_sub(size.span_bytes(), Relaxed);
        self.page_tables.fetch_sub(tables(size, page), Relaxed);
    }
}

/// Bytes of page tables that one stack accounts for.
fn tables(size: Size, page: usize) -> usize {
    let entries = page / size_of::<u64>();
    (size.span_bytes() / entries).min(2 * page)
}
