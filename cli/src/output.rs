//! Standard output, and the standard streams that the caller left closed.

use crate::failure::Failure;
use crate::failure::Outcome;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

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
    let failed = |why: &dyn std::fmt::Display| failure!("cannot write to standard output: {why}");
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

/// [`write`] as the end of a verb. A reader that closes its end early is no error.
pub fn print(text: &str) -> Outcome {
    write(text).map(|_| 0)
}
