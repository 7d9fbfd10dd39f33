//! Standard output, progress on standard error, and the standard streams that the caller left
//! closed.

use crate::failure::{Failure, Outcome};
use clap::ArgMatches;
use rustix::termios::tcgetwinsize;
use std::io::{ErrorKind, IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Opens closed standard streams, so that no other file gets their numbers. `exec` closes them
/// again, so a program that replaces this process finds its streams as the caller left them. Called
/// once, before any other file is opened.
pub fn begin() {
    for stream in 0..=2 {
        // SAFETY: plain numbers.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } >= 0 {
            continue;
        }
        IS_CLOSED.fetch_or(stream == libc::STDOUT_FILENO, Ordering::Relaxed);
        // The lowest free number is the stream's, because all numbers below it are open. SAFETY: a
        // C string and plain flags.
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    }
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// All of it was written.
    Whole,
    /// The reader closed its end early.
    Unread,
}

/// Writes `text` to standard output, with colours only on a terminal that shows them.
///
/// # Errors
/// Standard output is closed, or cannot be written to.
pub fn write(text: &str) -> Result<Written, Failure> {
    write_to(anstream::stdout(), text.as_bytes())
}

fn write_to(mut out: impl Write, bytes: &[u8]) -> Result<Written, Failure> {
    let failed = |why: &dyn std::fmt::Display| failure!("cannot write to standard output: {why}");
    if IS_CLOSED.load(Ordering::Relaxed) {
        return Err(failed(&"it is closed; redirect it to a file or a pipe"));
    }
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(Written::Whole),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Written::Unread),
        Err(error) => Err(failed(&error)),
    }
}

/// [`write`] as the end of a verb. A reader that closes its end early is no error.
pub fn print(text: &str) -> Outcome {
    write(text).map(|_| 0)
}

/// [`print`] for bytes, which are written as they are.
pub fn print_bytes(bytes: &[u8]) -> Outcome {
    write_to(std::io::stdout(), bytes).map(|_| 0)
}

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
        if matches.get_flag("quiet") {
            Self::Quiet
        } else {
            Self::Normal
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
