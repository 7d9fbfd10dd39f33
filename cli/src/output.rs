//! Standard output: what the verbs print, and the streams that our caller left closed.

use crate::Outcome;
use crate::failure::Failure;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Fills standard streams that are closed, so that no file of ours gets their numbers. What fills
/// them is closed again by `exec`: a program that we become finds its streams as our caller left
/// them. Called once, before any file is opened.
pub fn begin() {
    for stream in 0..=2 {
        // SAFETY: plain numbers.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } >= 0 {
            continue;
        }
        IS_CLOSED.fetch_or(stream == libc::STDOUT_FILENO, Ordering::Relaxed);
        // The lowest free number is the stream's: those below it are open by now.
        // SAFETY: a C string and plain flags.
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    }
}

/// What became of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// All of it was written.
    Whole,
    /// The reader has seen enough and closed its end.
    Unread,
}

/// Writes `text` to standard output, without colours unless a terminal shows them.
///
/// # Errors
/// Standard output is closed, or cannot be written to.
pub fn write(text: &str) -> Result<Written, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::own(format!("cannot write to standard output: {why}"))
    };
    if IS_CLOSED.load(Ordering::Relaxed) {
        return Err(failed(&"it is closed; redirect it to a file or a pipe"));
    }
    let mut out = anstream::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Written::Whole),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Written::Unread),
        Err(error) => Err(failed(&error)),
    }
}

/// [`write`] as the end of a verb. A reader that has seen enough is no error.
pub fn print(text: &str) -> Outcome {
    write(text).map(|_| 0)
}
