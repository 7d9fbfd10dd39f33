//! The time of single calls: one thread replaces blocks at random and times each malloc and free,
//! while another fills and frees memory in bursts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::fragmentation::Blocks;
use super::heap::{self, Block};
use crate::stats::Rng;
use crate::workloads::{SMALL, Sizes};

/// For each number `n`, the time that one call of `n` takes at least is reported.
pub const ONE_OF: [usize; 9] = [2, 5, 10, 20, 100, 500, 1_000, 10_000, 100_000];

/// The blocks of the timed thread, half of them live; one block of 16 may be large.
const SLOTS: usize = 20_000;
const LARGE: Sizes = Sizes(16, 65_536);
const ONE_LARGE_OF: usize = 16;

/// Bytes of a burst, in small blocks, and the pause after it.
const BURST: usize = 400_000_000;
const PAUSE: Duration = Duration::from_millis(100);

/// Times about `calls` calls of either kind, and prints the quantiles of their times in ns.
///
/// # Panics
/// If the heap loses or overlaps a block, or has no memory.
pub fn carry_out(calls: usize) {
    let is_over = AtomicBool::new(false);
    let times = thread::scope(|scope| {
        scope.spawn(|| bursts(&is_over));
        let times = timed(calls);
        is_over.store(true, Ordering::Relaxed);
        times
    });
    for (name, mut times) in ["malloc", "free"].into_iter().zip(times) {
        times.sort_unstable();
        for number in ONE_OF {
            println!(
                "{name}_{number}={}",
                times[times.len() - 1 - times.len() / number]
            );
        }
    }
}

/// The times of the mallocs and of the frees.
fn timed(calls: usize) -> [Vec<u32>; 2] {
    let clock = clock();
    // Resident before the first call, so that no call is next to a page fault of the table.
    let mut times = [vec![1; calls], vec![1; calls]];
    times.iter_mut().for_each(Vec::clear);
    let mut blocks = vec![None::<Block>; SLOTS];
    let mut rng = Rng::new(1);
    while times.iter().all(|times| times.len() < calls) {
        let slot = rng.below(SLOTS);
        let stamp = slot as u64;
        match blocks[slot].take() {
            Some(block) => {
                // SAFETY: the slot held a live block.
                unsafe { block.check(stamp) };
                let start = Instant::now();
                // SAFETY: the block is live, and no longer in its slot.
                unsafe { heap::free(block.start()) };
                times[1].push(since(start, clock));
            }
            None => {
                let sizes = if rng.below(ONE_LARGE_OF) == 0 {
                    LARGE
                } else {
                    SMALL
                };
                let size = sizes.random(&mut rng);
                let start = Instant::now();
                let block = heap::malloc(size);
                times[0].push(since(start, clock));
                blocks[slot] = Some(Block::stamped(block, size, stamp));
            }
        }
    }
    times
}

/// What two readings of the clock take by themselves, the median in ns.
fn clock() -> u32 {
    let mut times: Vec<u32> = (0..10_001).map(|_| since(Instant::now(), 0)).collect();
    let (_, median, _) = times.select_nth_unstable(5_000);
    *median
}

/// The nanoseconds since `start` without those of the clock.
#[inline(always)]
fn since(start: Instant, clock: u32) -> u32 {
    let nanoseconds = u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX);
    nanoseconds.saturating_sub(clock)
}

/// Fills and frees until the other thread is done.
fn bursts(is_over: &AtomicBool) {
    let mut rng = Rng::new(2);
    while !is_over.load(Ordering::Relaxed) {
        let mut blocks = Blocks::with_room(BURST / SMALL.mean());
        blocks.fill(SMALL, &mut rng);
        blocks.free_all();
        thread::sleep(PAUSE);
    }
}
