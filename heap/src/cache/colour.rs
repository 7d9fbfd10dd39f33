//! Where in its memory a thread's cache begins.
//!
//! To decide whether a load must wait for an earlier store, a processor first compares the low
//! twelve bits of their addresses. Each `malloc` and `free` ends by storing a magazine's top, and
//! the next one begins by loading the thread's slot and the page heap's bounds. If one of these has
//! the same low bits as the top, each call waits for the previous one (measured on Zen: 17 % of a
//! pair, for the class concerned). So a cache begins a word or two later if its tops would collide
//! with a word that the fast path loads. Agner Fog, "The microarchitecture of Intel, AMD and VIA
//! CPUs", on false store forwarding.

use super::heap::HEAP;
use super::machine;
use super::magazine::Magazine;
use crate::slab::class::CLASSES;

/// Where a cache may begin, in words after the start of its memory: tops are three words apart.
const SHIFTS: usize = size_of::<Magazine>() / WORD;
const WORD: usize = size_of::<usize>();
/// A processor takes two addresses that differ by a multiple of this for the same.
const ALIKE: usize = 4096;

/// How many bytes after `memory` the calling thread's cache should begin.
pub fn shift(memory: usize) -> usize {
    shift_for(memory, &loaded())
}

/// Addresses of the words that the fast path loads before it stores.
fn loaded() -> [usize; 3] {
    let pages = &HEAP.pages;
    let [base, slices] =
        [&pages.primary_base, &pages.primary_slices].map(|word| core::ptr::from_ref(word).addr());
    [machine::slot_address(), base, slices]
}

fn shift_for(memory: usize, loaded: &[usize]) -> usize {
    let shifts = (0..SHIFTS).map(|words| words * WORD);
    let cost = |shift: &usize| -> usize {
        let costs = loaded.iter().map(|&word| cost(memory + shift, word));
        costs.sum()
    };
    shifts.min_by_key(cost).unwrap_or(0)
}

/// The cost of the collision between a top of a cache at `cache` and the word at `word`, if there
/// is one. It is higher for a smaller class, which has more blocks.
fn cost(cache: usize, word: usize) -> usize {
    let distance = word.wrapping_sub(cache) % ALIKE / WORD * WORD;
    let class = distance / size_of::<Magazine>();
    match distance.is_multiple_of(size_of::<Magazine>()) && (1..=CLASSES).contains(&class) {
        true => CLASSES + 1 - class,
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::own_cache;
    use std::vec::Vec;

    #[test]
    fn a_cache_moves_only_as_far_as_it_must() {
        let memory = 0x7000_0000_a000;
        let top_of = |class: usize| 0x5000 + class * size_of::<Magazine>();
        assert_eq!(shift_for(memory, &[]), 0);
        assert_eq!(
            shift_for(memory, &[top_of(4) + WORD, top_of(CLASSES + 1)]),
            0
        );
        assert_eq!(shift_for(memory, &[top_of(4)]), WORD);
        assert_eq!(shift_for(memory, &[top_of(4), top_of(9) + WORD]), 2 * WORD);
        // Every place has a collision, so the one with the largest class is taken.
        let everywhere = [top_of(4), top_of(40) + WORD, top_of(7) + 2 * WORD];
        assert_eq!(shift_for(memory, &everywhere), WORD);
    }

    #[test]
    fn a_threads_cache_stands_where_its_tops_cost_least() {
        let look = || {
            let cache = own_cache::enter().expect("a cache");
            let slot = machine::slot_address();
            // SAFETY: the slot is a pointer's, and this thread's own.
            let held = unsafe { *(slot as *const usize) };
            assert_eq!(held, core::ptr::from_ref(cache).addr());
            assert_eq!(held, machine::slot().addr());
            let memory = held - cache.open().inner.shift as usize;
            let costs = [0, WORD, 2 * WORD].map(|shift| -> usize {
                let costs = loaded().map(|word| cost(memory + shift, word));
                costs.iter().sum()
            });
            let cost_here: usize = loaded().iter().map(|&word| cost(held, word)).sum();
            assert_eq!(Some(&cost_here), costs.iter().min());
        };
        let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(look)).collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}
