//! Medians over the rounds of a record.

use super::cells::{self, SIZES, Size};
use super::record::{Record, Value};
use crate::stats::quantile;
use crate::work::calloc::Touch;

/// A median over rounds with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The median.
    pub value: f64,
    /// The lower and the upper quartile.
    pub quartiles: (f64, f64),
    /// The number of rounds.
    pub rounds: usize,
}

impl Median {
    fn of(values: &[f64]) -> Option<Median> {
        (!values.is_empty()).then(|| Median {
            value: quantile(values, 0.5),
            quartiles: (quantile(values, 0.25), quantile(values, 0.75)),
            rounds: values.len(),
        })
    }

    /// Half the interquartile range, relative to the median.
    pub fn spread(&self) -> f64 {
        (self.quartiles.1 - self.quartiles.0) / 2.0 / self.value
    }
}

/// One cell under one allocator, summed up over a record.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summed {
    /// Nanoseconds per pair: the median of the rounds' medians.
    pub ns: Option<Median>,
    /// The lowest clock reading of any round.
    pub ns_least: Option<f64>,
    /// Minor and major faults per pair.
    pub faults: Option<Median>,
    /// Bytes that calloc zeroed. Outer `None`: not measured. Inner `None`: not available on this
    /// machine.
    pub zeroed: Option<Option<u64>>,
    /// System calls per pair, in the same form.
    pub system_calls: Option<Option<f64>>,
}

/// A record and its summary.
pub struct Summary<'a> {
    record: &'a Record,
}

impl<'a> Summary<'a> {
    /// A view of `record`.
    pub fn of(record: &'a Record) -> Summary<'a> {
        Summary { record }
    }

    /// The allocators in the order of the report; those unknown to this version come last.
    pub fn peers(&self) -> Vec<&'a str> {
        let mut peers: Vec<&str> = Vec::new();
        for row in &self.record.rows {
            if !peers.contains(&row.peer.as_str()) {
                peers.push(&row.peer);
            }
        }
        let place = |name: &&str| cells::contenders().position(|known| known == *name);
        peers.sort_by_key(|name| place(name).unwrap_or(usize::MAX));
        peers
    }

    /// The sizes in the record, smallest first.
    pub fn sizes(&self) -> Vec<&'static Size> {
        let run = |size: &&Size| self.record.rows.iter().any(|row| row.size == size.name);
        SIZES.iter().filter(run).collect()
    }

    /// The patterns in the record.
    pub fn touches(&self) -> Vec<Touch> {
        let run = |touch: &Touch| self.record.rows.iter().any(|row| row.touch == *touch);
        Touch::ALL.into_iter().filter(run).collect()
    }

    /// Everything about one cell under `peer`.
    pub fn cell(&self, size: &str, touch: Touch, peer: &str) -> Summed {
        let mut summed = Summed::default();
        let (mut ns, mut least, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        let of =
            |row: &&super::record::Row| row.size == size && row.touch == touch && row.peer == peer;
        for row in self.record.rows.iter().filter(of) {
            match &row.value {
                Value::Timed { timed, .. } => {
                    ns.push(timed.ns_median);
                    least.push(timed.ns_least);
                    faults.push(timed.minor_faults + timed.major_faults);
                }
                Value::Accounted(account) => {
                    summed.zeroed = Some(account.zeroed);
                    summed.system_calls = Some(account.system_calls);
                }
            }
        }
        let ns_least = least.into_iter().reduce(f64::min);
        Summed {
            ns: Median::of(&ns),
            ns_least,
            faults: Median::of(&faults),
            ..summed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calloc::record::tests::rows;

    #[test]
    fn a_cell_is_summed_over_its_rounds() {
        let mut all = rows("1M", Touch::All, "naive", &[9.0]);
        all.extend(rows("1M", Touch::All, "glibc", &[100.0, 300.0, 200.0]));
        let record = Record {
            head: vec![],
            rows: all,
        };
        let summary = Summary::of(&record);
        let cell = summary.cell("1M", Touch::All, "glibc");
        let ns = cell.ns.unwrap();
        assert_eq!(
            (ns.value, ns.quartiles, ns.rounds),
            (200.0, (150.0, 250.0), 3)
        );
        assert_eq!(ns.spread(), 0.25);
        assert_eq!(cell.ns_least, Some(50.0));
        assert_eq!(
            (cell.zeroed, cell.system_calls),
            (Some(Some(4_096)), Some(Some(2.5)))
        );
        assert_eq!(summary.cell("1M", Touch::None, "glibc"), Summed::default());
        assert_eq!(summary.peers(), ["glibc", "naive"]);
        assert_eq!(
            (summary.sizes()[0].name, summary.touches()),
            ("1M", vec![Touch::All])
        );
    }
}
