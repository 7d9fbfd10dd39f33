//! The terminal: sets it up, restores it at every kind of end, reads keys.

use super::pace::{FIRST, NAP, Pace, Stop, signalled};
use super::state::{Act, Page, State};
use super::{draw, feed::Feed};
use crate::failure::Failure;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::DefaultTerminal;
use std::io;
use std::time::{Duration, Instant};

/// Shows a process, or the list of all, until an event ends it.
pub fn run(feed: Option<Feed>, pace: Pace) -> Result<Stop, Failure> {
    // Restores the terminal even after a panic.
    let mut terminal = ratatui::try_init().map_err(|error| unusable(&error))?;
    let stop = follow(&mut terminal, State::new(feed, pace));
    if ratatui::try_restore().is_err() {
        // The terminal is gone. Dropping its handle would print an error to standard error, which
        // is the same terminal, and panic.
        std::mem::forget(terminal);
    }
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
        if let Err(error) = terminal.draw(|frame| draw::screen(frame, &state)) {
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
        match key(next)? {
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
fn key(until: Instant) -> Result<Input, Failure> {
    let left = until.saturating_duration_since(Instant::now());
    // Checked first, because the library's read never returns from a terminal that is gone.
    if is_gone(left.min(NAP)) {
        return Ok(Input::Gone);
    }
    let ready = event::poll(Duration::ZERO).map_err(|error| unusable(&error))?;
    if !ready {
        return Ok(Input::Nothing);
    }
    Ok(match event::read().map_err(|error| unusable(&error))? {
        Event::Key(key) if key.is_press() => meaning(key).map_or(Input::Nothing, Input::Key),
        _ => Input::Nothing,
    })
}

/// Waits until the terminal has input or `patience` is over. True if it has hung up.
fn is_gone(patience: Duration) -> bool {
    let mut terminal = libc::pollfd {
        fd: libc::STDIN_FILENO,
        events: libc::POLLIN,
        revents: 0,
    };
    let ms = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the pointer leads to one entry.
    unsafe { libc::poll(&raw mut terminal, 1, ms) };
    terminal.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
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
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Act::Help,
        KeyCode::Up => Act::Move(-1),
        KeyCode::Down => Act::Move(1),
        KeyCode::PageUp => Act::Move(-10),
        KeyCode::PageDown => Act::Move(10),
        _ => return None,
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
