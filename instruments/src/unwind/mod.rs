//! Return addresses of the calling thread, captured inside an allocation.
//!
//! The compiler's unwind tables say how to step from a frame to its caller. They are exact, and
//! distributions' programs have them, with or without frame pointers. A lookup takes a microsecond,
//! so the resulting rule is cached (`x86_64::cache`), and a known frame costs some ten nanoseconds.
//! Some code has no table: code made at run time, an object without tables, or an address whose
//! object the C library cannot name. There the walk follows the chain of frame pointers and checks
//! each step. AArch64 has only the chain.
//!
//! The walk trusts no value on a stack: it reads words through [`crate::peek`], which does not
//! fault. It reads only the tables directly, within the bounds of their segment, because a library
//! is not unloaded while one of its frames is on the stack.
//!
//! Nothing here allocates, takes a lock (but musl's loader's) or changes `errno`, so a signal
//! handler may call it.
//! `docs/decisions/0011-unwinding.md` has the measurements.

mod chain;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod machine;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64/mod.rs"]
mod machine;

use crate::peek::{self, Peek};
use core::ops::Range;

// The linker's names for the ends of the section. `capture` is in it, so it always exists.
unsafe extern "C" {
    static __start_neap_text: u8;
    static __stop_neap_text: u8;
}

/// The functions by which a program enters the heap, as far as they are not inlined into its code.
/// In the archive `libneap.a`, all code of the library.
pub fn own_code() -> Range<usize> {
    (&raw const __start_neap_text).addr()..(&raw const __stop_neap_text).addr()
}

/// A frame of the stack: what is needed to find its caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    /// Where the frame's function continues.
    pc: usize,
    /// Its stack pointer there.
    sp: usize,
    /// Its frame pointer register there, even if the function uses it for other values.
    fp: usize,
    /// How the frame was left.
    left: Left,
}

/// How a frame was left for the next inner one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// By a call: the instruction before `pc`.
    Call,
    /// At `pc` itself: by a signal, or because it is the innermost frame.
    Signal,
}

/// Finds what the C library offers. Call it once before the first [`capture`], without any lock of
/// the heap, because it asks the loader, which may allocate. Without this call, or if the C library
/// offers nothing, only frame pointers are followed.
pub fn prepare() {
    machine::prepare();
}

/// Invalidates all cached rules, before a library is loaded that may take the addresses of an
/// earlier one. One atomic addition.
pub fn forget() {
    machine::forget();
}

/// Whether a signal handler returns to `pc`.
pub fn is_signal_return(pc: usize) -> bool {
    peek::holds(pc, machine::SIGNAL_RETURN)
}

/// The heap's own calls are no deeper.
const MOST_OWN: usize = 32;

/// Fills `frames` with the calling thread's return addresses, innermost first, and returns how
/// many. Outer frames that do not fit are left out. If the stack cannot be followed, there are
/// fewer than on the stack, but never an address that is not on it.
///
/// The heap's own calls are left out: the outermost function of [`own_code`], and all that it
/// called. A signal handler's calls stay, even if the signal interrupted the heap.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub fn capture(frames: &mut [u64]) -> usize {
    let mut frame = machine::here();
    let mut peek = Peek::beside(&frame);
    let (own, mut taken, mut is_in_handler) = (own_code(), 0, false);
    // A stack that cannot be followed may lead round in a circle.
    for _ in 0..frames.len() + MOST_OWN {
        if taken == frames.len() {
            break;
        }
        match machine::caller(&frame, &mut peek) {
            Some(caller) if caller.pc != 0 && caller != frame => frame = caller,
            _ => break,
        }
        is_in_handler |= frame.left == Left::Signal;
        if own.contains(&frame.pc.wrapping_sub(1)) {
            // The chain of frame pointers does not tell; asking takes a microsecond a frame.
            is_in_handler |= cfg!(not(target_arch = "x86_64"))
                && frames[..taken]
                    .iter()
                    .any(|&pc| is_signal_return(pc as usize));
            if !is_in_handler {
                taken = 0;
                continue;
            }
        }
        frames[taken] = frame.pc as u64;
        taken += 1;
    }
    taken
}
