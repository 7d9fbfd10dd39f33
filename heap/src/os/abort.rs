//! The only place that ends the process: it writes one line without allocating, and aborts.

use super::file::write_all;
use core::fmt::{self, Write};

/// Most bytes of one message, prefix and newline included; the rest is cut.
const LINE_BYTES: usize = 512;

/// A line under construction on the stack.
struct Line {
    text: [u8; LINE_BYTES],
    len: usize,
}

impl Line {
    fn format(args: fmt::Arguments<'_>) -> Self {
        let mut line = Self {
            text: [0; LINE_BYTES],
            len: 0,
        };
        // A message too long is cut, not lost: `write_str` keeps what fits.
        let _ = line.write_fmt(format_args!("neap: {args}"));
        line.text[line.len] = b'\n';
        line.len += 1;
        line
    }

    fn bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte is the newline's.
        let fits = text.len().min(LINE_BYTES - 1 - self.len);
        self.text[self.len..self.len + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.len += fits;
        if fits == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

/// Writes `neap: <message>` to standard error and aborts the process.
#[cold]
#[inline(never)]
pub fn fatal(args: fmt::Arguments<'_>) -> ! {
    warn(args);
    abort()
}

/// Aborts the process.
pub fn abort() -> ! {
    // SAFETY: abort may be called at any point.
    unsafe { libc::abort() }
}

/// Writes `neap: <message>` to standard error, in one write where the kernel takes it whole.
#[cold]
#[inline(never)]
pub fn warn(args: fmt::Arguments<'_>) {
    // A closed standard error is no reason to fail: nothing could read the line.
    let _ = write_all(libc::STDERR_FILENO, Line::format(args).bytes());
}

/// Bytes that are most likely text.
pub struct Lossy<'a>(pub &'a [u8]);

impl fmt::Display for Lossy<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.utf8_chunks().try_for_each(|chunk| {
            out.write_str(chunk.valid())?;
            out.write_str(if chunk.invalid().is_empty() {
                ""
            } else {
                "\u{fffd}"
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    #[test]
    fn a_line_has_prefix_and_newline() {
        assert_eq!(
            Line::format(format_args!("double free of {:#x}", 64)).bytes(),
            b"neap: double free of 0x40\n"
        );
    }

    #[test]
    fn a_long_line_is_cut_and_still_ends() {
        let long: String = "x".repeat(2 * LINE_BYTES);
        let line = Line::format(format_args!("{long}"));
        assert_eq!(line.bytes().len(), LINE_BYTES);
        assert_eq!(line.bytes()[LINE_BYTES - 1], b'\n');
    }
}
