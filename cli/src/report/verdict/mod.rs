//! What is large, why, and what to do about it.
//!
//! Every finding must pass two thresholds: a share of the whole, and a floor of [`heap::FLOOR`]
//! bytes, so that small programs get no complaints. Memory that stays and grows has a lower floor,
//! [`heap::SMALL_FLOOR`], and a higher share. Valkey's `MEMORY DOCTOR` is the model. Figures of the
//! heap come only through [`super::known`].
//!
//! | file | what it judges |
//! |---|---|
//! | `heap` | the lines of the ledger near the peak by `rules.json`, and the heap over time |
//! | `places` | the sites of the profile |

mod heap;
mod places;
#[cfg(test)]
mod tests;

use super::date::seconds;
use super::known::{Peak, held};
use super::material::Errors;
use super::subject::{Sampling, Subject};
use crate::profile::{Extent, no_sample, session_words};
use crate::recording::format::{Frontend, Happening, Told};
use askama::Template;
use heap::Finding;
use neap_shared::stats::ending;
use serde::Serialize;

/// The judgement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Prose, with names in backticks.
    pub opening: String,
    /// Memory errors, then what grows, then the largest first.
    pub findings: Vec<Finding>,
}

/// Judges a process.
pub fn judge(subject: &Subject) -> Verdict {
    let growth = heap::Growth::of(subject);
    let mut findings = places::findings(subject, growth.as_ref());
    let is_explained = |finding: &Finding| [places::LEAK, heap::GROWTH].contains(&finding.kind);
    if !findings.iter().any(is_explained) {
        findings.extend(growth.map(|growth| growth.finding(subject)));
    }
    let rounding_is_named = findings.iter().any(|finding| finding.kind == places::WASTE);
    findings.extend(
        heap::findings(subject)
            .into_iter()
            .filter(|finding| !(rounding_is_named && finding.kind == heap::ROUNDING)),
    );
    findings.sort_by_key(Finding::rank);
    findings.splice(0..0, memory_errors(subject));
    Verdict {
        opening: opening(subject, &findings),
        findings,
    }
}

/// How to have more samples.
const FINER: &str = "`neap run --record --sample 4K -- PROGRAM` samples more finely";

/// The prose for a process and its findings.
#[derive(Template)]
#[template(path = "opening.txt")]
struct Opening<'a> {
    subject: &'a Subject<'a>,
    name: String,
    time: String,
    peak: Option<Peak<'a>>,
    findings: &'a [Finding],
}

fn opening(subject: &Subject, findings: &[Finding]) -> String {
    let opening = Opening {
        subject,
        name: subject.program.replace('`', "'"),
        time: seconds(subject.duration_ms()),
        peak: subject.history().peak(),
        findings,
    };
    // Writing to a string does not fail.
    let text = opening.render().unwrap_or_default();
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

impl Opening<'_> {
    /// Whether the figures are those of the peak.
    fn is_known(&self) -> bool {
        let split = self.peak.and_then(|peak| peak.split);
        split.is_some_and(|split| split.holding().is_some())
    }

    /// The figures, unless they are of a heap less than half as large, which explain nothing.
    fn told(&self) -> Option<Told<'_>> {
        let Peak { taken, split, .. } = self.peak?;
        let told = split?.told();
        let is_alike = held(&told) >= taken.unwrap_or(0) / 2;
        (self.is_known() || is_alike).then_some(told)
    }
}

/// See [`Finding::kind`].
pub const MEMORY_ERROR: &str = "memory_error";

/// One finding for each process with errors.
fn memory_errors(subject: &Subject) -> Vec<Finding> {
    subject.errors.iter().map(memory_error).collect()
}

fn memory_error(errors: &Errors) -> Finding {
    let Errors { pid, count, .. } = *errors;
    let name = match errors.program.as_str() {
        "" => format!("process {pid}"),
        program => format!("`{}` (process {pid})", program.replace('`', "'")),
    };
    let plural = ending(count, "s");
    let remedy = match errors.reports.as_str() {
        "" => "unreported",
        _ => "reported",
    };
    Finding {
        kind: MEMORY_ERROR,
        headline: format!("Guarded samples found {count} memory error{plural} in {name}."),
        detail: heap::text("error"),
        remedy: heap::text(remedy),
        text: Some(errors.reports.clone()).filter(|text| !text.is_empty()),
        ..Finding::default()
    }
}
