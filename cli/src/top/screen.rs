//! The watch on the terminal: draws at every tick, obeys keys, and notices signals.

use super::draw;
use super::feed::Feed;
use super::pace::{FIRST, NAP, Pace, Stop, signalled};
use super::state::{Act, Page, State};
use super::terminal::{Key, Terminal, is_gone};
use crate::failure::Failure;
use std::io;
use std::time::{Duration, Instant};

/// Shows a process, or the list of all, until an event ends it.
pub fn run(feed: Option<Feed>, pace: Pace) -> Result<Stop, Failure> {
    let state = State::new(feed, pace)?;
    let mut terminal = Terminal::take().map_err(|error| unusable(&error))?;
    follow(&mut terminal, state)
}

fn unusable(error: &io::Error) -> Failure {
    failure!("cannot use this terminal: {error}; neap top | cat shows plain lines")
}

fn follow(terminal: &mut Terminal, mut state: State) -> Result<Stop, Failure> {
    let mut next = Instant::now() + FIRST.min(state.pace.interval);
    let mut done = 0;
    loop {
        terminal.heed_stop();
        if let Some(stop) = signalled() {
            return Ok(stop);
        }
        if let Err(error) = terminal.draw(|lines, columns| draw::screen(&state, lines, columns)) {
            return if is_gone(Duration::ZERO) {
                Ok(Stop::Signal(libc::SIGHUP))
            } else {
                Err(unusable(&error))
            };
        }
        if Instant::now() >= next {
            next = Instant::now() + state.pace.interval;
            state.tick()?;
            done += 1;
            if state.pace.count == Some(done) {
                return Ok(Stop::Asked);
            }
        }
        if is_gone(next.saturating_duration_since(Instant::now()).min(NAP)) {
            return Ok(Stop::Signal(libc::SIGHUP));
        }
        let key = terminal.key().map_err(|error| unusable(&error))?;
        if let Some(act) = key.and_then(meaning)
            && let Some(stop) = state.perform(act)?
        {
            return Ok(stop);
        }
    }
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
