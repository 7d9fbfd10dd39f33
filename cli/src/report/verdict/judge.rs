//! All findings of a process, and the prose before them.

use super::finding::Finding;
use super::{growth, heap, memory, opening, places};
use crate::report::subject::Subject;
use serde::Serialize;

/// The judgement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Prose, with names in backticks.
    pub opening: String,
    /// Memory errors, then the largest first.
    pub findings: Vec<Finding>,
}

/// Judges a process.
pub fn judge(subject: &Subject) -> Verdict {
    let growth = growth::Growth::of(subject);
    let mut findings = places::findings(subject, growth.as_ref());
    if !findings.iter().any(|finding| finding.kind == places::LEAK) {
        findings.extend(growth.as_ref().and_then(|growth| growth.finding(subject)));
    }
    let rounding_is_named = findings.iter().any(|finding| finding.kind == places::WASTE);
    findings.extend(
        heap::findings(subject)
            .into_iter()
            .filter(|finding| !(rounding_is_named && finding.kind == heap::ROUNDING)),
    );
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.bytes));
    findings.splice(0..0, memory::findings(subject));
    Verdict {
        opening: opening::text(subject, &findings),
        findings,
    }
}
