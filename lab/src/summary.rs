//! Summarises a record: every allocator against a base, workload by workload.

use crate::record::{Record, Row, Value};
use crate::run::Sample;
use crate::stats::{Comparison, geometric_mean, quantile};
use crate::workloads::{self, Measure};

/// A compared number of a timed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Nanoseconds per operation.
    Time,
    /// Peak resident KiB.
    PeakRss,
    /// Resident bytes per block.
    BytesPerBlock,
    /// Minor faults.
    Faults,
}

impl Metric {
    /// The number in `sample`; `None` if it was not measured.
    pub fn of(self, sample: &Sample) -> Option<f64> {
        match self {
            Metric::Time => Some(sample.ns_per_op),
            Metric::PeakRss => Some(sample.peak_rss_kib as f64),
            Metric::BytesPerBlock => sample.bytes_per_block,
            Metric::Faults => Some(sample.faults.0 as f64),
        }
    }
}

/// Queries on a record.
pub struct Summary<'a> {
    record: &'a Record,
}

impl<'a> Summary<'a> {
    /// Queries on `record`.
    pub fn of(record: &'a Record) -> Summary<'a> {
        Summary { record }
    }

    /// The names of the timed rows with that measure, in order.
    pub fn workloads(&self, measure: Measure) -> Vec<&'a str> {
        let timed = self
            .record
            .rows
            .iter()
            .filter(|r| matches!(r.value, Value::Timed { .. }));
        let of_measure =
            |name: &&str| workloads::find(name).is_some_and(|w| w.measure() == measure);
        distinct(timed.map(|r| r.name.as_str()).filter(of_measure))
    }

    /// The peers with any row, in the order of the first.
    pub fn peers(&self) -> Vec<&'a str> {
        let mut peers = distinct(self.record.rows.iter().map(|r| r.peer.as_str()));
        let place = |name: &str| crate::peers::ALL.iter().position(|p| p.name == name);
        peers.sort_by_key(|name| place(name));
        peers
    }

    /// The metric in each round that measured it.
    fn rounds(&self, workload: &str, peer: &str, metric: Metric) -> Vec<(u32, f64)> {
        let of = |row: &Row| match &row.value {
            Value::Timed { round, sample } if row.name == workload && row.peer == peer => {
                Some((*round, metric.of(sample)?))
            }
            _ => None,
        };
        self.record.rows.iter().filter_map(of).collect()
    }

    /// The median of the metric over the rounds.
    pub fn median(&self, workload: &str, peer: &str, metric: Metric) -> Option<f64> {
        let values: Vec<f64> = self
            .rounds(workload, peer, metric)
            .into_iter()
            .map(|(_, v)| v)
            .collect();
        (!values.is_empty()).then(|| quantile(&values, 0.5))
    }

    /// `peer` against `base`, paired by round.
    pub fn compare(
        &self,
        workload: &str,
        peer: &str,
        base: &str,
        metric: Metric,
    ) -> Option<Comparison> {
        let bases = self.rounds(workload, base, metric);
        let pair = |(round, value): (u32, f64)| {
            bases
                .iter()
                .find(|(other, _)| *other == round)
                .map(|&(_, base)| (value, base))
        };
        let pairs: Vec<(f64, f64)> = self
            .rounds(workload, peer, metric)
            .into_iter()
            .filter_map(pair)
            .collect();
        Comparison::of(&pairs)
    }

    /// The geometric mean of the median ratios over the timed workloads that both ran.
    pub fn mean_ratio(&self, peer: &str, base: &str, metric: Metric) -> Option<f64> {
        let ratio = |name| Some(self.compare(name, peer, base, metric)?.median);
        let ratios: Vec<f64> = self
            .workloads(Measure::Time)
            .into_iter()
            .filter_map(ratio)
            .collect();
        geometric_mean(&ratios)
    }

    /// The names of the counted rows of a kind, in order.
    pub fn counted(&self, kind: Counting) -> Vec<&'a str> {
        let rows = self
            .record
            .rows
            .iter()
            .filter(|r| kind.of(&r.value).is_some());
        distinct(rows.map(|r| r.name.as_str()))
    }

    /// A count.
    pub fn count(&self, kind: Counting, name: &str, peer: &str) -> Option<f64> {
        let rows = self
            .record
            .rows
            .iter()
            .filter(|r| r.name == name && r.peer == peer);
        rows.filter_map(|r| kind.of(&r.value)).next()
    }
}

/// A quantity counted once instead of timed in rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Instructions per pair.
    Instructions,
    /// System calls per run.
    SystemCalls,
}

impl Counting {
    fn of(self, value: &Value) -> Option<f64> {
        match (self, value) {
            (Counting::Instructions, Value::Instructions(count)) => Some(*count),
            (Counting::SystemCalls, Value::SystemCalls(count)) => Some(*count as f64),
            _ => None,
        }
    }
}

/// The distinct names, in order of first appearance.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    names.fold(Vec::new(), |mut seen, name| {
        if !seen.contains(&name) {
            seen.push(name);
        }
        seen
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten rounds in which jemalloc takes twice the time and half the memory of glibc.
    fn record() -> Record {
        let row = |peer: &str, round: u32, ns: f64, kib: u64| Row {
            name: "churn-1k".into(),
            peer: peer.into(),
            value: Value::Timed {
                round,
                sample: Sample {
                    ns_per_op: ns + f64::from(round),
                    peak_rss_kib: kib,
                    faults: (10, 0),
                    bytes_per_block: None,
                },
            },
        };
        let rows = (0..10)
            .flat_map(|r| {
                [
                    row("jemalloc", r, 20.0 + f64::from(r), 50),
                    row("glibc", r, 10.0, 100),
                ]
            })
            .collect();
        Record {
            head: Vec::new(),
            rows,
        }
    }

    #[test]
    fn pairs_are_of_one_round() {
        let record = record();
        let summary = Summary::of(&record);
        let time = summary
            .compare("churn-1k", "jemalloc", "glibc", Metric::Time)
            .unwrap();
        assert_eq!((time.median, time.pairs), (2.0, 10));
        assert!(time.separable());
        assert_eq!(
            summary.mean_ratio("jemalloc", "glibc", Metric::PeakRss),
            Some(0.5)
        );
        assert_eq!(
            summary.compare("fifo", "jemalloc", "glibc", Metric::Time),
            None
        );
    }

    #[test]
    fn rows_are_told_in_the_order_of_the_tables() {
        let record = record();
        let summary = Summary::of(&record);
        assert_eq!(summary.peers(), ["glibc", "jemalloc"]);
        assert_eq!(summary.workloads(Measure::Time), ["churn-1k"]);
        assert!(summary.workloads(Measure::Memory).is_empty());
        assert!(summary.counted(Counting::Instructions).is_empty());
    }
}
