//! Random operations against a naive model: spans as a list, and what was written to which OS page.

mod steps;

use self::steps::{Step, conditions, step};
use super::{ends, heap, purge_due};
use crate::base::units::SLICE_BYTES;
use crate::os::fake::{Call, Conditions, Fake};
use crate::pages::{Dirty, HugePolicy, PageHeap, SliceRef, Use, Zero};
use crate::testing::is_zero;
use core::ptr::NonNull;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

/// One span of the model.
#[derive(Clone, Debug)]
struct Held {
    slices: usize,
    /// What it was asked for.
    bytes: usize,
    use_: Use,
    tag: u8,
    /// What the test wrote last to each OS page of the span.
    written: BTreeMap<usize, u64>,
}

struct Model<'h> {
    heap: &'h PageHeap<Fake>,
    conditions: Conditions,
    spans: BTreeMap<usize, Held>,
    stamp: u64,
}

fn pointer(base: usize) -> NonNull<u8> {
    NonNull::new(base as *mut u8).unwrap()
}

impl<'h> Model<'h> {
    fn place(&self, base: usize) -> SliceRef<'h> {
        self.heap.locate(base).unwrap()
    }

    fn pages_per_slice(&self) -> usize {
        SLICE_BYTES / self.conditions.page_bytes
    }

    fn pick(&self, which: usize) -> Option<usize> {
        self.spans
            .keys()
            .nth(which % self.spans.len().max(1))
            .copied()
    }

    fn ends(&self, base: usize, page: usize) -> [*mut u64; 2] {
        ends(self.place(base), page, self.conditions.page_bytes)
    }

    /// Every page that is said to be zero must read so.
    fn check_zero(&self, base: usize, slices: usize, zero: Zero) {
        let mut dirty = 0;
        for slice in 0..slices {
            let start = base + slice * SLICE_BYTES;
            let mask = match self.place(base).record().all_dirty.get() {
                _ if zero == Zero::AllZero => 0,
                false => self.place(start).dirty_mask(),
                true => u16::MAX,
            };
            dirty += mask.count_ones();
            for page in (0..self.pages_per_slice()).filter(|page| mask & (1 << page) == 0) {
                for word in self.ends(start, page) {
                    assert!(self.heap.os().is_committed(word as usize));
                    // SAFETY: a committed page of a span that the model holds.
                    assert_eq!(unsafe { word.read() }, 0, "a page said to be zero");
                }
            }
        }
        assert_eq!(zero == Zero::AllZero, dirty == 0);
    }

    fn check_contents(&self, base: usize, held: &Held) {
        for (&page, &stamp) in &held.written {
            for word in self.ends(base, page) {
                // SAFETY: a page of a span that the model holds.
                assert_eq!(unsafe { word.read() }, stamp, "contents changed");
            }
        }
    }

    fn no_overlap(&self, base: usize, slices: usize) {
        let end = base + slices * SLICE_BYTES;
        if let Some((&before, held)) = self.spans.range(..end).next_back() {
            assert!(
                before + held.slices * SLICE_BYTES <= base,
                "two spans overlap"
            );
        }
    }

    /// The smallest range that must be reported to the heap as written.
    fn dirty(&self, held: &Held, precisely: bool) -> Dirty {
        match held.written.keys().next_back() {
            _ if !precisely => Dirty::All,
            None => Dirty::AsBefore,
            Some(last) => Dirty::Prefix((last + 1) * self.conditions.page_bytes - 1),
        }
    }

    fn alloc(&mut self, slices: usize, align: u32, use_: Use, short: usize) -> Option<usize> {
        let (failed, before) = (self.heap.os().failed(), self.heap.totals());
        let bytes = slices * SLICE_BYTES - short;
        let Some(span) = self.heap.alloc(slices, 1 << align, use_, bytes) else {
            assert!(self.heap.os().failed() > failed, "refused without a reason");
            assert_eq!(self.heap.totals().by_use, before.by_use);
            return None;
        };
        let base = span.base.as_ptr() as usize;
        assert!(base.is_multiple_of(SLICE_BYTES << align));
        assert_eq!(
            (span.slices, span.place.slices(), span.place.tag()),
            (slices, slices, 0)
        );
        self.no_overlap(base, slices);
        self.check_zero(base, slices, span.zero);
        self.stamp += 1;
        let tag = (self.stamp % 4) as u8 + 1;
        // SAFETY: a span in use, whose blocks no code frees by its tag.
        unsafe { span.place.set_tag(tag) };
        self.spans.insert(
            base,
            Held {
                slices,
                bytes,
                use_,
                tag,
                written: BTreeMap::new(),
            },
        );
        Some(base)
    }

    /// A span as `calloc` takes it: every byte asked for is zero.
    fn alloc_zeroed(&mut self, slices: usize, short: usize) {
        let Some(base) = self.alloc(slices, 0, Use::Large, short) else {
            return;
        };
        let bytes = slices * SLICE_BYTES - short;
        // SAFETY: a span that the model holds, just given out.
        let contents = unsafe {
            self.heap.zero_dirty(pointer(base), bytes);
            core::slice::from_raw_parts(base as *const u8, bytes)
        };
        assert!(is_zero(contents), "zeroed, and not zero");
    }

    fn write(&mut self, base: usize, from: usize, pages: usize) {
        self.stamp += 1;
        let stamp = self.stamp;
        let all = self.spans[&base].bytes.div_ceil(self.conditions.page_bytes);
        for page in (from..from + pages).filter(|&page| page < all) {
            for word in self.ends(base, page) {
                // SAFETY: a page of a span that the model holds.
                unsafe { word.write(stamp) };
            }
            self.spans
                .get_mut(&base)
                .unwrap()
                .written
                .insert(page, stamp);
        }
    }

    fn free(&mut self, base: usize, precisely: bool) {
        let held = self.spans.remove(&base).unwrap();
        let place = self.place(base);
        self.check_contents(base, &held);
        assert_eq!(place.tag(), held.tag);
        // SAFETY: a span that the model held until now.
        unsafe { self.heap.free(pointer(base), self.dirty(&held, precisely)) };
        assert_eq!((place.tag(), place.use_()), (0, None));
    }

    fn grow(&mut self, base: usize, by: usize) {
        let old = self.spans[&base].slices;
        let end = base + old * SLICE_BYTES;
        let bytes = (old + by) * SLICE_BYTES;
        // SAFETY: a span that the model holds.
        let grown = unsafe { self.heap.grow_in_place(pointer(base), old + by, bytes) };
        let Some(zero) = grown else {
            assert_eq!(self.place(base).slices(), old);
            return;
        };
        assert_eq!(self.place(base).slices(), old + by);
        self.no_overlap_after(end, by);
        if zero == Zero::AllZero {
            self.check_zero(end, by, Zero::AllZero);
        }
        let held = self.spans.get_mut(&base).unwrap();
        (held.slices, held.bytes) = (old + by, bytes);
    }

    fn no_overlap_after(&self, base: usize, slices: usize) {
        let end = base + slices * SLICE_BYTES;
        assert!(
            self.spans.range(base..end).next().is_none(),
            "grown over another span"
        );
    }

    fn shrink(&mut self, base: usize, by: usize, short: usize) {
        let mut held = self.spans[&base].clone();
        let slices = held.slices.saturating_sub(by).max(1);
        let dirty = self.dirty(&held, by.is_multiple_of(2));
        let bytes = slices * SLICE_BYTES - short;
        // SAFETY: a span that the model holds, and of whose end it lets go.
        unsafe {
            self.heap
                .shrink_in_place(pointer(base), slices, bytes, dirty)
        };
        held.slices = slices;
        self.hold_only(base, held, bytes);
    }

    /// Moves the end of a span's bytes within its last slice.
    fn resize(&mut self, base: usize, short: usize) {
        let held = self.spans[&base].clone();
        let bytes = held.slices * SLICE_BYTES - short;
        let dirty = self.dirty(&held, true);
        // SAFETY: a span that the model holds.
        unsafe { self.heap.set_bytes(pointer(base), bytes, dirty) };
        self.hold_only(base, held, bytes);
    }

    fn hold_only(&mut self, base: usize, mut held: Held, bytes: usize) {
        held.bytes = bytes;
        let pages = bytes.div_ceil(self.conditions.page_bytes);
        held.written.split_off(&pages);
        self.spans.insert(base, held);
    }

    fn move_to_new(&mut self, base: usize, slices: usize) {
        let held = self.spans[&base].clone();
        let Some(target) = self.alloc(slices, 0, held.use_, 0) else {
            return;
        };
        let bytes = held.slices.min(slices) * SLICE_BYTES;
        let bytes = held.bytes.min(bytes) / self.conditions.page_bytes * self.conditions.page_bytes;
        if bytes == 0 {
            return;
        }
        // SAFETY: two spans that the model holds, each at least that long.
        let moved = unsafe {
            self.heap
                .move_pages(pointer(base), pointer(target), bytes, 1)
        };
        assert_eq!(moved.is_err(), self.conditions.strict);
        if moved.is_err() {
            return;
        }
        let kept = held.written.range(..bytes / self.conditions.page_bytes);
        let kept: BTreeMap<_, _> = kept.map(|(&page, &stamp)| (page, stamp)).collect();
        self.spans.get_mut(&target).unwrap().written = kept;
        self.spans.remove(&base);
        let left = self.place(base).bytes();
        // SAFETY: a span that the model held until now.
        unsafe { self.heap.free(pointer(base), Dirty::Prefix(left)) };
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Alloc {
                slices,
                align,
                use_,
                short,
            } => {
                self.alloc(slices, align, use_, short);
            }
            Step::Zeroed { slices, short } => self.alloc_zeroed(slices, short),
            Step::Write { which, from, pages } => {
                self.with(which, |model, base| model.write(base, from, pages));
            }
            Step::Free { which, precisely } => {
                self.with(which, |model, base| model.free(base, precisely));
            }
            Step::Grow { which, by } => self.with(which, |model, base| model.grow(base, by)),
            Step::Shrink { which, by, short } => {
                self.with(which, |model, base| model.shrink(base, by, short));
            }
            Step::Resize { which, short } => {
                self.with(which, |model, base| model.resize(base, short));
            }
            Step::Move { which, slices } => {
                self.with(which, |model, base| model.move_to_new(base, slices));
            }
            Step::Advance(ms) => self.heap.os().advance(ms),
            Step::PurgeDue => {
                purge_due(self.heap);
            }
            Step::PurgeAll => {
                self.heap.purge_all();
            }
            Step::PurgeTails(sweep) => {
                self.heap.purge_tails(sweep, 1);
            }
            Step::Fail { call, after, times } => self.heap.os().fail(call, after, times),
        }
    }

    fn with(&mut self, which: usize, work: impl FnOnce(&mut Self, usize)) {
        if let Some(base) = self.pick(which) {
            work(self, base);
        }
    }

    /// The invariants, and that heap and model hold the same spans.
    fn check(&self) {
        assert_eq!(self.heap.check(), Ok(()));
        let totals = self.heap.totals();
        for use_ in [Use::Slab, Use::Large, Use::Stack, Use::Meta] {
            let mut found = Vec::new();
            self.heap.for_each_span(use_, |place| {
                found.push((place.slice_base(), place.slices()))
            });
            let held = self.spans.iter().filter(|(_, held)| held.use_ == use_);
            let mut held: Vec<_> = held.map(|(&base, held)| (base, held.slices)).collect();
            held.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, held);
            let figure = totals.by_use[use_ as usize - 1];
            let slices = held.iter().map(|(_, slices)| slices).sum::<usize>();
            assert_eq!((figure.spans, figure.slices), (held.len(), slices));
        }
        assert_eq!(totals.committed, self.heap.os().committed());
    }
}

fn run(conditions: Conditions, decay_ms: u64, huge: HugePolicy, steps: Vec<Step>) {
    let heap = heap(conditions);
    heap.limits().set_decay_ms(decay_ms);
    heap.set_huge(huge);
    let mut model = Model {
        heap: &heap,
        conditions,
        spans: BTreeMap::new(),
        stamp: 0,
    };
    for (number, step) in steps.into_iter().enumerate() {
        heap.os().run_on(number / 4 % conditions.nodes);
        model.take(step);
        model.check();
    }
    for (base, held) in core::mem::take(&mut model.spans) {
        model.check_contents(base, &held);
        // SAFETY: a span that the model held until now.
        unsafe { heap.free(pointer(base), Dirty::All) };
    }
    model.check();
    for call in [
        Call::Reserve,
        Call::Commit,
        Call::Uncommit,
        Call::Purge,
        Call::Ask,
    ] {
        heap.os().fail(call, 0, 0);
    }
    heap.purge_all();
    model.check();
    assert_eq!(heap.totals().free_dirty, 0);
}

proptest! {
    #[test]
    fn behaves_as_the_model(
        conditions in conditions(),
        decay_ms in prop::sample::select(&[0u64, 100, 1000][..]),
        huge in prop::sample::select(&[HugePolicy::Auto, HugePolicy::Always][..]),
        steps in prop::collection::vec(step(), 1..160),
    ) {
        run(conditions, decay_ms, huge, steps);
    }
}
