//! A wait that a signal ends early, so that Ctrl-C does not lose what was gathered.

use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

/// While this value exists, the signals that usually end a program stay pending for
/// [`Patience::ends_within`].
pub struct Patience {
    signals: libc::sigset_t,
    before: libc::sigset_t,
}

const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

impl Patience {
    /// Blocks the signals.
    pub fn new() -> Self {
        let (mut signals, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: each pointer leads to room for a set. sigemptyset fills the first before it is
        // used; pthread_sigmask accepts any set, and fills the second.
        unsafe {
            libc::sigemptyset(signals.as_mut_ptr());
            for signal in SIGNALS {
                libc::sigaddset(signals.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), before.as_mut_ptr());
            Self {
                signals: signals.assume_init(),
                before: before.assume_init(),
            }
        }
    }

    /// Waits. True if a signal came.
    pub fn ends_within(&self, time: Duration) -> bool {
        let time = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: both pointers lead to values that outlive the call; null asks for no details of
        // the signal.
        unsafe { libc::sigtimedwait(&raw const self.signals, ptr::null_mut(), &raw const time) > 0 }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by the call that held the signals back.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_the_wait_and_nothing_else_does() {
        let patience = Patience::new();
        assert!(!patience.ends_within(Duration::from_millis(1)));
        // SAFETY: raises a signal that this thread holds back.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGINT) };
        assert!(patience.ends_within(Duration::from_secs(60)));
    }
}
