//! Sleeping on a word, and what else locks need of the machine: atomics, and a name for the calling
//! thread.
//!
//! The kernel finds a sleeper by the page behind the word, so other processes can wake those of
//! [`wait`] if they map the same file. Locks use the cheaper kind, which only one process sees
//! ([`sleep_while`]). `testing/gate_models.rs` replaces that kind by a machine that a model checker
//! can run.

use super::arch::thread_pointer;
use crate::base::sync::plain::AtomicU32;
pub(super) use crate::base::sync::plain::{AtomicPtr, AtomicUsize, Ordering};
use core::ptr::{from_ref, null};

/// A word that threads sleep on.
pub type Word = AtomicU32;

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The timeout expired.
    ByTime,
    /// Before that: a thread woke it, the word had changed, or the kernel gave no reason.
    Early,
}

/// Sleeps while `word` is `value`, for at most `ms` milliseconds if given, otherwise without a
/// timeout.
pub fn wait(word: &Word, value: u32, ms: Option<u64>) -> Woken {
    const TIMED_OUT: isize = -(libc::ETIMEDOUT as isize);
    match futex_wait(word.as_ptr(), libc::FUTEX_WAIT, value, ms) {
        TIMED_OUT => Woken::ByTime,
        _ => Woken::Early,
    }
}

/// Wakes all threads that sleep on `word`, in every process.
pub fn wake(word: &Word) {
    futex_wake(word.as_ptr(), libc::FUTEX_WAKE, Wake::All);
}

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
    const WAIT: i32 = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    futex_wait(half(word), WAIT, value as u32, ms);
}

/// Wakes threads that sleep on `word`.
pub(super) fn wake_sleepers(word: &AtomicUsize, sleepers: Wake) {
    const WAKE: i32 = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    futex_wake(half(word), WAKE, sleepers);
}

/// The half of a word that the kernel compares.
fn half(word: &AtomicUsize) -> *mut u32 {
    let at = usize::from(cfg!(target_endian = "big"));
    word.as_ptr().cast::<u32>().wrapping_add(at)
}

fn futex_wait(word: *mut u32, operation: i32, value: u32, ms: Option<u64>) -> isize {
    let time = ms.map(|ms| libc::timespec {
        tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
        tv_nsec: (ms % 1000 * 1_000_000) as _,
    });
    let time = time.as_ref().map_or(null(), from_ref);
    // SAFETY: the kernel only reads the word, or reports that it cannot; the time outlives the
    // call.
    unsafe { kernel!(futex, word, operation, value, time) }
}

fn futex_wake(word: *mut u32, operation: i32, sleepers: Wake) {
    // SAFETY: FUTEX_WAKE only uses the address as a key.
    unsafe { kernel!(futex, word, operation, sleepers) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_in_time_or_when_the_word_has_changed() {
        let word = Word::new(7);
        assert_eq!(wait(&word, 7, Some(1)), Woken::ByTime);
        assert_eq!(wait(&word, 8, None), Woken::Early);
    }

    #[test]
    fn a_waker_ends_a_sleep_without_an_end() {
        let word = std::sync::Arc::new(Word::new(0));
        let sleeper = {
            let word = std::sync::Arc::clone(&word);
            std::thread::spawn(move || wait(&word, 0, None))
        };
        std::thread::sleep(std::time::Duration::from_millis(20));
        word.store(1, crate::base::sync::plain::Ordering::Release);
        wake(&word);
        assert_eq!(sleeper.join().unwrap(), Woken::Early);
    }
}
