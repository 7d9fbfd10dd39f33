//! Models of the protocol, explored by loom: every interleaving within the stated bounds.
//!
//! Bounds: two threads (three in one model, with two preemptions), five preemptions
//! (`PREEMPTIONS`), one or two slabs of one word (64 blocks of 1,024 bytes, or 128 blocks of 512 in
//! two words), a pool of slices that all depots share, the program's and those of metadata. Each
//! model checks at every step that no block has two holders, that no give-back is mistaken for a
//! double free, and that a claimed block is of the depot that it was claimed from, whose tag its
//! slice has. At the end it checks that no block is lost, that every slab with free blocks is in
//! its depot's set, and that an empty slab beyond the warm one went back to the pool.

use crate::base::sync::{AtomicU8, Ordering};
use crate::os::lock::{Lock, Rank};
use crate::slab::class::Class;
use crate::slab::decommitted::Cursor;
use crate::slab::depot::Depots;
use crate::slab::depot_id::{DepotId, User};
use crate::slab::page_set::PageSet;
use crate::slab::{Claim, LISTED, Pages, Scope, Slab, Slice, Source, Touched};
use core::ptr::NonNull;
use loom::sync::Arc;
use std::sync::Mutex;
use std::vec::Vec;

const PREEMPTIONS: usize = 5;

/// A pool of slices, as the page heap is to the depots.
struct Pool {
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

struct World {
    depots: Depots,
    pool: Pool,
    /// For every slab the blocks that callers hold, by word.
    held: Mutex<Vec<[u64; 2]>>,
}

/// Blocks in a caller's hands: (slab number, word, bits).
type Hand = Vec<(usize, usize, u64)>;

impl World {
    fn new(slabs: usize) -> Arc<World> {
        let held = Mutex::new((0..slabs).map(|_| [0; 2]).collect());
        Arc::new(World {
            depots: Depots::new(),
            pool: Pool::new(slabs),
            held,
        })
    }

    fn take(&self, id: DepotId, want: usize) -> Hand {
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

    fn give(&self, id: DepotId, hand: Hand) {
        for (number, word, bits) in hand {
            self.held.lock().unwrap()[number][word] &= !bits;
            let slab = &self.pool.slabs[number];
            // SAFETY: the blocks are not real memory.
            let given = unsafe { self.depots.give(slab, id, word, bits, &self.pool) };
            given.expect("taken for a double free");
        }
    }

    fn purge_spare(&self, id: DepotId) {
        let mut cursor = Cursor::at(id);
        while cursor.is_at(id) {
            let pages = Some(Scope::All);
            self.depots.decay(0, pages, &mut cursor, &self.pool);
        }
    }

    /// Lets go of all empty slabs.
    fn cool(&self) {
        self.depots.cool(u64::MAX, &self.pool);
    }

    /// As [`World::check_at_rest`]; then slabs go back to the pool, by their own depots, but for
    /// `most_slabs`.
    fn check_they_go_back(&self, most_slabs: usize) {
        self.check_at_rest(self.pool.slabs.len());
        self.cool();
        self.check_at_rest(most_slabs);
    }

    /// No caller holds a block: every slab is whole, listed, or back in the pool.
    fn check_at_rest(&self, most_slabs: usize) {
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
    id.class.index() as u8 | (id.user as u8) << 7
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_within(PREEMPTIONS, model);
}

fn explore_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// 64 blocks, one word.
fn kilobyte() -> DepotId {
    DepotId::blocks(Class::of_size(1024))
}

/// 128 blocks, two words.
fn half_kilobyte() -> DepotId {
    DepotId::blocks(Class::of_size(512))
}

/// 8 blocks, which are fresh at first.
fn two_pages() -> DepotId {
    DepotId::blocks(Class::of_size(8192))
}

/// The heap's depot of the same class.
fn metadata(id: DepotId) -> DepotId {
    DepotId {
        user: User::Heap,
        ..id
    }
}

#[test]
fn a_block_is_fresh_once() {
    explore(|| {
        let world = World::new(2);
        let (old, new) = (two_pages(), half_kilobyte());
        let (first, second) = (world.take(old, 8), world.take(old, 3));
        world.give(old, second);
        let other = world.clone();
        // The second slab retires, and is carved as another class or as the same again.
        let thread = loom::thread::spawn(move || {
            other.give(old, first);
            let hand = other.take(new, 2);
            other.give(new, hand);
        });
        let hand = world.take(old, 2);
        world.give(old, hand);
        thread.join().unwrap();
    });
}

#[test]
fn refill_and_flush() {
    explore(|| {
        let world = World::new(1);
        let class = kilobyte();
        let other = world.clone();
        let thread = loom::thread::spawn(move || {
            let hand = other.take(class, 64);
            other.give(class, hand);
        });
        let hand = world.take(class, 3);
        world.give(class, hand);
        thread.join().unwrap();
        world.check_at_rest(1);
    });
}

#[test]
fn unlisting_meets_a_give_back() {
    explore(|| {
        let world = World::new(1);
        let class = kilobyte();
        let hand = world.take(class, 64);
        let other = world.clone();
        let thread = loom::thread::spawn(move || other.give(class, hand));
        // Finds the slab exhausted, or not any more.
        let late = world.take(class, 1);
        world.give(class, late);
        thread.join().unwrap();
        world.check_at_rest(1);
    });
}

#[test]
fn two_words_come_back_by_two_threads() {
    explore(|| {
        let world = World::new(1);
        let class = half_kilobyte();
        let (first, second) = (world.take(class, 64), world.take(class, 64));
        let other = world.clone();
        let thread = loom::thread::spawn(move || other.give(class, first));
        world.give(class, second);
        thread.join().unwrap();
        world.check_at_rest(1);
    });
}

#[test]
fn retiring_meets_a_refill() {
    explore(|| {
        let world = World::new(2);
        let class = kilobyte();
        let (first, second) = (world.take(class, 64), world.take(class, 64));
        world.give(class, first);
        let other = world.clone();
        // Two slabs are empty after this: one is warm, one retires.
        let thread = loom::thread::spawn(move || other.give(class, second));
        let hand = world.take(class, 2);
        world.give(class, hand);
        thread.join().unwrap();
        world.check_at_rest(1);
    });
}

#[test]
fn a_slab_is_carved_anew_as_another_class_under_a_claimers_hands() {
    explore(|| {
        let world = World::new(2);
        let (old, new) = (kilobyte(), half_kilobyte());
        let (first, second) = (world.take(old, 64), world.take(old, 64));
        world.give(old, first);
        let other = world.clone();
        let thread = loom::thread::spawn(move || {
            // Retires one slab of the old class, then carves its slice anew.
            other.give(old, second);
            let hand = other.take(new, 64);
            other.give(new, hand);
        });
        let hand = world.take(old, 1);
        world.give(old, hand);
        thread.join().unwrap();
        world.check_at_rest(2);
    });
}

#[test]
fn a_thread_ends_while_another_refills() {
    explore(|| {
        let world = World::new(2);
        let (one, two) = (kilobyte(), half_kilobyte());
        let hands = (world.take(one, 2), world.take(two, 2));
        let other = world.clone();
        let thread = loom::thread::spawn(move || {
            other.give(one, hands.0);
            other.give(two, hands.1);
        });
        let hand = world.take(one, 62);
        world.give(one, hand);
        thread.join().unwrap();
        world.check_at_rest(2);
    });
}

#[test]
fn cooling_meets_a_refill() {
    explore(|| {
        let world = World::new(1);
        let class = kilobyte();
        let hand = world.take(class, 64);
        world.give(class, hand);
        let other = world.clone();
        let thread = loom::thread::spawn(move || other.cool());
        let hand = world.take(class, 1);
        world.give(class, hand);
        thread.join().unwrap();
        world.check_at_rest(1);
    });
}

#[test]
fn purging_meets_a_refill() {
    explore_within(3, || {
        let world = World::new(1);
        let class = kilobyte();
        let kept = world.take(class, 60);
        let other = world.clone();
        // Finds the slab exhausted while its spare page is being purged, and takes withheld blocks.
        let thread = loom::thread::spawn(move || {
            let hand = other.take(class, 4);
            other.give(class, hand);
        });
        world.purge_spare(class);
        thread.join().unwrap();
        world.give(class, kept);
        world.check_at_rest(1);
    });
}

#[test]
fn purging_meets_a_give_back() {
    explore(|| {
        let world = World::new(1);
        let class = kilobyte();
        let (kept, last) = (world.take(class, 60), world.take(class, 4));
        let first = last[..].to_vec();
        let other = world.clone();
        // The page is spare as soon as its bits are set, so it may be withheld before the thread
        // that gave the blocks back continues.
        let thread = loom::thread::spawn(move || other.give(class, first));
        world.purge_spare(class);
        thread.join().unwrap();
        world.give(class, kept);
        world.check_at_rest(1);
    });
}

#[test]
fn purging_meets_the_last_give_back() {
    explore_within(3, || {
        let world = World::new(2);
        let class = kilobyte();
        let (warm, last) = (world.take(class, 64), world.take(class, 4));
        world.give(class, warm);
        let other = world.clone();
        let thread = loom::thread::spawn(move || other.give(class, last));
        world.purge_spare(class);
        thread.join().unwrap();
        world.check_at_rest(1);
    });
}

#[test]
fn purging_in_vain_meets_the_last_give_back() {
    explore_within(4, || {
        let world = World::new(2);
        let class = kilobyte();
        let (warm, last) = (world.take(class, 64), world.take(class, 4));
        world.give(class, warm);
        let other = world.clone();
        // Takes one of the blocks that the purge is about to claim, and gives all back before it
        // has given up.
        let thread = loom::thread::spawn(move || {
            let hand = other.take(class, 1);
            other.give(class, hand);
            other.give(class, last);
        });
        world.purge_spare(class);
        thread.join().unwrap();
        world.check_at_rest(1);
    });
}

#[test]
fn three_threads_and_two_classes() {
    explore_within(2, || {
        let world = World::new(2);
        let (one, two) = (kilobyte(), half_kilobyte());
        let (first, second) = (world.take(one, 64), world.take(one, 64));
        world.give(one, first);
        let (giver, carver) = (world.clone(), world.clone());
        let giver = loom::thread::spawn(move || giver.give(one, second));
        let carver = loom::thread::spawn(move || {
            let hand = carver.take(two, 64);
            carver.give(two, hand);
        });
        let hand = world.take(one, 1);
        world.give(one, hand);
        giver.join().unwrap();
        carver.join().unwrap();
        world.check_at_rest(2);
    });
}

/// The slab of `old` that one thread is about to claim from retires, and its slice is carved as a
/// slab of `new`.
fn recarve_under_a_claimer(old: DepotId, new: DepotId) {
    explore_within(3, move || {
        let world = World::new(2);
        let hands = [world.take(old, 64), world.take(old, 64)];
        hands.into_iter().for_each(|hand| world.give(old, hand));
        let other = world.clone();
        let thread = loom::thread::spawn(move || {
            other.cool();
            let hand = other.take(new, 1);
            other.give(new, hand);
        });
        let hand = world.take(old, 1);
        world.give(old, hand);
        thread.join().unwrap();
        // A claimer may empty a slab of its depot that is about to be listed. Such a slab stays.
        world.check_they_go_back(usize::from(old == new));
    });
}

#[test]
fn a_slab_has_its_tag_when_its_first_block_is_claimed() {
    recarve_under_a_claimer(half_kilobyte(), half_kilobyte());
}

#[test]
fn a_slab_becomes_metadata_of_the_same_class_under_a_claimers_hands() {
    recarve_under_a_claimer(half_kilobyte(), metadata(half_kilobyte()));
}

#[test]
fn a_slab_becomes_metadata_of_another_class_under_a_claimers_hands() {
    recarve_under_a_claimer(half_kilobyte(), metadata(kilobyte()));
}

#[test]
fn a_slab_becomes_metadata_under_a_givers_hands() {
    explore_within(3, || {
        let world = World::new(2);
        let (blocks, meta) = (kilobyte(), metadata(kilobyte()));
        let (warm, last) = (world.take(blocks, 64), world.take(blocks, 64));
        world.give(blocks, warm);
        let other = world.clone();
        // Gives the last block back, and looks whether the slab is empty once it is another's.
        let thread = loom::thread::spawn(move || other.give(blocks, last));
        let hand = world.take(blocks, 1);
        world.give(blocks, hand);
        let hand = world.take(meta, 1);
        world.give(meta, hand);
        thread.join().unwrap();
        world.check_they_go_back(0);
    });
}
