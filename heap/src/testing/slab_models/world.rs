//! Depots and a pool of slices, which check each step.

use crate::base::sync::{AtomicU8, Ordering};
use crate::os::lock::{Lock, Rank};
use crate::slab::decommitted::Cursor;
use crate::slab::depot::Depots;
use crate::slab::depot_id::DepotId;
use crate::slab::page_set::PageSet;
use crate::slab::{Claim, LISTED, Pages, Scope, Slab, Slice, Source, Touched};
use core::ptr::NonNull;
use loom::sync::Arc;
use std::sync::Mutex;
use std::vec::Vec;

/// A pool of slices, as the page heap is to the depots.
pub(super) struct Pool {
    slabs: Vec<Slab>,
    free: Mutex<Vec<usize>>,
    /// For every slab the blocks of its first word that were handed out since it was carved.
    used: Mutex<Vec<u64>>,
    /// For every slice what its tag is to the program: the byte of [`tag_of`]; 0 in the pool.
    tags: Vec<AtomicU8>,
    /// Orders a retirement before the carving that follows it, as the page heap's lock does.
    lock: Lock,
}

impl Pool {
    fn new(slabs: usize) -> Pool {
        let slabs: Vec<Slab> = (0..slabs).map(|_| Slab::blank()).collect();
        let free = Mutex::new((0..slabs.len()).rev().collect());
        Pool {
            free,
            used: Mutex::new(std::vec![0; slabs.len()]),
            tags: slabs.iter().map(|_| AtomicU8::new(0)).collect(),
            slabs,
            lock: Lock::new(Rank::Pages),
        }
    }
}

// SAFETY: the records live as long as the tests use them; they describe no real memory.
unsafe impl Source for Pool {
    fn fresh(&self, id: DepotId, pages: Pages) -> Option<Slice> {
        if pages == Pages::Resident {
            return None;
        }
        let guard = self.lock.lock();
        let number = self.free.lock().unwrap().pop()?;
        drop(guard);
        self.used.lock().unwrap()[number] = 0;
        self.tags[number].store(tag_of(id), Ordering::Relaxed);
        Some(Slice {
            record: NonNull::from(&self.slabs[number]),
            base: (number + 1) << 16,
            zero: u16::MAX,
            // No class of these models needs far words.
            far: NonNull::dangling(),
        })
    }

    fn retire(&self, slab: NonNull<Slab>, _touched: Touched) {
        let number = self
            .slabs
            .iter()
            .position(|held| NonNull::from(held) == slab)
            .unwrap();
        let _guard = self.lock.lock();
        self.tags[number].store(0, Ordering::Relaxed);
        self.free.lock().unwrap().push(number);
    }

    fn note_withheld(&self, _bytes: isize) {}

    fn readmit(&self, _bytes: usize) -> bool {
        true
    }

    fn keeps_pages(&self, _round: Scope) -> bool {
        false
    }

    fn pages(&self) -> usize {
        16
    }

    fn purge(&self, slab: NonNull<Slab>, units: PageSet) -> bool {
        // SAFETY: slab records live as long as the pool.
        let slab = unsafe { slab.as_ref() };
        // The claimed blocks pin it.
        assert!(slab.depot().is_some() && !units.is_empty());
        true
    }

    fn now_ms(&self) -> u64 {
        1
    }
}

pub(super) struct World {
    depots: Depots,
    pub(super) pool: Pool,
    /// For every slab the blocks that callers hold, by word.
    held: Mutex<Vec<[u64; 2]>>,
}

/// Blocks in a caller's hands: (slab number, word, bits).
pub(super) type Hand = Vec<(usize, usize, u64)>;

impl World {
    pub(super) fn new(slabs: usize) -> Arc<World> {
        let held = Mutex::new((0..slabs).map(|_| [0; 2]).collect());
        Arc::new(World {
            depots: Depots::new(),
            pool: Pool::new(slabs),
            held,
        })
    }

    pub(super) fn take(&self, id: DepotId, want: usize) -> Hand {
        let mut hand = Hand::new();
        self.depots.take(
            id,
            want,
            &self.pool,
            &mut |slab, Claim { word, bits, fresh }| {
                assert_eq!(slab.depot(), Some(id), "blocks of another depot");
                let number = (slab.base() >> 16) - 1;
                // As a thread does that frees the block at once.
                let tag = self.pool.tags[number].load(Ordering::Relaxed);
                assert_eq!(tag, tag_of(id), "the tag of another depot");
                let used = &mut self.pool.used.lock().unwrap()[number];
                assert_eq!(*used & fresh, 0, "a block is fresh twice");
                if word == 0 {
                    *used |= bits;
                }
                let held = &mut self.held.lock().unwrap()[number][word];
                assert_eq!(*held & bits, 0, "a block in two hands");
                *held |= bits;
                hand.push((number, word, bits));
            },
        );
        hand
    }

    pub(super) fn give(&self, id: DepotId, hand: Hand) {
        for (number, word, bits) in hand {
            self.held.lock().unwrap()[number][word] &= !bits;
            let slab = &self.pool.slabs[number];
            // SAFETY: the blocks are not real memory.
            let given = unsafe { self.depots.give(slab, id, word, bits, &self.pool) };
            given.expect("taken for a double free");
        }
    }

    pub(super) fn purge_spare(&self, id: DepotId) {
        let mut cursor = Cursor::at(id);
        while cursor.is_at(id) {
            let pages = Some(Scope::All);
            self.depots.decay(0, pages, &mut cursor, &self.pool);
        }
    }

    /// Lets go of all empty slabs.
    pub(super) fn cool(&self) {
        self.depots.cool(u64::MAX, &self.pool);
    }

    /// As [`World::check_at_rest`]; then slabs go back to the pool, by their own depots, but for
    /// `most_slabs`.
    pub(super) fn check_they_go_back(&self, most_slabs: usize) {
        self.check_at_rest(self.pool.slabs.len());
        self.cool();
        self.check_at_rest(most_slabs);
    }

    /// No caller holds a block: every slab is whole, listed, or back in the pool.
    pub(super) fn check_at_rest(&self, most_slabs: usize) {
        let in_pool = self.pool.free.lock().unwrap().len();
        assert!(
            self.pool.slabs.len() - in_pool <= most_slabs,
            "an empty slab stayed"
        );
        for slab in &self.pool.slabs {
            let Some(DepotId { class, .. }) = slab.depot() else {
                assert_eq!(slab.free_blocks(), 0, "a bit outside of a slab");
                continue;
            };
            let free = slab.free_blocks() + slab.withheld_blocks(class);
            assert_eq!(free, class.blocks(), "a block was lost");
            let listed = slab.listed.load(Ordering::Relaxed);
            assert_eq!(listed, LISTED, "a slab was lost");
        }
    }
}

/// What stands for a depot's tag. Unlike the heap's, it tells metadata of one class from another's.
fn tag_of(id: DepotId) -> u8 {
    id.class.index() as u8 | id.row << 7
}
