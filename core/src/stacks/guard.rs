//! Guards, and what they may cost in mappings.

use super::StackError;
use super::record::{Guard, Record};
use super::totals::Counts;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::os::Os;
use core::ptr::NonNull;

/// Mappings of a guard made by `mprotect`: it splits the one it is in, and is one itself.
const MAPPINGS_EACH: usize = 2;
/// Such guards may use this part of the process's mappings: the rest is the program's, and the page heap's own.
const SHARE: usize = 4;

/// Puts a guard before a stack that has none.
///
/// # Safety
/// - The stack's memory is committed, and only this thread uses it.
pub(super) unsafe fn install<O: Os>(
    os: &O,
    stack: &Record,
    counts: &Counts,
) -> Result<(), StackError> {
    debug_assert_eq!(stack.guard(), Guard::None);
    let (page, bytes) = (page_of(stack), os.page_bytes());
    // SAFETY: the caller's promise; the guard's page is the stack's lowest.
    if unsafe { os.install_guard(page, bytes) }.is_ok() {
        stack.set_guard(Guard::Advice);
        counts.advised.fetch_add(1, Relaxed);
        return Ok(());
    }
    let most = os.most_mappings() / SHARE / MAPPINGS_EACH;
    if counts.mapped.fetch_add(1, Relaxed) >= most {
        counts.mapped.fetch_sub(1, Relaxed);
        return Err(StackError::OutOfMappings);
    }
    // SAFETY: as above. The page goes first: behind a guard it would stay resident.
    let protected = unsafe {
        os.purge(page, bytes);
        os.protect(page, bytes)
    };
    if protected.is_err() {
        counts.mapped.fetch_sub(1, Relaxed);
        // What `mprotect` lacks here is nothing but mappings.
        return Err(StackError::OutOfMappings);
    }
    stack.set_guard(Guard::Mapping);
    Ok(())
}

/// Takes the guards of neighbours away. False if the kernel refuses: then some may still be there.
///
/// # Safety
/// - The stacks are neighbours without a gap, lowest first, committed, and only this thread uses them.
pub(super) unsafe fn remove<'h, O: Os>(
    os: &O,
    stacks: impl Iterator<Item = &'h Record> + Clone,
    counts: &Counts,
) -> bool {
    let (Some(first), bytes) = (stacks.clone().next(), bytes_of(stacks.clone())) else {
        return true;
    };
    let having = |guard| stacks.clone().filter(move |stack| stack.guard() == guard);
    let start = page_of(first);
    // SAFETY: the caller's promise: what is between the guards is theirs, and committed.
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
    advised && mapped
}

/// Notes that stacks have no guard any more. Returns how many.
fn clear<'h>(stacks: impl Iterator<Item = &'h Record>) -> usize {
    stacks.map(|stack| stack.set_guard(Guard::None)).count()
}

/// Bytes of address of some stacks.
pub(super) fn bytes_of<'h>(stacks: impl Iterator<Item = &'h Record>) -> usize {
    stacks.map(|stack| stack.size().bytes()).sum()
}

/// The page that is a stack's guard.
fn page_of(stack: &Record) -> NonNull<u8> {
    debug_assert_ne!(stack.base(), 0);
    // SAFETY: the base of a stack is an address in an arena.
    unsafe { NonNull::new_unchecked(stack.base() as *mut u8) }
}
