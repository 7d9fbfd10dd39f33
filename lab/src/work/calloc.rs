//! The write-up's program: `calloc(N)` and `free` in a loop, with a little touching between.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use super::heap;
use super::written::{self, Watch};
use crate::machine;
use crate::names::named;
use crate::pagemap::page_size;
use crate::stats::quantile;

named! {
    /// The pages of a block that the program touches, one byte each, before it frees it.
    #[derive(Hash, ValueEnum)]
    pub enum Touch {
        /// None.
        None = "none",
        /// Those of the first 64 KiB, as a TLS read does.
        First = "first",
        /// Those of the first 64 KiB, at most of the first half, are written, and the one in the
        /// middle is read.
        Read = "read",
        /// Every sixteenth.
        Sixteenth = "sixteenth",
        /// All.
        All = "all",
    }
}

impl Touch {
    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Touch::None => "nothing touched",
            Touch::First => "the first 64 KiB touched",
            Touch::Read => "the first 64 KiB written, one page read",
            Touch::Sixteenth => "every 16th page touched",
            Touch::All => "all pages touched",
        }
    }

    /// The end and the step of the writes to a block of `size` bytes.
    fn extent(self, size: usize, page: usize) -> (usize, usize) {
        match self {
            Touch::None => (0, page),
            Touch::First => (size.min(64 << 10), page),
            Touch::Read => ((size / 2).min(64 << 10), page),
            Touch::Sixteenth => (size, 16 * page),
            Touch::All => (size, page),
        }
    }
}

/// One cell's work.
#[derive(Clone, Copy, Debug, Args)]
pub struct Work {
    /// The pages to write.
    pub touch: Touch,
    /// Bytes of a block.
    pub size: usize,
}

/// A clock reading covers pairs of at least this time in total, because the clock itself takes 30
/// ns.
const READING: Duration = Duration::from_micros(20);
/// Most readings kept; more do not change a median.
const READINGS: usize = 20_000;
/// Pairs before the first that counts. After the third, even an allocator that adapts to its frees
/// (glibc's mapping threshold) has settled.
const WARM_UP: u64 = 3;
/// The least number of readings. If they take [`PATIENCE`] times the time of a run, one suffices.
const FEWEST: usize = 3;
const PATIENCE: u32 = 4;

/// The argument of a `close` that always fails: marks the start and end in a system call trace.
pub const MARK: i32 = -7_116;

/// Runs pairs, of calloc, touch and free, for about `time`. Prints what the harness reads: how many
/// were timed; the median and the lowest of the clock readings, in nanoseconds per pair; and the
/// faults per pair.
///
/// # Panics
/// If memory is short.
pub fn time(work: Work, time: Duration) {
    print!("{}", Loop::new(work).time(time));
}

/// Runs `pairs` between two marks. Then observes what one `calloc` writes, and checks that all of
/// its block is zero. Prints the bytes that it zeroed itself, unless they are unknown.
///
/// # Errors
/// If the block is not zero.
///
/// # Panics
/// If memory is short.
pub fn account(work: Work, pairs: u64) -> anyhow::Result<()> {
    match Loop::new(work).account(pairs)? {
        Ok(bytes) => println!("zeroed={bytes}"),
        Err(reason) => eprintln!("the zeroed bytes are unknown: {reason:#}"),
    }
    Ok(())
}

/// The loop over blocks of one size.
struct Loop {
    size: usize,
    /// Where the writes end, and their step.
    extent: (usize, usize),
    /// The byte that is read.
    read: Option<usize>,
}

impl Loop {
    fn new(work: Work) -> Loop {
        Loop {
            size: work.size,
            extent: work.touch.extent(work.size, page_size() as usize),
            read: (work.touch == Touch::Read).then_some(work.size / 2),
        }
    }

    #[inline(always)]
    fn pair(&mut self) {
        let p = heap::calloc(self.size);
        assert!(!p.is_null(), "calloc({}) failed", self.size);
        let (end, step) = self.extent;
        let mut at = 0;
        while at < end {
            // SAFETY: `end` is at most the block's size, and the block is live.
            unsafe { p.add(at).write_volatile(1) };
            at += step;
        }
        if let Some(at) = self.read {
            // SAFETY: as half of a block's size, inside of it, and the block is live.
            assert_eq!(unsafe { p.add(at).read_volatile() }, 0);
        }
        // SAFETY: taken above, freed once.
        unsafe { heap::free(p) };
    }

    fn pairs(&mut self, count: u64) -> Duration {
        let start = Instant::now();
        (0..count).for_each(|_| self.pair());
        start.elapsed()
    }

    /// Ends early after `limit`, so that a slow cell does not warm up for longer than it runs.
    /// Returns the time of the last pair.
    fn warm_up(&mut self, limit: Duration) -> Duration {
        let start = Instant::now();
        let mut last = Duration::ZERO;
        for _ in 0..WARM_UP {
            last = self.pairs(1);
            if start.elapsed() > limit {
                break;
            }
        }
        last
    }

    /// Pairs per clock reading, if one takes about `single`.
    fn batch(&mut self, single: Duration) -> u64 {
        let (mut batch, mut elapsed) = (1, single);
        while elapsed < READING {
            batch *= 2;
            elapsed = self.pairs(batch);
        }
        batch
    }

    fn time(&mut self, limit: Duration) -> String {
        let mut readings = vec![f64::NAN; READINGS];
        readings.clear();
        let single = self.warm_up(limit);
        let batch = self.batch(single);
        let before = machine::own_faults();
        let start = Instant::now();
        while readings.len() < READINGS {
            readings.push(self.pairs(batch).as_nanos() as f64 / batch as f64);
            let fewest = if start.elapsed() < PATIENCE * limit {
                FEWEST
            } else {
                1
            };
            if start.elapsed() >= limit && readings.len() >= fewest {
                break;
            }
        }
        let after = machine::own_faults();
        report(&readings, batch, (after.0 - before.0, after.1 - before.1))
    }

    fn account(&mut self, pairs: u64) -> anyhow::Result<anyhow::Result<u64>> {
        let watch = Watch::prepare();
        self.warm_up(Duration::from_secs(1));
        mark();
        (0..pairs).for_each(|_| self.pair());
        mark();
        // The heap must not be touched between the last free and this calloc.
        let watch = watch.and_then(Watch::start);
        let p = heap::calloc(self.size);
        assert!(!p.is_null(), "calloc({}) failed", self.size);
        let zeroed = watch.and_then(|watch| watch.written(p, self.size));
        // SAFETY: the block is live and this thread's own.
        unsafe { written::ensure_zero(p, self.size)? };
        // SAFETY: taken above, freed once.
        unsafe { heap::free(p) };
        Ok(zeroed)
    }
}

fn mark() {
    // SAFETY: no descriptor has a negative number, so the call only fails.
    unsafe { libc::close(MARK) };
}

fn report(readings: &[f64], batch: u64, (minor, major): (u64, u64)) -> String {
    let pairs = readings.len() as u64 * batch;
    let (median, least) = (quantile(readings, 0.5), quantile(readings, 0.0));
    let [minor, major] = [minor, major].map(|faults| faults as f64 / pairs as f64);
    format!(
        "pairs={pairs}\nns_median={median:.1}\nns_least={least:.1}\n\
         minor_faults={minor:.4}\nmajor_faults={major:.4}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run;

    const MIB: usize = 1 << 20;

    #[test]
    fn patterns_write_the_pages_they_say() {
        let page = page_size() as usize;
        let pages = |touch: Touch, size| {
            let (end, step) = touch.extent(size, page);
            end.div_ceil(step)
        };
        assert_eq!(pages(Touch::None, MIB), 0);
        assert_eq!(pages(Touch::First, MIB), (64 << 10) / page);
        assert_eq!(pages(Touch::First, page), 1);
        assert_eq!(pages(Touch::Sixteenth, MIB), MIB / page / 16);
        assert_eq!(pages(Touch::All, MIB), MIB / page);
    }

    #[test]
    fn every_pattern_runs_and_counts() {
        for touch in Touch::ALL {
            for size in [64 << 10, 300_000] {
                let work = Work { size, touch };
                let report = Loop::new(work).time(Duration::from_millis(1));
                let number = |key| run::needed(&report, key).unwrap().parse::<f64>().unwrap();
                assert!(number("pairs") > 0.0, "{work:?}: {report}");
                let (least, median) = (number("ns_least"), number("ns_median"));
                assert!(least > 0.0 && least <= median, "{report}");
            }
        }
    }
}
