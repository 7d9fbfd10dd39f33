//! A plan compared with the built-in classes.

use super::histogram::Histogram;
use super::plan::built_in;
use super::waste::{self, Row, Total};
use neap_shared::stats::Bytes;
use serde_json::{Value, json};
use std::fmt::Write;

/// The cost of a histogram under two tables.
pub struct Comparison<'h> {
    histogram: &'h Histogram,
    before: Vec<Row>,
    after: Vec<Row>,
    classes: usize,
}

impl<'h> Comparison<'h> {
    /// Compares the built-in classes with `sizes`.
    pub fn new(histogram: &'h Histogram, sizes: &[u16]) -> Self {
        Self {
            histogram,
            before: waste::of_table(histogram, &built_in()),
            after: waste::of_table(histogram, sizes),
            classes: sizes.len(),
        }
    }

    fn totals(&self) -> (Total, Total) {
        (Total::of(&self.before), Total::of(&self.after))
    }

    /// The share of the waste that is saved, 0 to 1.
    fn saved(&self) -> f64 {
        let (before, after) = self.totals();
        let saved = before.waste().saturating_sub(after.waste());
        saved as f64 / before.waste().max(1) as f64
    }
}

/// As tables for people.
pub fn text(comparison: &Comparison<'_>) -> String {
    let (before, after) = comparison.totals();
    let mut out = table("the classes built in", &comparison.before);
    out += &table("its own classes", &comparison.after);
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "usable over requested: {:.4} with {} classes built in, {:.4} with {} of its own",
        1.0 + before.overhead(),
        built_in().len(),
        1.0 + after.overhead(),
        comparison.classes
    );
    let _ = writeln!(
        out,
        "waste: {} before, {} after: {:.0} % less, over {} allocations of {} in all",
        Bytes(before.waste()),
        Bytes(after.waste()),
        100.0 * comparison.saved(),
        comparison.histogram.allocations(),
        Bytes(before.requested)
    );
    let large = comparison.histogram.large();
    if large.count > 0 {
        let _ = writeln!(
            out,
            "not counted here: {} allocations of {} that no slab serves",
            large.count,
            Bytes(large.bytes)
        );
    }
    out
}

fn table(title: &str, rows: &[Row]) -> String {
    let bold = anstyle::Style::new().bold();
    let mut out = format!(
        "{bold}{title:<22}{:>11} {:>11} {:>11} {:>11} {:>7}{bold:#}\n",
        "allocations", "asked", "usable", "waste", "share"
    );
    for row in rows {
        let _ = writeln!(
            out,
            "{:>12}{:>21} {:>11} {:>11} {:>11} {:>5.1} %",
            row.class,
            row.allocations,
            Bytes(row.requested).to_string(),
            Bytes(row.usable).to_string(),
            Bytes(row.waste).to_string(),
            100.0 * row.share
        );
    }
    out.push('\n');
    out
}

/// As a JSON object. Bytes unless a name says otherwise.
pub fn json(comparison: &Comparison<'_>, sizes: &[u16]) -> Value {
    let large = comparison.histogram.large();
    json!({
        "program": comparison.histogram.program,
        "allocations": comparison.histogram.allocations(),
        "large": {"allocations": large.count, "requested": large.bytes},
        "before": side(&comparison.before),
        "after": side(&comparison.after),
        "saved_part": comparison.saved(),
        "sizes": sizes,
    })
}

fn side(rows: &[Row]) -> Value {
    let total = Total::of(rows);
    json!({
        "requested": total.requested,
        "usable": total.usable,
        "waste": total.waste(),
        "overhead_part": total.overhead(),
        "classes": rows,
    })
}
