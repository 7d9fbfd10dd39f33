//! Figures that a process tells or shows, case by case: their record and their tables.
//!
//! What `retention`, `fragmentation` and `mesh` measure has no clock to be beaten and no base: it is
//! bytes and counts, at named moments of named cases.

pub mod tables;

use crate::record::text_of;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Shown in millions.
    Bytes,
    /// Shown as they are.
    Count,
    /// Shown in the unit that fits.
    Nanoseconds,
}

impl Unit {
    /// Its name in the record.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Count => "count",
            Unit::Nanoseconds => "ns",
        }
    }
}

/// A named number.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it is; holds no comma.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// How many. Less than zero where it is a difference.
    pub value: f64,
}

impl Figure {
    /// So many bytes.
    pub fn bytes(name: impl Into<String>, value: f64) -> Figure {
        let (name, unit) = (name.into(), Unit::Bytes);
        Figure { name, unit, value }
    }

    /// So many of something.
    pub fn count(name: impl Into<String>, value: u64) -> Figure {
        let (name, unit, value) = (name.into(), Unit::Count, value as f64);
        Figure { name, unit, value }
    }

    /// So much time.
    pub fn nanoseconds(name: impl Into<String>, value: f64) -> Figure {
        let (name, unit) = (name.into(), Unit::Nanoseconds);
        Figure { name, unit, value }
    }
}

/// One figure of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was done; holds no comma.
    pub case: &'static str,
    /// The allocator.
    pub peer: &'static str,
    /// The round, from 0.
    pub round: u32,
    /// What came of it.
    pub figure: Figure,
}

/// What a campaign found.
#[derive(Debug, Default)]
pub struct Results {
    /// Every figure.
    pub rows: Vec<Row>,
    /// The runs that failed, and why.
    pub failures: Vec<String>,
}

impl Results {
    /// Notes what a run told, or why it told nothing.
    pub fn note(
        &mut self,
        (case, peer, round): (&'static str, &'static str, u32),
        told: anyhow::Result<Vec<Figure>>,
    ) {
        let row = |figure| Row {
            case,
            peer,
            round,
            figure,
        };
        match told {
            Ok(figures) => self.rows.extend(figures.into_iter().map(row)),
            Err(reason) => self
                .failures
                .push(format!("{case} under {peer}: {reason:#}")),
        }
    }
}

const COLUMNS: &str = "case,peer,round,figure,unit,value";

/// The record's text. The head is in lines `# key: value`.
pub fn csv(head: &[(String, String)], rows: &[Row]) -> String {
    text_of(head, COLUMNS, rows, line)
}

fn line(row: &Row) -> String {
    let Figure { name, unit, value } = &row.figure;
    let (case, peer, round, unit) = (row.case, row.peer, row.round, unit.name());
    format!("{case},{peer},{round},{name},{unit},{value}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::split_head;

    #[test]
    fn every_figure_is_a_line_with_all_columns_and_failures_are_told() {
        let mut results = Results::default();
        let figures = vec![
            Figure::bytes("kept after 2 s", -4096.0),
            Figure::count("tasks", 1),
        ];
        results.note(("own", "neap", 0), Ok(figures));
        results.note(("own", "glibc", 1), Err(anyhow::anyhow!("gone")));
        let text = csv(&[("date".into(), "today".into())], &results.rows);
        let (head, columns, lines) = split_head(&text).unwrap();
        assert_eq!(head, [("date".to_string(), "today".to_string())]);
        assert_eq!(columns, COLUMNS);
        assert_eq!(
            lines,
            [
                "own,neap,0,kept after 2 s,bytes,-4096",
                "own,neap,0,tasks,count,1"
            ]
        );
        assert_eq!(results.failures, ["own under glibc: gone"]);
    }
}
