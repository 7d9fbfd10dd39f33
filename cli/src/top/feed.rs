//! The figures of a process at each tick, their rates of change, and the list of all processes
//! under Neap.

use super::canvas::{Column, REST};
use crate::attach::{StatusPage, Under, kernel, of_whom};
use crate::failure::{Failure, shown};
use crate::view::{State, View, total};
use neap_shared::stats::{Bytes, Snapshot};
use serde::Serialize;
use std::fmt::Alignment;
use std::time::Duration;

/// Intervals per lease, so that one late tick does not end it.
const LEASES: u32 = 3;
/// The shortest lease.
const LEAST_LEASE: Duration = Duration::from_secs(3);

/// A watched process.
#[derive(Debug)]
pub struct Feed {
    status_page: StatusPage,
    title: String,
    interval: Duration,
    last: Option<Snapshot>,
    rates: Rates,
}

/// Changes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Minor page faults.
    pub minor_faults: f64,
    /// Major page faults.
    pub major_faults: f64,
    /// Purges.
    pub purges: f64,
    /// Bytes purged.
    #[serde(rename = "purged")]
    pub purged_bytes: f64,
    /// Bytes written with zeros.
    pub zeroed: f64,
    /// Bytes already known to be zero.
    pub zero_spared: f64,
    /// Refills of magazines.
    pub refills: f64,
    /// Flushes of magazines.
    pub flushes: f64,
    /// Allocations, if they are counted.
    pub allocations: Option<f64>,
}

/// The result of one tick.
#[derive(Clone, Debug)]
pub struct Look {
    /// The process.
    pub view: View,
    /// Changes per second since the last tick.
    pub rates: Rates,
}

impl Feed {
    /// Begins to watch.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn new(status_page: StatusPage, interval: Duration) -> Result<Feed, Failure> {
        let feed = Feed {
            title: status_page.title(),
            status_page,
            interval,
            last: None,
            rates: Rates::default(),
        };
        feed.renew()?;
        feed.status_page.nudge()?;
        Ok(feed)
    }

    /// The process's status page.
    pub fn status_page(&self) -> &StatusPage {
        &self.status_page
    }

    /// The process's name, also after its end.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Takes the figures, and has the process prepare the next ones. `None`: it has ended.
    ///
    /// # Errors
    ///
    /// The status page or the kernel's counts cannot be read.
    pub fn look(&mut self) -> Result<Option<Look>, Failure> {
        match self.take() {
            Err(_) if self.status_page.has_ended() => Ok(None),
            taken => taken.map(Some),
        }
    }

    fn take(&mut self) -> Result<Look, Failure> {
        let figures = self.status_page.figures();
        let is_new = match (&figures, &self.last) {
            (Some(figures), Some(last)) => figures.at_ms != last.at_ms,
            (figures, _) => figures.is_some(),
        };
        let state = if is_new { State::Fresh } else { State::Pending };
        self.renew()?;
        if !is_new {
            self.status_page.nudge()?;
        }
        let view = View::glance(&self.status_page, state, figures)?;
        if let (true, Some(figures)) = (is_new, figures) {
            self.rates = match &self.last {
                Some(last) => Rates::between(last, &figures),
                None => Rates::default(),
            };
            self.last = Some(figures);
        } else {
            self.rates = Rates::default();
        }
        Ok(Look {
            view,
            rates: self.rates,
        })
    }

    fn renew(&self) -> Result<(), Failure> {
        let lease = LEAST_LEASE.max(self.interval.saturating_mul(LEASES));
        self.status_page.watch(self.interval, lease)
    }
}

impl Rates {
    /// The rates between two moments. Decreases count as 0: threads have ended, or the status page
    /// is forged.
    pub fn between(old: &Snapshot, new: &Snapshot) -> Rates {
        let seconds = new.at_ms.saturating_sub(old.at_ms) as f64 / 1000.0;
        if seconds <= 0.0 {
            return Rates::default();
        }
        let rate = |of: fn(&Snapshot) -> u64| of(new).saturating_sub(of(old)) as f64 / seconds;
        let counted = new.counted.known != 0 && old.counted.known != 0;
        Rates {
            minor_faults: rate(|figures| figures.minor_faults),
            major_faults: rate(|figures| figures.major_faults),
            purges: rate(|figures| figures.purges),
            purged_bytes: rate(|figures| figures.purged_bytes),
            zeroed: rate(|figures| figures.zeroed),
            zero_spared: rate(|figures| figures.zero_spared),
            refills: rate(|figures| total(figures, |class| class.refills)),
            flushes: rate(|figures| total(figures, |class| class.flushes)),
            allocations: counted.then(|| rate(|figures| figures.counted.allocations)),
        }
    }
}

/// A listed process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its PID.
    pub pid: i32,
    /// Its name.
    pub program: String,
    /// Resident bytes of the whole process.
    #[serde(rename = "process_resident")]
    pub resident: u64,
    /// Swapped bytes of the whole process.
    #[serde(rename = "process_swapped")]
    pub swapped: u64,
    /// Bytes committed by Neap, by the page heap's own figures.
    pub committed: u64,
    /// Free pages that may be resident.
    pub free_dirty: u64,
    /// Bytes given back to the kernel so far.
    pub purged: u64,
}

/// A column's name, and the text of its cell.
pub type Titled<T> = (&'static str, fn(&T) -> String);

/// The widths of the list's columns.
pub const WIDTHS: [Column; 6] = {
    let figure = (11, Alignment::Right);
    [(8, Alignment::Right), figure, figure, figure, figure, REST]
};

/// The list's columns.
pub const COLUMNS: [Titled<Entry>; 6] = [
    ("PID", |entry| entry.pid.to_string()),
    ("resident", |entry| Bytes(entry.resident).to_string()),
    ("committed", |entry| Bytes(entry.committed).to_string()),
    ("free", |entry| Bytes(entry.free_dirty).to_string()),
    ("purged", |entry| Bytes(entry.purged).to_string()),
    (" program", |entry| format!(" {}", shown(&entry.program))),
];

impl Entry {
    /// The text of each column.
    pub fn cells(&self) -> [String; 6] {
        COLUMNS.map(|(_, cell)| cell(self))
    }
}

choice! {
    /// The order of the list.
    #[derive(Default)]
    pub enum Order {
        /// Most memory first.
        #[default]
        Resident = "resident",
        /// Most free pages first.
        FreeDirty = "free",
        /// By name.
        Name = "name",
        /// By PID.
        Pid = "PID",
    }
}

impl Order {
    fn sort(self, entries: &mut [Entry]) {
        match self {
            Order::Resident => entries.sort_by_key(|entry| std::cmp::Reverse(entry.resident)),
            Order::FreeDirty => entries.sort_by_key(|entry| std::cmp::Reverse(entry.free_dirty)),
            Order::Name => entries.sort_by(|one, other| one.program.cmp(&other.program)),
            Order::Pid => entries.sort_by_key(|entry| entry.pid),
        }
    }
}

/// What stands in place of an empty list.
pub fn none() -> String {
    let whom = of_whom();
    format!("no process{whom} runs under Neap: start one with neap run")
}

/// All processes of the user, or of all users for root.
///
/// # Errors
///
/// There is no /proc.
pub fn entries(order: Order) -> Result<Vec<Entry>, Failure> {
    let mut entries: Vec<Entry> = Under::all()?.iter().filter_map(entry).collect();
    order.sort(&mut entries);
    Ok(entries)
}

fn entry(under: &Under) -> Option<Entry> {
    let whole = kernel::whole(under.status_page.process()?).ok()?;
    let coarse = under.status_page.coarse().unwrap_or_default();
    Some(Entry {
        pid: under.target.pid,
        program: under.target.name.clone(),
        resident: whole.process_rss,
        swapped: whole.process_swap,
        committed: coarse.committed,
        free_dirty: coarse.free_dirty,
        purged: coarse.purged_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Choice;

    #[test]
    fn rates_are_by_the_clock_of_the_figures() {
        let old = Snapshot {
            at_ms: 1000,
            minor_faults: 10,
            purges: 9,
            ..Snapshot::default()
        };
        let mut new = Snapshot {
            at_ms: 1500,
            minor_faults: 30,
            ..old
        };
        new.purges = 4;
        let rates = Rates::between(&old, &new);
        assert_eq!((rates.minor_faults, rates.purges), (40.0, 0.0));
        assert_eq!(rates.allocations, None);
        assert_eq!(Rates::between(&new, &old), Rates::default());
    }

    #[test]
    fn every_order_is_reached_and_sorts() {
        let entry = |pid, program: &str, resident, free_dirty| Entry {
            pid,
            program: program.into(),
            resident,
            swapped: 0,
            committed: 0,
            free_dirty,
            purged: 0,
        };
        let mut entries = vec![
            entry(3, "b", 10, 7),
            entry(1, "c", 30, 5),
            entry(2, "a", 20, 6),
        ];
        let mut order = Order::default();
        let mut firsts = Vec::new();
        for _ in 0..4 {
            order.sort(&mut entries);
            firsts.push((order.word(), entries[0].pid));
            order = order.next();
        }
        assert_eq!(
            firsts,
            [("resident", 1), ("free", 3), ("name", 2), ("PID", 1)]
        );
        assert_eq!(order, Order::default());
    }
}
