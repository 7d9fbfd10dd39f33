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
//! `docs/stacks.md` has the details. [`report_overflows`] reports accesses to a guard.

use super::{NotInUse, Overflow, Pool, StackRecord, State};
pub use super::{StackError, StackTotals};
use crate::base::sync::{AtomicU64, Ordering};
use crate::cache::heap::HEAP;
use crate::cache::misuse;
use crate::init::entered;
use crate::os::Os;
use crate::os::fault::{self, Fault, Verdict};
use crate::os::linux::Linux;
use crate::os::process::{Lossy, warn};
use crate::os::thread::Key;
use crate::pages::STACK_BYTES;
use crate::reclaim::start::end_slow_path;
use core::ffi::{CStr, c_void};
use core::mem;
use core::ptr::NonNull;
use neap_shared::stats::StackFigures;

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

/// Address space of the alternate stack that a thread gets: the kernel puts up to 12 KiB of
/// registers on it. On AArch64 a page may have 16 KiB, and the lowest one is part of the guard.
const ALTERNATE_BYTES: usize = if cfg!(target_arch = "aarch64") {
    64 << 10
} else {
    32 << 10
};

/// Makes an access to a stack's guard write one line, with the stack's size and its owner's name,
/// before the process dies of SIGSEGV as it would have without the line (of SIGBUS where guards are
/// made by write protection). A handler that the program installed earlier stays in force for all
/// other faults. It needs `SA_ONSTACK`: without that, an overflowed stack has no room for the
/// report. A handler that the program installs later replaces this one, unless it calls it or the
/// program runs under libneap.so.
///
/// The handler cannot run on the overflowed stack, so the calling thread gets an alternate stack
/// (`sigaltstack(2)`) if it has none. Threads of Rust's standard library have one; others that run
/// coroutines call this as well. False if there was no memory for that, or the kernel refused.
pub fn report_overflows() -> bool {
    HEAP.stacks.check_guards(&HEAP.pages);
    fault::watch(report) && has_alternate_stack()
}

/// In the handler: no lock, no allocation.
fn report(fault: &Fault) -> Verdict {
    let Some(overflow) = Pool::overflow_at(&HEAP.pages, fault.address) else {
        return Verdict::Foreign;
    };
    let (owner, is_used) = (overflow.owner(), overflow.state == State::Used);
    let [begin, end] = if owner.is_empty() {
        ["", ""]
    } else {
        [" (owner \"", "\")"]
    };
    warn(format_args!(
        "stack overflow at {:#x}, in the guard of a stack of {} bytes{begin}{}{end}{}",
        fault.address,
        overflow.bytes,
        Lossy(owner),
        if is_used {
            ""
        } else {
            ", which was given back before"
        },
    ));
    Verdict::Final
}

impl Overflow {
    /// The owner's name, empty if it has none.
    fn owner(&self) -> &[u8] {
        if self.owner.is_null() {
            return b"";
        }
        // SAFETY: the caller that named the stack promised a string that lives as long as the stack
        // is in use.
        unsafe { CStr::from_ptr(self.owner) }.to_bytes()
    }
}

/// The number, plus one, of the key whose destructor takes a thread's alternate stack back; 0
/// before the first need. No lock: a child forked meanwhile would find it taken.
static KEY: AtomicU64 = AtomicU64::new(0);

fn key() -> Option<Key> {
    let known = |number: u64| Key::numbered((number - 1) as u32);
    let number = KEY.load(Ordering::Relaxed);
    if number != 0 {
        return Some(known(number));
    }
    let made = Key::create(at_thread_end)?;
    let number = u64::from(made.number()) + 1;
    // Of two threads at once, one's key stays unused.
    let kept = KEY.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
    Some(kept.map_or_else(known, |_| made))
}

/// Gives the calling thread an alternate stack if it has none.
fn has_alternate_stack() -> bool {
    if fault::alternate_stack().is_some() {
        return true;
    }
    let (Some(key), Ok(stack)) = (key(), Stack::new(ALTERNATE_BYTES)) else {
        return false;
    };
    // SAFETY: the stack is this thread's until `at_thread_end`, or dropped here if it did not
    // become its own.
    let ours = unsafe { fault::set_alternate_stack(stack.limit(), stack.bytes()) };
    // SAFETY: the destructor takes the top of a stack that was leaked for it.
    if ours && !unsafe { key.set(stack.top().as_ptr().cast()) } {
        fault::remove_alternate_stack(stack.limit());
        return false;
    }
    if ours {
        let _top = stack.into_raw();
    }
    ours
}

/// The destructor of the key.
unsafe extern "C" fn at_thread_end(top: *mut c_void) {
    if let Some(top) = NonNull::new(top.cast()) {
        // SAFETY: given up by `has_alternate_stack`, for this thread.
        let stack = unsafe { Stack::from_raw(top) };
        fault::remove_alternate_stack(stack.limit());
    }
}
