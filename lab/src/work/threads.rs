//! Shapes of several threads: random replacement of live blocks of many sizes, in one thread or
//! several; and two threads that pass memory on, or have it on one cache line.

use std::sync::Barrier;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::time::Instant;

use super::Outcome;
use super::heap::{self, Block};
use crate::stats::Rng;
use crate::workloads::{Order, SMALL, Sharing, Sizes};

/// The live blocks of one thread. Slot `i` of thread `t` has the stamp `t << 32 | i`, so stamps of
/// live blocks are unique within the process.
struct Slots {
    blocks: Vec<Block>,
    sizes: Sizes,
    stamp: u64,
    rng: Rng,
}

impl Slots {
    /// `live` blocks, all allocated by the calling thread.
    fn filled(sizes: Sizes, live: usize, thread: usize) -> Slots {
        let stamp = (thread as u64) << 32;
        let mut rng = Rng::new(1 + thread as u64);
        let blocks = (0..live as u64)
            .map(|i| Block::take(sizes.random(&mut rng), stamp | i))
            .collect();
        Slots {
            blocks,
            sizes,
            stamp,
            rng,
        }
    }

    /// Replaces the oldest or a random block, `ops` times.
    fn churn(&mut self, order: Order, ops: u64) {
        match order {
            Order::Fifo => {
                (0..self.blocks.len())
                    .cycle()
                    .take(ops as usize)
                    .for_each(|slot| self.replace(slot));
            }
            _ => (0..ops).for_each(|_| {
                let slot = self.rng.below(self.blocks.len());
                self.replace(slot);
            }),
        }
    }

    #[inline(always)]
    fn replace(&mut self, slot: usize) {
        let stamp = self.stamp | slot as u64;
        // SAFETY: every slot holds a live block, and this one is replaced at once.
        unsafe { self.blocks[slot].give(stamp) };
        self.blocks[slot] = Block::take(self.sizes.random(&mut self.rng), stamp);
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

/// Each of `threads` threads replaces blocks among its own `live` ones; `ops` in total.
pub fn churn((sizes, live, order): (Sizes, usize, Order), threads: usize, ops: u64) -> Outcome {
    if threads == 1 {
        let mut slots = Slots::filled(sizes, live, 0);
        let start = Instant::now();
        slots.churn(order, ops);
        return Outcome::timed(ops, start.elapsed());
    }
    let each = ops / threads as u64;
    timed_threads(threads, |thread, barrier| {
        let mut slots = Slots::filled(sizes, live, thread);
        Stint::between(barrier, || {
            slots.churn(order, each);
            each
        })
    })
}

/// Chains of threads: each thread replaces `life` blocks of the slots that it inherits, and ends.
/// The first one fills them.
pub fn server(live: usize, threads: usize, life: u64, ops: u64) -> Outcome {
    let generations = (ops / threads as u64 / life).max(1);
    timed_threads(threads, |thread, barrier| {
        let mut slots = Some(Slots::filled(SMALL, live, thread));
        Stint::between(barrier, || {
            for _ in 0..generations {
                let inherited = slots.take().expect("a life returns its slots");
                slots = std::thread::spawn(move || one_life(inherited, life))
                    .join()
                    .map(Some)
                    .expect("a thread of the server panicked");
            }
            generations * life
        })
    })
}

fn one_life(mut slots: Slots, life: u64) -> Slots {
    slots.churn(Order::Random, life);
    slots
}

/// What one thread of several did, and when.
pub struct Stint {
    ops: u64,
    start: Instant,
    end: Instant,
}

impl Stint {
    /// Does `work`, which returns its number of operations, between two meetings of all threads.
    /// The thread reads the clock itself: with more threads than processors, one that only watches
    /// runs when much of the work is done.
    pub fn between(barrier: &Barrier, work: impl FnOnce() -> u64) -> Stint {
        barrier.wait();
        let start = Instant::now();
        let ops = work();
        let end = Instant::now();
        barrier.wait();
        Stint { ops, start, end }
    }
}

/// Runs `body` in `threads` threads, and times from the first start of a stint to the last end.
pub fn timed_threads(threads: usize, body: impl Fn(usize, &Barrier) -> Stint + Sync) -> Outcome {
    let barrier = Barrier::new(threads);
    let stints: Vec<Stint> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (body, barrier) = (&body, &barrier);
                scope.spawn(move || body(thread, barrier))
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker thread panicked"))
            .collect()
    });
    let start = stints.iter().map(|stint| stint.start).min();
    let end = stints.iter().map(|stint| stint.end).max();
    let (start, end) = start.zip(end).expect("at least one thread");
    Outcome::timed(stints.iter().map(|stint| stint.ops).sum(), end - start)
}

const RING: usize = 1_024;
const WRITES: u64 = 200;

/// Keeps one thread's writes off the cache line of the other's.
#[repr(align(128))]
struct Line<T>(T);

/// A bounded ring for one producer and one consumer.
struct Ring {
    slots: Vec<AtomicPtr<u8>>,
    pushed: Line<AtomicUsize>,
    popped: Line<AtomicUsize>,
}

impl Ring {
    fn new() -> Ring {
        let slots = (0..RING).map(|_| AtomicPtr::default()).collect();
        Ring {
            slots,
            pushed: Line(AtomicUsize::new(0)),
            popped: Line(AtomicUsize::new(0)),
        }
    }

    /// Waits while `RING` pointers are inside.
    fn push(&self, p: *mut u8) {
        let index = self.pushed.0.load(Ordering::Relaxed);
        wait_until(|| index - self.popped.0.load(Ordering::Acquire) < RING);
        self.slots[index % RING].store(p, Ordering::Relaxed);
        self.pushed.0.store(index + 1, Ordering::Release);
    }

    /// Waits while the ring is empty.
    fn pop(&self) -> *mut u8 {
        let index = self.popped.0.load(Ordering::Relaxed);
        wait_until(|| self.pushed.0.load(Ordering::Acquire) > index);
        let p = self.slots[index % RING].load(Ordering::Relaxed);
        self.popped.0.store(index + 1, Ordering::Release);
        p
    }
}

/// Spins briefly, then yields: the machine may have fewer processors than threads.
fn wait_until(ready: impl Fn() -> bool) {
    let mut spins = 0u32;
    while !ready() {
        spins += 1;
        if spins.is_multiple_of(128) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// In each of `pairs` pairs, one thread allocates blocks, another checks and frees them; `ops` in
/// total.
pub fn handoff(sizes: Sizes, pairs: usize, ops: u64) -> Outcome {
    assert!(sizes.0 >= 8, "a block carries a number of 8 bytes");
    let rings: Vec<Ring> = (0..pairs).map(|_| Ring::new()).collect();
    let each = ops / pairs as u64;
    timed_threads(2 * pairs, |thread, barrier| {
        let (ring, mut rng) = (&rings[thread / 2], Rng::new(1 + thread as u64));
        Stint::between(barrier, || match thread % 2 {
            0 => {
                (0..each).for_each(|number| ring.push(numbered(sizes.random(&mut rng), number)));
                each
            }
            _ => {
                (0..each).for_each(|number| free_numbered(ring.pop(), number));
                0
            }
        })
    })
}

fn numbered(size: usize, number: u64) -> *mut u8 {
    let p = heap::malloc(size);
    assert!(!p.is_null(), "malloc({size}) failed");
    // SAFETY: the block has at least 8 bytes.
    unsafe { p.cast::<u64>().write_unaligned(number) };
    p
}

fn free_numbered(p: *mut u8, number: u64) {
    // SAFETY: the producer pushed a live block and forgot it, so it is this thread's to free.
    unsafe {
        assert!(
            p.cast::<u64>().read_unaligned() == number,
            "a live block was overwritten"
        );
        heap::free(p);
    }
}

/// Two threads write to an 8-byte object each and replace it; slow if the heap puts both objects on
/// one cache line.
pub fn false_sharing(sharing: Sharing, ops: u64) -> Outcome {
    let each = ops / 2;
    let first = [Block::take(8, 0), Block::take(8, 1)];
    let outcome = timed_threads(2, |thread, barrier| {
        Stint::between(barrier, || {
            match sharing {
                Sharing::Active => {}
                // SAFETY: each thread gives the block of its own number, once.
                Sharing::Passive => unsafe { scribbled(first[thread], thread as u64).give(WRITES) },
            }
            for _ in 0..each {
                let block = scribbled(Block::take(8, 0), 0);
                // SAFETY: taken in the line above, given once.
                unsafe { block.give(WRITES) };
            }
            each
        })
    });
    if sharing == Sharing::Active {
        first
            .iter()
            .zip(0..)
            // SAFETY: no thread gave these blocks.
            .for_each(|(block, stamp)| unsafe { block.give(stamp) });
    }
    outcome
}

/// Counts the block's word from 0 to `WRITES` in memory; it must hold `stamp` before.
fn scribbled(block: Block, stamp: u64) -> Block {
    let word = block.start().cast::<u64>();
    // SAFETY: the block is live and has 8 bytes, and malloc aligns them.
    unsafe {
        assert!(word.read() == stamp, "a live block was overwritten");
        word.write(0);
        for _ in 0..WRITES {
            word.write_volatile(word.read_volatile() + 1);
        }
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// More threads than processors work 20 ms each. Who began to time when a watching thread had
    /// its turn measured less.
    #[test]
    fn a_crowd_is_timed_from_its_first_start_to_its_last_end() {
        let nap = Duration::from_millis(20);
        let outcome = timed_threads(64, |_, barrier| {
            Stint::between(barrier, || {
                let end = Instant::now() + nap;
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
                1
            })
        });
        assert_eq!(outcome.ops, 64);
        assert!(outcome.elapsed >= nap, "{:?}", outcome.elapsed);
    }
}
