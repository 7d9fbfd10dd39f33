//! The only place that ends the process: it writes one line without allocating, and aborts.

use super::file::write_all;
use core::fmt::{self, Write};

/// Most bytes of a message that go out in one write, prefix and newline included.
const LINE_BYTES: usize = 512;

/// A line under construction on the stack.
struct Line<'a> {
    text: [u8; LINE_BYTES],
    len: usize,
    /// Takes what is full.
    out: &'a mut dyn FnMut(&[u8]),
}

impl Line<'_> {
    fn write(args: fmt::Arguments<'_>, out: &mut dyn FnMut(&[u8])) {
        let mut line = Line {
            text: [0; LINE_BYTES],
            len: 0,
            out,
        };
        let _ = writeln!(line, "neap: {args}");
        (line.out)(&line.text[..line.len]);
    }
}

impl Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.len == LINE_BYTES {
                (self.out)(&self.text);
                self.len = 0;
            }
            self.text[self.len] = byte;
            self.len += 1;
        }
        Ok(())
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

/// Writes `neap: <message>` to standard error, in one write if it is of at most [`LINE_BYTES`] and
/// the kernel takes it whole.
#[cold]
#[inline(never)]
pub fn warn(args: fmt::Arguments<'_>) {
    // A closed standard error is no reason to fail: nothing could read the line.
    Line::write(args, &mut |bytes| _ = write_all(libc::STDERR_FILENO, bytes));
}

/// Bytes that are most likely text, on one line: control characters are escaped.
pub struct Lossy<'a>(pub &'a [u8]);

impl fmt::Display for Lossy<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.utf8_chunks().try_for_each(|chunk| {
            chunk
                .valid()
                .chars()
                .try_for_each(|letter| match letter.is_control() {
                    true => write!(out, "{}", letter.escape_default()),
                    false => out.write_char(letter),
                })?;
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
    use std::vec::Vec;

    fn writes(args: fmt::Arguments<'_>) -> Vec<Vec<u8>> {
        let mut writes = Vec::new();
        Line::write(args, &mut |bytes| writes.push(bytes.to_vec()));
        writes
    }

    #[test]
    fn a_line_has_prefix_and_newline() {
        let line = writes(format_args!("double free of {:#x}", 64));
        assert_eq!(line, [b"neap: double free of 0x40\n"]);
    }

    #[test]
    fn a_long_line_is_whole() {
        for bytes in 500..=600 {
            let long: String = "x".repeat(bytes);
            let written = writes(format_args!("{long}"));
            assert_eq!(written.len(), (bytes + 7).div_ceil(LINE_BYTES));
            assert_eq!(written.concat(), std::format!("neap: {long}\n").as_bytes());
        }
    }

    #[test]
    fn what_is_no_text_stays_on_its_line() {
        let text = std::format!("{}", Lossy(b"caf\xc3\xa9\n\x1b[31m\xff\x7f\xc2\x9b\0."));
        assert_eq!(text, "caf\u{e9}\\n\\u{1b}[31m\u{fffd}\\u{7f}\\u{9b}\\u{0}.");
    }
}
