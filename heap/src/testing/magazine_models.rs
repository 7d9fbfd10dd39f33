//! Models of draining, explored by loom: the owner pops and pushes, a drainer takes the oldest
//! blocks, and sampling is switched on or off meanwhile.
//!
//! The kernel's `membarrier` is a fence on both sides here: the drainer's own, and one that the
//! owner passes after each of its steps (`light_barrier`). The magazine is the real one; what the
//! cache does with it
//! (`Opened::{publish, publish_door, offer, offered, set_door, settle, guard_floor, pop}`,
//! `Heap::{offer_all, collect_batch}`, `fast::{pop_sized, pop_counted}`) is written down once more
//! below, for a cache has constants that the checker's atomics cannot be in. What is not here: the
//! number of blocks before a sample, which only says when a pop takes the slow path.
//!
//! Bounds: one owner with three to five steps, one drainer with one attempt, one switch of the
//! door, a magazine of three blocks; all interleavings, those with a switch within [`PREEMPTIONS`].
//!
//! The last tests break the protocol on purpose and expect that a block is lost or comes out twice.

use crate::base::sync::{AtomicUsize, Ordering, fence};
use crate::cache::magazine::{GUARD, Magazine};
use loom::sync::{Arc, Mutex, MutexGuard};
use std::boxed::Box;
use std::vec::Vec;

const BLOCKS: usize = 3;

/// Of the models with three threads.
const PREEMPTIONS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    Sampling,
    Closed,
}

/// What a drainer leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The heavy barrier.
    Barrier,
    /// The look whether the owner went below the new bottom.
    Check,
    /// To offer by the bottom that the owner's pops read now.
    Door,
    /// To forget what was offered when the door changes.
    Switch,
    /// To shut the door for pops that look at no bottom.
    Shut,
    /// To leave a guard below the new floor.
    Guard,
}

/// What the cache's lock guards.
struct Inner {
    floor: usize,
    door: Door,
    is_offering: bool,
}

struct World {
    magazine: Magazine,
    /// The bottom of counted pops.
    counted: AtomicUsize,
    /// 0: shut for pops that look at no bottom.
    below: AtomicUsize,
    /// The guard, the blocks, and room for one more.
    array: Box<[usize; GUARD + BLOCKS + 1]>,
    inner: Mutex<Inner>,
}

impl World {
    fn new(door: Door) -> Arc<World> {
        let array = Box::new([0, 0, 0, 1, 2, 3, 0]);
        let base = array[GUARD..].as_ptr().addr();
        let world = World {
            magazine: Magazine {
                top: AtomicUsize::new(base + BLOCKS * 8),
                bottom: AtomicUsize::new(0),
                limit: AtomicUsize::new(0),
            },
            counted: AtomicUsize::new(0),
            below: AtomicUsize::new(0),
            array,
            inner: Mutex::new(Inner {
                floor: base,
                door,
                is_offering: false,
            }),
        };
        world.publish(&world.open());
        world.publish_door(&world.open());
        Arc::new(world)
    }

    fn base(&self) -> usize {
        self.array[GUARD..].as_ptr().addr()
    }

    fn publish_door(&self, inner: &Inner) {
        let is_open = inner.door == Door::Open && !inner.is_offering;
        self.below.store(usize::from(is_open), Ordering::Release);
    }

    fn open(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn publish(&self, inner: &Inner) {
        let end = self.base() + (BLOCKS + 1) * 8;
        let (bottom, counted, limit) = match inner.door {
            Door::Open => (inner.floor, usize::MAX, end),
            Door::Sampling => (usize::MAX, inner.floor, end),
            Door::Closed => (usize::MAX, usize::MAX, 0),
        };
        self.magazine.bottom.store(bottom, Ordering::Relaxed);
        self.counted.store(counted, Ordering::Relaxed);
        self.magazine.limit.store(limit, Ordering::Relaxed);
    }

    fn set_door(&self, door: Door, flaw: Flaw) {
        let mut inner = self.open();
        inner.door = door;
        inner.is_offering &= flaw == Flaw::Switch;
        self.publish(&inner);
        self.publish_door(&inner);
    }

    fn offer(&self, inner: &Inner, flaw: Flaw) -> Option<usize> {
        match inner.door {
            Door::Sampling if flaw != Flaw::Door => {
                let bottom = self.magazine.to_offer(inner.floor)?;
                self.counted.store(bottom, Ordering::Relaxed);
                Some(bottom)
            }
            Door::Open | Door::Sampling => self.magazine.offer(inner.floor),
            Door::Closed => self.magazine.to_offer(inner.floor),
        }
    }

    /// The bottom that was offered and has not been put back since.
    fn offered(&self, inner: &Inner) -> Option<usize> {
        let bottom = match inner.door {
            Door::Open => self.magazine.bottom.load(Ordering::Relaxed),
            Door::Sampling => self.counted.load(Ordering::Relaxed),
            Door::Closed => self.magazine.to_offer(inner.floor)?,
        };
        (bottom > inner.floor).then_some(bottom)
    }

    /// The drainer: what it took. It holds no lock while the barrier runs.
    fn drain(&self, flaw: Flaw) -> Vec<usize> {
        let mut inner = self.open();
        let given = self.offer(&inner, flaw);
        inner.is_offering = given.is_some();
        if flaw != Flaw::Shut {
            self.publish_door(&inner);
        }
        drop(inner);
        if flaw != Flaw::Barrier {
            fence(Ordering::SeqCst);
        }
        let mut inner = self.open();
        let mut taken = Vec::new();
        let stands = core::mem::take(&mut inner.is_offering);
        let offered = match flaw {
            Flaw::Door => given,
            _ => self.offered(&inner).filter(|_| stands),
        };
        if let Some(bottom) = offered
            && (flaw == Flaw::Check || self.magazine.is_ceded(bottom))
        {
            let [from, to] = [inner.floor, bottom].map(|at| (at - self.base()) / 8 + GUARD);
            taken.extend(&self.array[from..to]);
            inner.floor = bottom;
            if flaw != Flaw::Guard {
                // SAFETY: words of the array and its guard.
                unsafe { (bottom as *mut usize).sub(GUARD).write_bytes(0, GUARD) };
            }
        }
        self.publish(&inner);
        self.publish_door(&inner);
        taken
    }

    /// The owner's pop for a size: it looks at the door and at no bottom.
    fn pop_sized(&self) -> Option<usize> {
        if self.below.load(Ordering::Acquire) == 0 {
            return None;
        }
        let top = self.magazine.top.load(Ordering::Relaxed);
        // SAFETY: with the door open the top stands above an entry or the guard.
        let block = unsafe { self.magazine.take(top) };
        block.map(|block| block.addr())
    }

    /// The owner's pop: for a size, then as the profiler is off; as it samples; by the slow path.
    fn pop(&self) -> Option<usize> {
        self.pop_sized().or_else(|| self.pop_typed())
    }

    /// The owner's pop by a bottom.
    fn pop_typed(&self) -> Option<usize> {
        let quick = self
            .magazine
            .pop()
            .or_else(|| {
                self.magazine
                    .pop_above(self.counted.load(Ordering::Relaxed))
            })
            .map(|block| block.addr());
        quick.or_else(|| self.pop_slowly())
    }

    fn pop_slowly(&self) -> Option<usize> {
        let mut inner = self.open();
        let top = self.settle(&mut inner);
        if top <= inner.floor {
            return None;
        }
        self.magazine.top.store(top - 8, Ordering::Relaxed);
        Some(self.array[(top - 8 - self.base()) / 8 + GUARD])
    }

    /// Moves the entries down to the array's start; the new top.
    fn settle(&self, inner: &mut Inner) -> usize {
        let (base, top) = (self.base(), self.magazine.top.load(Ordering::Acquire));
        if inner.floor == base {
            // A drainer may have offered.
            self.publish(inner);
            return top;
        }
        // Only where the protocol is broken.
        assert!(top >= inner.floor, "what was taken came out twice");
        let filled = (top - inner.floor) / 8;
        // SAFETY: both ranges lie in the array; drainers are locked out.
        unsafe { core::ptr::copy(inner.floor as *const usize, base as *mut usize, filled) };
        inner.floor = base;
        self.magazine
            .top
            .store(base + filled * 8, Ordering::Relaxed);
        self.publish(inner);
        base + filled * 8
    }

    /// The owner's push. Behind a closed door, or full, by the slow path.
    fn push(&self, block: usize) {
        if self.magazine.push(block as *mut u8) {
            return;
        }
        let mut inner = self.open();
        let top = self.settle(&mut inner);
        // SAFETY: the array has room for one more than there are blocks.
        unsafe { *(top as *mut usize) = block };
        self.magazine.top.store(top + 8, Ordering::Release);
    }
}

fn all_blocks_once(mut hands: Vec<usize>) {
    hands.sort_unstable();
    assert_eq!(hands, [1, 2, 3], "a block was lost or came out twice");
}

/// Two threads: the owner empties its magazine.
fn emptied(door: Door, flaw: Flaw) {
    loom::model(move || {
        let world = World::new(door);
        let other = world.clone();
        let drainer = loom::thread::spawn(move || other.drain(flaw));
        let mut hands: Vec<usize> = (0..BLOCKS).filter_map(|_| world.pop()).collect();
        hands.extend(drainer.join().unwrap());
        all_blocks_once(hands);
    });
}

/// Two threads: the owner empties its magazine by pops that look at no bottom, as long as they find
/// a block.
fn emptied_by_size(flaw: Flaw) {
    loom::model(move || {
        let world = World::new(Door::Open);
        let other = world.clone();
        let drainer = loom::thread::spawn(move || other.drain(flaw));
        let mut hands: Vec<usize> = (0..BLOCKS).filter_map(|_| world.pop_sized()).collect();
        hands.extend(drainer.join().unwrap());
        hands.extend(core::iter::from_fn(|| world.pop_sized()));
        all_blocks_once(hands);
    });
}

/// Two threads: the owner empties its magazine by pops that look at its bottom.
fn emptied_by_bottom() {
    loom::model(move || {
        let world = World::new(Door::Open);
        let other = world.clone();
        let drainer = loom::thread::spawn(move || other.drain(Flaw::None));
        let mut hands: Vec<usize> = (0..BLOCKS).filter_map(|_| world.pop_typed()).collect();
        hands.extend(drainer.join().unwrap());
        hands.extend(core::iter::from_fn(|| world.pop_typed()));
        all_blocks_once(hands);
    });
}

/// Two threads: the owner pops and pushes.
fn up_and_down(door: Door, flaw: Flaw) {
    loom::model(move || {
        let world = World::new(door);
        let other = world.clone();
        let drainer = loom::thread::spawn(move || other.drain(flaw));
        let block = world
            .pop()
            .expect("the newest block is never the drainer's");
        world.push(block);
        let mut hands: Vec<usize> = drainer.join().unwrap();
        hands.extend(core::iter::from_fn(|| world.pop()));
        all_blocks_once(hands);
    });
}

/// Three threads: the owner pops, pushes and empties, a drainer, and one that switches.
fn switched(from: Door, to: Door, flaw: Flaw) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || {
        let world = World::new(from);
        let [drains, switches] = [world.clone(), world.clone()];
        let drainer = loom::thread::spawn(move || drains.drain(flaw));
        let switcher = loom::thread::spawn(move || switches.set_door(to, flaw));
        let mut hands = Vec::new();
        hands.extend(world.pop());
        hands.extend(world.pop());
        hands.pop().into_iter().for_each(|block| world.push(block));
        hands.extend(world.pop());
        switcher.join().unwrap();
        hands.extend(drainer.join().unwrap());
        hands.extend(core::iter::from_fn(|| world.pop()));
        all_blocks_once(hands);
    });
}

#[test]
fn the_owner_empties_what_is_being_drained() {
    emptied(Door::Open, Flaw::None);
    emptied(Door::Sampling, Flaw::None);
}

#[test]
fn the_owner_empties_by_one_kind_of_pop_what_is_being_drained() {
    emptied_by_size(Flaw::None);
    emptied_by_bottom();
}

#[test]
#[should_panic(expected = "came out twice")]
fn with_the_door_left_open_a_block_comes_out_twice() {
    emptied_by_size(Flaw::Shut);
}

#[test]
#[should_panic(expected = "came out twice")]
fn without_a_guard_below_the_new_floor_a_block_comes_out_twice() {
    emptied_by_size(Flaw::Guard);
}

#[test]
fn the_owner_goes_up_and_down_meanwhile() {
    up_and_down(Door::Open, Flaw::None);
    up_and_down(Door::Sampling, Flaw::None);
}

#[test]
fn sampling_is_switched_on_meanwhile() {
    switched(Door::Open, Door::Sampling, Flaw::None);
}

#[test]
fn sampling_is_switched_off_meanwhile() {
    switched(Door::Sampling, Door::Open, Flaw::None);
}

#[test]
fn the_door_is_closed_meanwhile() {
    switched(Door::Sampling, Door::Closed, Flaw::None);
}

#[test]
#[should_panic(expected = "came out twice")]
fn without_the_barrier_a_block_comes_out_twice() {
    emptied(Door::Sampling, Flaw::Barrier);
}

#[test]
#[should_panic(expected = "came out twice")]
fn without_the_check_a_block_comes_out_twice() {
    emptied(Door::Sampling, Flaw::Check);
}

#[test]
#[should_panic(expected = "came out twice")]
fn without_the_second_bottom_a_block_comes_out_twice() {
    emptied(Door::Sampling, Flaw::Door);
}

/// Two threads: the owner takes its slow path, which puts the old bottom back, again and again.
fn slowly(door: Door) {
    loom::model(move || {
        let world = World::new(door);
        let other = world.clone();
        let drainer = loom::thread::spawn(move || other.drain(Flaw::None));
        let mut hands = Vec::new();
        hands.extend(world.pop_slowly());
        hands.extend(world.pop());
        hands.pop().into_iter().for_each(|block| world.push(block));
        hands.extend(world.pop_slowly());
        hands.extend(drainer.join().unwrap());
        hands.extend(core::iter::from_fn(|| world.pop()));
        all_blocks_once(hands);
    });
}

#[test]
fn the_owner_takes_its_slow_path_between_offer_and_collect() {
    slowly(Door::Open);
    slowly(Door::Sampling);
    slowly(Door::Closed);
}

/// Three threads: the owner pops, pushes and pops twice, a drainer, and one that closes the door.
fn closed_after_an_offer(flaw: Flaw) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || {
        let world = World::new(Door::Open);
        let [drains, switches] = [world.clone(), world.clone()];
        let drainer = loom::thread::spawn(move || drains.drain(flaw));
        let switcher = loom::thread::spawn(move || switches.set_door(Door::Closed, flaw));
        let mut hands = Vec::new();
        world.pop().into_iter().for_each(|block| world.push(block));
        hands.extend(world.pop());
        hands.extend(world.pop());
        switcher.join().unwrap();
        hands.extend(drainer.join().unwrap());
        hands.extend(core::iter::from_fn(|| world.pop()));
        all_blocks_once(hands);
    });
}

#[test]
fn the_door_is_closed_after_an_offer() {
    closed_after_an_offer(Flaw::None);
}

#[test]
#[should_panic(expected = "came out twice")]
fn an_offer_that_outlives_a_switch_lets_a_block_out_twice() {
    closed_after_an_offer(Flaw::Switch);
}

#[test]
#[should_panic(expected = "came out twice")]
fn without_the_barrier_a_switch_lets_a_block_out_twice() {
    switched(Door::Sampling, Door::Open, Flaw::Barrier);
}
