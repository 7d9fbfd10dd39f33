//! The record of a campaign: a CSV file with the machine, the versions, and one figure per line. A
//! figure is a named number, or a short text, with its unit.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;
use serde_json::json;

use crate::names::named;
use crate::stats::{Comparison, Spread};

named! {
    /// A figure's unit.
    pub enum Unit {
        /// Bytes, shown in millions.
        Bytes = "bytes",
        /// Units of 1,024 bytes, as the kernel counts, shown in MiB.
        Kib = "KiB",
        /// Bytes of a block, shown as they are.
        BlockBytes = "block bytes",
        /// A part of a whole, or a ratio, shown in percent.
        Share = "share",
        /// A fractional number without a unit.
        Number = "number",
        /// A count, shown as it is.
        Count = "count",
        /// A time, shown in a suitable unit.
        Nanoseconds = "ns",
        /// A moment since the process began.
        Milliseconds = "ms",
        /// A long time.
        Seconds = "s",
        /// A text.
        Text = "text",
    }
}

/// A figure's value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A text, such as the reason why there is no number.
    Text(String),
}

/// A named value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name, without commas.
    #[serde(rename = "figure")]
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Its value; some differences are negative.
    pub value: Value,
}

impl Figure {
    /// A number in `unit`.
    pub fn new(name: impl Into<String>, unit: Unit, value: f64) -> Figure {
        let (name, value) = (name.into(), Value::Number(value));
        Figure { name, unit, value }
    }

    /// A number of bytes.
    pub fn bytes(name: impl Into<String>, value: f64) -> Figure {
        Figure::new(name, Unit::Bytes, value)
    }

    /// A number of KiB.
    pub fn kib(name: impl Into<String>, value: u64) -> Figure {
        Figure::new(name, Unit::Kib, value as f64)
    }

    /// A number of bytes of a block.
    pub fn block_bytes(name: impl Into<String>, value: f64) -> Figure {
        Figure::new(name, Unit::BlockBytes, value)
    }

    /// A part of a whole; 1 is all of it.
    pub fn share(name: impl Into<String>, value: f64) -> Figure {
        Figure::new(name, Unit::Share, value)
    }

    /// A number without a unit.
    pub fn number(name: impl Into<String>, value: f64) -> Figure {
        Figure::new(name, Unit::Number, value)
    }

    /// A count.
    pub fn count(name: impl Into<String>, value: u64) -> Figure {
        Figure::new(name, Unit::Count, value as f64)
    }

    /// A time.
    pub fn nanoseconds(name: impl Into<String>, value: f64) -> Figure {
        Figure::new(name, Unit::Nanoseconds, value)
    }

    /// A text.
    pub fn text(name: impl Into<String>, text: impl Into<String>) -> Figure {
        let (name, value) = (name.into(), Value::Text(text.into()));
        Figure {
            name,
            unit: Unit::Text,
            value,
        }
    }

    /// Its number; `None` for a text.
    pub fn as_number(&self) -> Option<f64> {
        match self.value {
            Value::Number(number) => Some(number),
            Value::Text(_) => None,
        }
    }

    /// Its text; `None` for a number.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Number(_) => None,
        }
    }
}

/// One figure of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The case, without commas.
    pub case: String,
    /// The allocator, or whatever else the cases are compared by; without commas.
    pub peer: String,
    /// The round, from 0. The runs of one round are pairs.
    pub round: u32,
    /// The figure.
    #[serde(flatten)]
    pub figure: Figure,
}

/// A whole campaign.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The experiment, the machine, the versions, the settings.
    pub head: Vec<(String, String)>,
    /// Every figure.
    pub rows: Vec<Row>,
}

const COLUMNS: &str = "case,peer,round,figure,unit,value";

/// The key of the experiment's name in the head.
pub const EXPERIMENT: &str = "experiment";

impl Record {
    /// The file's text. The head consists of lines `# key: value`. Numbers have enough digits to be
    /// read back exactly: rounding here and again in a table would make a run differ from its
    /// record.
    pub fn to_csv(&self) -> String {
        let head = self.head.iter();
        let head = head.map(|(key, value)| format!("# {key}: {}\n", value.replace('\n', " ")));
        let mut text: String = head.collect();
        text.push_str(&format!("{COLUMNS}\n"));
        text.extend(self.rows.iter().map(line));
        text
    }

    /// Reads what [`Record::to_csv`] wrote.
    ///
    /// # Errors
    /// If it has other columns, or a line is damaged.
    pub fn from_csv(text: &str) -> anyhow::Result<Record> {
        let (head, body): (Vec<&str>, Vec<&str>) = text.lines().partition(|l| l.starts_with("# "));
        let has_columns = body.first() == Some(&COLUMNS);
        ensure!(has_columns, "it does not have the columns of a record");
        let row = |line: &&str| parse(line).with_context(|| format!("in the line {line:?}"));
        Ok(Record {
            head: head
                .into_iter()
                .map(head_line)
                .collect::<anyhow::Result<_>>()?,
            rows: body[1..].iter().map(row).collect::<anyhow::Result<_>>()?,
        })
    }

    /// The value of a line in the head.
    pub fn said(&self, key: &str) -> Option<&str> {
        let found = self.head.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }

    /// Adds a run's figures.
    pub fn push(&mut self, case: &str, peer: &str, round: u32, figures: Vec<Figure>) {
        let row = |figure| Row {
            case: case.into(),
            peer: peer.into(),
            round,
            figure,
        };
        self.rows.extend(figures.into_iter().map(row));
    }

    /// The runs: consecutive figures of one case, peer and round.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        let is_same = |a: &Row, b: &Row| (&a.case, &a.peer, a.round) == (&b.case, &b.peer, b.round);
        let runs = self.rows.chunk_by(is_same);
        runs.map(|rows| Run { rows })
    }

    /// The peers with any figure: those of the head in its order, then the others.
    pub fn peers(&self) -> Vec<&str> {
        let told = self
            .head
            .iter()
            .filter_map(|(key, _)| key.strip_prefix("version of "));
        let found = distinct(self.rows.iter().map(|row| row.peer.as_str()));
        let known = told.filter(|peer| found.contains(peer));
        distinct(known.chain(found.iter().copied()))
    }

    /// The distinct cases, in order of first appearance.
    pub fn cases(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| row.case.as_str()))
    }

    /// The cases with that figure.
    pub fn cases_with(&self, figure: &str) -> Vec<&str> {
        let rows = self.rows.iter().filter(|row| row.figure.name == figure);
        distinct(rows.map(|row| row.case.as_str()))
    }

    fn of<'a>(&'a self, case: &str, peer: &str, figure: &str) -> impl Iterator<Item = &'a Row> {
        let is_it =
            move |row: &&Row| row.figure.name == figure && row.peer == peer && row.case == case;
        self.rows.iter().filter(is_it)
    }

    /// A figure in each round that has it.
    pub fn rounds(&self, case: &str, peer: &str, figure: &str) -> Vec<(u32, f64)> {
        let value = |row: &Row| Some((row.round, row.figure.as_number()?));
        self.of(case, peer, figure).filter_map(value).collect()
    }

    /// A figure's median over the rounds, with its spread.
    pub fn spread(&self, case: &str, peer: &str, figure: &str) -> Option<Spread> {
        let values = self.rounds(case, peer, figure).into_iter();
        Spread::of(&values.map(|(_, value)| value).collect::<Vec<_>>())
    }

    /// A figure's median over the rounds.
    pub fn median(&self, case: &str, peer: &str, figure: &str) -> Option<f64> {
        Some(self.spread(case, peer, figure)?.median)
    }

    /// A figure that is a text.
    pub fn text(&self, case: &str, peer: &str, figure: &str) -> Option<&str> {
        self.of(case, peer, figure)
            .find_map(|row| row.figure.as_text())
    }

    /// A figure of `peer` and of `base`, in each round that has both.
    pub fn pairs(&self, case: &str, peer: &str, base: &str, figure: &str) -> Vec<(f64, f64)> {
        paired(
            &self.rounds(case, peer, figure),
            &self.rounds(case, base, figure),
        )
    }

    /// `peer` against `base`, paired by round.
    pub fn compare(&self, case: &str, peer: &str, base: &str, figure: &str) -> Option<Comparison> {
        Comparison::of(&self.pairs(case, peer, base, figure))
    }

    /// The record as JSON: the head, every figure, the medians, compared with `base` if there is
    /// one, and what was derived from them.
    pub fn json(&self, base: Option<&str>, derived: &[Row]) -> serde_json::Value {
        let head: BTreeMap<_, _> = self.head.iter().map(|(key, value)| (key, value)).collect();
        json!({
            "head": head, "base": base, "figures": self.rows,
            "medians": self.medians(base), "derived": derived,
        })
    }

    fn medians(&self, base: Option<&str>) -> Vec<serde_json::Value> {
        let (mut keys, mut values) = (Vec::new(), HashMap::<_, Vec<(u32, f64)>>::new());
        for Row {
            case,
            peer,
            round,
            figure,
        } in &self.rows
        {
            let Some(number) = figure.as_number() else {
                continue;
            };
            let rounds = values
                .entry((case, &figure.name, peer.as_str()))
                .or_default();
            if rounds.is_empty() {
                keys.push((case, figure, peer.as_str()));
            }
            rounds.push((*round, number));
        }
        let median = |(case, figure, peer): (&String, &Figure, &str)| {
            let rounds = &values[&(case, &figure.name, peer)];
            let spread = Spread::of(&rounds.iter().map(|(_, value)| *value).collect::<Vec<_>>())?;
            let bases = base.and_then(|base| values.get(&(case, &figure.name, base)));
            let ratio = bases.and_then(|bases| Comparison::of(&paired(rounds, bases)));
            Some(json!({
                "case": case, "peer": peer, "figure": figure.name, "unit": figure.unit,
                "rounds": spread.rounds, "median": spread.median,
                "quartiles": [spread.quartiles.0, spread.quartiles.1],
                "ratio": ratio.map(|ratio| json!({
                    "median": ratio.median, "quartiles": [ratio.quartiles.0, ratio.quartiles.1],
                    "p": ratio.p, "pairs": ratio.pairs, "separable": ratio.separable(),
                })),
            }))
        };
        keys.into_iter().filter_map(median).collect()
    }
}

/// The figures of one run.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    rows: &'a [Row],
}

impl<'a> Run<'a> {
    /// The case.
    pub fn case(&self) -> &'a str {
        &self.rows[0].case
    }

    /// The allocator.
    pub fn peer(&self) -> &'a str {
        &self.rows[0].peer
    }

    /// Its figures.
    pub fn figures(&self) -> impl Iterator<Item = &'a Figure> + use<'a> {
        self.rows.iter().map(|row| &row.figure)
    }

    /// The number of that name.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.figures()
            .find(|figure| figure.name == name)?
            .as_number()
    }

    /// The text of that name.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.figures().find(|figure| figure.name == name)?.as_text()
    }
}

/// The distinct items, in order of first appearance.
pub fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut seen, item| {
        if !seen.contains(&item) {
            seen.push(item);
        }
        seen
    })
}

/// The values of the rounds that both have.
fn paired(rounds: &[(u32, f64)], bases: &[(u32, f64)]) -> Vec<(f64, f64)> {
    let base = |round| bases.iter().find(|(other, _)| *other == round);
    let pair = |&(round, value): &(u32, f64)| Some((value, base(round)?.1));
    rounds.iter().filter_map(pair).collect()
}

fn line(row: &Row) -> String {
    let Row {
        case,
        peer,
        round,
        figure: Figure { name, unit, value },
    } = row;
    let value = match value {
        Value::Number(number) => number.to_string(),
        // A comma would start a new column; numbers contain commas between digits.
        Value::Text(text) => text.replace(',', ";"),
    };
    format!("{case},{peer},{round},{name},{},{value}\n", unit.name())
}

fn parse(line: &str) -> anyhow::Result<Row> {
    let fields: Vec<&str> = line.split(',').collect();
    let [case, peer, round, name, unit, value] = fields[..] else {
        bail!("{} fields", fields.len());
    };
    let unit = Unit::find(unit).with_context(|| format!("no unit {unit:?}"))?;
    let figure = match unit {
        Unit::Text => Figure::text(name, value.replace(';', ",")),
        _ => Figure::new(name, unit, value.parse()?),
    };
    let (case, peer, round) = (case.to_string(), peer.to_string(), round.parse()?);
    Ok(Row {
        case,
        peer,
        round,
        figure,
    })
}

fn head_line(line: &str) -> anyhow::Result<(String, String)> {
    let pair = line
        .strip_prefix("# ")
        .and_then(|rest| rest.split_once(": "));
    let (key, value) = pair.with_context(|| format!("no `# key: value`: {line:?}"))?;
    Ok((key.to_string(), value.to_string()))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    #[test]
    fn every_unit_is_found_by_its_name() {
        for unit in Unit::ALL {
            assert_eq!(Unit::find(unit.name()), Some(unit));
        }
        assert_eq!(Unit::find("miles"), None);
    }

    /// A record of runs, for tests.
    pub fn record<'a>(
        runs: impl IntoIterator<Item = (&'a str, &'a str, u32, Vec<Figure>)>,
    ) -> Record {
        let mut record = Record::default();
        for (case, peer, round, figures) in runs {
            record.push(case, peer, round, figures);
        }
        record
    }

    fn example() -> Record {
        let mut record = record([
            (
                "churn",
                "glibc",
                0,
                vec![Figure::bytes("kept", -4_096.0), Figure::count("tasks", 1)],
            ),
            (
                "churn",
                "glibc",
                3,
                vec![Figure::number("time", 1_041.0 + 1.0 / 3_000.0)],
            ),
            (
                "live 16",
                "neap",
                0,
                vec![Figure::text("note", "32,752 blocks, then: no memory")],
            ),
        ]);
        record.head = vec![
            ("processor".into(), "A: B, C".into()),
            ("rounds".into(), "10".into()),
        ];
        record
    }

    #[test]
    fn a_record_comes_back_as_it_was_to_the_last_digit() {
        let csv = example().to_csv();
        assert_eq!(Record::from_csv(&csv).unwrap(), example());
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines[0], "# processor: A: B, C");
        assert_eq!(lines[3], "churn,glibc,0,kept,bytes,-4096");
        assert_eq!(
            lines[6],
            "live 16,neap,0,note,text,32;752 blocks; then: no memory"
        );
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let csv = example().to_csv();
        for (right, wrong) in [
            ("churn,glibc,0", "churn,x,glibc,0"),
            ("-4096", "much"),
            (",bytes,", ",miles,"),
            ("case,", "sort,"),
            (": 10", ""),
        ] {
            assert!(csv.contains(right), "{right}");
            assert!(
                Record::from_csv(&csv.replace(right, wrong)).is_err(),
                "{wrong}"
            );
        }
        assert!(Record::from_csv("").is_err());
    }

    /// Ten rounds in which jemalloc takes twice the time of glibc.
    fn rounds() -> Record {
        let ns = |value: f64| vec![Figure::nanoseconds("time", value)];
        record((0..10).flat_map(|round| {
            let time = 10.0 + f64::from(round);
            [
                ("churn", "jemalloc", round, ns(2.0 * time)),
                ("churn", "glibc", round, ns(time)),
            ]
        }))
    }

    #[test]
    fn pairs_are_of_one_round() {
        let mut record = rounds();
        record.rows.pop();
        let comparison = record
            .compare("churn", "jemalloc", "glibc", "time")
            .unwrap();
        assert_eq!((comparison.median, comparison.pairs), (2.0, 9));
        assert!(comparison.separable());
        assert_eq!(record.compare("fifo", "jemalloc", "glibc", "time"), None);
        assert_eq!(record.median("churn", "jemalloc", "time"), Some(29.0));
    }

    #[test]
    fn peers_come_in_the_order_of_the_head_and_runs_in_that_of_the_rows() {
        let mut record = rounds();
        assert_eq!(record.peers(), ["jemalloc", "glibc"]);
        record.head = ["glibc", "neap"]
            .map(|peer| (format!("version of {peer}"), "1".into()))
            .into();
        assert_eq!(record.peers(), ["glibc", "jemalloc"]);
        assert_eq!(
            (record.cases(), record.cases_with("space").len()),
            (vec!["churn"], 0)
        );
        let last = record.runs().last().unwrap();
        assert_eq!((last.case(), last.peer()), ("churn", "glibc"));
        assert_eq!((last.number("time"), last.text("time")), (Some(19.0), None));
    }

    #[test]
    fn programs_get_every_figure_and_the_medians() {
        let json = rounds().json(Some("glibc"), &[]);
        assert_eq!(json["figures"].as_array().unwrap().len(), 20);
        assert_eq!(json["figures"][1]["value"], 10.0);
        let median = &json["medians"][0];
        assert_eq!(
            (&median["peer"], &median["median"]),
            (&json!("jemalloc"), &json!(29.0))
        );
        assert_eq!(median["ratio"]["pairs"], 10);
        let example = example().json(None, &[]);
        assert_eq!(example["head"]["rounds"], "10");
        assert_eq!(
            example["figures"][3]["value"],
            "32,752 blocks, then: no memory"
        );
        assert_eq!(example["medians"].as_array().unwrap().len(), 3);
    }
}
