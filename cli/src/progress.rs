//! Shows progress, or stays silent on request.

use clap::ArgMatches;
use rustix::termios::tcgetwinsize;
use std::io::{IsTerminal, Write, stderr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two pictures of the spinner, and before the first.
const TICK: Duration = Duration::from_millis(200);
/// Columns of a terminal that does not tell its width.
const USUAL_WIDTH: usize = 80;
/// Columns of a bar.
const BAR: usize = 30;

/// How much `neap` tells about its own work on standard error. It always reports errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// What it wrote where, and what to do next.
    Normal,
    /// Only errors (`--quiet`).
    Quiet,
}

impl Talk {
    /// From the command line.
    pub fn of(matches: &ArgMatches) -> Self {
        match matches.get_flag("quiet") {
            true => Self::Quiet,
            false => Self::Normal,
        }
    }

    /// Prints one line.
    pub fn say(self, message: &str) {
        if self == Self::Normal {
            crate::failure::say(message);
        }
    }

    /// Does `work`. A terminal meanwhile shows what is being done, if that takes noticeably long.
    pub fn during<T>(self, what: &'static str, work: impl FnOnce() -> T) -> T {
        let line = match self {
            Self::Normal => Line::of_terminal(),
            Self::Quiet => None,
        };
        let Some(line) = line else {
            return work();
        };
        thread::scope(|scope| {
            let (working, end) = channel();
            scope.spawn(move || spin(&line, what, &end));
            let done = work();
            drop(working);
            done
        })
    }
}

/// Turns the spinner until the other end of the channel is dropped.
fn spin(line: &Line, what: &str, end: &Receiver<()>) {
    let start = Instant::now();
    for picture in ['|', '/', '-', '\\'].iter().cycle() {
        match end.recv_timeout(TICK) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        line.show(&format!(
            "neap: {what} {} s {picture}",
            start.elapsed().as_secs()
        ));
    }
}

/// The line of the terminal that standard error is on. Dropping it clears the line.
pub struct Line(());

impl Line {
    /// `None` if standard error is no terminal.
    pub fn of_terminal() -> Option<Line> {
        stderr().is_terminal().then(|| Line(()))
    }

    /// Replaces the line's text, cut to the terminal's width.
    pub fn show(&self, text: &str) {
        let width = tcgetwinsize(stderr()).map_or(0, |size| usize::from(size.ws_col));
        let width = if width == 0 { USUAL_WIDTH } else { width };
        let text: String = text.chars().take(width - 1).collect();
        // Progress that cannot be shown is no failure of the work.
        let _ = write!(stderr(), "\r{text}\x1b[K");
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}

/// A bar of which `part` of `whole` is filled.
pub fn bar(part: Duration, whole: Duration) -> String {
    let share = part.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE);
    let filled = (share.clamp(0.0, 1.0) * BAR as f64) as usize;
    format!("[{}{}]", "█".repeat(filled), "░".repeat(BAR - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_from_the_left() {
        let bar = |part| bar(Duration::from_secs(part), Duration::from_secs(30));
        assert_eq!(bar(0), format!("[{}]", "░".repeat(30)));
        assert_eq!(bar(1), format!("[█{}]", "░".repeat(29)));
        assert_eq!(bar(40), format!("[{}]", "█".repeat(30)));
    }
}
