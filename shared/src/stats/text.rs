//! The figures for people.

use super::bytes::Bytes;
use super::snapshot::{Counted, Snapshot, USE_NAMES};
use crate::ledger::Ledger;
use core::fmt;

/// The page of `--stats`.
pub struct Text<'a>(pub &'a Snapshot);

impl fmt::Display for Text<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.0;
        for (name, bytes, meaning) in figures.lines() {
            writeln!(out, "  {name:<16} {:>11}  {meaning}", Bytes(bytes))?;
        }
        write!(out, "\n  ledger\n{}", LedgerText(&figures.ledger))?;
        calls(out, figures)?;
        writeln!(out, "\n  spans          number     bytes")?;
        for (name, figure) in USE_NAMES.iter().zip(&figures.spans) {
            let bytes = figure.slices << crate::units::SLICE_SHIFT;
            writeln!(out, "  {name:<14} {:>6} {:>9}", figure.spans, Bytes(bytes))?;
        }
        classes(out, figures)
    }
}

/// One line of a table: a sign or a space, a name, bytes, what they are.
pub struct Row<'a> {
    /// How it counts in the sum.
    pub sign: char,
    /// What it is called.
    pub name: &'a str,
    /// Bytes.
    pub bytes: u64,
    /// What they are.
    pub meaning: &'a str,
}

impl fmt::Display for Row<'_> {
    // Once in the library, not once in each table.
    #[inline(never)]
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = Bytes(self.bytes);
        writeln!(
            out,
            "  {} {:<14} {bytes:>11}  {}",
            self.sign, self.name, self.meaning
        )
    }
}

/// The ledger, line by line without those of 0 bytes, and its sum: for `--stats` and `neap stat`.
pub struct LedgerText<'a>(pub &'a Ledger);

impl fmt::Display for LedgerText<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LedgerText(ledger) = *self;
        for line in ledger.lines().iter().filter(|line| line.bytes > 0) {
            let row = Row {
                sign: line.sign.mark(),
                name: line.name,
                bytes: line.bytes,
                meaning: line.meaning,
            };
            row.fmt(out)?;
        }
        let sum = Row {
            sign: '=',
            name: "resident",
            bytes: ledger.resident,
            meaning: ledger.resident_meaning(),
        };
        sum.fmt(out)
    }
}

fn calls(out: &mut fmt::Formatter<'_>, figures: &Snapshot) -> fmt::Result {
    let refills: u64 = figures.classes.iter().map(|class| class.refills).sum();
    let flushes: u64 = figures.classes.iter().map(|class| class.flushes).sum();
    match figures.counted {
        Counted {
            known: 1..,
            allocations,
            frees,
            requested,
        } => writeln!(
            out,
            "\n  calls          {allocations} allocations of {} in all, {frees} frees",
            Bytes(requested)
        )?,
        _ => writeln!(out, "\n  calls          not counted (--count counts them)")?,
    }
    writeln!(
        out,
        "  questions      {} to the kernel about touched pages; {} time{} without an answer",
        figures.questions,
        figures.unanswered,
        ending(figures.unanswered, "s")
    )?;
    if figures.refused > 0 {
        writeln!(
            out,
            "  refused        {} request{} for memory, by a limit or by the kernel",
            figures.refused,
            ending(figures.refused, "s")
        )?;
    }
    writeln!(
        out,
        "  magazines      {refills} refill{}, {flushes} flush{}, {} thread{} now",
        ending(refills, "s"),
        ending(flushes, "es"),
        figures.threads,
        ending(figures.threads, "s")
    )
}

/// The ending of a noun after its number.
#[must_use]
pub const fn ending(count: u64, plural: &'static str) -> &'static str {
    if count == 1 { "" } else { plural }
}

fn classes(out: &mut fmt::Formatter<'_>, figures: &Snapshot) -> fmt::Result {
    writeln!(
        out,
        "\n  class   slabs    blocks      live  in magazines  refills  flushes"
    )?;
    for class in figures
        .classes
        .iter()
        .filter(|class| class.blocks > 0 || class.refills > 0)
    {
        writeln!(
            out,
            "  {:>5} {:>7} {:>9} {:>9} {:>13} {:>8} {:>8}",
            class.bytes,
            class.slabs,
            class.blocks,
            class.live(),
            class.cached,
            class.refills,
            class.flushes
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn nouns_agree_with_their_numbers() {
        let mut figures = Snapshot {
            threads: 1,
            unanswered: 1,
            ..Snapshot::default()
        };
        figures.classes[0].flushes = 1;
        let text = format!("{}", Text(&figures));
        assert!(
            text.contains(" 0 refills, 1 flush, 1 thread now\n"),
            "{text}"
        );
        assert!(text.contains("; 1 time without an answer\n"), "{text}");
    }

    #[test]
    fn refused_requests_are_told_if_there_are_any() {
        let mut figures = Snapshot::default();
        assert!(!format!("{}", Text(&figures)).contains("refused"));
        figures.refused = 1;
        let text = format!("{}", Text(&figures));
        let line = "\n  refused        1 request for memory, by a limit or by the kernel\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn the_ledger_ends_with_its_sum() {
        let ledger = Ledger {
            requested: 10 << 20,
            swapped: 2 << 20,
            resident: 8 << 20,
            asked_kernel: 1,
            ..Ledger::default()
        };
        let expected = "
  + requested         10.0 MiB  asked for by the program (estimated)
  - swapped            2.0 MiB  of live blocks, swapped out
  = resident           8.0 MiB  the sum: resident, of Neap's arenas
";
        assert_eq!(format!("\n{}", LedgerText(&ledger)), expected);
    }
}
