//! The record of a campaign: a CSV file with the machine, the versions, every step, the resident
//! size over time, and every price.

use anyhow::{Context as _, bail, ensure};

use super::engines;
use super::follow::{Sample, Seen};
use super::protocol::{Done, Heap};
use super::steps::{Run, Step};
use crate::record::{has_columns, rows_of, text_of};
use crate::work::tide::prices::Priced;
use crate::work::tide::stacks::StackKind;

/// One price in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// The kind of stacks.
    pub stacks: StackKind,
    /// The round, from 0.
    pub round: u32,
    /// The priced operation.
    pub price: Priced,
    /// Nanoseconds.
    pub ns: f64,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// A step of a run.
    Step {
        engine: &'static str,
        run: Run,
        seen: Box<Seen>,
    },
    /// The resident size at a moment of a run.
    Sample {
        engine: &'static str,
        run: Run,
        sample: Sample,
    },
    /// A price.
    Price(Price),
}

impl Row {
    /// A step of a run.
    pub fn step(engine: &'static str, run: Run, seen: Seen) -> Row {
        let seen = Box::new(seen);
        Row::Step { engine, run, seen }
    }

    /// A sample of a run.
    pub fn sample(engine: &'static str, run: Run, sample: Sample) -> Row {
        Row::Sample {
            engine,
            run,
            sample,
        }
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

const COLUMNS: &str = "kind,engine,run,step,ms,end_ms,rss_kib,later_kib,peak_kib,full_kib,live_kib,\
                       tables_kib,minor_faults,ns,coroutines,free_dirty_kib,purged_kib,note";

impl Record {
    /// Whether a file is a record of this kind.
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
    /// If a line has another form, or there is none.
    pub fn from_csv(text: &str) -> anyhow::Result<Record> {
        let (head, rows) = rows_of(text, COLUMNS, parse)?;
        ensure!(!rows.is_empty(), "no steps and no prices");
        Ok(Record { head, rows })
    }

    /// The engines with steps of `run`, in the order of the report.
    pub fn engines(&self, run: Run) -> Vec<&'static str> {
        let has = |name: &&'static str| self.step(name, run, Step::Start).is_some();
        engines::ALL.iter().map(|e| e.name).filter(has).collect()
    }

    /// A step.
    pub fn step(&self, engine: &str, run: Run, step: Step) -> Option<&Seen> {
        self.rows.iter().find_map(|row| match row {
            Row::Step {
                engine: e,
                run: r,
                seen,
            } if *e == engine && *r == run && seen.step == step => Some(&**seen),
            _ => None,
        })
    }

    /// The resident size during a run.
    pub fn samples(&self, engine: &str, run: Run) -> Vec<Sample> {
        let of_run = |row: &Row| match row {
            Row::Sample {
                engine: e,
                run: r,
                sample,
            } if *e == engine && *r == run => Some(*sample),
            _ => None,
        };
        self.rows.iter().filter_map(of_run).collect()
    }

    /// The nanoseconds of a price, by round.
    pub fn prices(&self, stacks: StackKind, price: Priced) -> Vec<(u32, f64)> {
        let of_price = |row: &Row| match row {
            Row::Price(p) if p.stacks == stacks && p.price == price => Some((p.round, p.ns)),
            _ => None,
        };
        self.rows.iter().filter_map(of_price).collect()
    }

    /// The value of a line in the head.
    pub fn said(&self, key: &str) -> Option<&str> {
        let found = self.head.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }
}

fn line(row: &Row) -> String {
    match row {
        Row::Step { engine, run, seen } => step_line(engine, *run, seen),
        Row::Sample {
            engine,
            run,
            sample: Sample { ms, kib },
        } => format!("sample,{engine},{},,{ms},,{kib},,,,,,,,,,,", run.name()),
        Row::Price(Price {
            stacks,
            round,
            price,
            ns,
        }) => format!(
            "price,{},{round},{},,,,,,,,,,{ns:.2},,,,",
            stacks.name(),
            price.name()
        ),
    }
}

fn step_line(engine: &str, run: Run, seen: &Seen) -> String {
    let Seen {
        step,
        ms: (from, to),
        done,
        rss,
        later,
        peak,
        tables,
        heap,
    } = seen;
    let Done {
        faults,
        ns,
        full_kib,
        live_kib,
        coroutines,
        note,
    } = done;
    let (run, step) = (run.name(), step.name());
    let later = later.map_or(String::new(), |kib| kib.to_string());
    let (dirty, purged) = heap.neap.map_or((String::new(), String::new()), |(d, p)| {
        (d.to_string(), p.to_string())
    });
    let note = note.replace(',', ";");
    format!(
        "step,{engine},{run},{step},{from},{to},{rss},{later},{peak},{full_kib},{live_kib},\
         {tables},{faults},{ns},{coroutines},{dirty},{purged},{note}"
    )
}

fn parse(line: &str) -> anyhow::Result<Row> {
    let fields: Vec<&str> = line.split(',').collect();
    ensure!(fields.len() == 18, "{} fields", fields.len());
    match fields[0] {
        "step" => Ok(Row::step(
            engine(fields[1])?,
            run(fields[2])?,
            seen(&fields)?,
        )),
        "sample" => Ok(Row::sample(
            engine(fields[1])?,
            run(fields[2])?,
            Sample {
                ms: fields[4].parse()?,
                kib: fields[6].parse()?,
            },
        )),
        "price" => Ok(Row::Price(price(&fields)?)),
        other => bail!("no kind {other:?}"),
    }
}

fn engine(name: &str) -> anyhow::Result<&'static str> {
    let found = engines::find(name).with_context(|| format!("no engine {name:?}"))?;
    Ok(found.name)
}

fn run(name: &str) -> anyhow::Result<Run> {
    Run::find(name).with_context(|| format!("no run {name:?}"))
}

fn perhaps(field: &str) -> anyhow::Result<Option<u64>> {
    Ok((!field.is_empty()).then(|| field.parse()).transpose()?)
}

fn seen(fields: &[&str]) -> anyhow::Result<Seen> {
    let number = |place: usize| -> anyhow::Result<u64> { Ok(fields[place].parse()?) };
    let (dirty, purged) = (perhaps(fields[15])?, perhaps(fields[16])?);
    Ok(Seen {
        step: Step::find(fields[3]).with_context(|| format!("no step {:?}", fields[3]))?,
        ms: (number(4)?, number(5)?),
        rss: number(6)?,
        later: perhaps(fields[7])?,
        peak: number(8)?,
        tables: number(11)?,
        done: Done {
            full_kib: number(9)?,
            live_kib: number(10)?,
            faults: number(12)?,
            ns: number(13)?,
            coroutines: number(14)?,
            // A comma would start a new column; numbers contain commas between digits.
            note: fields[17].replace(';', ","),
        },
        heap: Heap {
            neap: dirty.zip(purged),
        },
    })
}

fn price(fields: &[&str]) -> anyhow::Result<Price> {
    let stacks = [StackKind::Own, StackKind::Neap]
        .into_iter()
        .find(|kind| kind.name() == fields[1]);
    Ok(Price {
        stacks: stacks.with_context(|| format!("no stacks {:?}", fields[1]))?,
        round: fields[2].parse()?,
        price: Priced::find(fields[3]).with_context(|| format!("no price {:?}", fields[3]))?,
        ns: fields[13].parse()?,
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// MiB as KiB.
    const fn mib(mib: u64) -> u64 {
        mib << 10
    }

    /// How much freed memory an engine keeps, for examples.
    pub struct Habit {
        /// MiB resident after each step but the start, at once and later.
        pub rss: [(u64, u64); 5],
        /// MiB newly faulted by "created" and by "allocated again" in the run without waits.
        pub faulted: (u64, u64),
    }

    /// A heap and stacks that share everything and keep nothing.
    pub const SHARING: Habit = Habit {
        rss: [(100, 2), (202, 202), (202, 2), (102, 2), (202, 202)],
        faulted: (100, 1),
    };

    /// As in the write-up.
    pub const KEEPING: Habit = Habit {
        rss: [(102, 102), (302, 302), (302, 302), (402, 402), (402, 402)],
        faulted: (200, 100),
    };

    fn seen(step: Step, rss: u64, later: Option<u64>, live: u64, faulted: u64) -> Seen {
        let at = Step::ALL.iter().position(|s| *s == step).unwrap_or(0) as u64 * 3_000;
        let allocates = matches!(step, Step::Allocated | Step::AllocatedAgain);
        Seen {
            step,
            ms: (at, at + 900),
            done: Done {
                faults: faulted * 256,
                ns: 900_000_000,
                full_kib: if allocates { mib(rss.max(102)) } else { 0 },
                live_kib: mib(live),
                coroutines: live * 256,
                note: String::new(),
            },
            rss: mib(rss),
            later: later.map(mib),
            peak: mib(rss.max(102)),
            tables: 512,
            heap: Heap::default(),
        }
    }

    /// All runs of an engine: 100 MiB of heap, 200 MiB of stacks, 2 MiB to begin with.
    pub fn rows(engine: &'static str, habit: &Habit) -> Vec<Row> {
        let live = [0, 200, 0, 0, 200];
        let fresh = [100, habit.faulted.0, 0, habit.faulted.1, 200];
        let mut rows = Vec::new();
        for run in Run::ALL {
            for &step in run.steps() {
                let place = Step::ALL.iter().position(|s| *s == step).unwrap_or(0);
                let seen = match place.checked_sub(1) {
                    None => seen(step, 2, None, 0, 0),
                    Some(at) => {
                        let later = run.waits_after(step).then_some(habit.rss[at].1);
                        seen(step, habit.rss[at].0, later, live[at], fresh[at])
                    }
                };
                let sample = Sample {
                    ms: seen.ms.1,
                    kib: seen.rss,
                };
                rows.push(Row::step(engine, run, seen));
                rows.push(Row::sample(engine, run, sample));
            }
        }
        rows
    }

    /// Prices of both kinds of stacks.
    pub fn prices() -> Vec<Row> {
        let row = |(stacks, ns): (StackKind, f64), round: u32, price| {
            Row::Price(Price {
                stacks,
                round,
                price,
                ns: ns + f64::from(round),
            })
        };
        let kinds = [(StackKind::Own, 8_000.0), (StackKind::Neap, 800.0)];
        let rounds = (0..7).flat_map(|round| kinds.map(|kind| (kind, round)));
        rounds
            .flat_map(|(kind, round)| Priced::ALL.map(|price| row(kind, round, price)))
            .collect()
    }

    /// Two engines and the prices.
    pub fn example() -> Record {
        let head = [("date", "a b"), ("heap MB", "100"), ("coroutines", "50000")];
        Record {
            head: head.map(|(k, v)| (k.to_string(), v.to_string())).into(),
            rows: [rows("go", &KEEPING), rows("neap", &SHARING), prices()].concat(),
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let mut record = example();
        if let Row::Step { seen, .. } = &mut record.rows[2] {
            seen.heap.neap = Some((3, 4));
            seen.done.note = "32,752 coroutines, then: Cannot allocate memory".into();
        }
        let csv = record.to_csv();
        assert!(Record::recognises(&csv));
        assert_eq!(Record::from_csv(&csv).unwrap(), record);
    }

    #[test]
    fn rows_are_found() {
        let record = example();
        assert_eq!(record.engines(Run::Waited), ["go", "neap"]);
        let closed = record.step("go", Run::Waited, Step::Closed).unwrap();
        assert_eq!(closed.later, Some(mib(302)));
        assert!(record.step("glibc", Run::Waited, Step::Closed).is_none());
        assert_eq!(record.samples("neap", Run::StacksFirst).len(), 4);
        assert_eq!(record.prices(StackKind::Neap, Priced::Switch).len(), 7);
        assert_eq!(record.said("heap MB"), Some("100"));
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let csv = example().to_csv();
        for (right, wrong) in [
            ("step,go,", "step,x,go,"),
            ("step,go", "step,perl"),
            (",waited,", ",hurried,"),
            (",closed,", ",open,"),
            ("price,own", "price,rented"),
            (",switch,", ",swap,"),
            ("sample,", "sampled,"),
            ("8000.00", "fast"),
            ("kind,", "sort,"),
        ] {
            assert!(csv.contains(right), "{right}");
            let damaged = csv.replace(right, wrong);
            assert!(Record::from_csv(&damaged).is_err(), "{wrong}");
        }
        assert!(Record::from_csv("").is_err());
    }
}
