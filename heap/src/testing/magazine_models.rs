//! Models of draining, explored by loom: the owner pops and pushes, a drainer takes the oldest
//! blocks, and sampling is switched on or off meanwhile.
//!
//! Magazine, bounds and access are the real ones (`cache/magazine.rs`, `cache/bounds.rs`). The
//! kernel's `membarrier` is a fence on both sides here: the drainer's own, and one that the owner
//! passes after each of its steps (`light_barrier`). There is one magazine and no cache, because a
//! cache has constants, which cannot contain the checker's atomics. So these models repeat the
//! order of a drainer's steps, which `cache/drain.rs` has for many magazines. They leave out the
//! number of blocks before a sample, which only decides when a pop takes the slow path.
//!
//! Bounds: one owner with three to five steps, one drainer with one attempt, one switch of the fast
//! path, a magazine of three blocks; all interleavings, those with a switch within [`PREEMPTIONS`].
//!
//! The last tests break the protocol on purpose, and expect that a block is lost or handed out
//! twice.

use crate::base::sync::{AtomicUsize, Ordering, fence};
use crate::cache::bounds::{Access, Bounds, FastPath, Held};
use crate::cache::magazine::{GUARD, Magazine};
use loom::sync::{Arc, Mutex, MutexGuard};
use std::boxed::Box;
use std::vec::Vec;

const BLOCKS: usize = 3;

/// For the models with three threads.
const PREEMPTIONS: usize = 3;

/// The step that a drainer leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The heavy barrier.
    Barrier,
    /// The check whether the owner went below the new bottom.
    Check,
    /// Offering through the bottom that the owner's pops read now.
    Bottom,
    /// Ending the offer when the fast path changes.
    Switch,
    /// Blocking the pops that read no bottom.
    Bar,
    /// Leaving a guard below the new floor.
    Guard,
}

/// What the cache's lock guards.
struct Inner {
    bounds: Bounds,
    access: Access,
}

struct World {
    magazine: Magazine,
    /// The bottom of pops while the profiler samples.
    sampling_bottom: AtomicUsize,
    /// 0: pops that read no bottom are blocked.
    below: AtomicUsize,
    /// The guard, the blocks, and room for one more.
    _array: Box<[usize; GUARD + BLOCKS + 1]>,
    inner: Mutex<Inner>,
}

impl World {
    fn new(path: FastPath) -> Arc<World> {
        let array = Box::new([0, 0, 0, 1, 2, 3, 0]);
        let base = array[GUARD..].as_ptr().addr();
        let world = World {
            magazine: Magazine {
                top: AtomicUsize::new(base + BLOCKS * 8),
                bottom: AtomicUsize::new(0),
                limit: AtomicUsize::new(0),
            },
            sampling_bottom: AtomicUsize::new(0),
            below: AtomicUsize::new(0),
            _array: array,
            inner: Mutex::new(Inner {
                bounds: Bounds {
                    base,
                    floor: base,
                    room: BLOCKS as u32 + 1,
                    capacity: BLOCKS as u32 + 1,
                },
                access: Access::on(),
            }),
        };
        world.set_path(path, Flaw::None);
        Arc::new(world)
    }

    fn open(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn held<'a>(&'a self, inner: &'a mut Inner) -> Held<'a> {
        let path = inner.access.path;
        self.held_as(inner, path)
    }

    fn held_as<'a>(&'a self, inner: &'a mut Inner, path: FastPath) -> Held<'a> {
        let bounds = &mut inner.bounds;
        // SAFETY: the world has one magazine; `inner` is what its lock guards.
        unsafe { Held::new(&self.magazine, &self.sampling_bottom, bounds, path) }
    }

    fn set_path(&self, path: FastPath, flaw: Flaw) {
        let mut inner = self.open();
        inner.access.path = path;
        self.held(&mut inner).publish();
        if flaw != Flaw::Switch {
            inner.access.set_offering(false);
        }
        inner.access.publish(&self.below, 1);
    }

    /// The drainer. Returns what it took. It holds no lock while the barrier runs.
    fn drain(&self, flaw: Flaw) -> Vec<usize> {
        let mut inner = self.open();
        let path = match flaw {
            Flaw::Bottom => FastPath::On,
            _ => inner.access.path,
        };
        let given = self.held_as(&mut inner, path).offer();
        inner.access.set_offering(given.is_some());
        if flaw != Flaw::Bar {
            inner.access.publish(&self.below, 1);
        }
        drop(inner);
        if flaw != Flaw::Barrier {
            fence(Ordering::SeqCst);
        }
        let mut inner = self.open();
        let stands = inner.access.is_offering;
        let mut held = self.held(&mut inner);
        let mut taken = Vec::new();
        match flaw {
            Flaw::Bottom | Flaw::Check | Flaw::Guard => {
                let offered = match flaw {
                    Flaw::Bottom => given,
                    _ => held.offered().filter(|_| stands),
                };
                let ceded = |bottom: &usize| flaw == Flaw::Check || held.is_ceded(*bottom);
                if let Some(bottom) = offered.filter(ceded) {
                    // SAFETY: of the array; whether of the drainer, the model finds out.
                    unsafe { held.cede(bottom, |blocks| taken.extend(blocks)) };
                    if flaw != Flaw::Guard {
                        held.guard_floor();
                    }
                }
            }
            _ if stands => {
                // SAFETY: as above.
                unsafe { held.collect(|blocks| taken.extend(blocks)) };
            }
            _ => {}
        }
        held.publish();
        inner.access.set_offering(false);
        inner.access.publish(&self.below, 1);
        taken
    }

    /// The owner's pop for a size, which reads no bottom.
    fn pop_sized(&self) -> Option<usize> {
        if self.below.load(Ordering::Acquire) == 0 {
            return None;
        }
        let top = self.magazine.top.load(Ordering::Relaxed);
        // SAFETY: while the bound is above 0, the top is above an entry or the guard.
        let block = unsafe { self.magazine.take(top) };
        block.map(|block| block.addr())
    }

    /// The owner's pop: for a size; then as if the profiler is off; as it samples; on the slow
    /// path.
    fn pop(&self) -> Option<usize> {
        self.pop_sized().or_else(|| self.pop_typed())
    }

    /// The owner's pop by a bottom.
    fn pop_typed(&self) -> Option<usize> {
        let sampling = || self.sampling_bottom.load(Ordering::Relaxed);
        // SAFETY: the owner's.
        let quick = unsafe { self.magazine.pop() };
        // SAFETY: as above.
        let quick = quick.or_else(|| unsafe { self.magazine.pop_above(sampling()) });
        quick
            .map(|block| block.addr())
            .or_else(|| self.pop_slowly())
    }

    fn pop_slowly(&self) -> Option<usize> {
        let mut inner = self.open();
        // SAFETY: the owner's.
        unsafe { self.settled(&mut inner).pop() }.map(|block| block.addr())
    }

    fn settled<'a>(&'a self, inner: &'a mut Inner) -> Held<'a> {
        // Only where the protocol is broken.
        let top = self.magazine.top.load(Ordering::Relaxed);
        assert!(top >= inner.bounds.floor, "what was taken came out twice");
        let mut held = self.held(inner);
        // SAFETY: the owner's.
        unsafe { held.settle() };
        held
    }

    /// The owner's push; on the slow path if the fast path is off or the magazine is full.
    fn push(&self, block: usize) {
        // SAFETY: the owner's.
        if !unsafe { self.magazine.push(block as *mut u8) } {
            let mut inner = self.open();
            // SAFETY: as above.
            assert!(unsafe { self.settled(&mut inner).push(block as *mut u8) });
        }
    }
}

fn all_blocks_once(mut hands: Vec<usize>) {
    hands.sort_unstable();
    assert_eq!(hands, [1, 2, 3], "a block was lost or came out twice");
}

/// Two threads: the owner empties its magazine.
fn emptied(path: FastPath, flaw: Flaw) {
    loom::model(move || {
        let world = World::new(path);
        let other = world.clone();
        let drainer = loom::thread::spawn(move || other.drain(flaw));
        let mut hands: Vec<usize> = (0..BLOCKS).filter_map(|_| world.pop()).collect();
        hands.extend(drainer.join().unwrap());
        all_blocks_once(hands);
    });
}

/// Two threads: the owner empties its magazine with pops that read no bottom, as long as they find
/// a block.
fn emptied_by_size(flaw: Flaw) {
    loom::model(move || {
        let world = World::new(FastPath::On);
        let other = world.clone();
        let drainer = loom::thread::spawn(move || other.drain(flaw));
        let mut hands: Vec<usize> = (0..BLOCKS).filter_map(|_| world.pop_sized()).collect();
        hands.extend(drainer.join().unwrap());
        hands.extend(core::iter::from_fn(|| world.pop_sized()));
        all_blocks_once(hands);
    });
}

/// Two threads: the owner empties its magazine with pops that read its bottom.
fn emptied_by_bottom() {
    loom::model(move || {
        let world = World::new(FastPath::On);
        let other = world.clone();
        let drainer = loom::thread::spawn(move || other.drain(Flaw::None));
        let mut hands: Vec<usize> = (0..BLOCKS).filter_map(|_| world.pop_typed()).collect();
        hands.extend(drainer.join().unwrap());
        hands.extend(core::iter::from_fn(|| world.pop_typed()));
        all_blocks_once(hands);
    });
}

/// Two threads: the owner pops and pushes.
fn up_and_down(path: FastPath, flaw: Flaw) {
    loom::model(move || {
        let world = World::new(path);
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
fn switched(from: FastPath, to: FastPath, flaw: Flaw) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || {
        let world = World::new(from);
        let [drains, switches] = [world.clone(), world.clone()];
        let drainer = loom::thread::spawn(move || drains.drain(flaw));
        let switcher = loom::thread::spawn(move || switches.set_path(to, flaw));
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
    emptied(FastPath::On, Flaw::None);
    emptied(FastPath::Sampling, Flaw::None);
}

#[test]
fn the_owner_empties_by_one_kind_of_pop_what_is_being_drained() {
    emptied_by_size(Flaw::None);
    emptied_by_bottom();
}

#[test]
#[should_panic(expected = "came out twice")]
fn without_the_bar_a_block_comes_out_twice() {
    emptied_by_size(Flaw::Bar);
}

#[test]
#[should_panic(expected = "came out twice")]
fn without_a_guard_below_the_new_floor_a_block_comes_out_twice() {
    emptied_by_size(Flaw::Guard);
}

#[test]
fn the_owner_goes_up_and_down_meanwhile() {
    up_and_down(FastPath::On, Flaw::None);
    up_and_down(FastPath::Sampling, Flaw::None);
}

#[test]
fn sampling_is_switched_on_meanwhile() {
    switched(FastPath::On, FastPath::Sampling, Flaw::None);
}

#[test]
fn sampling_is_switched_off_meanwhile() {
    switched(FastPath::Sampling, FastPath::On, Flaw::None);
}

#[test]
fn the_fast_path_goes_off_meanwhile() {
    switched(FastPath::Sampling, FastPath::Off, Flaw::None);
}

#[test]
#[should_panic(expected = "came out twice")]
fn without_the_barrier_a_block_comes_out_twice() {
    emptied(FastPath::Sampling, Flaw::Barrier);
}

#[test]
#[should_panic(expected = "came out twice")]
fn without_the_check_a_block_comes_out_twice() {
    emptied(FastPath::Sampling, Flaw::Check);
}

#[test]
#[should_panic(expected = "came out twice")]
fn without_the_second_bottom_a_block_comes_out_twice() {
    emptied(FastPath::Sampling, Flaw::Bottom);
}

/// Two threads: the owner takes its slow path, which puts the old bottom back, again and again.
fn slowly(path: FastPath) {
    loom::model(move || {
        let world = World::new(path);
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
    slowly(FastPath::On);
    slowly(FastPath::Sampling);
    slowly(FastPath::Off);
}

/// Three threads: the owner pops, pushes and pops twice, a drainer, and one that turns the
/// fast path off.
fn off_after_an_offer(flaw: Flaw) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || {
        let world = World::new(FastPath::On);
        let [drains, switches] = [world.clone(), world.clone()];
        let drainer = loom::thread::spawn(move || drains.drain(flaw));
        let switcher = loom::thread::spawn(move || switches.set_path(FastPath::Off, flaw));
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
fn the_fast_path_goes_off_after_an_offer() {
    off_after_an_offer(Flaw::None);
}

#[test]
#[should_panic(expected = "came out twice")]
fn an_offer_that_outlives_a_switch_lets_a_block_out_twice() {
    off_after_an_offer(Flaw::Switch);
}

#[test]
#[should_panic(expected = "came out twice")]
fn without_the_barrier_a_switch_lets_a_block_out_twice() {
    switched(FastPath::Sampling, FastPath::On, Flaw::Barrier);
}
