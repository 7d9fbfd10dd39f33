//! The slab room against a naive model, one thread.

use super::class::Class;
use super::depot::{Depots, Source};
use super::{Claim, Given, Slab, lowest_bits};
use core::ptr::NonNull;
use proptest::prelude::*;
use std::cell::{RefCell, RefMut};
use std::collections::BTreeSet;
use std::vec::Vec;

/// Slices without memory behind them: only their addresses count.
struct Slices {
    slabs: Vec<Slab>,
    free: RefCell<BTreeSet<usize>>,
    touched: RefCell<Vec<usize>>,
}

impl Slices {
    fn new(count: usize) -> Slices {
        Slices {
            slabs: (0..count).map(|_| Slab::blank()).collect(),
            free: RefCell::new((0..count).collect()),
            touched: RefCell::new(Vec::new()),
        }
    }

    fn free(&self) -> RefMut<'_, BTreeSet<usize>> {
        self.free.borrow_mut()
    }

    fn slab(&self, address: usize) -> &Slab {
        &self.slabs[(address >> 16) - 1]
    }
}

impl Source for Slices {
    fn fresh(&self, class: Class) -> Option<NonNull<Slab>> {
        let number = self.free().pop_first()?;
        self.slabs[number].carve(class, (number + 1) << 16, u16::MAX, 16);
        Some(NonNull::from(&self.slabs[number]))
    }

    fn retire(&self, slab: NonNull<Slab>, touched: usize) {
        self.touched.borrow_mut().push(touched);
        // SAFETY: the record lives in `slabs`.
        let base = unsafe { slab.as_ref() }.base();
        self.free().insert((base >> 16) - 1);
    }

    fn now_ms(&self) -> u64 {
        7
    }
}

fn take(depots: &Depots, slices: &Slices, class: Class, want: usize) -> Vec<usize> {
    let mut blocks = Vec::new();
    depots.take(
        class,
        want,
        slices,
        &mut |slab, Claim { word, mut bits, .. }| {
            while bits != 0 {
                let block = word * 64 + bits.trailing_zeros() as usize;
                blocks.push(slab.base() + block * class.bytes());
                bits &= bits - 1;
            }
        },
    );
    blocks
}

/// Several refills, until there are `want` blocks.
fn take_all(depots: &Depots, slices: &Slices, class: Class, want: usize) -> Vec<usize> {
    let mut blocks = Vec::new();
    while blocks.len() < want {
        blocks.extend(take(depots, slices, class, want - blocks.len()));
    }
    blocks
}

fn give(depots: &Depots, slices: &Slices, class: Class, block: usize) -> Result<(), u64> {
    let slab = slices.slab(block);
    let number = class.block_at(block - slab.base()).unwrap();
    depots.give(slab, class, number / 64, 1 << (number % 64), slices)
}

#[test]
fn lowest_bits_are_the_lowest() {
    assert_eq!(lowest_bits(0b1011_0100, 2), 0b0001_0100);
    assert_eq!(lowest_bits(0b11, 5), 0b11);
    assert_eq!(lowest_bits(0, 3), 0);
}

#[test]
fn lowest_addresses_come_first() {
    let (depots, slices) = (Depots::new(), Slices::new(2));
    let class = Class::of_size(1024);
    let blocks = take_all(&depots, &slices, class, 100);
    assert_eq!(blocks.len(), 100);
    assert!(blocks.is_sorted() && blocks[0] == 1 << 16);
    give(&depots, &slices, class, blocks[5]).unwrap();
    give(&depots, &slices, class, blocks[3]).unwrap();
    // The current slab is used up before the set is asked for its lowest.
    assert_eq!(take(&depots, &slices, class, 28).len(), 28);
    assert_eq!(take(&depots, &slices, class, 2), [blocks[3], blocks[5]]);
}

#[test]
fn a_second_free_is_seen() {
    let (depots, slices) = (Depots::new(), Slices::new(1));
    let class = Class::of_size(64);
    let blocks = take(&depots, &slices, class, 10);
    give(&depots, &slices, class, blocks[4]).unwrap();
    assert_eq!(give(&depots, &slices, class, blocks[4]), Err(1 << 4));
    assert_eq!(
        slices.slab(blocks[4]).give(class, 0, 1 << 20),
        Given::Twice(1 << 20)
    );
}

#[test]
fn only_touched_words_count_as_touched() {
    let (depots, slices) = (Depots::new(), Slices::new(2));
    let class = Class::of_size(16);
    for slab in 0..2 {
        let blocks = take_all(&depots, &slices, class, if slab == 0 { 4096 } else { 70 });
        blocks
            .iter()
            .for_each(|&block| give(&depots, &slices, class, block).unwrap());
    }
    depots.cool(u64::MAX, &slices);
    let touched = slices.touched.borrow();
    assert_eq!(
        *touched,
        [65536],
        "one slab served both rounds, all of it was touched"
    );
    assert_eq!(slices.free().len(), 2);
}

#[test]
fn blocks_are_fresh_until_they_are_handed_out() {
    let (depots, slices) = (Depots::new(), Slices::new(2));
    let class = Class::of_size(8192);
    let fresh = |want: usize| {
        let mut found = Vec::new();
        depots.take(class, want, &slices, &mut |_, claim| {
            found.push((claim.bits, claim.fresh));
        });
        found
    };
    assert!(depots.next_is_fresh(class), "before the first slab");
    assert_eq!(fresh(3), [(0b111, 0b111)]);
    give(&depots, &slices, class, (1 << 16) + 8192).unwrap();
    assert!(!depots.next_is_fresh(class));
    assert_eq!(fresh(2), [(0b1010, 0b1000)]);
    assert!(depots.next_is_fresh(class));
    for block in 0..4 {
        give(&depots, &slices, class, (1 << 16) + block * 8192).unwrap();
    }
    depots.cool(u64::MAX, &slices);
    // Only the first four blocks were ever in somebody's hands.
    assert_eq!(*slices.touched.borrow(), [4 * 8192]);
}

#[test]
fn blocks_on_a_dirty_page_are_not_fresh() {
    let (small, odd) = (Class::of_size(4000), Class::of_size(4608));
    assert!(!Class::of_size(2048).tells_fresh() && odd.tells_fresh());
    assert_eq!(small.fresh_blocks(u16::MAX, 16), u16::MAX);
    assert_eq!(small.fresh_blocks(!0b101, 16), !0b101);
    // Blocks of 4,608 bytes: the second page has parts of the first two.
    assert_eq!(odd.bytes(), 4608);
    assert_eq!(odd.fresh_blocks(!0b10, 16), 0x3fff & !0b11);
    assert_eq!(odd.fresh_blocks(1, 1), 0x3fff);
    assert_eq!(Class::of_size(64).fresh_blocks(u16::MAX, 16), 0);
}

#[test]
fn one_empty_slab_stays_warm_until_it_is_old() {
    let (depots, slices) = (Depots::new(), Slices::new(3));
    let class = Class::of_size(32 << 10);
    let blocks = take_all(&depots, &slices, class, 6);
    blocks
        .iter()
        .for_each(|&block| give(&depots, &slices, class, block).unwrap());
    assert_eq!(
        slices.free().iter().copied().collect::<Vec<_>>(),
        [1, 2],
        "the lowest stays"
    );
    depots.cool(6, &slices);
    assert_eq!(slices.free().len(), 2);
    depots.cool(7, &slices);
    assert_eq!(slices.free().len(), 3);
}

#[derive(Clone, Debug)]
enum Step {
    Take(usize, usize),
    Give(usize),
    Cool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4usize, 1..300usize).prop_map(|(class, want)| Step::Take(class, want)),
        400 => any::<usize>().prop_map(Step::Give),
        1 => Just(Step::Cool),
    ];
    prop::collection::vec(step, 0..2000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn blocks_never_overlap_and_none_is_lost(steps in steps()) {
        let classes = [24, 512, 1024, 32 << 10].map(Class::of_size_align8);
        let (depots, slices) = (Depots::new(), Slices::new(40));
        let mut live: Vec<(usize, Class)> = Vec::new();
        let mut taken: BTreeSet<usize> = BTreeSet::new();
        for step in steps {
            match step {
                Step::Take(class, want) => {
                    let class = classes[class];
                    for block in take(&depots, &slices, class, want) {
                        let before = taken.range(..=block).next_back();
                        prop_assert!(before != Some(&block));
                        taken.insert(block);
                        prop_assert_eq!(slices.slab(block).class(), Some(class));
                        live.push((block, class));
                    }
                }
                Step::Give(which) if !live.is_empty() => {
                    let (block, class) = live.swap_remove(which % live.len());
                    taken.remove(&block);
                    prop_assert!(give(&depots, &slices, class, block).is_ok());
                }
                Step::Give(_) => {}
                Step::Cool => depots.cool(u64::MAX, &slices),
            }
        }
        live.iter().for_each(|&(block, class)| give(&depots, &slices, class, block).unwrap());
        depots.cool(u64::MAX, &slices);
        prop_assert_eq!(slices.free().len(), 40, "every slice comes home");
    }
}
