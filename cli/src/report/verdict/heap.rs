//! What makes a finding. Judges the lines of the ledger near the peak, and detects a heap that
//! keeps growing.

use crate::recording::format::Told;
use crate::report::date::seconds;
use crate::report::known::{History, Split, held};
use crate::report::subject::Subject;
use neap_shared::ledger::Requested;
use neap_shared::stats::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

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
    /// By how many bytes it grew; 0 if it did not.
    pub grown: u64,
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

    /// What grew most comes first, then what is largest.
    pub fn rank(&self) -> impl Ord + use<> {
        std::cmp::Reverse((self.grown, self.bytes))
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
/// See [`Finding::kind`].
pub const GROWTH: &str = "growth";

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

/// The text of this name in `texts.json`, for a finding that needs no figures.
pub fn text(name: &str) -> String {
    let texts: HashMap<&str, String> =
        serde_json::from_str(include_str!("texts.json")).expect("a test reads the texts");
    texts[name].clone()
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

/// The findings about the heap near its peak, if that is known.
pub fn findings(subject: &Subject) -> Vec<Finding> {
    let split = subject.history().peak().and_then(|peak| peak.split);
    let Some(told) = split.and_then(Split::holding) else {
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

/// Steady growth until the end, or until the program began to free everything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Bytes half-way through the time.
    pub from: u64,
    /// Bytes at its end.
    pub to: u64,
    /// Time between the two, in ms.
    pub in_ms: u64,
    /// When the growth ended, in ms, if the program freed memory after that.
    freed_from_ms: Option<u64>,
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
        let counts = [
            (requested(&history), Count::Requested),
            (spans(&history), Count::Spans),
        ];
        let mut counts = counts.into_iter().map(|(mut series, by)| {
            let freed_from_ms = without_teardown(&mut series);
            (series, by, freed_from_ms)
        });
        let end_ms = subject.duration_ms();
        let (series, by, freed_from_ms) =
            counts.find(|(series, _, freed_ms)| is_covered(series, freed_ms.unwrap_or(end_ms)))?;
        Some(Self {
            freed_from_ms,
            ..judged(&series, by, history.most())?
        })
    }

    fn until(&self) -> String {
        match self.freed_from_ms {
            None => "until the end".to_owned(),
            Some(ms) => format!("until {}, when the program began to free it", seconds(ms)),
        }
    }

    /// What grew, and the name of the whole.
    fn what(&self) -> (&'static str, &'static str) {
        match self.by {
            Count::Requested => ("What the program holds", "what the program held then"),
            Count::Spans => (
                "The memory of slabs and large blocks, by the page heap's own count,",
                "what slabs and large blocks took then",
            ),
        }
    }

    /// A sentence for another finding.
    pub fn remark(&self) -> String {
        let (grown, time) = (Bytes(self.to - self.from), seconds(self.in_ms));
        let (until, (what, _)) = (self.until(), self.what());
        format!(" {what} grew {until}, by {grown} in the last {time} of that.")
    }

    /// A finding of its own, if no site explains the growth.
    pub fn finding(&self, subject: &Subject) -> Finding {
        let next = match subject.profile {
            Some(_) => "sampled",
            None => "unsampled",
        };
        let ((what, of), grown) = (self.what(), self.to - self.from);
        let (from, to, time) = (Bytes(self.from), Bytes(self.to), seconds(self.in_ms));
        let texts = [
            format!(
                "{what} grew {}: from {from} to {to} in {time}.",
                self.until()
            ),
            text("growth"),
            text(next),
        ];
        let finding = Finding::new(GROWTH, grown, (self.to, of), texts);
        Finding { grown, ..finding }
    }
}

/// Cuts off what follows the highest point, if that is in the last quarter of the time and the
/// program freed a tenth or more after it. Returns the time of that point.
fn without_teardown(series: &mut Series) -> Option<u64> {
    let ((first_ms, _), (last_ms, last)) = (*series.first()?, *series.last()?);
    let index = (0..series.len()).max_by_key(|index| series[*index].1)?;
    let (top_ms, top) = series[index];
    let is_late = (top_ms - first_ms) / 3 >= last_ms - top_ms;
    (is_late && last < top - top / 10).then(|| {
        series.truncate(index + 1);
        top_ms
    })
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
        freed_from_ms: None,
        by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_shared::ledger::Ledger;

    #[test]
    fn every_text_is_in_the_file() {
        let sources = [
            include_str!("heap.rs"),
            include_str!("places.rs"),
            include_str!("mod.rs"),
        ];
        let called = sources
            .iter()
            .flat_map(|source| source.split("text(\"").skip(1));
        let names = called.filter_map(|rest| rest.split('"').next());
        let chosen = ["sampled", "unsampled", "reported", "unreported"];
        let chosen = chosen.into_iter().chain(["mixed", "fine", "coarse"]);
        let more = ["stayed", "session", "peak"].into_iter();
        let is_name = |name: &&str| !name.contains('\\');
        for name in names.filter(is_name).chain(chosen).chain(more) {
            assert!(!text(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn every_rule_is_of_lines_that_there_are() {
        let names = Ledger::default().lines().map(|line| line.name);
        for rule in rules() {
            let is_there = |name: &&str| *name == "not_ours" || names.contains(name);
            assert!(rule.lines.iter().all(is_there), "{}", rule.kind);
        }
    }
}
