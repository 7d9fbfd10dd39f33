//! Plain data: the built-in size classes, and the file of other classes that `neap tune` writes and
//! `NEAP_CLASSES` names.
//!
//! ```text
//! neap classes 1
//! # anything
//! 16
//! 48
//! 32768
//! ```
//!
//! One block size per line, in bytes, smallest first. Sizes are multiples of 16, and the last one
//! is the largest block of a slab. The first one may be 8: it serves requests of up to 8 bytes,
//! which need no alignment of 16.

use core::fmt;

/// How many size classes there are.
pub const CLASSES: usize = 80;
/// The largest block of a slab, in bytes.
pub const MAX_BLOCK: usize = 32 << 10;
/// Of the built-in classes, the first ones are [`FINE_STEP`] apart; there are this many of them.
pub const FINE: usize = 16;
/// Bytes between two neighbours of these.
pub const FINE_STEP: usize = 8;
/// The largest of these, in bytes. Above it there are 8 classes per doubling.
pub const FINE_BYTES: usize = FINE * FINE_STEP;

/// Block sizes of the built-in classes by their numbers, in bytes, smallest first. Classes count
/// from 1; entry 0 is 0. Those that are no multiple of 16 serve only callers who state an alignment
/// of 8.
pub const BUILT_IN: [u16; CLASSES + 1] = built_in();

const fn built_in() -> [u16; CLASSES + 1] {
    let mut sizes = [0; CLASSES + 1];
    let mut index = 1;
    while index <= CLASSES {
        sizes[index] = size_of_class(index) as u16;
        index += 1;
    }
    sizes
}

const fn size_of_class(index: usize) -> usize {
    if index <= FINE {
        return index * FINE_STEP;
    }
    let (group, eighth) = ((index - FINE - 1) / 8, (index - FINE - 1) % 8);
    (FINE_BYTES << group) + ((eighth + 1) << (group + 4))
}

const _: () = assert!(BUILT_IN[CLASSES] as usize == MAX_BLOCK);

/// The first line of a file.
pub const FIRST_LINE: &str = "neap classes 1";
/// Most bytes of a file.
pub const MOST_BYTES: usize = 16 << 10;

/// Block sizes that may be put into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    list: [u16; CLASSES],
    count: usize,
}

impl Sizes {
    /// The block sizes in bytes, smallest first; at least one, the last one [`MAX_BLOCK`].
    #[must_use]
    pub fn list(&self) -> &[u16] {
        &self.list[..self.count]
    }
}

/// Why a file was not accepted. Its `Display` says it in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// It is longer than [`MOST_BYTES`].
    Long,
    /// It does not begin with [`FIRST_LINE`].
    FirstLine,
    /// This line is no number.
    Syntax(usize),
    /// The number in this line is no size that a block may have.
    Size(usize),
    /// The number in this line is not above the one before.
    Order(usize),
    /// It has more sizes than [`CLASSES`].
    Many,
    /// Its last size is not [`MAX_BLOCK`]: requests up to that many bytes need a class.
    Coverage,
}

impl fmt::Display for Rejected {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejected::Long => write!(out, "it is longer than {MOST_BYTES} bytes"),
            Rejected::FirstLine => write!(out, "its first line is not `{FIRST_LINE}`"),
            Rejected::Syntax(line) => write!(out, "line {line} is no number"),
            Rejected::Size(line) => write!(
                out,
                "line {line} is neither 8 nor a multiple of 16 up to {MAX_BLOCK}"
            ),
            Rejected::Order(line) => {
                write!(out, "the size in line {line} is not above the one before")
            }
            Rejected::Many => write!(out, "it has more than {CLASSES} sizes"),
            Rejected::Coverage => write!(out, "its last size is not {MAX_BLOCK}"),
        }
    }
}

impl core::error::Error for Rejected {}

/// Reads the text of a file.
///
/// # Errors
///
/// [`Rejected`], the first reason there is.
pub fn parse(text: &[u8]) -> Result<Sizes, Rejected> {
    if text.len() > MOST_BYTES {
        return Err(Rejected::Long);
    }
    let mut lines = (1..).zip(text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii));
    if lines.next().map(|(_, line)| line) != Some(FIRST_LINE.as_bytes()) {
        return Err(Rejected::FirstLine);
    }
    let mut sizes = Sizes {
        list: [0; CLASSES],
        count: 0,
    };
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && line[0] != b'#') {
        let size = decimal(line).ok_or(Rejected::Syntax(number))?;
        sizes.add(number, size)?;
    }
    match sizes.list().last() {
        Some(&last) if usize::from(last) == MAX_BLOCK => Ok(sizes),
        _ => Err(Rejected::Coverage),
    }
}

impl Sizes {
    fn add(&mut self, line: usize, size: usize) -> Result<(), Rejected> {
        let before = self.list().last().map_or(0, |&last| usize::from(last));
        let is_size = size == 8 || (size != 0 && size.is_multiple_of(16));
        if !is_size || size > MAX_BLOCK {
            return Err(Rejected::Size(line));
        }
        if size <= before {
            return Err(Rejected::Order(line));
        }
        let place = self.list.get_mut(self.count).ok_or(Rejected::Many)?;
        *place = size as u16;
        self.count += 1;
        Ok(())
    }
}

fn decimal(digits: &[u8]) -> Option<usize> {
    let text = core::str::from_utf8(digits).ok()?;
    // `parse` would take a sign.
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    fn file(body: &str) -> Result<Sizes, Rejected> {
        parse(format!("{FIRST_LINE}\n{body}").as_bytes())
    }

    #[test]
    fn a_file_is_read() {
        let sizes = file("# of a program\n8\n  16 \n\n48\r\n32768\n").unwrap();
        assert_eq!(sizes.list(), [8, 16, 48, 32768]);
        assert_eq!(file("32768").unwrap().list(), [32768]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(parse(b""), Err(Rejected::FirstLine));
        assert_eq!(parse(b"neap classes 2\n32768"), Err(Rejected::FirstLine));
        assert_eq!(parse(&[b'x'; MOST_BYTES + 1]), Err(Rejected::Long));
        assert_eq!(file(""), Err(Rejected::Coverage));
        assert_eq!(file("16\n64"), Err(Rejected::Coverage));
        for wrong in [
            "sixteen",
            "+16",
            "-16",
            "0x10",
            "16 32",
            "1e3",
            "16.0",
            "\u{ff}",
            "99999999999999999999999",
        ] {
            assert_eq!(file(wrong), Err(Rejected::Syntax(2)), "{wrong}");
        }
        for wrong in ["0", "1", "24", "17", "32784", "65552"] {
            let text = format!("# one\n{wrong}\n32768");
            assert_eq!(file(&text), Err(Rejected::Size(3)), "{wrong}");
        }
        assert_eq!(file("16\n16\n32768"), Err(Rejected::Order(3)));
        assert_eq!(file("32768\n16"), Err(Rejected::Order(3)));
        let many: Vec<String> = (1..=CLASSES + 1).map(|n| format!("{}", n * 16)).collect();
        assert_eq!(file(&many.join("\n")), Err(Rejected::Many));
        assert_eq!(
            format!("{}", Rejected::Size(7)),
            "line 7 is neither 8 nor a multiple of 16 up to 32768"
        );
    }
}
