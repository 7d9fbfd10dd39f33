//! The figures of a process at each tick, and what changed a second.

use crate::attach::Board;
use crate::failure::Failure;
use crate::view::{State, View, total};
use neap::stats::Snapshot;
use std::time::Duration;

/// A lease outlives so many intervals, so that one late tick does not end it.
const LEASES: u32 = 3;
/// And at least so long.
const LEAST_LEASE: Duration = Duration::from_secs(3);

/// A process that is being watched.
#[derive(Debug)]
pub struct Feed {
    board: Board,
    title: String,
    interval: Duration,
    last: Option<Snapshot>,
    rates: Rates,
}

/// Changes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Page faults that needed no disk.
    pub minor_faults: f64,
    /// Page faults that did.
    pub major_faults: f64,
    /// Times that pages were given back.
    pub purges: f64,
    /// Bytes of these.
    pub purged_bytes: f64,
    /// Bytes written with zeros.
    pub zeroed: f64,
    /// Bytes that were zero already.
    pub zero_spared: f64,
    /// Refills of magazines.
    pub refills: f64,
    /// Flushes of magazines.
    pub flushes: f64,
    /// Allocations, where they are counted.
    pub allocations: Option<f64>,
}

/// What a look has brought.
#[derive(Clone, Debug)]
pub struct Look {
    /// The process.
    pub view: View,
    /// What changed a second, since the look before.
    pub rates: Rates,
}

impl Feed {
    /// Begins to watch.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn new(board: Board, interval: Duration) -> Result<Feed, Failure> {
        let feed = Feed {
            title: board.title(),
            board,
            interval,
            last: None,
            rates: Rates::default(),
        };
        feed.renew()?;
        feed.board.nudge()?;
        Ok(feed)
    }

    /// The process's board.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// What the process is called, also when it has ended.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Looks, and sees to it that there is something new the next time.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn look(&mut self) -> Result<Look, Failure> {
        let figures = self.board.figures();
        let is_new = match (&figures, &self.last) {
            (Some(figures), Some(last)) => figures.at_ms != last.at_ms,
            (figures, _) => figures.is_some(),
        };
        let state = match is_new {
            true => State::Fresh,
            false => State::Pending,
        };
        self.renew()?;
        if !is_new {
            self.board.nudge()?;
        }
        let view = View::glance(&self.board, state, figures)?;
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
        self.board.watch(self.interval, lease)
    }
}

impl Rates {
    /// From one moment to another. What shrinks (threads have ended, a board is forged) does not count.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
