//! A process at one moment, as tables for people.

use super::{State, View, slices, used};
use crate::profile::percent;
use crate::table::folded;
use anstyle::{AnsiColor, Style};
use askama::Template;
use neap_shared::ledger::{Ledger, Line, OF_BLOCKS, held, signed};
use neap_shared::stats::{Bytes, ClassFigures, Row, Snapshot, SpanFigures, USE_NAMES, ending};
use neap_shared::status_page::Coarse;
use std::borrow::Borrow;

/// Width of a sentence.
const WIDTH: usize = 80;
const BOLD: Style = Style::new().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default();

/// How much of a process the page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A verdict, and the ledger's large lines.
    Verdict,
    /// Every count.
    All,
}

/// The page of `neap stat`. `advice` is a line for a process that has not answered, or empty.
pub fn page(view: &View, advice: &str, detail: Detail) -> String {
    let page = Page {
        view,
        advice,
        detail,
    };
    // Writing to a string does not fail.
    page.render().unwrap_or_default()
}

#[derive(Template)]
#[template(path = "stat.txt")]
struct Page<'a> {
    view: &'a View,
    advice: &'a str,
    detail: Detail,
}

impl Page<'_> {
    /// The figures of a process that has answered.
    fn figures(&self) -> Option<&Snapshot> {
        let figures = self.view.figures.as_ref();
        figures.filter(|_| self.view.state == State::Fresh)
    }

    /// What the page heap knows of a process that has not.
    fn coarse(&self) -> Option<&Coarse> {
        let coarse = self.view.coarse.as_ref();
        coarse.filter(|_| self.figures().is_none())
    }

    /// The figures, if all are shown.
    fn in_full(&self) -> Option<&Snapshot> {
        self.figures().filter(|_| self.detail == Detail::All)
    }

    fn spans(&self) -> Option<&[SpanFigures]> {
        let spans = self.in_full().map(|figures| &figures.spans[..]);
        spans.or(self.coarse().map(|coarse| &coarse.spans[..]))
    }

    /// Whether the kernel's count of the arenas is shown.
    fn counts_arenas(&self) -> bool {
        let ledger = self.figures().map(|figures| &figures.ledger);
        let is_exact = |ledger| overcounted(self.view, ledger) == 0;
        self.detail == Detail::All || !ledger.is_some_and(is_exact)
    }

    /// A verdict leaves out lines of at most this many bytes: one line stands for them all.
    fn left_out(&self, ledger: &Ledger) -> u64 {
        match self.detail {
            Detail::Verdict => ledger.resident / 100,
            Detail::All => 0,
        }
    }

    /// The sum of the lines that are left out.
    fn others(&self, ledger: &Ledger) -> i128 {
        let lines = ledger.lines();
        let others = lines
            .iter()
            .filter(|line| line.bytes <= self.left_out(ledger));
        others.map(signed).sum()
    }
}

/// Sentences: what the process has, what beside live blocks is in the heap, and the next command.
#[derive(Template)]
#[template(path = "verdict.txt")]
struct Verdict<'a> {
    view: &'a View,
    ledger: &'a Ledger,
    over: u64,
    /// What beside live blocks is in the heap, and the line with most of it.
    unused: u64,
    most: Line,
    elsewhere: String,
}

fn verdict(view: &View, ledger: &Ledger) -> String {
    let lines = ledger.lines().into_iter().skip(OF_BLOCKS);
    let verdict = Verdict {
        view,
        ledger,
        over: overcounted(view, ledger),
        unused: ledger.resident - held(ledger),
        most: lines
            .max_by_key(|line| line.bytes)
            .expect("the ledger has such lines"),
        elsewhere: elsewhere(view),
    };
    let text = verdict.render().unwrap_or_default();
    let words: Vec<_> = text.split_ascii_whitespace().collect();
    paragraph(words.join(" "))
}

fn paragraph(text: impl AsRef<str>) -> String {
    folded(text.as_ref(), WIDTH).join("\n")
}

/// On memory outside of the heap, if that is more than a quarter of the process.
fn elsewhere(view: &View) -> String {
    let (kernel, foreign) = (view.kernel, view.kernel.foreign_rss());
    if !kernel.is_elsewhere() {
        return String::new();
    }
    format!(
        "{} ({} of the process) is not in the heap: {} of code, files and shared memory, and {} of \
         stacks and mappings that the program made itself. {}. ",
        Bytes(foreign),
        percent(foreign, kernel.process_rss),
        Bytes(kernel.files_rss.min(foreign)),
        Bytes(foreign.saturating_sub(kernel.files_rss)),
        view.hint.unwrap_or("Neap cannot reduce that")
    )
}

/// By how many bytes the ledger exceeds the kernel's count, because the process could not ask which
/// pages are resident.
fn overcounted(view: &View, ledger: &Ledger) -> u64 {
    match (
        ledger.asked_kernel,
        view.kernel.of_arenas(view.kernel.arenas_rss),
    ) {
        (0, Some(counted)) => ledger.resident.saturating_sub(counted),
        _ => 0,
    }
}

fn bytes(bytes: impl Borrow<u64>) -> Bytes {
    Bytes(*bytes.borrow())
}

fn row(sign: char, name: &str, bytes: impl Borrow<u64>, meaning: impl AsRef<str>) -> String {
    let row = Row {
        sign,
        name,
        bytes: *bytes.borrow(),
        meaning: meaning.as_ref(),
    };
    row.to_string()
}

/// The difference, with a sign.
pub fn difference(one: impl Borrow<u64>, other: impl Borrow<u64>) -> String {
    let (one, other) = (*one.borrow(), *other.borrow());
    let sign = match one.cmp(&other) {
        std::cmp::Ordering::Less => "-",
        std::cmp::Ordering::Equal => "",
        std::cmp::Ordering::Greater => "+",
    };
    format!("{sign}{}", Bytes(one.abs_diff(other)))
}

/// Bytes of a class's blocks beyond the requested ones.
fn wasted(class: &ClassFigures) -> String {
    let usable = class.allocations.saturating_mul(class.bytes);
    match class.requested {
        0 => "not counted".to_owned(),
        requested => Bytes(usable.saturating_sub(requested)).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::kernel::Extent;
    use crate::view::tests::view_at_rest;

    #[test]
    fn the_ledger_has_no_lines_of_no_bytes() {
        let mut figures = Snapshot::default();
        figures.ledger.requested = 1 << 20;
        figures.ledger.resident = 1 << 20;
        let view = View {
            figures: Some(figures),
            ..view_at_rest()
        };
        let text = page(&view, "", Detail::All);
        let lines = |sign: &str| text.lines().filter(|line| line.starts_with(sign)).count();
        assert_eq!((lines("  + "), lines("  - ")), (1, 0), "{text}");
    }

    #[test]
    fn what_the_process_could_not_ask_is_said() {
        let mut figures = Snapshot::default();
        figures.ledger.requested = 60 << 20;
        figures.ledger.resident = 60 << 20;
        let mut view = view_at_rest();
        view.figures = Some(figures);
        view.kernel.arenas_rss = 20 << 20;
        view.kernel.process_rss = 24 << 20;
        view.kernel.extent = Extent::Arenas;
        let text = page(&view, "", Detail::Verdict).replace('\n', " ");
        let words = "It has 24.0 MiB in RAM, 20.0 MiB of it in the heap. The process could not ask";
        assert!(text.contains(words), "{text}");
        assert!(text.contains("count 40.0 MiB too much"), "{text}");
        assert!(text.contains("20.0 MiB  resident in the arenas"), "{text}");
    }
}
