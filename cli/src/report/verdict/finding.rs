//! A finding, and what makes one.

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
    /// Lines of another source, such as a report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Finding {
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
