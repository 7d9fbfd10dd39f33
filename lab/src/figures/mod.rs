//! Figures that a process reports, case by case: their record and their tables.
//!
//! The results of `retention`, `fragmentation`, `classes` and `profile` have no base to be
//! compared with. They are bytes, counts, shares and times, at named moments of named cases.

pub mod tables;

use anyhow::{Context as _, bail};

use crate::record::{Read, has_columns, rows_of, text_of};

/// A figure's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown in millions.
    Bytes,
    /// Bytes of a block, shown as they are.
    BlockBytes,
    /// A part of a whole, or a ratio, shown in percent.
    Share,
    /// A fractional number without a unit.
    Number,
    /// A count, shown as it is.
    Count,
    /// A time, shown in a suitable unit.
    Nanoseconds,
}

impl Unit {
    /// Its name in the record.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::BlockBytes => "block bytes",
            Unit::Share => "share",
            Unit::Number => "number",
            Unit::Count => "count",
            Unit::Nanoseconds => "ns",
        }
    }

    /// The unit with that name in a record.
    fn find(name: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.name() == name)
    }

    const ALL: [Unit; 6] = [
        Unit::Bytes,
        Unit::BlockBytes,
        Unit::Share,
        Unit::Number,
        Unit::Count,
        Unit::Nanoseconds,
    ];
}

/// A named number.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name, without commas.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Its value, negative for some differences.
    pub value: f64,
}

impl Figure {
    /// A number of bytes.
    pub fn bytes(name: impl Into<String>, value: f64) -> Figure {
        let (name, unit) = (name.into(), Unit::Bytes);
        Figure { name, unit, value }
    }

    /// A number of bytes of a block.
    pub fn block_bytes(name: impl Into<String>, value: f64) -> Figure {
        let (name, unit) = (name.into(), Unit::BlockBytes);
        Figure { name, unit, value }
    }

    /// A part of a whole; 1 is all of it.
    pub fn share(name: impl Into<String>, value: f64) -> Figure {
        let (name, unit) = (name.into(), Unit::Share);
        Figure { name, unit, value }
    }

    /// A number without a unit.
    pub fn number(name: impl Into<String>, value: f64) -> Figure {
        let (name, unit) = (name.into(), Unit::Number);
        Figure { name, unit, value }
    }

    /// A count.
    pub fn count(name: impl Into<String>, value: u64) -> Figure {
        let (name, unit, value) = (name.into(), Unit::Count, value as f64);
        Figure { name, unit, value }
    }

    /// A time.
    pub fn nanoseconds(name: impl Into<String>, value: f64) -> Figure {
        let (name, unit) = (name.into(), Unit::Nanoseconds);
        Figure { name, unit, value }
    }
}

/// One figure of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The case, without commas.
    pub case: String,
    /// The allocator, without commas.
    pub peer: String,
    /// The round, from 0.
    pub round: u32,
    /// The figure.
    pub figure: Figure,
}

/// A campaign's results.
#[derive(Debug, Default)]
pub struct Results {
    /// Every figure.
    pub rows: Vec<Row>,
    /// The runs that failed, and why.
    pub failures: Vec<String>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
}

impl Results {
    /// Adds a run's figures, or why there are none.
    pub fn note(
        &mut self,
        (case, peer, round): (&str, &str, u32),
        told: anyhow::Result<Vec<Figure>>,
    ) {
        let row = |figure| Row {
            case: case.into(),
            peer: peer.into(),
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
    let (case, peer, round, unit) = (&row.case, &row.peer, row.round, unit.name());
    format!("{case},{peer},{round},{name},{unit},{value}")
}

/// Whether a text is such a record.
pub fn recognises(text: &str) -> bool {
    has_columns(text, COLUMNS)
}

/// Reads what [`csv`] wrote.
///
/// # Errors
/// If it is damaged.
pub fn from_csv(text: &str) -> anyhow::Result<Read<Row>> {
    rows_of(text, COLUMNS, parse)
}

fn parse(line: &str) -> anyhow::Result<Row> {
    let fields: Vec<&str> = line.split(',').collect();
    let [case, peer, round, name, unit, value] = fields[..] else {
        bail!("{} fields", fields.len());
    };
    let unit = Unit::find(unit).with_context(|| format!("no unit {unit:?}"))?;
    let (name, value) = (name.to_string(), value.parse()?);
    Ok(Row {
        case: case.to_string(),
        peer: peer.to_string(),
        round: round.parse()?,
        figure: Figure { name, unit, value },
    })
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
        assert!(recognises(&text));
        let (head, rows) = from_csv(&text).unwrap();
        assert_eq!((head.len(), rows), (1, results.rows));
    }

    #[test]
    fn every_unit_is_read_again_and_a_damaged_record_is_refused() {
        for unit in Unit::ALL {
            assert_eq!(Unit::find(unit.name()), Some(unit));
        }
        for line in [
            "own,neap,0,kept,miles,1",
            "own,neap,0,kept,bytes,much",
            "own,neap,0,1",
        ] {
            assert!(from_csv(&format!("{COLUMNS}\n{line}\n")).is_err(), "{line}");
        }
    }
}
