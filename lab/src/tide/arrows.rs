//! The write-up's picture as figures: which part reused the memory of which other.
//!
//! | arrow | run | what is measured |
//! |---|---|---|
//! | heap to OS | waited | of the heap's bytes, dropped: how much less is resident after the wait |
//! | stacks to OS | waited | of the parked stacks' bytes, ended: the same |
//! | heap to stacks | at once | of what the heap dropped and the stacks could use: growth avoided |
//! | stacks to heap | stacks first | of what the stacks dropped and the heap could use: the same |
//! | OS to either | waited | how much more was resident when all was in use |
//!
//! The write-up judged by the same rule: a process that does not grow reused its own memory. The
//! newly faulted pages also show whether the pages themselves passed directly or went through the
//! OS.

use super::follow::Seen;
use super::observed::Observed;
use super::steps::{Run, Step};
use crate::pagemap::page_size;

/// A giver or taker of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Heap,
    Stacks,
    System,
}

impl Place {
    /// Its name in tables and pictures.
    pub fn name(self) -> &'static str {
        match self {
            Place::Heap => "heap",
            Place::Stacks => "stacks",
            Place::System => "OS",
        }
    }
}

/// An arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// The giver.
    pub from: Place,
    /// The taker.
    pub to: Place,
}

const fn arrow(from: Place, to: Place) -> Arrow {
    Arrow { from, to }
}

/// All arrows; the four that can be closed come first.
pub const ALL: [Arrow; 6] = [
    arrow(Place::Heap, Place::Stacks),
    arrow(Place::Stacks, Place::Heap),
    arrow(Place::Heap, Place::System),
    arrow(Place::Stacks, Place::System),
    arrow(Place::System, Place::Heap),
    arrow(Place::System, Place::Stacks),
];

impl Arrow {
    /// Such as `heap → OS`.
    pub fn title(self) -> String {
        format!("{} → {}", self.from.name(), self.to.name())
    }
}

/// The memory that passed along an arrow, in KiB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// The amount that passed.
    pub passed: u64,
    /// The amount that could have passed.
    pub offered: u64,
}

/// Whether an arrow is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// At least nine tenths passed.
    Open,
    /// Less, but more than a tenth.
    Partly,
    /// At most a tenth.
    Closed,
}

impl Flow {
    fn new(passed: u64, offered: u64) -> Option<Flow> {
        let passed = passed.min(offered);
        (offered > 0).then_some(Flow { passed, offered })
    }

    /// The share that passed, 0 to 1.
    pub fn share(&self) -> f64 {
        self.passed as f64 / self.offered as f64
    }

    /// The verdict.
    pub fn state(&self) -> State {
        match self.share() {
            share if share >= 0.9 => State::Open,
            share if share > 0.1 => State::Partly,
            _ => State::Closed,
        }
    }
}

/// Growth of the process in KiB when a step's memory was all in use.
pub fn growth(seen: &Seen, before: u64) -> u64 {
    seen.rss.max(seen.done.full_kib).saturating_sub(before)
}

/// The bytes of a step's page faults, in KiB.
pub fn faulted(seen: &Seen) -> u64 {
    seen.done.faults * page_size() / 1_024
}

/// The flow along an arrow of `engine`; `None` without the run that shows it.
pub fn flow(observed: &Observed, engine: &str, arrow: Arrow) -> Option<Flow> {
    let step = |run, step| observed.step(engine, run, step);
    let rested = |at| step(Run::Waited, at).and_then(|seen: &Seen| seen.later);
    match (arrow.from, arrow.to) {
        (Place::Heap, Place::System) => {
            let full = step(Run::Waited, Step::Allocated)?.done.full_kib;
            let given = full.saturating_sub(rested(Step::Allocated)?);
            Flow::new(given, heap_kib(observed)?)
        }
        (Place::Stacks, Place::System) => {
            let given = rested(Step::Created)?.saturating_sub(rested(Step::Closed)?);
            Flow::new(given, step(Run::Waited, Step::Created)?.done.live_kib)
        }
        (Place::Heap, Place::Stacks) => {
            let before = step(Run::AtOnce, Step::Allocated)?;
            let created = step(Run::AtOnce, Step::Created)?;
            passed(before, created, heap_kib(observed)?, created.done.live_kib)
        }
        (Place::Stacks, Place::Heap) => {
            let offered = step(Run::StacksFirst, Step::Created)?.done.live_kib;
            let before = step(Run::StacksFirst, Step::Closed)?;
            let allocated = step(Run::StacksFirst, Step::AllocatedAgain)?;
            passed(before, allocated, offered, heap_kib(observed)?)
        }
        (_, to) => {
            let (before, at) = match to {
                Place::Heap => (Step::Start, Step::Allocated),
                _ => (Step::Allocated, Step::Created),
            };
            let (before, seen) = (step(Run::Waited, before)?, step(Run::Waited, at)?);
            let taken = growth(seen, before.later.unwrap_or(before.rss));
            Flow::new(taken, taken)
        }
    }
}

/// The part of `needed` that `taker` got without growing the process, out of `offered`.
fn passed(before: &Seen, taker: &Seen, offered: u64, needed: u64) -> Option<Flow> {
    let taken = growth(taker, before.rss);
    Flow::new(needed.saturating_sub(taken), offered.min(needed))
}

/// Bytes that the heap allocates and drops, in KiB.
pub fn heap_kib(observed: &Observed) -> Option<u64> {
    Some(observed.said("heap MB")?.parse::<u64>().ok()? << 10)
}

/// KiB resident after the wait, beyond what the program needs and began with.
pub fn excess(observed: &Observed, engine: &str, step: Step) -> Option<i64> {
    let base = observed.step(engine, Run::Waited, Step::Start)?.rss;
    let seen = observed.step(engine, Run::Waited, step)?;
    Some(seen.later? as i64 - (base + seen.done.live_kib) as i64)
}

/// The peer that kept least beyond what was needed, over all steps; without glibc and Neap.
pub fn best_peer<'a>(observed: &Observed<'a>) -> Option<&'a str> {
    let is_peer = |name: &&str| !["go", "go-freed", "glibc", "neap-heap", "neap"].contains(name);
    let total = |name: &str| -> i64 {
        let of_step = |step: &Step| excess(observed, name, *step);
        Step::ALL.iter().filter_map(of_step).sum()
    };
    let peers = observed.engines(&[Run::Waited]).into_iter().filter(is_peer);
    peers.min_by_key(|name| total(name))
}

#[cfg(test)]
mod tests {
    use super::super::observed::tests::{KEEPING, SHARING, add, example};
    use super::*;

    fn states(observed: &Observed, engine: &str) -> Vec<State> {
        let state = |arrow: &Arrow| flow(observed, engine, *arrow).unwrap().state();
        ALL.iter().map(state).collect()
    }

    #[test]
    fn an_engine_that_shares_has_every_arrow_and_one_that_keeps_has_those_from_the_system() {
        let record = example();
        let observed = Observed::of(&record);
        assert_eq!(states(&observed, "neap"), [State::Open; 6]);
        let (no, yes) = (State::Closed, State::Open);
        assert_eq!(states(&observed, "go"), [no, no, no, no, yes, yes]);
        assert_eq!(flow(&observed, "glibc", ALL[0]), None);
    }

    #[test]
    fn half_is_neither() {
        let half = Flow::new(50, 100).unwrap();
        assert_eq!((half.share(), half.state()), (0.5, State::Partly));
        assert_eq!(Flow::new(200, 100).unwrap().share(), 1.0);
        assert_eq!(Flow::new(0, 0), None);
    }

    #[test]
    fn the_best_peer_keeps_least() {
        let mut record = example();
        assert_eq!(best_peer(&Observed::of(&record)), None);
        add(&mut record, "jemalloc", &KEEPING);
        add(&mut record, "mimalloc3", &SHARING);
        let observed = Observed::of(&record);
        assert_eq!(best_peer(&observed), Some("mimalloc3"));
        assert_eq!(excess(&observed, "jemalloc", Step::Closed), Some(300 << 10));
        assert_eq!(excess(&observed, "neap", Step::Created), Some(0));
    }
}
