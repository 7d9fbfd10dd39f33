//! Which calls led here: return addresses of the calling thread, taken inside an allocation.
//!
//! The tables of the compiler say how to step from a frame to its caller; they are exact, and every program of a distribution
//! has them, whether it keeps frame pointers or not. One look into a table takes a microsecond, so its outcome is kept
//! (`x86_64::cache`) and a frame that was met before costs some ten nanoseconds. Where no table tells (code made at run
//! time, an object without tables, a C library that cannot say which object an address lies in) the chain of frame pointers is
//! followed, each step checked. AArch64 has the chain only.
//!
//! Nothing of what stands on a stack is believed: words are read by [`crate::os::peek`], which does not fault. Only the tables are read
//! directly, within the bounds of their segment: a library is not unloaded while a frame of it is on the stack.
//!
//! Nothing here allocates, takes a lock or changes `errno`; a handler of signals may call it. `docs/decisions/0011-unwinding.md`
//! has the measurements.

mod chain;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod machine;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "unknown.rs"]
mod machine;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64/mod.rs"]
mod machine;

use crate::os::objects;
use crate::os::peek::{self, Peek};

/// A frame of the stack, as far as it takes to find its caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    /// Where the frame's function goes on.
    pc: usize,
    /// Its stack pointer there.
    sp: usize,
    /// Its frame pointer register there, whatever the function keeps in it.
    fp: usize,
    /// How it came to be left.
    left: Left,
}

/// How a frame was left for the one that is above it on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// By a call: the instruction before `pc`.
    Call,
    /// At `pc` itself: by a signal, or not at all.
    Signal,
}

/// Finds what the C library offers. Once, before the first [`capture`], outside of every lock of the heap: it asks the loader, which may
/// allocate. Without it, and where the C library offers nothing, only frame pointers are followed.
pub fn prepare() {
    if objects::look_up() {
        forget();
    }
}

/// A library is about to be loaded: what was learnt of those that lay at its addresses before is void. One atomic addition.
pub fn forget() {
    machine::forget();
}

/// Whether a handler of signals returns to `pc`.
pub fn is_signal_return(pc: usize) -> bool {
    peek::holds(pc, machine::SIGNAL_RETURN)
}

/// Fills `frames` with the return addresses of the calling thread, that of this call first; returns how many. What is beyond
/// that many is not written. Fewer than there are if the stack cannot be followed; never an address that is not on the stack.
#[inline(never)]
pub fn capture(frames: &mut [u64]) -> usize {
    let mut frame = machine::here();
    let mut peek = Peek::beside(&frame);
    let mut taken = 0;
    while taken < frames.len() {
        match machine::caller(&frame, &mut peek) {
            Some(caller) if caller.pc != 0 && caller != frame => frame = caller,
            _ => break,
        }
        frames[taken] = frame.pc as u64;
        taken += 1;
    }
    taken
}
