//! The record of a campaign: a CSV file with the machine, the versions and every run.

use std::fmt::Write as _;

use anyhow::{Context as _, bail, ensure};

use crate::run::Sample;

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The workload, or the counted stretch of code.
    pub name: String,
    /// The allocator.
    pub peer: String,
    /// The measured value.
    pub value: Value,
}

/// A measured value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One timed run; the runs of one round are pairs.
    Timed { round: u32, sample: Sample },
    /// Instructions per pair of malloc and free.
    Instructions(f64),
    /// System calls per run.
    SystemCalls(u64),
}

/// A whole campaign.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The machine, the versions, the options.
    pub head: Vec<(String, String)>,
    /// Every measurement.
    pub rows: Vec<Row>,
}

const COLUMNS: &str =
    "kind,name,peer,round,ns_per_op,peak_rss_kib,minor_faults,major_faults,bytes_per_block,count";

impl Record {
    /// Whether a file is a record of `bench`.
    pub fn recognises(text: &str) -> bool {
        has_columns(text, COLUMNS)
    }

    /// The file's text. The head consists of lines `# key: value`; names contain no comma. Numbers
    /// have enough digits to be read back exactly. Otherwise, rounding here and again in a table
    /// would make a run differ from its record.
    pub fn to_csv(&self) -> String {
        let mut text = head_lines(&self.head);
        push_line(&mut text, format_args!("{COLUMNS}"));
        for row in &self.rows {
            push_row(&mut text, row);
        }
        text
    }

    /// Reads what [`Record::to_csv`] wrote.
    ///
    /// # Errors
    /// If a line has another form.
    pub fn from_csv(text: &str) -> anyhow::Result<Record> {
        let (head, rows) = rows_of(text, COLUMNS, parse_row)?;
        Ok(Record { head, rows })
    }
}

/// The lines `# key: value` at a record's start.
fn head_lines(head: &[(String, String)]) -> String {
    let mut text = String::new();
    for (key, value) in head {
        push_line(
            &mut text,
            format_args!("# {key}: {}", value.replace('\n', " ")),
        );
    }
    text
}

/// The text of a record: its head, the line of columns, one line per row.
pub fn text_of<R>(
    head: &[(String, String)],
    columns: &str,
    rows: &[R],
    line: impl Fn(&R) -> String,
) -> String {
    let mut text = head_lines(head);
    push_line(&mut text, format_args!("{columns}"));
    for row in rows {
        push_line(&mut text, format_args!("{}", line(row)));
    }
    text
}

/// Whether a text is a record with these columns.
pub fn has_columns(text: &str, columns: &str) -> bool {
    text.lines().any(|line| line == columns)
}

/// A record's head and its rows.
pub type Read<R> = (Vec<(String, String)>, Vec<R>);

/// Reads what [`text_of`] wrote.
///
/// # Errors
/// If the columns differ, or `parse` rejects a line.
pub fn rows_of<R>(
    text: &str,
    columns: &str,
    parse: impl Fn(&str) -> anyhow::Result<R>,
) -> anyhow::Result<Read<R>> {
    let (head, found, lines) = split_head(text)?;
    ensure!(found == columns, "other columns: {found}");
    let row = |line: &&str| parse(line).with_context(|| format!("in the line {line:?}"));
    Ok((head, lines.iter().map(row).collect::<anyhow::Result<_>>()?))
}

/// A record's head, its line of columns and its rows.
pub type Parts<'a> = (Vec<(String, String)>, &'a str, Vec<&'a str>);

/// Splits a record's text.
///
/// # Errors
/// If it has no columns, or a line of the head is malformed.
pub fn split_head(text: &str) -> anyhow::Result<Parts<'_>> {
    let (head, body): (Vec<&str>, Vec<&str>) = text.lines().partition(|l| l.starts_with("# "));
    let head = head
        .iter()
        .map(|line| head_line(line))
        .collect::<anyhow::Result<_>>()?;
    let (columns, rows) = body.split_first().context("no line of columns")?;
    Ok((head, *columns, rows.to_vec()))
}

fn push_line(text: &mut String, line: std::fmt::Arguments) {
    // Writing into a string cannot fail.
    let _ = writeln!(text, "{line}");
}

fn push_row(text: &mut String, row: &Row) {
    let Row { name, peer, value } = row;
    match value {
        Value::Timed { round, sample } => {
            let Sample {
                ns_per_op,
                peak_rss_kib,
                faults: (minor, major),
                bytes_per_block,
            } = sample;
            let bytes = bytes_per_block
                .map(|bytes| bytes.to_string())
                .unwrap_or_default();
            push_line(
                text,
                format_args!(
                    "timed,{name},{peer},{round},{ns_per_op},{peak_rss_kib},{minor},{major},{bytes},"
                ),
            );
        }
        Value::Instructions(count) => {
            push_line(
                text,
                format_args!("instructions,{name},{peer},,,,,,,{count}"),
            );
        }
        Value::SystemCalls(count) => {
            push_line(
                text,
                format_args!("system_calls,{name},{peer},,,,,,,{count}"),
            );
        }
    }
}

fn head_line(line: &str) -> anyhow::Result<(String, String)> {
    let pair = line
        .strip_prefix("# ")
        .and_then(|rest| rest.split_once(": "));
    let (key, value) = pair.with_context(|| format!("no `# key: value`: {line:?}"))?;
    Ok((key.to_string(), value.to_string()))
}

fn parse_row(line: &str) -> anyhow::Result<Row> {
    let fields: Vec<&str> = line.split(',').collect();
    let [kind, name, peer, round, ns, rss, minor, major, bytes, count] = fields[..] else {
        bail!("{} fields", fields.len());
    };
    let value = match kind {
        "timed" => Value::Timed {
            round: round.parse()?,
            sample: Sample {
                ns_per_op: ns.parse()?,
                peak_rss_kib: rss.parse()?,
                faults: (minor.parse()?, major.parse()?),
                bytes_per_block: (!bytes.is_empty()).then(|| bytes.parse()).transpose()?,
            },
        },
        "instructions" => Value::Instructions(count.parse()?),
        "system_calls" => Value::SystemCalls(count.parse()?),
        other => bail!("no kind {other:?}"),
    };
    Ok(Row {
        name: name.to_string(),
        peer: peer.to_string(),
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Record {
        let timed = |round, bytes_per_block| Value::Timed {
            round,
            sample: Sample {
                ns_per_op: 12.5,
                peak_rss_kib: 4_096,
                faults: (120, 1),
                bytes_per_block,
            },
        };
        let row = |name: &str, value| Row {
            name: name.into(),
            peer: "glibc".into(),
            value,
        };
        Record {
            head: vec![
                ("processor".into(), "A: B, C".into()),
                ("rounds".into(), "10".into()),
            ],
            rows: vec![
                row("churn-1k", timed(0, None)),
                row("live-16", timed(3, Some(16.25))),
                row("pair-64", Value::Instructions(75.5)),
                row("churn-1k", Value::SystemCalls(103)),
            ],
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let record = example();
        assert!(Record::recognises(&record.to_csv()));
        assert_eq!(Record::from_csv(&record.to_csv()).unwrap(), record);
    }

    #[test]
    fn no_digit_is_lost() {
        let mut record = example();
        for row in &mut record.rows {
            match &mut row.value {
                Value::Timed { sample, .. } => {
                    sample.ns_per_op = 1_041.0 + 1.0 / 3_000.0;
                    sample.bytes_per_block = Some(1_024.0 + 1.0 / 300.0);
                }
                Value::Instructions(count) => *count = 36.0 + 1.0 / 300.0,
                Value::SystemCalls(_) => {}
            }
        }
        assert_eq!(Record::from_csv(&record.to_csv()).unwrap(), record);
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let csv = example().to_csv();
        assert!(Record::from_csv(&csv.replace("timed,churn", "timed,x,churn")).is_err());
        assert!(Record::from_csv(&csv.replace("12.5", "fast")).is_err());
        assert!(Record::from_csv(&csv.replace("kind,", "sort,")).is_err());
        assert!(Record::from_csv("").is_err());
    }
}
