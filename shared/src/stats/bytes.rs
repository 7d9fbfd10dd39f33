//! Numbers of bytes as text for people.

use core::fmt::{self, Write};

/// Bytes for people: `912 B`, `14.2 KiB`, `1.5 GiB`.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return out.pad(Short::new(format_args!("{} B", self.0)).text());
        }
        let step = (self.0.ilog2() as usize / 10 - 1).min(UNITS.len() - 1);
        let tenths = (self.0 as u128 * 10) >> (10 * (step + 1));
        let short = Short::new(format_args!(
            "{}.{} {}",
            tenths / 10,
            tenths % 10,
            UNITS[step]
        ));
        out.pad(short.text())
    }
}

/// A few formatted characters, so that padding applies to them as a whole.
struct Short {
    bytes: [u8; 24],
    len: usize,
}

impl Short {
    fn new(text: fmt::Arguments<'_>) -> Short {
        let mut short = Short {
            bytes: [0; 24],
            len: 0,
        };
        // 24 bytes hold every figure that `Bytes` writes.
        let _ = short.write_fmt(text);
        short
    }

    fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("?")
    }
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn bytes_read_well() {
        let text = |bytes| format!("{}", Bytes(bytes));
        assert_eq!(text(0), "0 B");
        assert_eq!(text(1023), "1023 B");
        assert_eq!(text(1536), "1.5 KiB");
        assert_eq!(text(3 << 30), "3.0 GiB");
        assert_eq!(text(u64::MAX), "16383.9 PiB");
        assert_eq!(format!("{:>9}", Bytes(2048)), "  2.0 KiB");
    }
}
