//! Detects a heap that keeps growing.

use super::finding::{Finding, share, stands_out, stands_out_in_small};
use crate::report::date::seconds;
use crate::report::known::History;
use crate::report::subject::Subject;
use neap_shared::stats::Bytes;

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
        format!(
            " {} still growing at the end: by {} in its last {}.",
            match self.by {
                Count::Requested => "The heap was",
                Count::Spans => "Slabs and large blocks were",
            },
            Bytes(self.to - self.from),
            seconds(self.in_ms)
        )
    }

    /// A finding of its own, if no site explains the growth.
    pub fn finding(&self, subject: &Subject) -> Option<Finding> {
        let grown = self.to - self.from;
        let next = match subject.profile {
            Some(_) => "The table of places below shows which ones hold it.",
            None => "Record again with `--profile`: the report then names the places that hold it.",
        };
        Some(Finding {
            kind: "growth",
            bytes: grown,
            share: share(grown, self.to),
            of: match self.by {
                Count::Requested => "what the program held at the end",
                Count::Spans => "what slabs and large blocks took at the end",
            },
            site: None,
            text: None,
            headline: format!(
                "{} grew until the end: from {} to {} in {}.",
                match self.by {
                    Count::Requested => "What the program holds",
                    Count::Spans => "The memory of slabs and large blocks",
                },
                Bytes(self.from),
                Bytes(self.to),
                seconds(self.in_ms)
            ),
            detail: format!(
                "It rose in every quarter of the second half of the run, by a fifth at least. Data \
                 that is still being loaded looks the same as a leak.{}",
                match self.by {
                    Count::Requested => "",
                    Count::Spans =>
                        " The process did not report its requested bytes often enough; this is the \
                         page heap's own count, with the free blocks in slabs.",
                }
            ),
            remedy: next.to_owned(),
        })
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
