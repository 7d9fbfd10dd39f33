//! What makes a finding. Judges the lines of the ledger at the peak, and detects a heap that keeps
//! growing.

use crate::recording::format::Told;
use crate::report::date::seconds;
use crate::report::known::{History, Known, held};
use crate::report::subject::Subject;
use crate::report::timeline::sum;
use neap_shared::ledger::{Ledger, Requested};
use neap_shared::stats::Bytes;
use serde::Serialize;

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

/// One or more lines, and the threshold from which they are reported.
struct Rule {
    kind: &'static str,
    /// Of the ledger and of the process's resident bytes.
    bytes: fn(&Ledger, u64) -> u64,
    whole: Whole,
    least: f64,
    /// What there is, why, and the remedy.
    texts: [&'static str; 3],
}

const fn rule(
    kind: &'static str,
    bytes: fn(&Ledger, u64) -> u64,
    whole: Whole,
    least: f64,
    texts: [&'static str; 3],
) -> Rule {
    Rule {
        kind,
        bytes,
        whole,
        least,
        texts,
    }
}

#[derive(Clone, Copy)]
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

#[rustfmt::skip]
const RULES: [Rule; 12] = [
    rule("free_held", |ledger, _| ledger.free_dirty, Whole::Resident, 0.25, [
        "At the peak {bytes} ({share} of {of}) was free memory, not yet given back to the kernel",
        "The program freed it a short while before; Neap keeps such pages for the decay time (1 s \
         unless set), because taking them again is cheaper than asking the kernel.",
        "If it stays for longer than the decay time, see whether the purge thread runs. To hold \
         less: `--decay 100ms`, or a bound by `--limit-dirty 16M`; `neap purge PID` gives it back \
         at once.",
    ]),
    rule("fragmentation", |ledger, _| sum(&[ledger.slab_free, ledger.tails]), Whole::Resident, 0.25, [
        "At the peak {bytes} ({share} of {of}) was free blocks in slabs that also hold live ones",
        "Most of the objects allocated together have died, but some in every slab live on; a page \
         with one live block cannot be given back.",
        "Allocate long-lived objects apart from short-lived ones (first, or from an arena of its \
         own), or rebuild the long-lived structures after the burst.",
    ]),
    rule("magazines", |ledger, _| ledger.magazines, Whole::Resident, 0.10, [
        "At the peak {bytes} ({share} of {of}) was free blocks in the magazines of threads",
        "Every thread keeps freed blocks at hand for its next allocations; with many threads that \
         adds up.",
        "Lower the bound of a thread (`--thread-cache 256K`) or of all together (`--cache 16M`), \
         or use fewer threads.",
    ]),
    rule("stacks", stacks, Whole::Resident, 0.25, [
        "At the peak {bytes} ({share} of {of}) was stacks of coroutines",
        "Every suspended coroutine keeps the pages its stack has touched.",
        "Bound how many are in flight, move large local arrays to the heap, or suspend less \
         deeply.",
    ]),
    rule("huge_excess", |ledger, _| ledger.huge_excess, Whole::Resident, 0.10, [
        "At the peak {bytes} ({share} of {of}) was never used and came with huge pages",
        "The kernel brings 2 MiB at once where huge pages are allowed; free parts of them are \
         resident without having been touched.",
        "Try `--thp never`: fewer bytes, at the price of more page faults.",
    ]),
    rule("untouched", |ledger, _| ledger.untouched, Whole::AskedFor, 0.30, [
        "At the peak {bytes} ({share} of {of}) was asked for and never touched",
        "It costs address space and page-heap work, no RAM: the kernel gives pages at the first \
         touch.",
        "If buffers are allocated for the worst case, let them grow instead; a profile (`neap run \
         --profile`) names where they come from.",
    ]),
    rule("swapped", |ledger, _| ledger.swapped, Whole::AskedFor, 0.10, [
        "At the peak {bytes} ({share} of {of}) was swapped out",
        "The machine was short of RAM; touching these pages again waits for the disk.",
        "Give the machine or the control group more memory, or bound the program \
         (`--limit-soft`).",
    ]),
    rule("quarantine", |ledger, _| ledger.quarantine, Whole::Resident, 0.10, [
        "At the peak {bytes} ({share} of {of}) was freed blocks that the checking mode holds back",
        "`--check` keeps freed blocks for a while to catch second frees.",
        "Run without `--check` if memory matters.",
    ]),
    rule("metadata", |ledger, _| ledger.metadata, Whole::Resident, 0.10, [
        "At the peak {bytes} ({share} of {of}) was Neap's own tables and caches",
        "Tables grow with the number of slabs and of threads, not with the bytes in them.",
        "Many small threads or a heap that was once much larger are the usual reasons; if neither \
         holds, please report it.",
    ]),
    rule("sampling", |ledger, _| ledger.sampling, Whole::Resident, 0.10, [
        "At the peak {bytes} ({share} of {of}) was the pages around sampled blocks",
        "While the heap is profiled, every sampled block has pages of its own.",
        "Sample less often (`--sample 2M`); without sampling, these bytes do not exist.",
    ]),
    rule(ROUNDING, rounding, Whole::AskedFor, 0.12, [
        "Size classes added {bytes} ({share}) to what the program asked for",
        "Requests are rounded up to the next class; sizes just above one waste most.",
        "`neap tune -- PROGRAM` computes the classes that suit this program; a profile \
         (`--profile`) names where the sizes come from.",
    ]),
    rule("not_ours", |ledger, rss| rss.saturating_sub(ledger.resident), Whole::Process, 0.5, [
        "{bytes} ({share} of the process) is not in the heap at all",
        "Code, mapped files, the stacks of threads, and mappings that the program or its runtime \
         makes itself with mmap.",
        "`/proc/PID/smaps` of the running process names them. A runtime with a heap of its own \
         (Java, Go, JavaScript) has options for its size; CPython keeps small objects to itself \
         unless `PYTHONMALLOC=malloc`.",
    ]),
];

fn stacks(ledger: &Ledger, _: u64) -> u64 {
    sum(&[ledger.stacks_used, ledger.stacks_idle, ledger.stacks_free])
}

/// 0 if the library did not count it.
fn rounding(ledger: &Ledger, _: u64) -> u64 {
    match ledger.requested_by {
        by if by == Requested::Guessed as u64 => 0,
        _ => ledger.rounding,
    }
}

/// The findings about the heap at its peak, if that is known.
pub fn findings(subject: &Subject) -> Vec<Finding> {
    let Some(told) = subject.history().peak().and_then(Known::get) else {
        return Vec::new();
    };
    RULES
        .iter()
        .filter_map(|rule| rule.finding(&told))
        .collect()
}

impl Rule {
    fn finding(&self, told: &Told) -> Option<Finding> {
        let bytes = (self.bytes)(&told.heap.ledger, told.rss);
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
