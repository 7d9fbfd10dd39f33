//! Reading and naming the values of options.

use super::nearest::nearest;
use super::options::{Kind, SWITCH};
use core::fmt;

/// An accepted value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// The word of [`Kind::Choice`] that was given.
    Choice(&'static str),
    /// Which names of [`Kind::Names`] were given: a bit for each, the first one's is the lowest.
    Names(u32),
    /// Bytes.
    Bytes(u64),
    /// Milliseconds.
    Millis(u64),
    /// A path as it was given: bytes, not necessarily UTF-8.
    Path(&'a [u8]),
}

/// Why a value was not accepted. Its `Display` says what would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected {
    kind: Kind,
    nearest: Option<&'static str>,
}

/// The word of [`Kind::Interval`] that stands for no time at all.
const ALL: &str = "all";

/// The units of time, and how many milliseconds each is.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Reads `text` as a value of `kind`.
///
/// # Errors
///
/// [`Rejected`] if `text` is no such value or is out of range.
pub fn parse(kind: Kind, text: &[u8]) -> Result<Value<'_>, Rejected> {
    match kind {
        Kind::Choice(words) => choice(words, text),
        Kind::Names(words) => names(words, text).map(Value::Names),
        Kind::Bytes { min, max } => within(bytes(text), min, max).map(Value::Bytes),
        Kind::Time { min, max } => within(millis(text), min, max).map(Value::Millis),
        Kind::Interval { .. } if text == ALL.as_bytes() => Some(Value::Millis(0)),
        Kind::Interval { min, max } => within(millis(text), min, max).map(Value::Millis),
        Kind::Path | Kind::Socket => {
            (!text.is_empty() && !text.contains(&0)).then_some(Value::Path(text))
        }
    }
    .ok_or_else(|| Rejected {
        kind,
        nearest: nearest_word(kind, text),
    })
}

fn choice(words: &'static [&'static str], text: &[u8]) -> Option<Value<'static>> {
    words
        .iter()
        .find(|word| word.as_bytes() == text || Some(**word) == third_state(text))
        .map(|word| Value::Choice(word))
}

/// The bits of names with commas between them. `None` if there is no such name.
fn names(words: &[&str], text: &[u8]) -> Option<u32> {
    match text {
        b"0" => Some(0),
        b"1" => Some((1 << words.len()) - 1),
        _ => text.split(|&byte| byte == b',').try_fold(0, |bits, name| {
            let at = words.iter().position(|word| word.as_bytes() == name)?;
            Some(bits | 1 << at)
        }),
    }
}

/// What `0` and `1` mean for a switch with a third state.
fn third_state(text: &[u8]) -> Option<&'static str> {
    match text {
        b"0" => Some("never"),
        b"1" => Some("always"),
        _ => None,
    }
}

fn nearest_word(kind: Kind, text: &[u8]) -> Option<&'static str> {
    match kind {
        Kind::Choice(words) if kind != SWITCH => nearest(text, words.iter().copied()),
        Kind::Names(words) => {
            let mut names = text.split(|&byte| byte == b',');
            let wrong = names.find(|name| !words.iter().any(|word| word.as_bytes() == *name))?;
            nearest(wrong, words.iter().copied())
        }
        _ => None,
    }
}

fn within(value: Option<u64>, min: u64, max: u64) -> Option<u64> {
    value.filter(|value| (min..=max).contains(value))
}

fn bytes(text: &[u8]) -> Option<u64> {
    let stem = text.strip_suffix(b"iB");
    let (last, digits) = stem.unwrap_or(text).split_last()?;
    match last.to_ascii_uppercase() {
        b'K' => number(digits)?.checked_mul(1 << 10),
        b'M' => number(digits)?.checked_mul(1 << 20),
        b'G' => number(digits)?.checked_mul(1 << 30),
        b'T' => number(digits)?.checked_mul(1 << 40),
        // "64iB" has no letter before its "iB".
        _ => number(text),
    }
}

fn millis(text: &[u8]) -> Option<u64> {
    UNITS
        .iter()
        .find_map(|&(unit, scale)| {
            let digits = text.strip_suffix(unit.as_bytes())?;
            number(digits)?.checked_mul(scale)
        })
        .or_else(|| number(text))
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// The accepted values in words: `0 or 1`, `1M to 64T bytes (suffix K, M, G or T, or KiB to TiB)`.
/// In the alternate form (`{:#}`) without units: `1M to 64T`.
impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Choice(words) => list(words, out),
            Self::Names(words) => {
                out.write_str("0, 1 or some of ")?;
                words.iter().enumerate().try_for_each(|(index, word)| {
                    let comma = if index == 0 { "" } else { "," };
                    write!(out, "{comma}{word}")
                })
            }
            Self::Bytes { min, max } => {
                write!(out, "{} to {}", Short(min), Short(max))?;
                full(out, " bytes (suffix K, M, G or T, or KiB to TiB)")
            }
            Self::Time { min, max } => {
                write!(out, "{} to {}", Brief(min), Brief(max))?;
                full(out, " (unit ms, s, m or h)")
            }
            Self::Interval { min, max } => {
                write!(out, "{ALL}, or {} to {}", Brief(min), Brief(max))?;
                full(out, " (unit ms, s, m or h)")
            }
            Self::Path => out.write_str("a file path"),
            Self::Socket => out.write_str("a socket's path"),
        }
    }
}

/// Writes `text`, except in the alternate form.
fn full(out: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    match out.alternate() {
        true => Ok(()),
        false => out.write_str(text),
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "expected {}", self.kind)?;
        match self.nearest {
            Some(word) => write!(out, "; did you mean {word}?"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for Rejected {}

fn list(words: &[&str], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, word) in words.iter().enumerate() {
        let joint = match words.len() - index {
            _ if index == 0 => "",
            1 => " or ",
            _ => ", ",
        };
        write!(out, "{joint}{word}")?;
    }
    Ok(())
}

/// A number of bytes with the largest suffix that loses nothing.
struct Short(u64);

impl fmt::Display for Short {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => out.write_str("0"),
            n if n % (1 << 40) == 0 => write!(out, "{}T", n >> 40),
            n if n % (1 << 30) == 0 => write!(out, "{}G", n >> 30),
            n if n % (1 << 20) == 0 => write!(out, "{}M", n >> 20),
            n if n % (1 << 10) == 0 => write!(out, "{}K", n >> 10),
            n => write!(out, "{n}"),
        }
    }
}

/// A time in ms with the largest unit that loses nothing.
struct Brief(u64);

impl fmt::Display for Brief {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut units = UNITS.iter().rev();
        match units.find(|(_, scale)| self.0 >= *scale && self.0.is_multiple_of(*scale)) {
            Some((unit, scale)) => write!(out, "{}{unit}", self.0 / scale),
            None => write!(out, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    const SIZE: Kind = Kind::Bytes {
        min: 4096,
        max: 1 << 30,
    };

    #[test]
    fn bytes_take_suffixes_and_keep_to_the_range() {
        assert_eq!(parse(SIZE, b"4096"), Ok(Value::Bytes(4096)));
        assert_eq!(parse(SIZE, b"4k"), Ok(Value::Bytes(4096)));
        assert_eq!(parse(SIZE, b"512M"), Ok(Value::Bytes(512 << 20)));
        assert_eq!(parse(SIZE, b"1G"), Ok(Value::Bytes(1 << 30)));
        assert_eq!(parse(SIZE, b"4KiB"), Ok(Value::Bytes(4096)));
        assert_eq!(parse(SIZE, b"100MiB"), Ok(Value::Bytes(100 << 20)));
        assert_eq!(parse(SIZE, b"1GiB"), Ok(Value::Bytes(1 << 30)));
        for wrong in [
            "",
            "K",
            "4095",
            "2G",
            "-1",
            "+5K",
            "4 K",
            "4KB",
            "100MB",
            "0.5G",
            "iB",
            "KiB",
            "8192iB",
            "8192B",
            "4K iB",
            "4KiBiB",
            "0x1000",
            "99999999999999999999",
            "18446744073709551615G",
            "18446744073709551615T",
        ] {
            assert!(parse(SIZE, wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_may_be_tebibytes() {
        let kind = Kind::Bytes {
            min: 1 << 20,
            max: 1 << 46,
        };
        assert_eq!(parse(kind, b"1T"), Ok(Value::Bytes(1 << 40)));
        assert_eq!(parse(kind, b"64t"), Ok(Value::Bytes(1 << 46)));
        assert!(parse(kind, b"65T").is_err());
        let says = format!("{kind}");
        assert_eq!(says, "1M to 64T bytes (suffix K, M, G or T, or KiB to TiB)");
        assert_eq!(format!("{kind:#}"), "1M to 64T");
    }

    #[test]
    fn names_are_all_none_or_a_list() {
        let kind = Kind::Names(&["one", "two", "three"]);
        for (text, bits) in [
            ("0", 0),
            ("1", 7),
            ("two", 2),
            ("three,one", 5),
            ("two,two", 2),
        ] {
            assert_eq!(parse(kind, text.as_bytes()), Ok(Value::Names(bits)));
        }
        for wrong in [
            "", "2", "four", "one,", ",", "one two", "one, two", "ONE", "1,one",
        ] {
            assert!(parse(kind, wrong.as_bytes()).is_err(), "{wrong}");
        }
        let said = format!("{}", parse(kind, b"one,thre").unwrap_err());
        assert_eq!(
            said,
            "expected 0, 1 or some of one,two,three; did you mean three?"
        );
    }

    #[test]
    fn times_have_a_unit_and_bare_numbers_are_milliseconds() {
        let kind = Kind::Time {
            min: 0,
            max: 3_600_000,
        };
        for (text, ms) in [
            ("0", 0),
            ("500", 500),
            ("500ms", 500),
            ("2s", 2_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("3600000", 3_600_000),
        ] {
            let value = parse(kind, text.as_bytes());
            assert_eq!(value, Ok(Value::Millis(ms)), "{text}");
        }
        for wrong in [
            "",
            "s",
            "ms",
            "1K",
            "1.5s",
            "1 s",
            "-1s",
            "2h",
            "3600001",
            "1S",
            "99999999999999999s",
        ] {
            assert!(parse(kind, wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_switch_with_a_third_state_takes_0_and_1() {
        let kind = Kind::Choice(&["auto", "never", "always"]);
        assert_eq!(parse(kind, b"0"), Ok(Value::Choice("never")));
        assert_eq!(parse(kind, b"1"), Ok(Value::Choice("always")));
        assert_eq!(parse(SWITCH, b"1"), Ok(Value::Choice("1")));
        assert!(parse(Kind::Choice(&["off", "text"]), b"0").is_err());
    }

    #[test]
    fn paths_are_bytes() {
        assert_eq!(parse(Kind::Path, b"/a\xFF b"), Ok(Value::Path(b"/a\xFF b")));
        assert!(parse(Kind::Path, b"").is_err());
    }

    #[test]
    fn a_rejection_says_what_is_accepted() {
        let says = |kind, text: &str| format!("{}", parse(kind, text.as_bytes()).unwrap_err());
        let words = Kind::Choice(&["off", "text", "json"]);
        assert_eq!(
            says(words, "jsn"),
            "expected off, text or json; did you mean json?"
        );
        assert_eq!(
            says(words, "TEXT"),
            "expected off, text or json; did you mean text?"
        );
        assert_eq!(says(SWITCH, "2"), "expected 0 or 1");
        assert_eq!(
            says(SIZE, "1"),
            "expected 4K to 1G bytes (suffix K, M, G or T, or KiB to TiB)"
        );
        assert_eq!(
            says(Kind::Time { min: 5, max: 9_000 }, "x"),
            "expected 5ms to 9s (unit ms, s, m or h)"
        );
    }
}
