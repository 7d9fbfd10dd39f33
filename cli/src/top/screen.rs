//! The terminal: taking it, giving it back however we end, keys.

use super::Pace;
use super::state::{Act, Page, State};
use super::{draw, feed::Feed};
use crate::failure::Failure;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::DefaultTerminal;
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait at most for the first figures.
pub const FIRST: Duration = Duration::from_millis(250);
/// How long a signal may go unseen.
const NAP: Duration = Duration::from_millis(50);

/// Why we stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The user has said so, or it was done as often as asked.
    Asked,
    /// A signal.
    Signal(i32),
    /// The process, by this title, has ended.
    Ended(String),
}

/// The last signal that came.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: i32) {
    SIGNAL.store(signal, Ordering::Relaxed);
}

/// From now on signals that would end us are noted instead.
pub fn note_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler: extern "C" fn(i32) = note;
        // SAFETY: the handler only stores into an atomic, which a signal may do at any time.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// The signal that came, as a reason to stop.
fn signalled() -> Option<Stop> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(Stop::Signal(signal)),
    }
}

/// Sleeps until a moment, or until a signal comes.
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

/// Shows a process, or the list of all, until something ends it.
pub fn run(feed: Option<Feed>, pace: Pace) -> Result<Stop, Failure> {
    // Restores the terminal also when we panic.
    let mut terminal = ratatui::try_init().map_err(|error| unusable(&error))?;
    let stop = follow(&mut terminal, State::new(feed, pace));
    ratatui::restore();
    stop
}

fn unusable(error: &io::Error) -> Failure {
    Failure::own(format!(
        "cannot use this terminal: {error}; neap top | cat shows plain lines"
    ))
}

fn follow(terminal: &mut DefaultTerminal, mut state: State) -> Result<Stop, Failure> {
    let mut next = Instant::now() + FIRST.min(state.pace.interval);
    let mut done = 0;
    loop {
        terminal
            .draw(|frame| draw::screen(frame, &state))
            .map_err(|error| unusable(&error))?;
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
        if let Some(act) = key(next)?
            && let Some(stop) = state.perform(act)?
        {
            return Ok(stop);
        }
    }
}

/// Waits for a key until `until`, or shorter, so that signals are seen.
fn key(until: Instant) -> Result<Option<Act>, Failure> {
    let left = until.saturating_duration_since(Instant::now());
    let ready = event::poll(left.min(NAP)).map_err(|error| unusable(&error))?;
    if !ready {
        return Ok(None);
    }
    match event::read().map_err(|error| unusable(&error))? {
        Event::Key(key) if key.is_press() => Ok(meaning(key)),
        _ => Ok(None),
    }
}

fn meaning(key: KeyEvent) -> Option<Act> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if is_control => Act::Quit,
        KeyCode::Char('q') => Act::Quit,
        KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => Act::Back,
        KeyCode::Enter | KeyCode::Right => Act::Open,
        KeyCode::Char('p') => Act::Purge,
        KeyCode::Char('s') => Act::Sort,
        KeyCode::Up => Act::Move(-1),
        KeyCode::Down => Act::Move(1),
        KeyCode::PageUp => Act::Move(-10),
        KeyCode::PageDown => Act::Move(10),
        _ => return None,
    })
}

impl Page {
    /// The line of keys.
    pub fn keys(&self) -> &'static str {
        match self {
            Page::List(_) => "q quit   Enter look into   p purge   s sort   arrows choose",
            Page::One(_) => "q quit   p purge   s sort classes   arrows scroll   Esc list",
        }
    }
}
