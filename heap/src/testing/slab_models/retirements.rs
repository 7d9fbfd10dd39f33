//! Slabs go back to the pool, and their slices are carved anew.

use super::world::World;
use super::{explore, explore_within, half_kilobyte, kilobyte, metadata};
use crate::slab::depot_id::DepotId;

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

#[test]
fn a_slab_is_carved_anew_for_its_depot_under_a_listers_hands() {
    explore_within(3, || {
        let world = World::new(2);
        let class = kilobyte();
        let (warm, second) = (world.take(class, 64), world.take(class, 64));
        world.give(class, warm);
        // Unlists the second slab, of which all blocks are out.
        let hand = world.take(class, 1);
        world.give(class, hand);
        let (number, word, bits) = second[0];
        let other = world.clone();
        // Both threads give blocks of it back, and both are about to list it.
        let thread = loom::thread::spawn(move || other.give(class, std::vec![(number, word, 1)]));
        world.give(class, std::vec![(number, word, bits & !1)]);
        // If the slab was listed and retired meanwhile, its slice is carved again here.
        let hands = [world.take(class, 64), world.take(class, 1)];
        hands.into_iter().for_each(|hand| world.give(class, hand));
        thread.join().unwrap();
        world.check_at_rest(2);
    });
}
