//! The options, each declared once.
//!
//! The environment parser in [`crate::front`], the CLI's flags and help, and
//! `docs/options.md` all derive from [`OPTIONS`]. Nothing here allocates: the
//! library reads its options before the first block exists.

use core::fmt;

/// What values an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of the listed words.
    Choice(&'static [&'static str]),
    /// A number of bytes, with an optional suffix `K`, `M` or `G` (powers of 1,024), within the range.
    Bytes {
        /// Smallest accepted value, in bytes.
        min: u64,
        /// Largest accepted value, in bytes.
        max: u64,
    },
    /// A number of milliseconds within the range.
    Millis {
        /// Smallest accepted value, in ms.
        min: u64,
        /// Largest accepted value, in ms.
        max: u64,
    },
    /// A file path.
    Path,
}

/// One option: the CLI flag is `--name`, the variable is `env`.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// The flag's name, without the dashes.
    pub name: &'static str,
    /// The environment variable.
    pub env: &'static str,
    /// Accepted values.
    pub kind: Kind,
    /// The value in force when the variable is absent.
    pub default: &'static str,
    /// What the flag means when it stands alone (`--name`); `None`: it needs a value.
    pub bare: Option<&'static str>,
    /// One sentence for people.
    pub doc: &'static str,
}

/// The form of an option's flag on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// `--name VALUE`.
    Value,
    /// `--name` or `--name=VALUE`; alone it means the word given here.
    Optional(&'static str),
    /// `--no-name`: a switch that is on until it is turned off.
    Off,
}

impl Declaration {
    /// The form of this option's flag.
    #[must_use]
    pub fn flag(&self) -> Flag {
        match self.bare {
            Some(word) => Flag::Optional(word),
            None if self.kind == SWITCH && self.default == "1" => Flag::Off,
            None => Flag::Value,
        }
    }
}

/// Off or on.
pub const SWITCH: Kind = Kind::Choice(&["0", "1"]);

/// Every option Neap knows.
pub static OPTIONS: &[Declaration] = &[
    Declaration {
        name: "stats",
        env: "NEAP_STATS",
        kind: Kind::Choice(&["off", "text", "json"]),
        default: "off",
        bare: Some("text"),
        doc: "Write one page of statistics when the process exits.",
    },
    Declaration {
        name: "stats-file",
        env: "NEAP_STATS_FILE",
        kind: Kind::Path,
        default: "",
        bare: None,
        doc: "Append the statistics to this file instead of standard error.",
    },
    Declaration {
        name: "count",
        env: "NEAP_COUNT",
        kind: SWITCH,
        default: "0",
        bare: Some("1"),
        doc: "Count every call and every requested byte exactly (slower: the fast path is off).",
    },
    Declaration {
        name: "check",
        env: "NEAP_CHECK",
        kind: SWITCH,
        default: "0",
        bare: Some("1"),
        doc: "Quarantine freed blocks and catch every second free of one still in quarantine (slower).",
    },
    Declaration {
        name: "decay",
        env: "NEAP_DECAY",
        kind: Kind::Millis {
            min: 0,
            max: 3_600_000,
        },
        default: "1000",
        bare: None,
        doc: "How long a free page may stay resident, in milliseconds.",
    },
    Declaration {
        name: "thread-cache",
        env: "NEAP_THREAD_CACHE",
        kind: Kind::Bytes {
            min: 0,
            max: 1 << 30,
        },
        default: "1M",
        bare: None,
        doc: "Most bytes of free blocks that one thread's magazines may hold.",
    },
    Declaration {
        name: "cache",
        env: "NEAP_CACHE",
        kind: Kind::Bytes {
            min: 0,
            max: 1 << 40,
        },
        default: "64M",
        bare: None,
        doc: "Most bytes of free blocks that all magazines of the process may hold.",
    },
    Declaration {
        name: "deepbind",
        env: "NEAP_DEEPBIND",
        kind: Kind::Choice(&["strip", "keep"]),
        default: "strip",
        bare: None,
        doc: "Whether dlopen's RTLD_DEEPBIND is taken out (kept, it mixes two heaps in one process).",
    },
    Declaration {
        name: "children",
        env: "NEAP_CHILDREN",
        kind: SWITCH,
        default: "1",
        bare: None,
        doc: "Programs that this one starts run under Neap too.",
    },
];

/// An accepted value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// The word of [`Kind::Choice`] that was given.
    Choice(&'static str),
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

/// Reads `text` as a value of `kind`.
///
/// # Errors
///
/// [`Rejected`] if `text` is no such value or stands outside the range.
pub fn parse(kind: Kind, text: &[u8]) -> Result<Value<'_>, Rejected> {
    match kind {
        Kind::Choice(words) => choice(words, text),
        Kind::Bytes { min, max } => within(bytes(text), min, max).map(Value::Bytes),
        Kind::Millis { min, max } => within(number(text), min, max).map(Value::Millis),
        Kind::Path => (!text.is_empty() && !text.contains(&0)).then_some(Value::Path(text)),
    }
    .ok_or_else(|| Rejected {
        kind,
        nearest: nearest_word(kind, text),
    })
}

/// The option read from the variable `env`.
#[must_use]
pub fn find(env: &[u8]) -> Option<&'static Declaration> {
    OPTIONS.iter().find(|option| option.env.as_bytes() == env)
}

/// The variable whose name is nearest to the unknown `env`, if one is near enough
/// to be what was meant.
#[must_use]
pub fn nearest_variable(env: &[u8]) -> Option<&'static str> {
    let word = env.strip_prefix(PREFIX.as_bytes())?;
    let suffixes = OPTIONS.iter().map(|option| &option.env[PREFIX.len()..]);
    let suffix = nearest(word, suffixes)?;
    OPTIONS
        .iter()
        .map(|option| option.env)
        .find(|env| &env[PREFIX.len()..] == suffix)
}

/// What every variable of Neap begins with.
pub const PREFIX: &str = "NEAP_";

/// The candidate nearest to `word` by edit distance, the first of several equally
/// near, if at most a third of the letters differ.
#[must_use]
pub fn nearest<'a>(word: &[u8], among: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    among
        .filter_map(|candidate| Some((distance(word, candidate.as_bytes())?, candidate)))
        .filter(|&(edits, candidate)| edits <= candidate.len().max(3) / 3)
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// No name that is compared is longer; longer ones are near to nothing.
const LONGEST: usize = 32;

/// How many letters must be put in, taken out, changed or swapped with their
/// neighbour to make one word of the other, upper and lower case being equal.
/// `None` if a word is too long to be compared.
fn distance(a: &[u8], b: &[u8]) -> Option<usize> {
    if a.len() > LONGEST || b.len() > LONGEST {
        return None;
    }
    let mut before = [0; LONGEST + 1];
    let mut last: [usize; LONGEST + 1] = core::array::from_fn(|column| column);
    for row in 1..=a.len() {
        let mut next = [row; LONGEST + 1];
        for column in 1..=b.len() {
            let changed = usize::from(!a[row - 1].eq_ignore_ascii_case(&b[column - 1]));
            let mut edits = (last[column] + 1)
                .min(next[column - 1] + 1)
                .min(last[column - 1] + changed);
            if swapped(a, row, b, column) {
                edits = edits.min(before[column - 2] + 1);
            }
            next[column] = edits;
        }
        (before, last) = (last, next);
    }
    Some(last[b.len()])
}

/// Whether the two letters of `a` that end at `row` are those of `b` that end at
/// `column`, in the other order.
fn swapped(a: &[u8], row: usize, b: &[u8], column: usize) -> bool {
    row > 1
        && column > 1
        && a[row - 1].eq_ignore_ascii_case(&b[column - 2])
        && a[row - 2].eq_ignore_ascii_case(&b[column - 1])
}

fn choice(words: &'static [&'static str], text: &[u8]) -> Option<Value<'static>> {
    words
        .iter()
        .find(|word| word.as_bytes() == text)
        .map(|word| Value::Choice(word))
}

fn nearest_word(kind: Kind, text: &[u8]) -> Option<&'static str> {
    match kind {
        Kind::Choice(words) if kind != SWITCH => nearest(text, words.iter().copied()),
        _ => None,
    }
}

fn within(value: Option<u64>, min: u64, max: u64) -> Option<u64> {
    value.filter(|value| (min..=max).contains(value))
}

fn bytes(text: &[u8]) -> Option<u64> {
    let (last, digits) = text.split_last()?;
    match last.to_ascii_uppercase() {
        b'K' => number(digits)?.checked_mul(1 << 10),
        b'M' => number(digits)?.checked_mul(1 << 20),
        b'G' => number(digits)?.checked_mul(1 << 30),
        _ => number(text),
    }
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

/// The accepted values in words: `0 or 1`, `0 to 1G bytes (suffix K, M or G)`.
impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Choice(words) => list(words, out),
            Self::Bytes { min, max } => {
                write!(
                    out,
                    "{} to {} bytes (suffix K, M or G)",
                    Short(min),
                    Short(max)
                )
            }
            Self::Millis { min, max } => write!(out, "{min} to {max} milliseconds"),
            Self::Path => out.write_str("a file path"),
        }
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
            n if n % (1 << 30) == 0 => write!(out, "{}G", n >> 30),
            n if n % (1 << 20) == 0 => write!(out, "{}M", n >> 20),
            n if n % (1 << 10) == 0 => write!(out, "{}K", n >> 10),
            n => write!(out, "{n}"),
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
    fn every_declaration_is_sound() {
        for option in OPTIONS {
            let name = option.name.to_uppercase().replace('-', "_");
            assert_eq!(option.env, format!("{PREFIX}{name}"));
            assert!(
                option.name.len() <= LONGEST,
                "{} is too long to be compared",
                option.name
            );
            assert_eq!(
                OPTIONS
                    .iter()
                    .filter(|other| other.env == option.env)
                    .count(),
                1
            );
            for value in option.bare.into_iter().chain([option.default]) {
                let accepted = parse(option.kind, value.as_bytes()).is_ok();
                assert_eq!(accepted, !value.is_empty(), "{}={value}", option.env);
            }
            assert!(option.doc.ends_with('.'));
        }
    }

    #[test]
    fn bytes_take_suffixes_and_keep_to_the_range() {
        assert_eq!(parse(SIZE, b"4096"), Ok(Value::Bytes(4096)));
        assert_eq!(parse(SIZE, b"4k"), Ok(Value::Bytes(4096)));
        assert_eq!(parse(SIZE, b"512M"), Ok(Value::Bytes(512 << 20)));
        assert_eq!(parse(SIZE, b"1G"), Ok(Value::Bytes(1 << 30)));
        for wrong in [
            "",
            "K",
            "4095",
            "2G",
            "-1",
            "+5K",
            "4 K",
            "4KB",
            "0x1000",
            "99999999999999999999",
            "18446744073709551615G",
        ] {
            assert!(parse(SIZE, wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn milliseconds_take_no_suffix() {
        let kind = Kind::Millis {
            min: 0,
            max: 3_600_000,
        };
        assert_eq!(parse(kind, b"0"), Ok(Value::Millis(0)));
        assert_eq!(parse(kind, b"3600000"), Ok(Value::Millis(3_600_000)));
        assert!(parse(kind, b"1K").is_err());
        assert!(parse(kind, b"3600001").is_err());
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
            "expected 4K to 1G bytes (suffix K, M or G)"
        );
        assert_eq!(
            says(Kind::Millis { min: 5, max: 9 }, "x"),
            "expected 5 to 9 milliseconds"
        );
    }

    #[test]
    fn distances_are_edits() {
        let edits = |a: &str, b: &str| distance(a.as_bytes(), b.as_bytes());
        assert_eq!(edits("", ""), Some(0));
        assert_eq!(edits("", "abc"), Some(3));
        assert_eq!(edits("abc", ""), Some(3));
        assert_eq!(edits("decay", "DECAY"), Some(0));
        assert_eq!(edits("decya", "decay"), Some(1));
        assert_eq!(edits("kitten", "sitting"), Some(3));
        assert_eq!(
            edits(&"a".repeat(LONGEST), &"b".repeat(LONGEST)),
            Some(LONGEST)
        );
        assert_eq!(edits(&"a".repeat(LONGEST + 1), "a"), None);
    }

    #[test]
    fn the_nearest_variable_is_near() {
        assert_eq!(nearest_variable(b"NEAP_DECYA"), Some("NEAP_DECAY"));
        assert_eq!(nearest_variable(b"NEAP_STATSFILE"), Some("NEAP_STATS_FILE"));
        assert_eq!(nearest_variable(b"NEAP_stats"), Some("NEAP_STATS"));
        assert_eq!(
            nearest_variable(b"NEAP_THREADCACHE"),
            Some("NEAP_THREAD_CACHE")
        );
        assert_eq!(nearest_variable(b"NEAP_COLOUR"), None);
        assert_eq!(nearest_variable(b"NEAP_"), None);
        assert_eq!(nearest_variable(b"DECAY"), None);
    }

    #[test]
    fn variables_are_found_by_their_whole_name() {
        assert_eq!(find(b"NEAP_DECAY").map(|option| option.name), Some("decay"));
        assert!(find(b"NEAP_DECA").is_none());
    }
}
