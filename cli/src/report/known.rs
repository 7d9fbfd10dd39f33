//! Decides which figures hold at which moment.
//!
//! A process writes its figures when an observer asks and one of its threads can answer. A second
//! later, all of the heap may have changed. At every sample, `neap` therefore also reads the
//! kernel's count of the process and the page heap's count of its spans. Figures hold at another
//! moment only if it is close *and* those two counts say that the heap is still the same. Otherwise
//! the moment is unknown.

use crate::recording::format::{Sample, Spans, Told};

/// The figures of one moment, or that none hold at it.
pub type Known<'a> = Result<Told<'a>, Gap>;

/// A moment at which no figures hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gap {
    /// The moment with the kernel's and the page heap's counts.
    pub moment: Moment,
    /// When the process last wrote its figures before it, in ms.
    pub before_ms: Option<u64>,
    /// When the process next did so, in ms.
    pub after_ms: Option<u64>,
    /// The figures at the nearer of these times, if the two counts were the same then.
    pub alike: Option<Alike>,
}

/// Figures of a moment with the same counts, too far away to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alike {
    /// When, in ms.
    pub at_ms: u64,
    /// Resident bytes of the heap.
    pub resident: u64,
    /// Bytes requested by the program.
    pub requested: u64,
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
            near_ms: interval_ms
                .saturating_mul(5)
                .div_euclid(2)
                .max(LEAST_NEAR_MS),
            end_ms,
        }
    }

    /// The last figures before and the first after a moment.
    fn around(&self, t_ms: u64) -> (Option<&Told<'a>>, Option<&Told<'a>>) {
        let at = self.told.partition_point(|told| told.at_ms <= t_ms);
        (
            at.checked_sub(1).map(|at| &self.told[at]),
            self.told.get(at),
        )
    }

    /// The figures that hold at a moment.
    pub fn at(&self, moment: &Moment) -> Known<'a> {
        let (before, after) = self.around(moment.t_ms);
        let distance = |told: &&Told| told.at_ms.abs_diff(moment.t_ms);
        let agreeing = [before, after]
            .into_iter()
            .flatten()
            .filter(|told| moment.agrees(told));
        let within = match agreeing.clone().collect::<Vec<_>>()[..] {
            [one, other] if same(held(one), held(other), LEAST_SPANS) => STEADY_MS,
            // The heap changed in between, at an unknown time and without a trace in the counts.
            [_, _] => 0,
            _ => self.near_ms,
        };
        let nearest = agreeing.min_by_key(distance);
        match nearest.filter(|told| distance(told) <= within) {
            Some(told) => Ok(*told),
            None => Err(self.gap(*moment)),
        }
    }

    fn gap(&self, moment: Moment) -> Gap {
        let (before, after) = self.around(moment.t_ms);
        let alike = [before, after].into_iter().flatten();
        let alike = alike.filter(|told| moment.agrees(told));
        let nearest = alike.min_by_key(|told| told.at_ms.abs_diff(moment.t_ms));
        Gap {
            moment,
            before_ms: before.map(|told| told.at_ms),
            after_ms: after.map(|told| told.at_ms),
            alike: nearest.map(|told| Alike {
                at_ms: told.at_ms,
                resident: told.heap.ledger.resident,
                requested: told.heap.ledger.requested,
            }),
        }
    }

    /// The highest resident count of the samples, in bytes.
    pub fn most(&self) -> u64 {
        let counted = self.moments.iter().map(|moment| moment.rss);
        let told = self.told.iter().map(|told| told.rss);
        counted.chain(told).max().unwrap_or(0)
    }

    /// The kernel's peak, if it exceeds [`History::most`] by a twentieth: a peak between two
    /// samples.
    pub fn missed(&self) -> Option<u64> {
        let highest = self.told.iter().map(|told| told.heap.most_rss).max()?;
        let most = self.most();
        (highest > most.saturating_add((most / PART).max(LEAST_RSS))).then_some(highest)
    }

    /// The moment when the program held most, among those when the resident count was near its
    /// highest. Freed memory stays resident for a while, so the resident count may be highest when
    /// much memory is free. Unknown if the program may have held more at an unknown moment. `None`:
    /// the process was never seen with resident memory.
    pub fn peak(&self) -> Option<Known<'a>> {
        let most = self.most();
        let is_near = |rss: u64| rss > 0 && rss >= most - most / PART;
        let best = self
            .told
            .iter()
            .filter(|told| is_near(told.rss))
            .max_by_key(|told| held(told));
        let bound = best.map_or(0, |told| bound(held(told)));
        let may_hold_more = |moment: &&Moment| {
            let is_bounded = moment.spans.is_some_and(|spans| spans.taken() <= bound);
            !is_bounded && self.at(moment).is_err()
        };
        let near = self.moments.iter().filter(|moment| is_near(moment.rss));
        let untold = near.filter(may_hold_more).max_by_key(|moment| {
            let taken = moment.spans.map_or(0, |spans| spans.taken());
            (taken, moment.rss, std::cmp::Reverse(moment.t_ms))
        });
        match (untold, best) {
            (Some(moment), _) => Some(Err(self.gap(*moment))),
            (None, Some(told)) => Some(Ok(*told)),
            (None, None) => None,
        }
    }

    /// What the process held when it ended or was last seen. `None`: it never wrote figures.
    pub fn end(&self) -> Option<Known<'a>> {
        let last = self.told.last()?;
        let later = self
            .moments
            .iter()
            .filter(|moment| moment.t_ms > last.at_ms);
        let changed = later.clone().any(|moment| !moment.agrees(last));
        let is_near = self.end_ms.saturating_sub(last.at_ms) <= self.near_ms;
        let moment = self.moments.last().copied().unwrap_or_default();
        Some(if is_near && !changed {
            Ok(*last)
        } else {
            Err(Gap {
                after_ms: None,
                ..self.gap(Moment {
                    t_ms: moment.t_ms.max(last.at_ms),
                    ..moment
                })
            })
        })
    }

    /// Whether the whole time from the figures before `index` to those at `index` is known.
    pub fn is_joined(&self, index: usize) -> bool {
        let (Some(before), Some(after)) = (
            index.checked_sub(1).and_then(|index| self.told.get(index)),
            self.told.get(index),
        ) else {
            return false;
        };
        let apart = after.at_ms - before.at_ms;
        let between = self.between(Some(before), Some(after));
        let is_steady = || {
            let mut between = between.iter();
            between.all(|moment| self.at(moment).is_ok())
        };
        apart <= self.near_ms || apart <= STEADY_MS && !between.is_empty() && is_steady()
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
fn bound(bytes: u64) -> u64 {
    bytes.saturating_add((bytes / PART).max(LEAST_SPANS))
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

    fn requested(known: Option<Known>) -> Option<u64> {
        Some(known?.ok()?.heap.ledger.requested / MIB)
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
        let Some(Err(gap)) = history.peak() else {
            panic!("{:?}", history.peak())
        };
        assert_eq!(gap.moment.rss, 132 * MIB);
        assert_eq!(gap.moment.spans.unwrap().taken(), 130 * MIB);
        assert_eq!((gap.before_ms, gap.after_ms), (Some(10), Some(4990)));
        // The end is still known, because the process reported it.
        assert_eq!(requested(history.end()), Some(0));
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
            .map(|moment| history.at(moment).is_ok())
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
            (history.is_joined(1), requested(history.peak()))
        };
        assert_eq!(steady(5000), (true, Some(41)));
        // By the page heap's count, the program cannot have held more in between.
        assert_eq!(steady(60_000), (false, Some(41)));
    }

    #[test]
    fn a_heap_that_changed_without_a_trace_in_the_counts_is_not_known_in_between() {
        // Two thirds of every slab are freed: the same memory is resident, in the same number of
        // slabs.
        let freed = counted(1300, 50, 40).with(Heap {
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
            .map(|moment| requested(Some(history.at(moment))));
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
        assert_eq!(requested(history(&samples).peak()), Some(48));
    }

    #[test]
    fn the_end_of_a_process_that_was_killed_is_known_only_if_it_told_just_before() {
        let killed = |age_ms: u64, rss: u64| {
            let samples = [
                telling(counted(9000, 50, 40), 0, 50, 40),
                telling(counted(9900, rss, 40), 900, 50, 40),
                telling(counted(9000 + age_ms, 0, 0), age_ms, 50, 40),
            ];
            requested(history(&samples).end())
        };
        assert_eq!(killed(100, 50), Some(40));
        assert_eq!(killed(100, 90), None);
        assert_eq!(killed(2000, 50), None);
    }
}
