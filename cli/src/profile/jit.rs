//! Names machine code without a file, from `/tmp/perf-PID.map`. Runtimes with a JIT compiler write
//! that file (Node with `--perf-basic-prof`, Java with an agent, CPython from 3.12 with `-X perf`).

use crate::files;
use std::path::Path;

/// Pieces of code, sorted by address.
#[derive(Debug, Default)]
pub struct Jit {
    pieces: Vec<Piece>,
}

#[derive(Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    bytes: u64,
    name: String,
}

/// Most bytes of a map that are read.
const MOST: u64 = 64 << 20;
/// Most pieces that are kept. The shortest lines would take eight times their length.
const MOST_PIECES: usize = 1 << 20;

impl Jit {
    /// The map of a process; empty if there is none.
    pub fn of(pid: u32) -> Self {
        let name = format!("/tmp/perf-{pid}.map");
        let seen = [format!("/proc/{pid}/root{name}"), name];
        let text = seen.iter().find_map(|path| text(path));
        text.map(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// The pieces that the lines name; malformed lines are skipped.
    pub fn parse(text: &str) -> Self {
        let mut pieces: Vec<Piece> = text.lines().filter_map(piece).take(MOST_PIECES).collect();
        pieces.sort_by_key(|piece| piece.start);
        Self { pieces }
    }

    /// The name of the code at an address.
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.pieces.partition_point(|piece| piece.start <= address);
        let piece = &self.pieces[after.checked_sub(1)?];
        (address - piece.start < piece.bytes).then_some(&piece.name)
    }
}

fn text(path: &str) -> Option<String> {
    let bytes = files::foreign(Path::new(path), MOST)?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses `start bytes name`; the numbers are hexadecimal.
fn piece(line: &str) -> Option<Piece> {
    let (start, rest) = line.split_once(' ')?;
    let (bytes, name) = rest.split_once(' ')?;
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    Some(Piece {
        start: number(start)?,
        bytes: number(bytes)?,
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_address() {
        let jit = Jit::parse("2000 10 late *x.js:1\nnonsense\n1000 20 early\n1000 zz broken\n");
        assert_eq!(jit.name(0x1000), Some("early"));
        assert_eq!(jit.name(0x101f), Some("early"));
        assert_eq!(jit.name(0x1020), None);
        assert_eq!(jit.name(0x2001), Some("late *x.js:1"));
        assert_eq!(jit.name(0xfff), None);
    }

    #[test]
    fn a_map_of_short_lines_is_cut() {
        let jit = Jit::parse(&"1 1 a\n".repeat(MOST_PIECES + 1));
        assert_eq!(jit.pieces.len(), MOST_PIECES);
    }

    #[test]
    fn a_process_without_a_map_has_no_names() {
        assert_eq!(Jit::of(u32::MAX).name(0x1000), None);
    }
}
