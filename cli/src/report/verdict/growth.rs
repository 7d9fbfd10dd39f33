//! The heap over time: does it grow without end?

use super::{Finding, share, stands_out};
use crate::report::subject::Subject;
use neap::stats::Bytes;

/// Steady growth until the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// What the program held half-way, in bytes.
    pub from: u64,
    /// And at the end.
    pub to: u64,
    /// Between the two, in ms.
    pub in_ms: u64,
}

/// Fewer samples tell nothing about time.
const LEAST_SAMPLES: usize = 12;

impl Growth {
    /// Grows, in the second half, from quarter to quarter, by a fifth at least.
    pub fn of(subject: &Subject) -> Option<Self> {
        let held: Vec<(u64, u64)> = subject
            .told()
            .map(|(sample, heap)| (sample.figures_ms(), heap.ledger.requested))
            .collect();
        if held.len() < LEAST_SAMPLES {
            return None;
        }
        let quarter = |index: usize| &held[index * held.len() / 4..(index + 1) * held.len() / 4];
        let most = |index| quarter(index).iter().map(|(_, bytes)| *bytes).max();
        let least = |index| quarter(index).iter().map(|(_, bytes)| *bytes).min();
        let steady = least(2) >= most(1) && least(3) >= most(2);
        let (half, end) = (held[held.len() / 2], held[held.len() - 1]);
        let grown = end.1.saturating_sub(half.1);
        (steady && stands_out(grown, end.1, 0.2)).then_some(Self {
            from: half.1,
            to: end.1,
            in_ms: end.0.saturating_sub(half.0),
        })
    }

    /// A sentence to add to another finding.
    pub fn remark(&self) -> String {
        format!(
            " The heap was still growing at the end: by {} in its last {:.1} s.",
            Bytes(self.to - self.from),
            self.in_ms as f64 / 1e3
        )
    }

    /// A finding of its own, where no site explains it.
    pub fn finding(&self, subject: &Subject) -> Option<Finding> {
        let grown = self.to - self.from;
        let next = match subject.profile {
            Some(_) => "The table of sites below says who holds it.",
            None => "Record again with `--profile`: the report then names the places that hold it.",
        };
        Some(Finding {
            kind: "growth",
            bytes: grown,
            share: share(grown, self.to),
            of: "what the program held at the end",
            site: None,
            headline: format!(
                "What the program holds grew until the end: from {} to {} in {:.1} s.",
                Bytes(self.from),
                Bytes(self.to),
                self.in_ms as f64 / 1e3
            ),
            detail: "It rose in every quarter of the second half of the run, by a fifth at least. Data that is still being loaded looks the same as a leak.".to_owned(),
            remedy: next.to_owned(),
        })
    }
}
