//! A model of draining, explored by loom: the owner pops and pushes, a drainer takes the oldest blocks.
//!
//! The kernel's `membarrier` is a fence on both sides here: the drainer's own, and one that the owner
//! passes after each of its steps (`light_barrier`). Bounds: one owner with three steps, one drainer
//! with one attempt, a magazine of three blocks; all interleavings.

use super::magazine::Magazine;
use crate::base::sync::{AtomicUsize, Ordering, fence};
use loom::sync::{Arc, Mutex};
use std::boxed::Box;
use std::vec::Vec;

const BLOCKS: usize = 3;

struct World {
    magazine: Magazine,
    array: Box<[usize; BLOCKS + 1]>,
    lock: Mutex<()>,
}

impl World {
    fn new() -> Arc<World> {
        let array = Box::new([1, 2, 3, 0]);
        let base = array.as_ptr().addr();
        let magazine = Magazine {
            top: AtomicUsize::new(base + BLOCKS * 8),
            bottom: AtomicUsize::new(base),
            limit: AtomicUsize::new(base + BLOCKS * 8 + 8),
        };
        Arc::new(World {
            magazine,
            array,
            lock: Mutex::new(()),
        })
    }

    fn base(&self) -> usize {
        self.array.as_ptr().addr()
    }

    /// The drainer: what it took.
    fn drain(&self) -> Vec<usize> {
        let _guard = self.lock.lock().unwrap();
        let Some(bottom) = self.magazine.offer(self.base()) else {
            return Vec::new();
        };
        fence(Ordering::SeqCst);
        if self.magazine.is_ceded(bottom) {
            return self.array[..(bottom - self.base()) / 8].to_vec();
        }
        self.magazine.bottom.store(self.base(), Ordering::Relaxed);
        Vec::new()
    }

    /// The owner's pop; what the fast path misses waits for the drainer and looks again.
    fn pop(&self) -> Option<usize> {
        self.magazine
            .pop()
            .or_else(|| {
                let _guard = self.lock.lock().unwrap();
                self.magazine.pop()
            })
            .map(|block| block.addr())
    }
}

fn all_blocks_once(mut hands: Vec<usize>) {
    hands.sort_unstable();
    hands.dedup();
    assert_eq!(hands, [1, 2, 3], "a block was lost or came out twice");
}

#[test]
fn the_owner_empties_what_is_being_drained() {
    loom::model(|| {
        let world = World::new();
        let other = world.clone();
        let drainer = loom::thread::spawn(move || other.drain());
        let mut hands: Vec<usize> = (0..BLOCKS).filter_map(|_| world.pop()).collect();
        let drained = drainer.join().unwrap();
        assert_eq!(hands.len() + drained.len(), BLOCKS, "{hands:?} {drained:?}");
        hands.extend(drained);
        all_blocks_once(hands);
    });
}

#[test]
fn the_owner_goes_up_and_down_meanwhile() {
    loom::model(|| {
        let world = World::new();
        let other = world.clone();
        let drainer = loom::thread::spawn(move || other.drain());
        let block = world
            .pop()
            .expect("the newest block is never the drainer's");
        assert!(world.magazine.push(block as *mut u8));
        let mut hands: Vec<usize> = drainer.join().unwrap();
        hands.extend(core::iter::from_fn(|| world.pop()));
        all_blocks_once(hands);
    });
}
