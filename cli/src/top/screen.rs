//! The watch on the terminal: draws at every tick, obeys keys, and notices signals.

use super::Pace;
use super::state::{Act, Page, State};
use super::terminal::{Key, Terminal, is_gone};
use super::{draw, feed::Feed};
use crate::failure::Failure;
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for the first figures.
pub const FIRST: Duration = Duration::from_millis(250);
/// How long a signal may go unnoticed.
const NAP: Duration = Duration::from_millis(50);

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

/// Ends the process after the grace period: a read from a terminal that is gone may never return.
extern "C" fn give_up(_: i32) {
    // SAFETY: _exit may be called by a signal handler.
    unsafe { libc::_exit(128 + SIGNAL.load(Ordering::Relaxed)) };
}

/// From now on, notes the signals that would end this process. They still end it after the grace
/// period.
pub fn note_signals() {
    let noted = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    let handlers = noted.map(|signal| (signal, note as extern "C" fn(i32)));
    for (signal, handler) in handlers.into_iter().chain([(libc::SIGALRM, give_up as _)]) {
        // SAFETY: the handlers use an atomic and calls that a signal handler may make.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// The signal, as a reason to stop.
fn signalled() -> Option<Stop> {
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

/// Shows a process, or the list of all, until an event ends it.
pub fn run(feed: Option<Feed>, pace: Pace) -> Result<Stop, Failure> {
    let mut terminal = Terminal::take().map_err(|error| unusable(&error))?;
    follow(&mut terminal, State::new(feed, pace))
}

fn unusable(error: &io::Error) -> Failure {
    Failure::own(format!(
        "cannot use this terminal: {error}; neap top | cat shows plain lines"
    ))
}

fn follow(terminal: &mut Terminal, mut state: State) -> Result<Stop, Failure> {
    let mut next = Instant::now() + FIRST.min(state.pace.interval);
    let mut done = 0;
    loop {
        if let Err(error) = terminal.draw(|canvas| draw::screen(canvas, &state)) {
            return match is_gone(Duration::ZERO) {
                true => Ok(Stop::Signal(libc::SIGHUP)),
                false => Err(unusable(&error)),
            };
        }
        if let Some(stop) = signalled() {
            return Ok(stop);
        }
        if Instant::now() >= next {
            next = Instant::now() + state.pace.interval;
            if let Some(stop) = state.tick()? {
                return Ok(stop);
            }
            done += 1;
            if state.pace.count == Some(done) {
                return Ok(Stop::Asked);
            }
        }
        match input(terminal, next)? {
            Input::Key(act) => {
                if let Some(stop) = state.perform(act)? {
                    return Ok(stop);
                }
            }
            Input::Gone => return Ok(Stop::Signal(libc::SIGHUP)),
            Input::Nothing => {}
        }
    }
}

/// An input from the terminal.
enum Input {
    Key(Act),
    Nothing,
    /// The terminal has hung up.
    Gone,
}

/// Waits for a key until `until`, in short steps so that signals are noticed.
fn input(terminal: &mut Terminal, until: Instant) -> Result<Input, Failure> {
    let left = until.saturating_duration_since(Instant::now());
    if is_gone(left.min(NAP)) {
        return Ok(Input::Gone);
    }
    let key = terminal.key().map_err(|error| unusable(&error))?;
    Ok(key.and_then(meaning).map_or(Input::Nothing, Input::Key))
}

fn meaning(key: Key) -> Option<Act> {
    Some(match key {
        Key::Control(b'c') | Key::Letter(b'q') => Act::Quit,
        Key::Escape | Key::Left | Key::Backspace => Act::Back,
        Key::Enter | Key::Right => Act::Open,
        Key::Letter(b'p') => Act::Purge,
        Key::Letter(b's') => Act::Sort,
        Key::Letter(b'?' | b'h') | Key::Help => Act::Help,
        Key::Up => Act::Move(-1),
        Key::Down => Act::Move(1),
        Key::PageUp => Act::Move(-10),
        Key::PageDown => Act::Move(10),
        Key::Letter(_) | Key::Control(_) | Key::Other => return None,
    })
}

impl Page {
    /// The line that explains the keys.
    pub fn keys(&self) -> &'static str {
        match self {
            Page::List(_) => "q quit   Enter look into   p purge   s sort   arrows choose   ? help",
            Page::One(_) => "q quit   p purge   s sort classes   arrows scroll   Esc list   ? help",
            Page::Help(_) => "q quit   Esc back",
        }
    }
}
