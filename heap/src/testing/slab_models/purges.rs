//! Pages of slabs in use go back to the kernel.

use super::world::World;
use super::{explore, explore_within, kilobyte};

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
