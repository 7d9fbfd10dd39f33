//! Standard output, progress on standard error, and the standard streams that the caller left
//! closed.

use crate::failure::{Failure, Outcome};
use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

/// Time between two pictures of the spinner.
const TICK: Duration = Duration::from_millis(200);

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

    /// A line on standard error that shows progress, until it is dropped. Without a terminal it is
    /// hidden.
    pub fn progress(self, template: &str, length: u64) -> ProgressBar {
        let line = match self {
            Self::Normal => ProgressBar::new(length),
            Self::Quiet => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template(template).expect("the template is sound");
        line.with_style(style.progress_chars("█░").tick_chars("|/-\\ "))
            .with_finish(ProgressFinish::AndClear)
    }

    /// Does `work`. A terminal meanwhile shows what is being done.
    pub fn during<T>(self, what: &'static str, work: impl FnOnce() -> T) -> T {
        let line = self.progress("neap: {spinner} {elapsed} {wide_msg}", 0);
        let line = line.with_message(what);
        // A thread draws the ticks, and there may be no room for one.
        if !line.is_hidden() {
            line.enable_steady_tick(TICK);
        }
        work()
    }
}
