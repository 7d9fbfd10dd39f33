//! The slab room against a naive model, one thread.

use super::class::Class;
use super::depot::{Cursor, Depots, Pages, Round, Source, Touched};
use super::withheld::Units;
use super::{Claim, FarWords, Given, Grain, LINE_BLOCKS, Slab, WORDS, lowest_bits};
use crate::base::sync::AtomicU64;
use core::ptr::NonNull;
use proptest::prelude::*;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeSet;
use std::vec::Vec;

/// Slices without memory behind them: only their addresses count, and which of their pages would be
/// resident.
struct Slices {
    slabs: Vec<Slab>,
    far: Vec<FarWords>,
    free: RefCell<BTreeSet<usize>>,
    touched: RefCell<Vec<usize>>,
    resident: RefCell<Vec<u16>>,
    refuses: Cell<bool>,
    withheld: Cell<isize>,
}

impl Slices {
    fn new(count: usize) -> Slices {
        Slices {
            slabs: (0..count).map(|_| Slab::blank()).collect(),
            far: (0..count)
                .map(|_| [const { AtomicU64::new(0) }; WORDS])
                .collect(),
            free: RefCell::new((0..count).collect()),
            touched: RefCell::new(Vec::new()),
            resident: RefCell::new(std::vec![0; count]),
            refuses: Cell::new(false),
            withheld: Cell::new(0),
        }
    }

    fn free(&self) -> RefMut<'_, BTreeSet<usize>> {
        self.free.borrow_mut()
    }

    fn slab(&self, address: usize) -> &Slab {
        &self.slabs[(address >> 16) - 1]
    }

    /// The pages that a block touches, as bits of its slice.
    fn pages_of(block: usize, class: Class) -> u16 {
        let (first, last) = (block & 0xffff, (block & 0xffff) + class.bytes() - 1);
        (first >> 12..=last >> 12).fold(0, |bits, page| bits | 1 << page)
    }

    /// The block is written to. How many pages that faults in.
    fn touch(&self, block: usize, class: Class) -> u32 {
        let resident = &mut self.resident.borrow_mut()[(block >> 16) - 1];
        let new = Slices::pages_of(block, class) & !*resident;
        *resident |= new;
        new.count_ones()
    }
}

impl Source for Slices {
    fn fresh(&self, class: Class, pages: Pages) -> Option<NonNull<Slab>> {
        let resident = self.resident.borrow();
        let has_pages = |number: &usize| resident[*number] != 0;
        let warm = self.free().iter().copied().find(has_pages);
        let number = match pages {
            Pages::Resident => warm?,
            Pages::Any => warm.or_else(|| self.free().first().copied())?,
        };
        self.free().remove(&number);
        let far = NonNull::from(&self.far[number]);
        // SAFETY: lives as long as the slabs.
        unsafe { self.slabs[number].carve(class, (number + 1) << 16, !resident[number], 16, far) };
        Some(NonNull::from(&self.slabs[number]))
    }

    fn retire(&self, slab: NonNull<Slab>, touched: Touched) {
        self.touched.borrow_mut().push(touched.bytes);
        // SAFETY: the record lives in `slabs`.
        let number = (unsafe { slab.as_ref() }.base() >> 16) - 1;
        let resident = self.resident.borrow()[number];
        assert_eq!(
            resident & touched.clean.0,
            0,
            "a resident page called clean"
        );
        self.free().insert(number);
    }

    fn note_withheld(&self, bytes: isize) {
        self.withheld.set(self.withheld.get() + bytes);
    }

    fn keeps_pages(&self, _round: Round) -> bool {
        false
    }

    fn pages(&self) -> usize {
        16
    }

    fn purge(&self, slab: NonNull<Slab>, units: Units) -> bool {
        // SAFETY: the record lives in `slabs`.
        let number = (unsafe { slab.as_ref() }.base() >> 16) - 1;
        if !self.refuses.get() {
            self.resident.borrow_mut()[number] &= !units.0;
        }
        !self.refuses.get()
    }

    fn now_ms(&self) -> u64 {
        7
    }
}

fn purge_spare(depots: &Depots, slices: &Slices, round: Round) -> usize {
    let mut cursor = Cursor::start();
    core::iter::from_fn(|| depots.purge_spare(round, &mut cursor, slices)).sum()
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
fn refills_by_lines_share_no_line() {
    let (depots, slices) = (Depots::new(), Slices::new(20));
    for (size, want) in [
        (8, 8),
        (16, 8),
        (24, 8),
        (48, 20),
        (80, 40),
        (112, 70),
        (256, 9),
    ] {
        let class = Class::of_size_align8(size);
        take_all(&depots, &slices, class, 3);
        let mut lines = BTreeSet::new();
        for _ in 0..20 {
            let mut own = BTreeSet::new();
            let got = depots.take_by(Grain::Lines, class, want, &slices, &mut |slab, claim| {
                let blocks = (0..64).filter(|bit| claim.bits >> bit & 1 != 0);
                own.extend(blocks.flat_map(|bit| {
                    let start = slab.base() + (claim.word * 64 + bit) * class.bytes();
                    start / 64..=(start + class.bytes() - 1) / 64
                }));
            });
            assert!(got > 0 && got < want + LINE_BLOCKS, "{size} {want}: {got}");
            assert!(lines.is_disjoint(&own), "{size} {want}");
            lines.extend(own);
        }
    }
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
    // Only the first four blocks were ever in a caller's hands.
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

#[test]
fn pages_of_free_blocks_are_purged_once_they_idle() {
    let (depots, slices) = (Depots::new(), Slices::new(2));
    let class = Class::of_size(1024);
    let blocks = take_all(&depots, &slices, class, 64);
    for &block in &blocks {
        slices.touch(block, class);
    }
    // Free but for one block in page 3, and one of page 7's four.
    for &block in blocks
        .iter()
        .filter(|&block| ![12, 31].contains(&(block % 65536 / 1024)))
    {
        give(&depots, &slices, class, block).unwrap();
    }
    assert_eq!(
        purge_spare(&depots, &slices, Round::Idle),
        0,
        "in use a moment ago"
    );
    assert_eq!(purge_spare(&depots, &slices, Round::Idle), 14 * 4096);
    assert_eq!(slices.resident.borrow()[0], 1 << 3 | 1 << 7);
    assert_eq!(
        purge_spare(&depots, &slices, Round::All),
        0,
        "what is withheld is not purged again"
    );
    let slab = &slices.slabs[0];
    assert_eq!((slab.free_blocks(), slab.withheld_blocks(class)), (6, 56));
    assert!(slab.is_free(class, 0) && !slab.is_free(class, 12));
    // Resident blocks first; then those withheld, before a slice that is not resident.
    let next = take_all(&depots, &slices, class, 6);
    assert!(next.iter().all(|&block| slices.touch(block, class) == 0));
    assert_eq!(take(&depots, &slices, class, 1), [1 << 16]);
    assert_eq!(slices.free().len(), 1);
}

#[test]
fn a_free_of_a_withheld_block_is_the_second() {
    let (depots, slices) = (Depots::new(), Slices::new(1));
    let class = Class::of_size(4096);
    let blocks = take_all(&depots, &slices, class, 16);
    give(&depots, &slices, class, blocks[2]).unwrap();
    assert_eq!(purge_spare(&depots, &slices, Round::All), 4096);
    assert_eq!(give(&depots, &slices, class, blocks[2]), Err(1 << 2));
}

#[test]
fn a_slab_of_withheld_blocks_retires_when_the_others_are_back() {
    let (depots, slices) = (Depots::new(), Slices::new(3));
    let class = Class::of_size(4096);
    let blocks = take_all(&depots, &slices, class, 48);
    blocks[1..16]
        .iter()
        .for_each(|&block| give(&depots, &slices, class, block).unwrap());
    assert_eq!(purge_spare(&depots, &slices, Round::All), 15 * 4096);
    blocks[16..]
        .iter()
        .for_each(|&block| give(&depots, &slices, class, block).unwrap());
    give(&depots, &slices, class, blocks[0]).unwrap();
    depots.cool(u64::MAX, &slices);
    assert_eq!(slices.free().len(), 3);
}

#[test]
fn pages_that_cannot_be_purged_are_free_as_before() {
    let (depots, slices) = (Depots::new(), Slices::new(1));
    let class = Class::of_size(4096);
    let blocks = take_all(&depots, &slices, class, 16);
    give(&depots, &slices, class, blocks[2]).unwrap();
    slices.refuses.set(true);
    assert_eq!(purge_spare(&depots, &slices, Round::All), 0);
    assert_eq!(take(&depots, &slices, class, 1), [blocks[2]]);
}

#[test]
fn a_slice_with_one_resident_page_is_used_for_that_page_first() {
    let (depots, slices) = (Depots::new(), Slices::new(4));
    // As after four coroutines of one page each.
    slices.resident.borrow_mut().fill(1 << 15);
    for size in [4096, 1000] {
        let class = Class::of_size(size);
        let per_page = 4096 / class.bytes();
        let blocks = take_all(&depots, &slices, class, 4 * per_page);
        let faults: u32 = blocks.iter().map(|&block| slices.touch(block, class)).sum();
        assert_eq!(faults, 0, "blocks of {size} bytes");
        let more = take(&depots, &slices, class, 1);
        assert_eq!(slices.touch(more[0], class), 1, "then a page is faulted in");
        for block in blocks.into_iter().chain(more) {
            give(&depots, &slices, class, block).unwrap();
        }
        depots.cool(u64::MAX, &slices);
        assert_eq!(slices.free().len(), 4);
        slices.resident.borrow_mut().fill(1 << 15);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take(usize, usize),
    Give(usize),
    Cool,
    Purge(bool, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4usize, 1..300usize).prop_map(|(class, want)| Step::Take(class, want)),
        400 => any::<usize>().prop_map(Step::Give),
        1 => Just(Step::Cool),
        4 => (any::<bool>(), any::<bool>()).prop_map(|(all, refuses)| Step::Purge(all, refuses)),
    ];
    prop::collection::vec(step, 0..2000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn blocks_never_overlap_and_none_is_lost(steps in steps()) {
        let classes = [24, 512, 3328, 32 << 10].map(Class::of_size_align8);
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
                        slices.touch(block, class);
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
                Step::Purge(all, refuses) => {
                    slices.refuses.set(refuses);
                    let round = if all { Round::All } else { Round::Idle };
                    purge_spare(&depots, &slices, round);
                    for &(block, class) in &live {
                        prop_assert_eq!(slices.touch(block, class), 0, "a live page was purged");
                    }
                }
            }
        }
        live.iter().for_each(|&(block, class)| give(&depots, &slices, class, block).unwrap());
        depots.cool(u64::MAX, &slices);
        prop_assert_eq!(slices.free().len(), 40, "every slice comes home");
        prop_assert_eq!(slices.withheld.get(), 0, "the count of withheld bytes is off");
    }
}
