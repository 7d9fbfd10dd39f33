//! Figures that a process tells or shows, case by case: their record and their tables.
//!
//! What `retention`, `fragmentation`, `mesh`, `classes` and `profile` find has no base that the rest is compared with: it is
//! bytes, counts, shares and times, at named moments of named cases.

pub mod tables;

use anyhow::{Context as _, bail};

use crate::record::{Read, has_columns, rows_of, text_of};

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Shown in millions.
    Bytes,
    /// Bytes of a block: shown as they are.
    BlockBytes,
    /// A part of a whole, or a ratio: shown in percent.
    Share,
    /// A number that is not whole, of no unit.
    Number,
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
            Unit::BlockBytes => "block bytes",
            Unit::Share => "share",
            Unit::Number => "number",
            Unit::Count => "count",
            Unit::Nanoseconds => "ns",
        }
    }

    /// The unit of that name in a record.
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

    /// So many bytes of a block.
    pub fn block_bytes(name: impl Into<String>, value: f64) -> Figure {
        let (name, unit) = (name.into(), Unit::BlockBytes);
        Figure { name, unit, value }
    }

    /// Such a part of a whole: 1 is all of it.
    pub fn share(name: impl Into<String>, value: f64) -> Figure {
        let (name, unit) = (name.into(), Unit::Share);
        Figure { name, unit, value }
    }

    /// A number of no unit.
    pub fn number(name: impl Into<String>, value: f64) -> Figure {
        let (name, unit) = (name.into(), Unit::Number);
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
    pub case: String,
    /// The allocator; holds no comma.
    pub peer: String,
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
    /// What was left out, and why.
    pub left_out: Vec<String>,
}

impl Results {
    /// Notes what a run told, or why it told nothing.
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
/// When it is damaged.
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
