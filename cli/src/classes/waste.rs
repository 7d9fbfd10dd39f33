//! A table's waste by class, and a plan compared with the built-in classes.

use super::histogram::Histogram;
use super::plan::built_in;
use askama::Template;
use serde::Serialize;
use serde_json::{Value, json};

/// One class and its requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Bytes of a block.
    #[serde(rename = "bytes")]
    pub class: u64,
    /// Allocations served.
    pub allocations: u64,
    /// Bytes requested by them.
    pub requested: u64,
    /// Usable bytes of their blocks.
    pub usable: u64,
    /// Usable bytes that were not requested.
    pub waste: u64,
    /// This class's share of all waste, 0 to 1.
    #[serde(rename = "share_part")]
    pub share: f64,
}

impl Row {
    fn new(class: u64, allocations: u64, requested: u64) -> Self {
        let usable = allocations.saturating_mul(class);
        Self {
            class,
            allocations,
            requested,
            usable,
            waste: usable.saturating_sub(requested),
            share: 0.0,
        }
    }

    /// The sum over all classes.
    fn total(rows: &[Row]) -> Self {
        let sum = |of: fn(&Row) -> u64| rows.iter().map(of).fold(0, u64::saturating_add);
        let usable = sum(|row| row.usable);
        Self {
            usable,
            waste: usable.saturating_sub(sum(|row| row.requested)),
            ..Self::new(0, sum(|row| row.allocations), sum(|row| row.requested))
        }
    }

    /// The waste as a fraction of the requested bytes.
    fn overhead(&self) -> f64 {
        self.waste as f64 / self.requested.max(1) as f64
    }
}

/// The waste of a table, smallest class first, for a histogram. Classes that serve no request have
/// no row.
pub fn of_table(histogram: &Histogram, sizes: &[u16]) -> Vec<Row> {
    let mut rows: Vec<Row> = sizes
        .iter()
        .map(|&size| Row::new(size.into(), 0, 0))
        .collect();
    for (size, figure) in histogram.steps() {
        let class = sizes.partition_point(|&class| usize::from(class) < size);
        if let Some(row) = rows.get_mut(class) {
            *row = Row::new(
                row.class,
                row.allocations.saturating_add(figure.count),
                row.requested.saturating_add(figure.bytes),
            );
        }
    }
    rows.retain(|row| row.allocations > 0);
    let waste = Row::total(&rows).waste.max(1) as f64;
    for row in &mut rows {
        row.share = row.waste as f64 / waste;
    }
    rows
}

/// The cost of a histogram under two tables. Displays as sentences for people.
#[derive(Template)]
#[template(path = "tune.txt")]
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
            before: of_table(histogram, &built_in()),
            after: of_table(histogram, sizes),
            classes: sizes.len(),
        }
    }

    fn totals(&self) -> (Row, Row) {
        (Row::total(&self.before), Row::total(&self.after))
    }

    /// The share of the waste that is saved, 0 to 1.
    fn saved(&self) -> f64 {
        let (before, after) = self.totals();
        let saved = before.waste.saturating_sub(after.waste);
        saved as f64 / before.waste.max(1) as f64
    }
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
    let total = Row::total(rows);
    json!({
        "requested": total.requested,
        "usable": total.usable,
        "waste": total.waste,
        "overhead_part": total.overhead(),
        "classes": rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_shared::status_page::{SIZES, SizeFigure};

    #[test]
    fn sizes_fall_to_their_classes() {
        let mut status_page = vec![SizeFigure::default(); SIZES];
        for (step, count, bytes) in [(0, 2, 0), (2, 3, 40), (3, 10, 240), (SIZES - 1, 1, 99_999)] {
            status_page[step] = SizeFigure { count, bytes };
        }
        let mut histogram = Histogram::new("test");
        histogram.add(&status_page);
        let rows = of_table(&histogram, &[16, 48, 64, 32_768]);
        let seen: Vec<[u64; 4]> = rows
            .iter()
            .map(|row| [row.class, row.allocations, row.usable, row.waste])
            .collect();
        assert_eq!(seen, [[16, 5, 80, 40], [48, 10, 480, 240]]);
        assert!((rows[1].share - 240.0 / 280.0).abs() < 1e-9);
        let total = Row::total(&rows);
        assert_eq!(
            (total.requested, total.usable, total.waste),
            (280, 560, 280)
        );
        assert!((total.overhead() - 1.0).abs() < 1e-9);
    }
}
