//! The time between two looks, and what stops the watch.

use super::terminal::{abandon, handle};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The interval and the number of ticks.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time between two ticks.
    pub interval: Duration,
    /// How many ticks; `None`: until an event ends it.
    pub count: Option<u64>,
}

/// Longest wait for the first figures.
pub const FIRST: Duration = Duration::from_millis(250);
/// How long a signal may go unnoticed.
pub const NAP: Duration = Duration::from_millis(50);

/// Why the watch stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The user asked, or the given number of ticks is over.
    Asked,
    /// A signal.
    Signal(i32),
    /// The process with this title has ended.
    Ended(String),
}

/// Seconds after a signal until this process ends regardless of its state.
const GRACE: u32 = 2;

/// The last signal that came.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: i32) {
    SIGNAL.store(signal, Ordering::Relaxed);
    // SAFETY: alarm may be called by a signal handler.
    unsafe { libc::alarm(GRACE) };
}

/// Ends the process after the grace period: a terminal that is gone or takes no output may block
/// it for good.
extern "C" fn give_up(_: i32) {
    abandon();
    // SAFETY: _exit may be called by a signal handler.
    unsafe { libc::_exit(128 + SIGNAL.load(Ordering::Relaxed)) };
}

/// From now on, notes the signals that would end this process. They still end it after the grace
/// period.
pub fn note_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        handle(signal, note);
    }
    handle(libc::SIGALRM, give_up);
}

/// The signal, as a reason to stop.
pub fn signalled() -> Option<Stop> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(Stop::Signal(signal)),
    }
}

/// Sleeps until a time, or until a signal comes.
pub fn wait(until: Instant) -> Option<Stop> {
    loop {
        if let Some(stop) = signalled() {
            return Some(stop);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::sleep(left.min(NAP));
    }
}
