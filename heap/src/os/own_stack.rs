//! A separate stack for work that is too large for the caller's stack, which may be a coroutine's
//! of a few KiB.
//!
//! Each call maps memory of its own and unmaps it at its end, so this is for rare work. It takes no
//! lock, so a signal handler or a fork may happen in between.

use super::linux::Linux;
use super::{Os, arch};
use bytemuck::Zeroable;
use core::ffi::c_void;
use core::ptr::NonNull;

/// Bytes of the stack that work gets.
const STACK_BYTES: usize = 64 << 10;

/// Calls `work` on a stack of its own, with a zeroed value that is not on it. `None` if the kernel
/// has no memory for them.
pub fn with<T: Zeroable, R>(work: impl FnOnce(&mut T) -> R) -> Option<R> {
    const { assert!(align_of::<T>() <= 4096) };
    let room = Room::new(size_of::<T>())?;
    // SAFETY: new pages read as zero, which is a value; they are large enough, aligned, and no
    // other code else's.
    let value = unsafe { room.value().cast::<T>().as_mut() };
    Some(room.call(|| work(value)))
}

/// Calls `work` on a stack of its own; on the caller's if the kernel has no memory for one.
pub fn on_stack<R>(work: impl FnOnce() -> R) -> R {
    match Room::new(0) {
        Some(room) => room.call(work),
        None => work(),
    }
}

/// A mapping: a guard page, a stack, and a value's pages above it.
struct Room {
    base: NonNull<u8>,
    bytes: usize,
    /// How far above `base` the stack ends and the value begins.
    top: usize,
}

impl Room {
    fn new(value_bytes: usize) -> Option<Room> {
        let page = Linux.page_bytes();
        let top = page + STACK_BYTES.next_multiple_of(page);
        let bytes = top + value_bytes.next_multiple_of(page);
        let base = Linux.reserve(bytes, page)?;
        let room = Room { base, bytes, top };
        // SAFETY: all of our own reservation but the guard.
        let committed = unsafe { Linux.commit(base.add(page), bytes - page) };
        committed.ok().map(|()| room)
    }

    fn value(&self) -> NonNull<u8> {
        // SAFETY: inside the mapping, or its end.
        unsafe { self.base.add(self.top) }
    }

    /// Calls `work` on the stack.
    fn call<W: FnOnce() -> R, R>(&self, work: W) -> R {
        let mut call = Call {
            work: Some(work),
            result: None,
        };
        let top = self.value().as_ptr();
        // SAFETY: the stack below `top` is committed, aligned to a page, and no thread runs on it;
        // `run` gets the call it is made for.
        unsafe { arch::call_on(top, run::<W, R>, (&raw mut call).cast()) };
        match call.result {
            Some(result) => result,
            None => unreachable!("the work was done"),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: a whole reservation, out of use.
        unsafe { Linux.unmap(self.base, self.bytes) };
    }
}

/// Work to be done, and what came of it.
struct Call<W, R> {
    work: Option<W>,
    result: Option<R>,
}

/// # Safety
/// - `call` is a [`Call`] of these types, the caller's.
unsafe extern "C" fn run<W: FnOnce() -> R, R>(call: *mut c_void) {
    // SAFETY: the caller's promise.
    let call = unsafe { &mut *call.cast::<Call<W, R>>() };
    call.result = call.work.take().map(|work| work());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::errno;
    use std::vec::Vec;

    #[test]
    fn the_value_is_zero_and_errno_stays() {
        errno::set(77);
        let sum = with(|words: &mut [u64; 4096]| {
            words[4095] += 5;
            words.iter().sum::<u64>()
        });
        assert_eq!((sum, errno::get()), (Some(5), 77));
        assert_eq!(with(|words: &mut [u64; 1]| words[0]), Some(0));
    }

    #[test]
    fn work_runs_elsewhere_and_comes_back() {
        let here = 0u8;
        let local = (&raw const here).addr();
        let kept: Vec<usize> = (0..100).collect();
        let (far, sum) = on_stack(|| {
            let there = [1u8; 8 << 10];
            let sum = kept.iter().sum::<usize>();
            (core::hint::black_box(&there).as_ptr().addr(), sum)
        });
        assert_eq!(sum, 4950);
        assert!(
            far.abs_diff(local) > 256 << 10
                || cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64")))
        );
        let nested = on_stack(|| on_stack(|| kept.len()));
        assert_eq!(nested, 100);
    }
}
