//! The slab layer against a naive model, in one thread.

use crate::base::sync::AtomicU64;
use crate::slab::class::Class;
use crate::slab::decommitted::Cursor;
use crate::slab::depot::Depots;
use crate::slab::depot_id::DepotId;
use crate::slab::page_set::PageSet;
use crate::slab::{Claim, FarWords, Pages, Scope, Slab, Slice, Source, Touched, WORDS};
use core::ptr::NonNull;
use proptest::prelude::*;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeSet;
use std::vec::Vec;

/// Slices without memory behind them: only their addresses count, and which of their pages would be
/// resident.
pub(crate) struct Slices {
    pub(crate) slabs: Vec<Slab>,
    far: Vec<FarWords>,
    free: RefCell<BTreeSet<usize>>,
    pub(crate) touched: RefCell<Vec<usize>>,
    pub(crate) resident: RefCell<Vec<u16>>,
    pub(crate) refuses: Cell<bool>,
    /// Whether a limit refuses all withheld pages.
    pub(crate) is_full: Cell<bool>,
    withheld: Cell<isize>,
}

impl Slices {
    pub(crate) fn new(count: usize) -> Slices {
        Slices {
            slabs: (0..count).map(|_| Slab::blank()).collect(),
            far: (0..count)
                .map(|_| [const { AtomicU64::new(0) }; WORDS])
                .collect(),
            free: RefCell::new((0..count).collect()),
            touched: RefCell::new(Vec::new()),
            resident: RefCell::new(std::vec![0; count]),
            refuses: Cell::new(false),
            is_full: Cell::new(false),
            withheld: Cell::new(0),
        }
    }

    pub(crate) fn free(&self) -> RefMut<'_, BTreeSet<usize>> {
        self.free.borrow_mut()
    }

    pub(crate) fn slab(&self, address: usize) -> &Slab {
        &self.slabs[(address >> 16) - 1]
    }

    /// The pages that a block touches, as bits of its slice.
    fn pages_of(block: usize, class: Class) -> u16 {
        let (first, last) = (block & 0xffff, (block & 0xffff) + class.bytes() - 1);
        (first >> 12..=last >> 12).fold(0, |bits, page| bits | 1 << page)
    }

    /// Writes to the block. Returns how many pages that faults in.
    pub(crate) fn touch(&self, block: usize, class: Class) -> u32 {
        let resident = &mut self.resident.borrow_mut()[(block >> 16) - 1];
        let new = Slices::pages_of(block, class) & !*resident;
        *resident |= new;
        new.count_ones()
    }
}

// SAFETY: the records live as long as the tests use them; they describe no real memory.
unsafe impl Source for Slices {
    fn fresh(&self, _id: DepotId, pages: Pages) -> Option<Slice> {
        let resident = self.resident.borrow();
        let has_pages = |number: &usize| resident[*number] != 0;
        let warm = self.free().iter().copied().find(has_pages);
        let number = match pages {
            Pages::Resident => warm?,
            Pages::Any => warm.or_else(|| self.free().first().copied())?,
        };
        self.free().remove(&number);
        Some(Slice {
            record: NonNull::from(&self.slabs[number]),
            base: (number + 1) << 16,
            zero: !resident[number],
            far: NonNull::from(&self.far[number]),
        })
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

    fn readmit(&self, bytes: usize) -> bool {
        let admits = !self.is_full.get();
        self.note_withheld(-(bytes as isize * isize::from(admits)));
        admits
    }

    fn keeps_pages(&self, _round: Scope) -> bool {
        false
    }

    fn pages(&self) -> usize {
        16
    }

    fn purge(&self, slab: NonNull<Slab>, units: PageSet) -> bool {
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

pub(crate) fn purge_spare(depots: &Depots, slices: &Slices, scope: Scope) -> usize {
    let mut cursor = Cursor::start();
    core::iter::from_fn(|| depots.decay(0, Some(scope), &mut cursor, slices)).sum()
}

pub(crate) fn take(depots: &Depots, slices: &Slices, class: Class, want: usize) -> Vec<usize> {
    let mut blocks = Vec::new();
    depots.take(
        DepotId::blocks(class),
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
pub(crate) fn take_all(depots: &Depots, slices: &Slices, class: Class, want: usize) -> Vec<usize> {
    let mut blocks = Vec::new();
    while blocks.len() < want {
        blocks.extend(take(depots, slices, class, want - blocks.len()));
    }
    blocks
}

pub(crate) fn give(
    depots: &Depots,
    slices: &Slices,
    class: Class,
    block: usize,
) -> Result<(), u64> {
    let slab = slices.slab(block);
    let number = class.block_at(block - slab.base()).unwrap();
    // SAFETY: the blocks are not real memory.
    unsafe {
        let id = DepotId::blocks(class);
        depots.give(slab, id, number / 64, 1 << (number % 64), slices)
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
    // Each has up to 2000 steps.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(4)))]
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
                        prop_assert_eq!(slices.slab(block).depot(), Some(DepotId::blocks(class)));
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
                    let scope = if all { Scope::All } else { Scope::Idle };
                    purge_spare(&depots, &slices, scope);
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
