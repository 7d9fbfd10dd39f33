//! Random blocks, large blocks, stacks and purges under a hard limit. At every step no more bytes
//! are resident than counted, and no more are counted than the limit allows.

use crate::base::units::SLICE_BYTES;
use crate::os::Os;
use crate::os::fake::{Conditions, Fake};
use crate::pages::{Age, Dirty, PageHeap, Sides, SpanSource, Tables, Use};
use crate::slab::class::Class;
use crate::slab::decommitted::Cursor;
use crate::slab::depot::Depots;
use crate::slab::depot_id::DepotId;
use crate::slab::page_set::PageSet;
use crate::slab::{Claim, FarWords, Pages, Scope, Slab, Slice, Source, Touched};
use crate::stacks::{Pool, StackRecord};
use core::ptr::NonNull;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec::Vec;

const LIMIT: usize = 24 * SLICE_BYTES;

/// Slabs from a page heap, as the process's heap makes them.
struct Spans(Box<PageHeap<Fake>>);

// SAFETY: as of the process's heap: records and far words stand in side tables, and each slice is a
// span just given out.
unsafe impl Source for Spans {
    fn fresh(&self, _id: DepotId, pages: Pages) -> Option<Slice> {
        let from = match pages {
            Pages::Resident => SpanSource::Resident,
            Pages::Any => SpanSource::Any,
        };
        let span = self
            .0
            .alloc_untended(from, 1, 1, Use::Slab, SLICE_BYTES, 0)?;
        Some(Slice {
            record: span.place.side().cast(),
            base: span.base.as_ptr().addr(),
            zero: !span.place.dirty_mask(),
            far: span.place.far_side().cast(),
        })
    }

    fn retire(&self, slab: NonNull<Slab>, touched: Touched) {
        // SAFETY: slab records are type-stable.
        let base = pointer(unsafe { slab.as_ref() }.base());
        let dirty = Dirty::PrefixBut {
            bytes: touched.bytes,
            clean: touched.clean.whole_pages(16),
        };
        // SAFETY: allocated by `fresh`; all its blocks have been claimed for good.
        unsafe { self.0.free(base, dirty) }
    }

    fn note_withheld(&self, bytes: isize) {
        self.0.count_absent(bytes);
    }

    fn readmit(&self, bytes: usize) -> bool {
        self.0.readmit(bytes)
    }

    fn keeps_pages(&self, _scope: Scope) -> bool {
        false
    }

    fn pages(&self) -> usize {
        16
    }

    fn purge(&self, slab: NonNull<Slab>, units: PageSet) -> bool {
        // SAFETY: slab records are type-stable.
        let base = unsafe { slab.as_ref() }.base();
        units.byte_runs().all(|run| {
            // SAFETY: the caller's promise.
            unsafe { self.0.purge_in_use(pointer(base + run.start), run.len()) }
        })
    }

    fn now_ms(&self) -> u64 {
        self.0.os().now_ms()
    }
}

fn pointer(address: usize) -> NonNull<u8> {
    NonNull::new(address as *mut u8).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    /// Refills until a class has this many blocks.
    Take(usize, usize),
    /// Gives back all blocks except one in this many.
    Thin(usize),
    Large(usize),
    Free(usize),
    Move(usize, usize),
    Stack(usize),
    EndStack(usize),
    Round(bool),
    Purge,
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..1000usize;
    prop_oneof![
        6 => (0..6usize, 1..300usize).prop_map(|(class, want)| Step::Take(class, want)),
        3 => (2..40usize).prop_map(Step::Thin),
        3 => (1..16usize).prop_map(Step::Large),
        3 => which().prop_map(Step::Free),
        2 => (which(), 1..20usize).prop_map(|(which, slices)| Step::Move(which, slices)),
        1 => (1..4usize).prop_map(Step::Stack),
        1 => which().prop_map(Step::EndStack),
        3 => any::<bool>().prop_map(Step::Round),
        1 => Just(Step::Purge),
        1 => (0..1500u64).prop_map(Step::Advance),
    ]
}

struct World<'a> {
    spans: &'a Spans,
    depots: Depots,
    pool: &'a Pool,
    blocks: Vec<(usize, Class)>,
    large: Vec<(NonNull<u8>, usize)>,
    stacks: Vec<&'a StackRecord>,
}

impl<'a> World<'a> {
    fn touch(&self, address: usize, bytes: usize) {
        let (from, to) = (
            address / 4096 * 4096,
            (address + bytes).next_multiple_of(4096),
        );
        self.spans.0.os().touch(pointer(from), to - from);
    }

    fn refill(&mut self, class: Class, want: usize) -> usize {
        let mut got = Vec::new();
        let id = DepotId::blocks(class);
        let sink = &mut |slab: &Slab, Claim { word, bits, .. }: Claim| {
            let taken = (0..64).filter(|bit| bits >> bit & 1 != 0);
            got.extend(taken.map(|bit| slab.base() + (word * 64 + bit) * class.bytes()));
        };
        self.depots.take(id, want, self.spans, sink);
        got.iter()
            .for_each(|&block| self.touch(block, class.bytes()));
        self.blocks.extend(got.iter().map(|&block| (block, class)));
        got.len()
    }

    fn give(&self, block: usize, class: Class) {
        let base = block / SLICE_BYTES * SLICE_BYTES;
        let place = self.spans.0.locate(block).unwrap();
        // SAFETY: the record of a slab of which a block is out.
        let slab = unsafe { place.side().cast::<Slab>().as_ref() };
        let number = class.block_at(block - base).unwrap();
        let id = DepotId::blocks(class);
        // SAFETY: taken before, and given once.
        let given = unsafe {
            let bits = 1 << (number % 64);
            self.depots.give(slab, id, number / 64, bits, self.spans)
        };
        given.unwrap();
    }

    fn take_large(&mut self, slices: usize) {
        let bytes = slices * SLICE_BYTES;
        if let Some(span) = self.spans.0.alloc(slices, 1, Use::Large, bytes) {
            self.touch(span.base.as_ptr().addr(), bytes);
            self.large.push((span.base, bytes));
        }
    }

    fn move_large(&mut self, which: usize, slices: usize) {
        let (heap, bytes) = (&self.spans.0, slices * SLICE_BYTES);
        let (from, held) = self.large[which];
        let moved = held.min(bytes);
        let Some(span) = heap.alloc_untended(SpanSource::Any, slices, 1, Use::Large, bytes, moved)
        else {
            return;
        };
        // SAFETY: two different spans of the model's.
        unsafe {
            heap.move_pages(from, span.base, moved, 1).unwrap();
            self.large[which] = (span.base, bytes);
            let left = heap.locate(from.as_ptr().addr()).unwrap().bytes();
            heap.free_untended(from, Dirty::Prefix(left), Age::New, span.absent);
        }
        self.touch(span.base.as_ptr().addr(), bytes);
    }

    fn step(&mut self, step: Step) {
        let (heap, pick) = (&self.spans.0, |which: usize, all: usize| {
            which.checked_rem(all)
        });
        match step {
            Step::Take(class, want) => {
                let class = Class::of_size([64, 240, 1024, 3000, 4096, 16384][class]);
                let mut left = want.min(LIMIT / 4 / class.bytes());
                while left > 0 {
                    match self.refill(class, left) {
                        0 => break,
                        got => left = left.saturating_sub(got),
                    }
                }
            }
            Step::Thin(stays) => {
                let blocks = core::mem::take(&mut self.blocks).into_iter().enumerate();
                let (kept, gone): (Vec<_>, Vec<_>) =
                    blocks.partition(|(number, _)| number.is_multiple_of(stays));
                gone.iter()
                    .for_each(|&(_, (block, class))| self.give(block, class));
                self.blocks = kept.into_iter().map(|(_, block)| block).collect();
            }
            Step::Large(slices) => self.take_large(slices),
            Step::Free(which) => {
                if let Some(which) = pick(which, self.large.len()) {
                    let (base, bytes) = self.large.swap_remove(which);
                    // SAFETY: a span of the model's.
                    unsafe { heap.free(base, Dirty::Prefix(bytes)) };
                }
            }
            Step::Move(which, slices) => {
                if let Some(which) = pick(which, self.large.len()) {
                    self.move_large(which, slices);
                }
            }
            Step::Stack(slices) => {
                if let Ok(stack) = self.pool.take(heap, slices * SLICE_BYTES) {
                    self.touch(stack.top() - 8192, 8192);
                    self.stacks.push(stack);
                }
            }
            Step::EndStack(which) => {
                if let Some(which) = pick(which, self.stacks.len()) {
                    self.pool
                        .give(heap, self.stacks.swap_remove(which))
                        .unwrap();
                }
            }
            Step::Round(all) => {
                self.pool.retire_idle(heap, if all { u64::MAX } else { 0 });
                let scope = if all { Scope::All } else { Scope::Idle };
                let mut cursor = Cursor::start();
                let round = || {
                    self.depots
                        .decay(u64::MAX, Some(scope), &mut cursor, self.spans)
                };
                core::iter::from_fn(round).for_each(drop);
            }
            Step::Purge => _ = heap.purge_all(),
            Step::Advance(ms) => heap.os().advance(ms),
        }
    }
}

proptest! {
    #[test]
    fn no_more_is_resident_than_the_hard_limit_allows(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let tables = Box::leak(Box::new(Tables::new()));
        let sides = Sides { near: 64, far: size_of::<FarWords>() };
        // SAFETY: new tables.
        let heap = unsafe { PageHeap::new(Fake::new(Conditions::default()), sides, tables) };
        let (spans, pool) = (Spans(Box::new(heap)), Pool::new());
        spans.0.limits().set_hard(LIMIT);
        let mut world = World {
            spans: &spans,
            depots: Depots::new(),
            pool: &pool,
            blocks: Vec::new(),
            large: Vec::new(),
            stacks: Vec::new(),
        };
        for step in steps {
            world.step(step.clone());
            let (resident, held) = (spans.0.os().resident(), spans.0.footprint().total());
            prop_assert!(resident <= held, "{step:?}: {resident} bytes, and {held} count");
            prop_assert!(held <= LIMIT, "{step:?}: {held} bytes");
        }
    }
}
