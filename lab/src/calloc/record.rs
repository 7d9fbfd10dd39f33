//! The record of a campaign: a CSV file with the machine, the versions and every run.

use anyhow::{Context as _, bail};

use super::cells::{Cell, find_size, find_touch};
use super::measure::Accounted;
use crate::record::{has_columns, rows_of, text_of};
use crate::work::calloc::{Timed, Touch};

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The size's name.
    pub size: &'static str,
    /// The pattern of writes.
    pub touch: Touch,
    /// The allocator.
    pub peer: String,
    /// The measured values.
    pub value: Value,
}

/// The measured values.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One timed run.
    Timed { round: u32, timed: Timed },
    /// The accounting run.
    Accounted(Accounted),
}

impl Row {
    /// A measurement of `cell`.
    pub fn new(cell: &Cell, peer: &str, value: Value) -> Row {
        Row {
            size: cell.size.name,
            touch: cell.touch,
            peer: peer.to_string(),
            value,
        }
    }

    /// Whether it belongs to that cell and allocator.
    pub fn is_of(&self, cell: &Cell, peer: &str) -> bool {
        self.size == cell.size.name && self.touch == cell.touch && self.peer == peer
    }
}

/// A whole campaign.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The machine, the versions, the options.
    pub head: Vec<(String, String)>,
    /// Every measurement.
    pub rows: Vec<Row>,
}

const COLUMNS: &str = "kind,size,touch,peer,round,pairs,ns_median,ns_least,minor_faults,\
                       major_faults,zeroed_bytes,system_calls";

impl Record {
    /// Whether a file is a record of this kind, not of `bench`.
    pub fn recognises(text: &str) -> bool {
        has_columns(text, COLUMNS)
    }

    /// The file's text.
    pub fn to_csv(&self) -> String {
        text_of(&self.head, COLUMNS, &self.rows, line)
    }

    /// Reads what [`Record::to_csv`] wrote.
    ///
    /// # Errors
    /// If a line has another form.
    pub fn from_csv(text: &str) -> anyhow::Result<Record> {
        let (head, rows) = rows_of(text, COLUMNS, parse)?;
        Ok(Record { head, rows })
    }
}

fn line(row: &Row) -> String {
    let Row {
        size,
        touch,
        peer,
        value,
    } = row;
    let touch = touch.name();
    match value {
        Value::Timed { round, timed } => {
            let Timed {
                pairs,
                ns_median,
                ns_least,
                minor_faults,
                major_faults,
            } = timed;
            format!(
                "timed,{size},{touch},{peer},{round},{pairs},{ns_median:.1},{ns_least:.1},\
                 {minor_faults:.4},{major_faults:.4},,"
            )
        }
        Value::Accounted(Accounted {
            zeroed,
            system_calls,
        }) => {
            let zeroed = zeroed.map_or("unknown".into(), |bytes| bytes.to_string());
            let calls = system_calls.map_or("unknown".into(), |calls| format!("{calls:.2}"));
            format!("accounted,{size},{touch},{peer},,,,,,,{zeroed},{calls}")
        }
    }
}

fn parse(line: &str) -> anyhow::Result<Row> {
    let fields: Vec<&str> = line.split(',').collect();
    let [
        kind,
        size,
        touch,
        peer,
        round,
        pairs,
        median,
        least,
        minor,
        major,
        zeroed,
        calls,
    ] = fields[..]
    else {
        bail!("{} fields", fields.len());
    };
    let value = match kind {
        "timed" => Value::Timed {
            round: round.parse()?,
            timed: Timed {
                pairs: pairs.parse()?,
                ns_median: median.parse()?,
                ns_least: least.parse()?,
                minor_faults: minor.parse()?,
                major_faults: major.parse()?,
            },
        },
        "accounted" => Value::Accounted(Accounted {
            zeroed: known(zeroed).map(str::parse).transpose()?,
            system_calls: known(calls).map(str::parse).transpose()?,
        }),
        other => bail!("no kind {other:?}"),
    };
    Ok(Row {
        size: find_size(size)
            .with_context(|| format!("no size {size:?}"))?
            .name,
        touch: find_touch(touch).with_context(|| format!("no pattern {touch:?}"))?,
        peer: peer.to_string(),
        value,
    })
}

fn known(field: &str) -> Option<&str> {
    (field != "unknown").then_some(field)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Rows of one cell: rounds with these times, and an accounting run.
    pub fn rows(size: &'static str, touch: Touch, peer: &str, times: &[f64]) -> Vec<Row> {
        let row = |value| Row {
            size,
            touch,
            peer: peer.into(),
            value,
        };
        let timed = |(round, &ns_median): (usize, &f64)| Value::Timed {
            round: round as u32,
            timed: Timed {
                pairs: 40,
                ns_median,
                ns_least: ns_median / 2.0,
                minor_faults: 1.25,
                major_faults: 0.0,
            },
        };
        let account = Accounted {
            zeroed: Some(4_096),
            system_calls: Some(2.5),
        };
        let timed = times.iter().enumerate().map(timed);
        timed.chain([Value::Accounted(account)]).map(row).collect()
    }

    fn example() -> Record {
        let mut rows = rows("100M", Touch::First, "glibc", &[3_000.0, 4_000.0]);
        let unknown = Value::Accounted(Accounted::default());
        rows.push(Row {
            peer: "neap".into(),
            value: unknown,
            ..rows[0].clone()
        });
        Record {
            head: vec![("processor".into(), "A: B, C".into())],
            rows,
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let csv = example().to_csv();
        assert!(Record::recognises(&csv));
        assert_eq!(Record::from_csv(&csv).unwrap(), example());
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let csv = example().to_csv();
        for (old, new) in [
            ("timed,100M", "timed,x,100M"),
            ("3000.0", "fast"),
            (",first,", ",last,"),
            ("100M", "99M"),
        ] {
            assert!(Record::from_csv(&csv.replace(old, new)).is_err(), "{new}");
        }
        assert!(!Record::recognises(&csv.replace("kind,", "sort,")));
        assert!(Record::from_csv("").is_err());
    }
}
