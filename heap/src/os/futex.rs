//! Sleeping on a word that other processes may share.
//!
//! The kernel finds a sleeper by the page behind the word, so a waker in another process maps the
//! same file. [`super::lock`] has the cheaper kind, which only one process sees.

use super::arch::call;
use crate::base::sync::plain::AtomicU32;
use core::ptr::null;

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
    let time = ms.map(|ms| libc::timespec {
        tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
        tv_nsec: (ms % 1000 * 1_000_000) as _,
    });
    let limit = time.as_ref().map_or(null(), core::ptr::from_ref);
    let limit = limit.expose_provenance();
    // SAFETY: the word and the time outlive the call.
    match unsafe { futex(word, libc::FUTEX_WAIT, value as usize, limit) } {
        TIMED_OUT => Woken::ByTime,
        _ => Woken::Early,
    }
}

/// Wakes all threads that sleep on `word`, in every process.
pub fn wake(word: &Word) {
    // SAFETY: FUTEX_WAKE only uses the address as a key.
    unsafe { futex(word, libc::FUTEX_WAKE, i32::MAX as usize, 0) };
}

const TIMED_OUT: isize = -(libc::ETIMEDOUT as isize);

/// # Safety
/// - As `futex(2)`.
unsafe fn futex(word: &Word, operation: i32, value: usize, limit: usize) -> isize {
    let word = word.as_ptr().expose_provenance();
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_futex, [word, operation as usize, value, limit]) }
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
