//! What is large, why, and what to do about it.
//!
//! Every finding must pass two thresholds: a share of the whole, and a floor of [`FLOOR`] bytes, so
//! that small programs get no complaints. Memory that stays and grows has a lower floor,
//! [`SMALL_FLOOR`], and a higher share. Valkey's `MEMORY DOCTOR` is the model. Figures of the heap
//! come only through [`super::known`].
//!
//! | file | what it judges |
//! |---|---|
//! | `heap` | the lines of the ledger at the peak |
//! | `places` | the sites of the profile |
//! | `growth` | the heap over time |

mod growth;
mod heap;
mod opening;
mod places;

use super::subject::Subject;
use serde::Serialize;

/// Fewer bytes than this are not reported.
pub const FLOOR: u64 = 10_000_000;

/// Memory that a program keeps is reported from this many bytes on, if it is a large part of the
/// program.
pub const SMALL_FLOOR: u64 = 500_000;

/// A notable part of the process's memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
}

/// The judgement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Prose, with names in backticks.
    pub opening: String,
    /// Largest first.
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
    Verdict {
        opening: opening::text(subject, &findings),
        findings,
    }
}

/// The share of `part` in `whole`.
fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => part as f64 / whole as f64,
    }
}

/// Whether `part` passes both thresholds.
fn stands_out(part: u64, whole: u64, least: f64) -> bool {
    part >= FLOOR && share(part, whole) >= least
}

/// Whether `part` is small in absolute terms but a large part of a small program: a third of the
/// whole, and an eighth of the highest resident count.
fn stands_out_in_small(part: u64, whole: u64, most: u64) -> bool {
    part >= SMALL_FLOOR && share(part, whole) >= 1.0 / 3.0 && part >= most / 8
}

/// A share in percent.
fn percent(part: u64, whole: u64) -> String {
    format!("{:.0} %", 100.0 * share(part, whole))
}

#[cfg(test)]
mod tests;
