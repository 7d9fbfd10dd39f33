//! Random replacement of live blocks of many sizes, in one thread or several.

use std::sync::Barrier;
use std::time::Instant;

use super::heap::Block;
use super::outcome::Outcome;
use crate::rng::Rng;

const SMALLEST: usize = 16;
const LARGEST: usize = 1_024;

/// The live blocks of one thread. Slot `i` of thread `t` has the stamp `t << 32 | i`, so stamps of
/// live blocks are unique within the process.
struct Slots {
    blocks: Vec<Block>,
    stamp: u64,
    rng: Rng,
}

impl Slots {
    /// `live` blocks, all allocated by the calling thread.
    fn filled(live: usize, thread: usize) -> Slots {
        let stamp = (thread as u64) << 32;
        let mut rng = Rng::new(1 + thread as u64);
        let blocks = (0..live as u64)
            .map(|i| Block::take(random_size(&mut rng), stamp | i))
            .collect();
        Slots { blocks, stamp, rng }
    }

    /// Replaces a random block, `ops` times.
    fn churn(&mut self, ops: u64) {
        for _ in 0..ops {
            let slot = self.rng.below(self.blocks.len());
            let stamp = self.stamp | slot as u64;
            // SAFETY: every slot holds a live block, and this one is replaced at once.
            unsafe { self.blocks[slot].give(stamp) };
            self.blocks[slot] = Block::take(random_size(&mut self.rng), stamp);
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for (slot, block) in self.blocks.iter().enumerate() {
            // SAFETY: every slot holds a live block, and the slots end here.
            unsafe { block.give(self.stamp | slot as u64) };
        }
    }
}

#[inline(always)]
fn random_size(rng: &mut Rng) -> usize {
    SMALLEST + rng.below(LARGEST - SMALLEST + 1)
}

/// Each of `threads` threads replaces blocks among its own `live` ones; `ops` in total.
pub fn churn(live: usize, threads: usize, ops: u64) -> Outcome {
    if threads == 1 {
        let mut slots = Slots::filled(live, 0);
        let start = Instant::now();
        slots.churn(ops);
        return Outcome::timed(ops, start.elapsed());
    }
    let each = ops / threads as u64;
    timed_threads(threads, |thread, barrier| {
        let mut slots = Slots::filled(live, thread);
        barrier.wait();
        slots.churn(each);
        barrier.wait();
        each
    })
}

/// Chains of threads: each thread replaces `life` blocks of the slots that it inherits, and ends.
/// The first one fills them.
pub fn server(live: usize, threads: usize, life: u64, ops: u64) -> Outcome {
    let generations = (ops / threads as u64 / life).max(1);
    timed_threads(threads, |thread, barrier| {
        let mut slots = Slots::filled(live, thread);
        barrier.wait();
        for _ in 0..generations {
            slots = std::thread::spawn(move || one_life(slots, life))
                .join()
                .expect("a thread of the server panicked");
        }
        barrier.wait();
        generations * life
    })
}

fn one_life(mut slots: Slots, life: u64) -> Slots {
    slots.churn(life);
    slots
}

/// Runs `body` in `threads` threads, and times from their first meeting at the barrier to the
/// second. The body returns its number of operations.
pub fn timed_threads(threads: usize, body: impl Fn(usize, &Barrier) -> u64 + Sync) -> Outcome {
    let barrier = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (body, barrier) = (&body, &barrier);
                scope.spawn(move || body(thread, barrier))
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        barrier.wait();
        let elapsed = start.elapsed();
        let ops = workers
            .into_iter()
            .map(|w| w.join().expect("a worker thread panicked"))
            .sum();
        Outcome::timed(ops, elapsed)
    })
}
