//! The first line of a script as the kernel reads it, and `env`'s part of it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The kernel reads this many bytes of a file.
const HEAD: usize = 256;

/// The beginning of a file that is not ELF.
#[derive(Debug, PartialEq, Eq)]
pub enum Head {
    /// `#!interpreter argument`.
    Interpreter {
        path: PathBuf,
        argument: Option<OsString>,
    },
    /// Text without such a line: callers other than the kernel pass it to `/bin/sh`.
    Text,
    /// Neither.
    Binary,
}

impl Head {
    /// Reads the beginning of `file`.
    pub fn read(file: &Path) -> io::Result<Self> {
        let mut head = Vec::with_capacity(HEAD);
        File::open(file)?.take(HEAD as u64).read_to_end(&mut head)?;
        Ok(Self::parse(&head))
    }

    fn parse(head: &[u8]) -> Self {
        let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
        match line.strip_prefix(b"#!") {
            Some(line) => Self::parse_interpreter(line),
            None if head.contains(&0) => Self::Binary,
            None => Self::Text,
        }
    }

    fn parse_interpreter(line: &[u8]) -> Self {
        let line = trim(line);
        let (path, argument) = match line.iter().position(is_blank) {
            Some(end) => (&line[..end], trim(&line[end..])),
            None => (line, &[][..]),
        };
        if path.is_empty() || line.contains(&0) {
            return Self::Binary;
        }
        Self::Interpreter {
            path: PathBuf::from(OsStr::from_bytes(path)),
            argument: (!argument.is_empty()).then(|| OsStr::from_bytes(argument).to_owned()),
        }
    }
}

/// What `env` makes of the rest of a script's first line.
#[derive(Debug, PartialEq, Eq)]
pub enum EnvLine {
    /// It runs this program with these arguments.
    Runs(Vec<OsString>),
    /// It has options, assignments or quotes.
    Opaque,
}

impl EnvLine {
    /// Parses the one argument that the kernel passes to `env`.
    pub fn parse(argument: &OsStr) -> Self {
        let text = argument.as_bytes();
        let words: Vec<&[u8]> = match text.strip_prefix(b"-S") {
            Some(rest) => rest
                .split(is_blank)
                .filter(|word| !word.is_empty())
                .collect(),
            None => vec![text],
        };
        let names_a_program = |word: &&[u8]| !word.starts_with(b"-") && !word.contains(&b'=');
        let has_quotes = |word: &&[u8]| word.iter().any(|byte| b"'\"\\$#".contains(byte));
        if !words.first().is_some_and(names_a_program) || words.iter().any(has_quotes) {
            return Self::Opaque;
        }
        let owned = words.iter().map(|word| OsString::from_vec(word.to_vec()));
        Self::Runs(owned.collect())
    }
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interpreter(path: &str, argument: Option<&str>) -> Head {
        Head::Interpreter {
            path: path.into(),
            argument: argument.map(OsString::from),
        }
    }

    #[test]
    fn first_lines_are_read_as_the_kernel_reads_them() {
        assert_eq!(
            Head::parse(b"#!/bin/sh\necho"),
            interpreter("/bin/sh", None)
        );
        assert_eq!(
            Head::parse(b"#! \t/bin/sh  -e -u \n"),
            interpreter("/bin/sh", Some("-e -u"))
        );
        assert_eq!(
            Head::parse(b"#!/bin/sh\r\n"),
            interpreter("/bin/sh\r", None)
        );
        assert_eq!(Head::parse(b"#!\n/bin/sh"), Head::Binary);
        assert_eq!(Head::parse(b"echo\n"), Head::Text);
        assert_eq!(Head::parse(b""), Head::Text);
        assert_eq!(Head::parse(b"MZ\0\0"), Head::Binary);
    }

    #[test]
    fn env_takes_one_program_or_splits_when_told_to() {
        let runs = |words: &[&str]| EnvLine::Runs(words.iter().map(OsString::from).collect());
        assert_eq!(EnvLine::parse(OsStr::new("python3")), runs(&["python3"]));
        assert_eq!(
            EnvLine::parse(OsStr::new("python3 -u")),
            runs(&["python3 -u"])
        );
        assert_eq!(
            EnvLine::parse(OsStr::new("-S python3 -u")),
            runs(&["python3", "-u"])
        );
        assert_eq!(
            EnvLine::parse(OsStr::new("-Spython3\t-u")),
            runs(&["python3", "-u"])
        );
        for opaque in [
            "-i",
            "-S",
            "-S -i python3",
            "A=1",
            "-S A=1 python3",
            "-S sh -c 'a b'",
        ] {
            assert_eq!(
                EnvLine::parse(OsStr::new(opaque)),
                EnvLine::Opaque,
                "{opaque}"
            );
        }
    }
}
