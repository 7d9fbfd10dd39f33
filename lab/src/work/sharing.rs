//! Shapes in which two threads pass memory on, or have it on one cache line.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::churn::{Stint, timed_threads};
use super::heap::{self, Block};
use super::outcome::Outcome;
use crate::workloads::Sharing;

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

/// One thread allocates `ops` blocks, another checks and frees them.
pub fn handoff(size: usize, ops: u64) -> Outcome {
    assert!(size >= 8, "a block carries a number of 8 bytes");
    let ring = Ring::new();
    timed_threads(2, |thread, barrier| {
        Stint::between(barrier, || match thread {
            0 => {
                (0..ops).for_each(|number| ring.push(numbered(size, number)));
                ops
            }
            _ => {
                (0..ops).for_each(|number| free_numbered(ring.pop(), number));
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
