//! Decides which figures hold at which moment.
//!
//! A process writes its figures when an observer asks and one of its threads can answer. A second
//! later, all of the heap may have changed. At every sample, `neap` therefore also reads the
//! kernel's count of the process and the page heap's count of its spans. Figures hold at another
//! moment only if it is close *and* those two counts say that the heap is still the same. Otherwise
//! the moment is unknown.

use super::date::seconds;
use crate::recording::format::{Sample, Spans, Told};

/// Figures for a moment.
#[derive(Clone, Copy, Debug)]
pub enum Split<'a> {
    /// They hold at it.
    Holds(Told<'a>),
    /// None do; these are the nearest, by time and counts.
    Nearest(Told<'a>),
}

impl<'a> Split<'a> {
    /// The figures.
    pub fn told(self) -> Told<'a> {
        let (Self::Holds(told) | Self::Nearest(told)) = self;
        told
    }

    /// The moment of the peak's figures, as the head of a column.
    pub fn head(self) -> String {
        let at = seconds(self.told().at_ms);
        match self {
            Self::Holds(_) => format!("Near the peak, at {at}"),
            Self::Nearest(_) => format!("Nearest known to the peak, at {at}"),
        }
    }

    /// The figures, if they hold.
    pub fn holding(self) -> Option<Told<'a>> {
        match self {
            Self::Holds(told) => Some(told),
            Self::Nearest(_) => None,
        }
    }
}

/// The most that was in RAM.
#[derive(Clone, Copy, Debug)]
pub struct Peak<'a> {
    /// The kernel's maximum, in bytes.
    pub most: u64,
    /// When, in ms.
    pub at_ms: u64,
    /// If it came and went between two readings: the time of the earlier one, in ms.
    pub after_ms: Option<u64>,
    /// Slabs and large blocks near the peak, by the page heap's count.
    pub taken: Option<u64>,
    /// Its figures; `None`: the process never wrote any.
    pub split: Option<Split<'a>>,
}

/// The counts of every sample, which do not need the process to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// When, in ms.
    pub t_ms: u64,
    /// Resident bytes of the whole process: the kernel's count.
    pub rss: u64,
    /// The page heap's count.
    pub spans: Option<Spans>,
}

/// Counts that differ by less than one part in this many are of the same heap.
const PART: u64 = 20;
/// A process may change by this much without any change of its heap, in bytes.
const LEAST_RSS: u64 = 256 << 10;
/// In a small heap, the page heap's count may be off by this much, in bytes.
const LEAST_SPANS: u64 = 1 << 20;
/// Figures this close hold at any interval, in ms.
const LEAST_NEAR_MS: u64 = 250;
/// A shorter gap between two sets of figures is drawn through, in ms.
const DRAWN_MS: u64 = 500;
/// Resident counts within one part in this many of the maximum are near it.
const NEAR_PART: u64 = 10;
/// After `exec`, the kernel's maximum includes that of the program before, such as `neap` itself,
/// which has less than this, in bytes.
const INHERITED: u64 = 64 << 20;
/// If a heap was the same before and after, and by its counts in between, it is assumed unchanged
/// for at most this long, in ms.
const STEADY_MS: u64 = 10_000;

impl Moment {
    /// The counts of `sample`; `None` if the process had ended.
    fn of(sample: &Sample) -> Option<Self> {
        (sample.rss > 0).then_some(Self {
            t_ms: sample.t_ms,
            rss: sample.rss,
            spans: sample.spans,
        })
    }

    fn taken(&self) -> u64 {
        self.spans.map_or(0, |spans| spans.taken())
    }

    /// Whether the counts are the same as at the time of the figures.
    fn agrees(&self, told: &Told) -> bool {
        let spans = match (self.spans, told.heap.spans) {
            (Some(now), Some(then)) => same(now.taken(), then.taken(), LEAST_SPANS),
            _ => true,
        };
        spans && same(self.rss, told.rss, LEAST_RSS)
    }
}

fn same(one: u64, other: u64, least: u64) -> bool {
    one.abs_diff(other) <= (one.max(other) / PART).max(least)
}

/// Everything known of a process over time.
#[derive(Debug, Default)]
pub struct History<'a> {
    /// The process's figures, ordered by when it began to count. Each holds at its own moment.
    pub told: Vec<Told<'a>>,
    /// The counts, in order of time.
    pub moments: Vec<Moment>,
    near_ms: u64,
    end_ms: u64,
}

impl<'a> History<'a> {
    /// From `samples`, one every `interval_ms`, of a process last seen at `end_ms`.
    pub fn new(samples: &[&'a Sample], interval_ms: u64, end_ms: u64) -> Self {
        let mut moments: Vec<_> = samples.iter().copied().filter_map(Moment::of).collect();
        moments.sort_by_key(|moment| moment.t_ms);
        let mut told: Vec<Told> = samples.iter().filter_map(|sample| sample.told()).collect();
        told.sort_by_key(|told| told.at_ms);
        told.dedup_by(|next, before| is_same(before, next));
        told.retain(|told| is_of_one_moment(told, &moments));
        Self {
            told,
            moments,
            near_ms: (interval_ms.saturating_mul(5) / 2).max(LEAST_NEAR_MS),
            end_ms,
        }
    }

    /// The last figures before and the first after a moment.
    fn around(&self, t_ms: u64) -> (Option<&Told<'a>>, Option<&Told<'a>>) {
        let at = self.told.partition_point(|told| told.at_ms <= t_ms);
        let before = at.checked_sub(1).map(|at| &self.told[at]);
        (before, self.told.get(at))
    }

    /// The figures that hold at a moment.
    pub fn at(&self, moment: &Moment) -> Option<Told<'a>> {
        let (before, after) = self.around(moment.t_ms);
        let distance = |told: &&Told| told.at_ms.abs_diff(moment.t_ms);
        let both = [before, after].into_iter().flatten();
        let agreeing = both.filter(|told| moment.agrees(told));
        let within = match agreeing.clone().collect::<Vec<_>>()[..] {
            [one, other] if same(held(one), held(other), LEAST_SPANS) => STEADY_MS,
            // The heap changed in between, at an unknown time and without a trace in the counts.
            [_, _] => 0,
            _ => self.near_ms,
        };
        let nearest = agreeing.min_by_key(distance);
        nearest.filter(|told| distance(told) <= within).copied()
    }

    /// The figures before or after a moment, whichever have counts nearer to its own.
    fn nearest(&self, moment: &Moment) -> Option<Told<'a>> {
        let (before, after) = self.around(moment.t_ms);
        let apart = |told: &&Told| {
            let spans = match (moment.spans, told.heap.spans) {
                (Some(one), Some(other)) => one.taken().abs_diff(other.taken()),
                _ => 0,
            };
            let counts = spans.saturating_add(moment.rss.abs_diff(told.rss));
            (counts, told.at_ms.abs_diff(moment.t_ms))
        };
        let both = [before, after].into_iter().flatten();
        both.min_by_key(apart).copied()
    }

    /// The kernel's maximum, where the program held most of the moments near it: freed memory stays
    /// resident for a while, so the resident count may be highest when much memory is free. `None`:
    /// the process was never seen with resident memory.
    pub fn peak(&self) -> Option<Peak<'a>> {
        let counted = self.moments.iter().map(|moment| (moment.t_ms, moment.rss));
        let told = self.told.iter().map(|told| (told.at_ms, told.rss));
        let readings = counted.chain(told);
        let seen = readings.clone().map(|(_, rss)| rss).max()?;
        let highest = readings.filter(|(_, rss)| *rss >= seen - seen / 100);
        let (at_ms, _) = highest.min()?;
        let missed = self.missed().filter(|(most, ..)| *most > seen);
        let (most, after_ms, until_ms) = missed.unwrap_or((seen, 0, at_ms));
        let is_between = most > bound(seen, LEAST_RSS);
        let at_ms = if is_between { until_ms } else { at_ms };
        let near: Vec<_> = (self.moments.iter())
            .filter(|moment| is_near(moment.rss, most))
            .collect();
        let fullest = near.iter().max_by_key(|moment| moment.taken());
        let unseen = Moment {
            t_ms: at_ms,
            rss: most,
            ..Moment::default()
        };
        let moment = fullest.map_or(unseen, |moment| **moment);
        let nearest = || self.nearest(&moment).map(Split::Nearest);
        (seen > 0).then(|| Peak {
            most,
            at_ms,
            after_ms: is_between.then_some(after_ms),
            taken: moment.spans.map(|spans| spans.taken()),
            split: self.split(&near, most).or_else(nearest),
        })
    }

    /// The kernel's maximum; 0: unknown.
    pub fn most(&self) -> u64 {
        self.peak().map_or(0, |peak| peak.most)
    }

    /// The figures of the moment near the peak at which the program held most; `None` if it may
    /// have held more at an unknown moment.
    fn split(&self, near: &[&Moment], most: u64) -> Option<Split<'a>> {
        let told = self.told.iter().filter(|told| is_near(told.rss, most));
        let best = told.max_by_key(|told| held(told))?;
        let least = held(best) / NEAR_PART;
        let bound = held(best).saturating_add(least.max(LEAST_SPANS));
        let may_hold_more = |moment: &&Moment| {
            let is_bounded = moment.spans.is_some_and(|spans| spans.taken() <= bound);
            !is_bounded && self.at(moment).is_none()
        };
        let unknown = near.iter().copied().any(|moment| may_hold_more(&moment));
        (!unknown).then_some(Split::Holds(*best))
    }

    /// The maximum that the kernel keeps, and between which two times in ms it was reached.
    fn missed(&self) -> Option<(u64, u64, u64)> {
        let most = |told: &Told| told.heap.most_rss;
        let first = most(self.told.first()?);
        let highest = self.told.iter().map(most).max()?;
        let index = self.told.iter().position(|told| most(told) == highest)?;
        let before = self.told[..index].last().map_or(0, |told| told.at_ms);
        let is_own = highest > first || highest >= INHERITED;
        is_own.then_some((highest, before, self.told[index].until_ms))
    }

    /// What the process held when it ended or was last seen. `None`: it never wrote figures.
    pub fn end(&self) -> Option<Split<'a>> {
        let last = self.told.last()?;
        let mut later = self.between(Some(last), None).iter();
        let changed = later.any(|moment| !moment.agrees(last));
        let is_near = self.end_ms.saturating_sub(last.at_ms) <= self.near_ms;
        let split = if is_near && !changed {
            Split::Holds
        } else {
            Split::Nearest
        };
        Some(split(*last))
    }

    /// Whether the whole time from the figures before `index` to those at `index` is known.
    pub fn is_joined(&self, index: usize) -> bool {
        let before = index.checked_sub(1).and_then(|index| self.told.get(index));
        let (Some(before), Some(after)) = (before, self.told.get(index)) else {
            return false;
        };
        let apart = after.at_ms - before.at_ms;
        let between = self.between(Some(before), Some(after));
        let is_steady = || {
            let mut between = between.iter();
            between.all(|moment| self.at(moment).is_some())
        };
        apart <= self.near_ms.max(DRAWN_MS)
            || apart <= STEADY_MS && !between.is_empty() && is_steady()
    }

    /// The counts between two sets of figures, or before the first, or after the last.
    pub fn between(&self, before: Option<&Told>, after: Option<&Told>) -> &[Moment] {
        let moments = &self.moments;
        let first = before.map_or(0, |told| {
            moments.partition_point(|moment| moment.t_ms <= told.at_ms)
        });
        let last = after.map_or(moments.len(), |told| {
            moments.partition_point(|moment| moment.t_ms < told.at_ms)
        });
        moments.get(first..last).unwrap_or_default()
    }
}

/// A count that takes longer, in ms, may mix two states of the heap.
const QUICK_MS: u64 = 20;

/// Whether the heap stayed the same while the process counted, as far as the moments around tell.
fn is_of_one_moment(told: &Told, moments: &[Moment]) -> bool {
    if told.until_ms - told.at_ms <= QUICK_MS {
        return true;
    }
    let first = moments.partition_point(|moment| moment.t_ms <= told.at_ms);
    let last = moments.partition_point(|moment| moment.t_ms < told.until_ms);
    let around = first.saturating_sub(1)..(last + 1).min(moments.len());
    moments[around].iter().all(|moment| moment.agrees(told))
}

/// Usable bytes of what the program held, including what is not resident.
pub fn held(told: &Told) -> u64 {
    let ledger = &told.heap.ledger;
    ledger.requested.saturating_add(ledger.rounding)
}

/// The limit up to which a count is nearly the same.
fn bound(bytes: u64, least: u64) -> u64 {
    bytes.saturating_add((bytes / PART).max(least))
}

fn is_near(rss: u64, most: u64) -> bool {
    rss > 0 && rss >= most - most / NEAR_PART
}

/// Two rounded readings of one clock may differ by this much, in ms.
const CLOCKS_MS: u64 = 2;

fn is_same(one: &Told, other: &Told) -> bool {
    one.heap.ledger == other.heap.ledger && one.at_ms.abs_diff(other.at_ms) <= CLOCKS_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::format::Heap;
    use neap_shared::ledger::Ledger;

    const MIB: u64 = 1 << 20;

    fn counted(t_ms: u64, rss: u64, taken: u64) -> Sample {
        Sample {
            t_ms,
            rss: rss * MIB,
            spans: Some(spans(taken)),
            ..Sample::default()
        }
    }

    fn spans(taken: u64) -> Spans {
        Spans {
            slabs: taken * MIB,
            ..Spans::default()
        }
    }

    /// A sample at `t_ms` with figures `age_ms` old, of a process of `rss` that held `held` MiB.
    fn telling(sample: Sample, age_ms: u64, rss: u64, held: u64) -> Sample {
        sample.with(Heap {
            age_ms,
            rss: rss * MIB,
            spans: Some(spans(held)),
            ledger: Ledger {
                requested: held * MIB,
                ..Ledger::default()
            },
            ..Heap::default()
        })
    }

    /// The same sample, counted for `took_ms`.
    fn slowly(sample: Sample, took_ms: u64) -> Sample {
        let heap = sample.told().unwrap().heap.clone();
        sample.with(Heap { took_ms, ..heap })
    }

    fn history(samples: &[Sample]) -> History<'_> {
        let end_ms = samples.last().unwrap().t_ms;
        History::new(&samples.iter().collect::<Vec<_>>(), 100, end_ms)
    }

    fn requested(told: Option<Told>) -> Option<u64> {
        Some(told?.heap.ledger.requested / MIB)
    }

    fn peak<'a>(history: &History<'a>) -> Option<Told<'a>> {
        history.peak()?.split?.holding()
    }

    /// A server that first answers at its end, when it has freed all memory and all of it is still
    /// resident.
    fn silent_server() -> Vec<Sample> {
        let mut samples: Vec<_> = (1..50)
            .map(|tick| telling(counted(tick * 100, 132, 130), tick * 100 - 10, 3, 1))
            .collect();
        samples.push(telling(counted(5000, 0, 0), 10, 132, 0));
        samples
    }

    #[test]
    fn a_ledger_of_another_moment_is_not_the_peaks() {
        let samples = silent_server();
        let history = history(&samples);
        let peak = history.peak().unwrap();
        assert_eq!((peak.most, peak.at_ms), (132 * MIB, 100));
        assert_eq!(peak.taken, Some(130 * MIB));
        assert!(matches!(peak.split, Some(Split::Nearest(_))));
        // The end is still known, because the process reported it.
        assert_eq!(requested(history.end().and_then(Split::holding)), Some(0));
        assert!(!history.is_joined(1));
    }

    #[test]
    fn figures_hold_near_their_moment_and_only_while_the_counts_stay() {
        let samples = [
            telling(counted(1000, 50, 40), 0, 50, 40),
            counted(1200, 50, 40),
            counted(1240, 50, 60),
            counted(1250, 80, 40),
            counted(1400, 50, 40),
        ];
        let history = history(&samples);
        let known: Vec<bool> = history
            .moments
            .iter()
            .map(|moment| history.at(moment).is_some())
            .collect();
        assert_eq!(known, [true, true, false, false, false]);
    }

    #[test]
    fn a_heap_that_is_the_same_before_and_after_stayed_so() {
        let steady = |gap_ms: u64| {
            let samples = [
                telling(counted(1000, 50, 40), 0, 50, 40),
                counted(1000 + gap_ms / 2, 51, 40),
                telling(counted(1000 + gap_ms, 51, 41), 0, 51, 41),
            ];
            let history = history(&samples);
            (history.is_joined(1), requested(peak(&history)))
        };
        assert_eq!(steady(5000), (true, Some(41)));
        // By the page heap's count, the program cannot have held more in between.
        assert_eq!(steady(60_000), (false, Some(41)));
    }

    #[test]
    fn a_heap_that_changed_without_a_trace_in_the_counts_is_not_known_in_between() {
        // Two thirds of every slab are freed: the same memory is resident, in the same number of
        // slabs.
        let freed = counted(1500, 50, 40).with(Heap {
            rss: 50 * MIB,
            spans: Some(spans(40)),
            ledger: Ledger {
                requested: 13 * MIB,
                ..Ledger::default()
            },
            ..Heap::default()
        });
        let samples = [
            telling(counted(900, 50, 40), 0, 50, 40),
            counted(1200, 50, 40),
            freed,
        ];
        let history = history(&samples);
        let known = history
            .moments
            .iter()
            .map(|moment| requested(history.at(moment)));
        assert_eq!(known.collect::<Vec<_>>(), [Some(40), None, Some(13)]);
        assert!(!history.is_joined(1));
    }

    #[test]
    fn what_was_counted_while_the_heap_changed_is_of_no_moment() {
        let slow = |rss: u64, taken: u64, took_ms: u64| {
            let samples = [
                counted(1000, 50, 40),
                slowly(telling(counted(1200, rss, taken), 100, 50, 40), took_ms),
            ];
            history(&samples).told.len()
        };
        assert_eq!(slow(50, 40, 80), 1);
        assert_eq!(slow(80, 40, 80), 0);
        assert_eq!(slow(50, 70, 80), 0);
        assert_eq!(slow(80, 70, 5), 1);
    }

    #[test]
    fn a_moment_at_which_the_program_cannot_have_held_more_does_not_hide_the_peak() {
        let samples = [
            telling(counted(1000, 50, 48), 0, 50, 48),
            counted(5000, 50, 20),
        ];
        assert_eq!(requested(peak(&history(&samples))), Some(48));
    }

    #[test]
    fn the_end_of_a_process_that_was_killed_is_known_only_if_it_told_just_before() {
        let killed = |age_ms: u64, rss: u64| {
            let samples = [
                telling(counted(9000, 50, 40), 0, 50, 40),
                telling(counted(9900, rss, 40), 900, 50, 40),
                telling(counted(9000 + age_ms, 0, 0), age_ms, 50, 40),
            ];
            requested(history(&samples).end().and_then(Split::holding))
        };
        assert_eq!(killed(100, 50), Some(40));
        assert_eq!(killed(100, 90), None);
        assert_eq!(killed(2000, 50), None);
    }
}
