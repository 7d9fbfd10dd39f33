//! Stacks for coroutines: spans of the heap, each with a guard at its low end.
//!
//! ```
//! let stack = neap_heap::stacks::stack::Stack::new(64 << 10)?;
//! assert_eq!(stack.bytes(), (64 << 10) - 4096); // the lowest page is the guard's
//! # Ok::<(), neap_heap::stacks::stack::StackError>(())
//! ```
//!
//! A stack costs RAM for the pages that were used, and address space for the rest. A dropped stack
//! stays warm for the next one of its size; soon after, its pages belong to the heap again.
//! `docs/stacks.md` has the details.

use super::{NotInUse, Pool, StackRecord};
use crate::cache::heap::HEAP;
use crate::cache::misuse;
use crate::init::entered;
use crate::os::Os;
use crate::os::linux::Linux;
use crate::pages::STACK_BYTES;
use crate::reclaim::start::end_slow_path;
use core::ffi::CStr;
use core::mem;
use core::ptr::NonNull;
use neap_shared::stats::StackFigures;

pub use super::{StackError, StackTotals};

/// A stack, on which its owner runs a coroutine. Dropping it returns it to the heap.
#[derive(Debug)]
pub struct Stack {
    record: &'static StackRecord,
}

impl Stack {
    /// Makes a stack of `bytes` bytes, rounded up to 8, 16 or 32 KiB or a multiple of 64 KiB. The
    /// lowest OS page of these is the guard's, which has at least 32 KiB more below them. The
    /// contents are undefined.
    ///
    /// # Errors
    /// - [`StackError::Size`]: not between 8 KiB and 8 MiB.
    /// - [`StackError::OutOfMemory`]: refused by the kernel or a limit.
    /// - [`StackError::OutOfMappings`]: guards need mappings, and there are too many stacks. Guards
    ///   need them before Linux 6.13 and in locked memory, if Neap cannot use `userfaultfd`.
    pub fn new(bytes: usize) -> Result<Self, StackError> {
        if let Some(record) = HEAP.stacks.recycle(&HEAP.pages, bytes)? {
            return Ok(Self { record });
        }
        // Prepares for fork, in a program that has another allocator.
        entered();
        let record = HEAP.stacks.take(&HEAP.pages, bytes)?;
        Ok(Self { record })
    }

    /// One past the highest byte; the start of an OS page.
    #[inline]
    pub fn top(&self) -> NonNull<u8> {
        pointer_to(self.record.top())
    }

    /// The lowest byte that may be used. The guard is just below.
    #[inline]
    pub fn limit(&self) -> NonNull<u8> {
        pointer_to(self.record.limit(Linux.page_bytes()))
    }

    /// The lowest byte, where the guard begins.
    pub fn guard(&self) -> NonNull<u8> {
        pointer_to(self.record.base())
    }

    /// Bytes that may be used, from [`Stack::limit`] to [`Stack::top`].
    #[inline]
    pub fn bytes(&self) -> usize {
        self.record.size().usable(Linux.page_bytes())
    }

    /// Names the stack's owner in the report of an overflow, until the stack is given back.
    pub fn set_owner(&self, name: &'static CStr) {
        // SAFETY: a C string that lives as long as the program.
        unsafe { self.record.set_owner(name.as_ptr()) };
    }

    /// Gives back the whole pages below a parked coroutine's stack pointer (on x86-64, below the
    /// 128 bytes under it). Returns how many bytes that was, as far as the kernel tells; they read
    /// as zero from then on. Aborts if the stack pointer is not within the stack.
    ///
    /// # Safety
    /// - `pointer` is the stack pointer of the coroutine on this stack, which is not running and
    ///   does not run before this returns; nothing below it is used any more.
    pub unsafe fn trim(&self, pointer: *const u8) -> usize {
        let (top, pointer) = (self.record.top(), pointer.addr());
        if !(self.limit().addr().get()..=top).contains(&pointer) {
            misuse::outside_stack(top, pointer);
        }
        // SAFETY: the caller's promise, and not above the top.
        unsafe { Pool::trim(&Linux, self.record, pointer) }
    }

    /// Gives up ownership; from now on the stack is identified by its top.
    pub fn into_raw(self) -> NonNull<u8> {
        let top = self.top();
        mem::forget(self);
        top
    }

    /// Takes back the ownership that [`Stack::into_raw`] gave up. Aborts if no stack in use ends at
    /// `top`.
    ///
    /// # Safety
    /// - `top` came from [`Stack::into_raw`], and no other code has taken the ownership back.
    pub unsafe fn from_raw(top: NonNull<u8>) -> Self {
        match Pool::stack_in_use(&HEAP.pages, top.as_ptr().addr()) {
            Some(record) => Self { record },
            None => misuse::no_stack(top.as_ptr().addr()),
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        match HEAP.stacks.give(&HEAP.pages, self.record) {
            Ok(0) => {}
            Ok(given_up) => look_after(given_up),
            Err(NotInUse) => misuse::no_stack(self.record.top()),
        }
    }
}

/// Stacks went to the page heap: a thread may have to deal with their pages.
#[cold]
fn look_after(stacks: usize) {
    HEAP.tide.note_freed(stacks * STACK_BYTES);
    end_slow_path(0);
}

fn pointer_to(address: usize) -> NonNull<u8> {
    debug_assert_ne!(address, 0);
    // SAFETY: an address in an arena, which has no slice at 0.
    unsafe { NonNull::new_unchecked(address as *mut u8) }
}

/// The counts of all stacks now.
pub fn totals() -> StackTotals {
    HEAP.stacks.totals()
}

/// The figures of all stacks, as a snapshot has them.
pub fn figures() -> StackFigures {
    let totals = totals();
    StackFigures {
        used: totals.used as u64,
        idle: totals.idle as u64,
        free: 0,
        address: totals.address as u64,
        created: totals.created as u64,
        recycled: totals.recycled as u64,
        page_tables: totals.page_tables as u64,
    }
}

/// Gives up all idle stacks, whose pages the heap may use at once. Returns how many bytes of
/// address space they had.
pub fn release_idle() -> usize {
    HEAP.stacks.retire_all(&HEAP.pages)
}
