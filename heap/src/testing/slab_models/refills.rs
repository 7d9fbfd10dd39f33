//! Blocks are taken and given back.

use super::world::World;
use super::{explore, explore_within, half_kilobyte, kilobyte, two_pages};

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
