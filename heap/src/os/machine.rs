//! What locks need of the machine: atomics, a name for the calling thread, and the kernel's sleep
//! on a word.
//!
//! `testing/gate_models.rs` replaces this module by a machine that a model checker can run.

use super::arch::{call, thread_pointer};
pub(super) use crate::base::sync::plain::{AtomicPtr, AtomicUsize, Ordering};
use core::ptr::{from_ref, null};

/// How often a locker retries before it sleeps.
pub(super) const SPINS: u32 = 64;

/// How many waiting threads are noted at once. Further ones are not noted, and a fork waits even
/// for those among them that it need not wait for.
pub(super) const PLACES: usize = 256;

/// How often a fork checks, about 1 ms apart, whether another fork that goes first has begun.
pub(super) const MOST_WAITS: usize = 10_000;

/// How many sleepers to wake.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wake {
    One = 1,
    All = i32::MAX as isize,
}

/// The calling thread: the address of its control block, which is unique among living threads, a
/// multiple of 4, and the same in a child of fork.
#[inline]
pub(super) fn me() -> usize {
    thread_pointer()
}

/// Sleeps while the lower half of `word` is that of `value`, for at most `ms` milliseconds if there
/// are any. May return early.
pub(super) fn sleep_while(word: &AtomicUsize, value: usize, ms: Option<u64>) {
    let time = ms.map(|ms| libc::timespec {
        tv_sec: (ms / 1000) as i64,
        tv_nsec: (ms % 1000 * 1_000_000) as _,
    });
    let time = time.as_ref().map_or(null(), from_ref).expose_provenance();
    // SAFETY: the word and the time outlive the call.
    unsafe { futex(word, libc::FUTEX_WAIT, value as u32 as usize, time) };
}

/// Wakes threads that sleep on `word`.
pub(super) fn wake(word: &AtomicUsize, sleepers: Wake) {
    // SAFETY: FUTEX_WAKE only uses the address as a key.
    unsafe { futex(word, libc::FUTEX_WAKE, sleepers as usize, 0) };
}

/// # Safety
/// - As `futex(2)`, about half of a word that only this process has.
unsafe fn futex(word: &AtomicUsize, operation: i32, value: usize, time: usize) {
    let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as usize;
    let word = half(word).expose_provenance();
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_futex, [word, operation, value, time]) };
}

/// The half of a word that the kernel compares.
fn half(word: &AtomicUsize) -> *const u32 {
    let at = usize::from(cfg!(target_endian = "big"));
    word.as_ptr().cast::<u32>().wrapping_add(at).cast_const()
}
