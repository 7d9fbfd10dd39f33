//! Errors, and exit codes with the meanings that `env`, `nohup` and `timeout` give them.

use anstyle::{AnsiColor, Style};
use std::ffi::OsStr;
use std::fmt;

/// A [`Failure`] of `neap` itself, with a message as `format!` makes it.
macro_rules! failure {
    ($($message:tt)*) => {
        $crate::failure::Failure::own(format!($($message)*))
    };
}

/// Writes one line to standard error.
macro_rules! say {
    ($($message:tt)*) => {
        $crate::failure::say(&format!($($message)*))
    };
}

/// A process did not answer in time.
pub const TIMED_OUT: u8 = 124;
/// `neap` itself failed, or was called wrongly.
pub const OWN: u8 = 125;
/// The program was found and cannot be run under Neap.
pub const NOT_EXECUTABLE: u8 = 126;
/// There is no such program.
pub const NOT_FOUND: u8 = 127;

/// One line for people, which includes the remedy, and the exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// A failure of `neap` itself.
    pub fn own(message: impl Into<String>) -> Self {
        Self::with_code(OWN, message)
    }

    /// A failure with another exit code.
    pub fn with_code(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Whether the failure says that there is no such program, or that it cannot run.
    pub fn is_of_the_program(&self) -> bool {
        [NOT_FOUND, NOT_EXECUTABLE].contains(&self.code)
    }

    /// With a further remedy.
    pub fn and(self, remedy: &str) -> Self {
        Self {
            message: format!("{}; {remedy}", self.message),
            ..self
        }
    }

    /// Writes the line to standard error and returns the exit code.
    pub fn report(&self) -> i32 {
        let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
        say!("{red}error:{red:#} {}", self.message);
        i32::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

/// The exit code, or the failure to report.
pub type Outcome = Result<i32, Failure>;

/// Prints a line of `neap`'s own to standard error. A failure to print it cannot be reported, so it
/// is ignored.
pub fn say(message: &str) {
    use std::io::Write;
    let _ = writeln!(anstream::stderr(), "neap: {message}");
}

/// Displays a name on one line, with its control characters escaped.
pub struct Shown<'a>(&'a OsStr);

/// See [`Shown`].
pub fn shown<S: AsRef<OsStr> + ?Sized>(name: &S) -> Shown<'_> {
    Shown(name.as_ref())
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string_lossy();
        if text.chars().any(char::is_control) || text.is_empty() {
            write!(out, "{text:?}")
        } else {
            out.write_str(&text)
        }
    }
}
