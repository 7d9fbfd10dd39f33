//! Stacks for coroutines: spans of the heap, each with a guard at its low end.
//!
//! ```
//! let stack = neap::stack::Stack::new(64 << 10)?;
//! assert_eq!(stack.bytes(), (64 << 10) - 4096); // the lowest page is the guard's
//! # Ok::<(), neap::stack::StackError>(())
//! ```
//!
//! A stack costs RAM for the pages that were used and address space for the rest. A dropped stack
//! stays warm for the next one of its size; soon after, its pages belong to the heap again.

use core::ffi::CStr;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use neap_heap::stacks::{stack, stack as heap};

#[doc(inline)]
pub use neap_heap::stacks::StackError;
#[doc(inline)]
pub use neap_shared::stats::StackFigures;

/// A stack, on which its owner runs a coroutine. Dropping it returns it to the heap.
#[derive(Debug)]
pub struct Stack(heap::Stack);

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
    pub fn new(bytes: usize) -> Result<Stack, StackError> {
        heap::Stack::new(bytes).map(Stack)
    }

    /// One past the highest byte; the start of an OS page.
    #[inline]
    pub fn top(&self) -> NonNull<u8> {
        self.0.top()
    }

    /// The lowest byte that may be used. The guard is just below.
    #[inline]
    pub fn limit(&self) -> NonNull<u8> {
        self.0.limit()
    }

    /// Bytes that may be used, from [`Stack::limit`] to [`Stack::top`].
    #[inline]
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// The guard's lowest byte.
    #[cfg_attr(not(feature = "corosensei"), expect(dead_code))]
    pub(crate) fn guard(&self) -> NonZeroUsize {
        self.0.guard().addr()
    }

    /// Names the stack's owner in the report of an overflow, until the stack is dropped.
    pub fn set_owner(&self, name: &'static CStr) {
        self.0.set_owner(name);
    }

    /// Returns the whole pages below a parked coroutine's stack pointer to the kernel (on x86-64,
    /// below the 128 bytes under it); they read as zero from then on. The result is the number of
    /// bytes, as far as the kernel reports it.
    ///
    /// # Safety
    /// - `pointer` is the stack pointer of the coroutine on this stack. The coroutine is not
    ///   running and does not run before this returns, and no code uses the bytes below `pointer`
    ///   again.
    pub unsafe fn trim(&self, pointer: *const u8) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.0.trim(pointer) }
    }

    /// Gives up ownership; [`Stack::from_raw`] takes it back, given the stack's top.
    pub fn into_raw(self) -> NonNull<u8> {
        self.0.into_raw()
    }

    /// Takes back the ownership that [`Stack::into_raw`] gave up. Aborts if no stack in use ends at
    /// `top`.
    ///
    /// # Safety
    /// - `top` came from [`Stack::into_raw`], and no other code has taken the ownership back.
    pub unsafe fn from_raw(top: NonNull<u8>) -> Stack {
        // SAFETY: the caller's promise.
        Stack(unsafe { heap::Stack::from_raw(top) })
    }
}

/// The figures of all stacks of the process.
pub fn figures() -> StackFigures {
    heap::figures()
}

/// Returns all cached stacks to the heap, which may use their pages at once. The result is the
/// number of bytes of address space.
pub fn free_cached() -> usize {
    heap::release_idle()
}

/// Makes an access to a stack's guard write one line, with the stack's size and its owner's name,
/// before the signal ends the process: SIGSEGV, or SIGBUS before Linux 6.13 and in locked memory. A
/// handler that the program installed earlier stays in force for all other faults. It needs
/// `SA_ONSTACK`: without that, an overflowed stack has no room for the report. A handler that the
/// program installs later replaces this one, unless it calls it.
///
/// The handler cannot run on the overflowed stack, so the calling thread gets an alternate stack
/// (`sigaltstack(2)`) if it has none. Threads of Rust's standard library have one; other threads
/// that run coroutines must call this function as well. Returns false if there was no memory for
/// the alternate stack, or if the kernel refused.
pub fn report_overflows() -> bool {
    stack::report_overflows()
}
