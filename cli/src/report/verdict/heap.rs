//! What makes a finding. Judges the lines of the ledger at the peak, and detects a heap that keeps
//! growing.

use crate::recording::format::Told;
use crate::report::date::seconds;
use crate::report::known::{History, held};
use crate::report::subject::Subject;
use neap_shared::ledger::Requested;
use neap_shared::stats::Bytes;
use serde::{Deserialize, Serialize};

/// Fewer bytes than this are not reported.
pub const FLOOR: u64 = 10_000_000;

/// Memory that a program keeps is reported from this many bytes on, if it is a large part of the
/// program.
pub const SMALL_FLOOR: u64 = 500_000;

/// A notable part of the process's memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Finding {
    /// An identifier for tools.
    pub kind: &'static str,
    /// How much, in bytes.
    pub bytes: u64,
    /// As a share of `of`, 0 to 1.
    pub share: f64,
    /// The whole that `share` refers to.
    pub of: &'static str,
    /// The function, if the finding is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// One sentence, with names in backticks.
    pub headline: String,
    /// Why.
    pub detail: String,
    /// The remedy.
    pub remedy: String,
    /// Lines of another source, such as a report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Finding {
    /// `bytes` of a whole, which has a name, with a headline, the reason and a remedy.
    pub fn new(
        kind: &'static str,
        bytes: u64,
        (whole, of): (u64, &'static str),
        [headline, detail, remedy]: [String; 3],
    ) -> Self {
        Self {
            kind,
            bytes,
            share: share(bytes, whole),
            of,
            headline,
            detail,
            remedy,
            ..Self::default()
        }
    }

    /// The share in percent, for a bar.
    pub fn percent(&self) -> f64 {
        (self.share * 100.0).clamp(0.0, 100.0)
    }
}

/// The share of `part` in `whole`.
pub fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => part as f64 / whole as f64,
    }
}

/// Whether `part` passes both thresholds.
pub fn stands_out(part: u64, whole: u64, least: f64) -> bool {
    part >= FLOOR && share(part, whole) >= least
}

/// Whether `part` is small in absolute terms but a large part of a small program: a third of the
/// whole, and an eighth of the highest resident count.
pub fn stands_out_in_small(part: u64, whole: u64, most: u64) -> bool {
    part >= SMALL_FLOOR && share(part, whole) >= 1.0 / 3.0 && part >= most / 8
}

/// A share in percent.
pub fn percent(part: u64, whole: u64) -> String {
    match 100.0 * share(part, whole) {
        part if part > 0.0 && part < 0.5 => "under 1 %".to_owned(),
        part => format!("{part:.0} %"),
    }
}

/// See [`Finding::kind`].
pub const ROUNDING: &str = "rounding";

/// One or more lines of the ledger, and the threshold from which they are reported.
#[derive(Deserialize)]
struct Rule {
    kind: &'static str,
    /// Names of lines, or `not_ours` for what is resident outside the heap.
    lines: Vec<&'static str>,
    whole: Whole,
    least: f64,
    /// What there is, why, and the remedy.
    texts: [&'static str; 3],
}

/// All rules.
fn rules() -> Vec<Rule> {
    serde_json::from_str(include_str!("rules.json")).expect("a test reads the rules")
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Whole {
    Resident,
    AskedFor,
    Process,
}

impl Whole {
    fn of(self, told: &Told) -> (u64, &'static str) {
        match self {
            Self::Resident => (told.heap.ledger.resident, "the heap's resident memory"),
            Self::AskedFor => (held(told), "what the program held"),
            Self::Process => (told.rss, "the process's resident memory"),
        }
    }
}

/// The findings about the heap at its peak, if that is known.
pub fn findings(subject: &Subject) -> Vec<Finding> {
    let Some(told) = subject.history().peak().and_then(Result::ok) else {
        return Vec::new();
    };
    let rules = rules().into_iter();
    rules.filter_map(|rule| rule.finding(&told)).collect()
}

impl Rule {
    fn bytes(&self, told: &Told) -> u64 {
        let ledger = &told.heap.ledger;
        let guessed = ledger.requested_by == Requested::Guessed as u64;
        let lines = ledger.lines().map(|line| (line.name, line.bytes));
        let apart = ("not_ours", told.rss.saturating_sub(ledger.resident));
        let all = lines.into_iter().chain([apart]);
        // The library did not count what a guess is based on.
        let known = all.filter(|(name, _)| !(guessed && *name == ROUNDING));
        let ours = known.filter(|(name, _)| self.lines.contains(name));
        ours.fold(0, |sum, (_, bytes)| sum.saturating_add(bytes))
    }

    fn finding(&self, told: &Told) -> Option<Finding> {
        let bytes = self.bytes(told);
        let (whole, of) = self.whole.of(told);
        let [what, why, remedy] = self.texts;
        stands_out(bytes, whole, self.least).then(|| {
            let headline = what.replace("{bytes}", &Bytes(bytes).to_string());
            let headline = headline.replace("{share}", &percent(bytes, whole));
            let headline = headline.replace("{of}", of) + ".";
            let texts = [headline, why.to_owned(), remedy.to_owned()];
            Finding::new(self.kind, bytes, (whole, of), texts)
        })
    }
}

/// Steady growth until the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Bytes half-way through the time.
    pub from: u64,
    /// Bytes at the end.
    pub to: u64,
    /// Time between the two, in ms.
    pub in_ms: u64,
    /// The count that shows it.
    by: Count,
}

/// The source of what the program holds over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    /// The requested bytes in the process's figures.
    Requested,
    /// The page heap's count of slabs and large blocks, including the free blocks in them.
    Spans,
}

/// Fewer moments do not show a trend.
const LEAST_MOMENTS: usize = 12;
/// The longest gap between moments, as one part in this many of the whole time; the end counts as
/// well.
const LONGEST_GAP: u64 = 10;

/// Times in ms, with bytes.
type Series = Vec<(u64, u64)>;

impl Growth {
    /// Growth from quarter to quarter in the second half, by at least a fifth.
    pub fn of(subject: &Subject) -> Option<Self> {
        let history = subject.history();
        let end_ms = subject.duration_ms();
        let counts = [
            (requested(&history), Count::Requested),
            (spans(&history), Count::Spans),
        ];
        let (series, by) = counts
            .into_iter()
            .find(|(series, _)| is_covered(series, end_ms))?;
        judged(&series, by, history.most())
    }

    /// A sentence for another finding.
    pub fn remark(&self) -> String {
        let what = match self.by {
            Count::Requested => "The heap was",
            Count::Spans => "Slabs and large blocks were",
        };
        let (grown, time) = (Bytes(self.to - self.from), seconds(self.in_ms));
        format!(" {what} still growing at the end: by {grown} in its last {time}.")
    }

    /// A finding of its own, if no site explains the growth.
    pub fn finding(&self, subject: &Subject) -> Option<Finding> {
        let grown = self.to - self.from;
        let next = match subject.profile {
            Some(_) => "The table of places below shows which ones hold it.",
            None => "Record again with `--profile`: the report then names the places that hold it.",
        };
        let (of, what, note) = match self.by {
            Count::Requested => (
                "what the program held at the end",
                "What the program holds",
                "",
            ),
            Count::Spans => (
                "what slabs and large blocks took at the end",
                "The memory of slabs and large blocks",
                " The process did not report its requested bytes often enough; this is the page \
                 heap's own count, with the free blocks in slabs.",
            ),
        };
        let (from, to, time) = (Bytes(self.from), Bytes(self.to), seconds(self.in_ms));
        let texts = [
            format!("{what} grew until the end: from {from} to {to} in {time}."),
            format!(
                "It rose in every quarter of the second half of the run, by a fifth at least. Data \
                 that is still being loaded looks the same as a leak.{note}"
            ),
            next.to_owned(),
        ];
        Some(Finding::new("growth", grown, (self.to, of), texts))
    }
}

fn requested(history: &History) -> Series {
    let told = history.told.iter();
    told.map(|told| (told.at_ms, told.heap.ledger.requested))
        .collect()
}

fn spans(history: &History) -> Series {
    let moments = history.moments.iter();
    moments
        .filter_map(|moment| Some((moment.t_ms, moment.spans?.taken())))
        .collect()
}

/// Whether the second half of the time up to `end_ms` is known without a long gap.
fn is_covered(series: &[(u64, u64)], end_ms: u64) -> bool {
    let (Some(first), Some(last)) = (series.first(), series.last()) else {
        return false;
    };
    let longest = (end_ms.saturating_sub(first.0) / LONGEST_GAP).max(1);
    let half = &series[series.len() / 2..];
    let mut gaps = half.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let reaches_half = half[0].0.saturating_sub(first.0) <= 6 * longest;
    series.len() >= LEAST_MOMENTS
        && reaches_half
        && gaps.all(|gap| gap <= longest)
        && end_ms.saturating_sub(last.0) <= longest
}

fn judged(series: &[(u64, u64)], by: Count, most_resident: u64) -> Option<Growth> {
    let quarter = |index: usize| &series[index * series.len() / 4..(index + 1) * series.len() / 4];
    let most = |index| quarter(index).iter().map(|(_, bytes)| *bytes).max();
    let least = |index| quarter(index).iter().map(|(_, bytes)| *bytes).min();
    let steady = least(2) >= most(1) && least(3) >= most(2);
    let (half, end) = (series[series.len() / 2], series[series.len() - 1]);
    let grown = end.1.saturating_sub(half.1);
    // In a small heap, the page heap's count may be off by 1 MiB.
    let still_grows = end.1 > most(2)?.saturating_add(grown / 8);
    let is_much_of_small =
        by == Count::Requested && stands_out_in_small(grown, end.1, most_resident);
    let is_much = stands_out(grown, end.1, 0.2) || is_much_of_small;
    (steady && still_grows && is_much).then_some(Growth {
        from: half.1,
        to: end.1,
        in_ms: end.0.saturating_sub(half.0),
        by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_shared::ledger::Ledger;

    #[test]
    fn every_rule_is_of_lines_that_there_are() {
        let names = Ledger::default().lines().map(|line| line.name);
        for rule in rules() {
            let is_there = |name: &&str| *name == "not_ours" || names.contains(name);
            assert!(rule.lines.iter().all(is_there), "{}", rule.kind);
        }
    }
}
