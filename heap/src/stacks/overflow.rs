//! The report of a stack overflow.

use super::stack::Stack;
use super::{Overflow, Pool, State};
use crate::base::sync::{AtomicU64, Ordering};
use crate::cache::heap::HEAP;
use crate::os::fault::{self, Fault, Verdict, Where};
use crate::os::process::Lossy;
use crate::os::process::warn;
use crate::os::thread::Key;
use core::ffi::{CStr, c_void};
use core::fmt;
use core::ptr::NonNull;

/// Address space of the alternate stack that a thread gets: the kernel puts up to 12 KiB of
/// registers on it.
const ALTERNATE_BYTES: usize = 32 << 10;

/// Makes an access to a stack's guard write one line, with the stack's size and its owner's name,
/// before the process dies of SIGSEGV as it would have without the line (of SIGBUS where guards are
/// made by write protection). A handler that the program installed earlier stays in force for all
/// other faults. A handler that it installs later replaces this one, unless it calls it or the
/// program runs under libneap.so.
///
/// The handler cannot run on the overflowed stack, so the calling thread gets an alternate stack
/// (`sigaltstack(2)`) if it has none. Threads of Rust's standard library have one; others that run
/// coroutines call this as well. False if there was no memory for that, or the kernel refused.
pub fn report_overflows() -> bool {
    HEAP.stacks.check_guards(&HEAP.pages);
    fault::watch(report, Where::Alternate) && has_alternate_stack()
}

/// In the handler: no lock, no allocation.
fn report(fault: &Fault) -> Verdict {
    let address = fault.address;
    let Some(overflow) = Pool::overflow_at(&HEAP.pages, address) else {
        return Verdict::Foreign;
    };
    warn(format_args!("{}", Line { address, overflow }));
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

struct Line {
    address: usize,
    overflow: Overflow,
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, overflow } = self;
        let bytes = overflow.bytes;
        write!(
            out,
            "stack overflow at {address:#x}, in the guard of a stack of {bytes} bytes"
        )?;
        let owner = overflow.owner();
        if !owner.is_empty() {
            write!(out, " (owner \"{}\")", Lossy(owner))?;
        }
        if overflow.state != State::Used {
            out.write_str(", which was given back before")?;
        }
        Ok(())
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
