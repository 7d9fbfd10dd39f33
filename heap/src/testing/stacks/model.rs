//! Random steps against a naive model, which keeps lists of stacks and large blocks, and the last
//! write to each OS page.

use super::super::pool::Pool;
use super::super::record::StackRecord;
use super::super::{NotInUse, StackError};
use super::heap;
use crate::base::units::SLICE_BYTES;
use crate::os::Os;
use crate::os::fake::{Call, Conditions, Fake};
use crate::pages::{Dirty, PageHeap, Use};
use crate::testing::is_zero;
use core::ptr::NonNull;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

/// A stack of the model, with the last write to each of its pages.
struct Held<'h> {
    record: &'h StackRecord,
    written: BTreeMap<usize, u64>,
}

/// Stacks and large spans of one heap, side by side.
pub(super) struct World<'h> {
    pages: &'h PageHeap<Fake>,
    pool: &'h Pool,
    stacks: Vec<Held<'h>>,
    /// Large blocks: start and bytes.
    pub(super) spans: Vec<(usize, usize)>,
    stamp: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Take(usize),
    /// Touches a page, counted from the top, of a stack by number.
    Touch(usize, usize),
    Give(usize),
    GiveAll,
    /// Trims a stack by number, with the stack pointer this many pages below the top.
    Trim(usize, usize),
    Release(u64),
    Advance(u64),
    Span(usize),
    FreeSpan(usize),
    Fail(Call, u32),
    /// Loses the guards against writes.
    Lose,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![
        4 => (8usize << 10)..(64 << 10),
        4 => Just(64usize << 10),
        2 => (64usize << 10)..(1 << 20),
        1 => Just(8usize << 20),
        1 => 0..(16usize << 20),
    ];
    let call = prop::sample::select(
        &[
            Call::InstallGuard,
            Call::InstallGuard,
            Call::InstallWriteGuard,
            Call::RemoveWriteGuard,
            Call::Protect,
            Call::Ask,
            Call::Commit,
            Call::Purge,
        ][..],
    );
    let step = prop_oneof![
        6 => bytes.prop_map(Step::Take),
        8 => (any::<usize>(), 0..40usize).prop_map(|(stack, page)| Step::Touch(stack, page)),
        4 => any::<usize>().prop_map(Step::Give),
        1 => Just(Step::GiveAll),
        2 => (any::<usize>(), 0..20usize).prop_map(|(stack, pages)| Step::Trim(stack, pages)),
        1 => (0..2000u64).prop_map(Step::Release),
        1 => (0..2000u64).prop_map(Step::Advance),
        2 => (1..8usize).prop_map(Step::Span),
        2 => any::<usize>().prop_map(Step::FreeSpan),
        1 => Just(Step::Lose),
        1 => (call, 1..12u32).prop_map(|(call, times)| Step::Fail(call, times)),
    ];
    prop::collection::vec(step, 1..120)
}

fn conditions() -> impl Strategy<Value = Conditions> {
    let page_bytes = prop::sample::select(&[4096usize, 4096, 16384, 65536][..]);
    let most_mappings = prop::sample::select(&[64usize, 65_530][..]);
    let most_committed = prop::sample::select(&[16usize << 20, usize::MAX][..]);
    (page_bytes, most_mappings, most_committed, any::<bool>()).prop_map(
        |(page_bytes, most_mappings, most_committed, strict)| Conditions {
            page_bytes,
            most_mappings,
            most_committed,
            strict,
            ..Conditions::default()
        },
    )
}

/// The test's word in an OS page.
pub(super) fn word(address: usize) -> *mut u64 {
    (address + 64) as *mut u64
}

impl<'h> World<'h> {
    fn page(&self) -> usize {
        self.pages.os().page_bytes()
    }

    pub(super) fn run(&mut self, step: Step) {
        match step {
            Step::Take(bytes) => self.take(bytes),
            Step::Touch(stack, page) => self.touch(stack, page),
            Step::Give(stack) => self.give(stack),
            Step::GiveAll => (0..self.stacks.len()).for_each(|_| self.give(0)),
            Step::Trim(stack, pages) => self.trim(stack, pages),
            Step::Release(age) => {
                let until = self.pages.os().now_ms().saturating_sub(age);
                self.pool.retire_idle(self.pages, until);
            }
            Step::Advance(ms) => self.pages.os().advance(ms),
            Step::Span(slices) => self.span(slices),
            Step::FreeSpan(span) => self.free_span(span),
            Step::Lose => {
                self.pages.os().lose_write_guards();
                self.pool.check_guards(self.pages);
            }
            Step::Fail(call, times) => self.pages.os().fail(call, 1, times),
        }
    }

    pub(super) fn take(&mut self, bytes: usize) {
        let fits = (8 << 10..=8 << 20).contains(&bytes);
        match self.pool.take(self.pages, bytes) {
            Ok(record) => {
                assert!(fits && record.size().bytes() >= bytes.max(2 * self.page()));
                assert!(record.owner().is_null());
                let written = BTreeMap::new();
                self.stacks.push(Held { record, written });
            }
            Err(StackError::Size) => assert!(!fits),
            Err(StackError::OutOfMemory) => assert!(fits && self.pages.os().failed() > 0),
            Err(StackError::OutOfMappings) => {
                let os = self.pages.os();
                assert!(fits && os.failed() > 0, "a guard was refused first");
            }
        }
    }

    pub(super) fn touch(&mut self, stack: usize, page: usize) {
        let page_bytes = self.page();
        if self.stacks.is_empty() {
            return;
        }
        let count = self.stacks.len();
        let held = &mut self.stacks[stack % count];
        let usable = held.record.size().usable(page_bytes) / page_bytes;
        let at = held.record.top() - (page % usable + 1) * page_bytes;
        self.stamp += 1;
        held.written.insert(at, self.stamp);
        // SAFETY: a page of a stack in use, above its guard.
        unsafe { word(at).write(self.stamp) };
    }

    fn give(&mut self, stack: usize) {
        if self.stacks.is_empty() {
            return;
        }
        let held = self.stacks.swap_remove(stack % self.stacks.len());
        assert_eq!(self.pool.give(self.pages, held.record).map(drop), Ok(()));
        assert_eq!(self.pool.give(self.pages, held.record), Err(NotInUse));
    }

    fn trim(&mut self, stack: usize, pages: usize) {
        let (page, count) = (self.page(), self.stacks.len());
        if count == 0 {
            return;
        }
        let held = &mut self.stacks[stack % count];
        let usable = held.record.size().usable(page) / page;
        // Just above a page's start: that page stays, because the red zone reaches into the one
        // below.
        let pointer = held.record.top() - (pages % usable) * page - page / 2;
        // SAFETY: no coroutine runs on it, and the model forgets the contents below.
        let bytes = unsafe { Pool::trim(self.pages.os(), held.record, pointer) };
        let lost = held.written.range(..pointer / page * page);
        assert!(bytes == 0 || bytes >= lost.count() * page);
        if bytes > 0 {
            held.written.retain(|&at, _| at >= pointer / page * page);
        }
    }

    /// Allocates a large block and fills it.
    pub(super) fn span(&mut self, slices: usize) {
        let bytes = slices * SLICE_BYTES;
        let Some(span) = self.pages.alloc(slices, 1, Use::Large, bytes) else {
            return;
        };
        // SAFETY: just given out. A guard left in it would show as a page that is not zero.
        unsafe { self.pages.zero_dirty(span.base, bytes) };
        let start = span.base.as_ptr().addr();
        for at in (start..start + bytes).step_by(self.page()) {
            assert_eq!(self.pages.os().guard_at(at), None, "a guard in a block");
            // SAFETY: in the span.
            let contents = unsafe { core::slice::from_raw_parts(at as *const u8, self.page()) };
            assert!(is_zero(contents), "zero state is wrong");
        }
        // SAFETY: in the span.
        unsafe { span.base.as_ptr().write_bytes(1, bytes) };
        self.spans.push((start, bytes));
    }

    pub(super) fn free_span(&mut self, span: usize) {
        if self.spans.is_empty() {
            return;
        }
        let (start, _) = self.spans.swap_remove(span % self.spans.len());
        // SAFETY: given out by `span`.
        unsafe {
            self.pages
                .free(NonNull::new(start as *mut u8).unwrap(), Dirty::All)
        };
    }

    pub(super) fn check(&self) {
        assert_eq!(self.pages.check(), Ok(()));
        let (totals, os) = (self.pool.totals(), self.pages.os());
        assert_eq!(totals.used, self.stacks.len());
        let guarded = totals.guards + totals.mapped_guards + totals.write_guards;
        // Lost stacks are those whose guards the kernel would not remove.
        let owned = totals.used + totals.idle;
        assert!(
            owned <= guarded + totals.unguarded && guarded <= owned + totals.lost,
            "a guard each, and no other"
        );
        let least = guarded * ((32 << 10) / self.page() + 1);
        assert!(
            (least..=2 * least).contains(&os.guarded_pages()),
            "{totals:?}"
        );
        let mut ranges: Vec<_> = self
            .spans
            .iter()
            .map(|&(at, bytes)| (at, at + bytes))
            .collect();
        for held in &self.stacks {
            let (base, top) = (held.record.base(), held.record.top());
            ranges.push((base, top));
            let limit = held.record.limit(self.page());
            let mut guard = (base..limit).step_by(self.page());
            let is_guarded = guard.all(|page| os.guard_at(page).is_some());
            assert!(is_guarded || totals.unguarded > 0, "no guard");
            for (&at, &stamp) in &held.written {
                assert_eq!(os.guard_at(at), None);
                // SAFETY: in a stack in use.
                assert_eq!(unsafe { word(at).read() }, stamp, "lost what was written");
            }
            for address in [base, limit - 1] {
                let overflow = Pool::overflow_at(self.pages, address).unwrap();
                assert_eq!(overflow.bytes, top - limit);
            }
            assert!(Pool::overflow_at(self.pages, limit).is_none());
            let found = Pool::stack_in_use(self.pages, top).unwrap();
            assert!(core::ptr::eq(found, held.record));
        }
        ranges.sort_unstable();
        assert!(
            ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0),
            "an overlap"
        );
    }
}

pub(super) fn world<'h>(pages: &'h PageHeap<Fake>, pool: &'h Pool) -> World<'h> {
    World {
        pages,
        pool,
        stacks: Vec::new(),
        spans: Vec::new(),
        stamp: 0,
    }
}

proptest! {
    #[test]
    fn stacks_keep_apart_and_leave_no_guards(conditions in conditions(), steps in steps()) {
        let (pages, pool) = (heap(conditions), Pool::new());
        let mut world = world(&pages, &pool);
        for step in steps {
            world.run(step);
            world.check();
        }
        world.run(Step::GiveAll);
        pool.retire_all(&pages);
        world.check();
        let totals = pool.totals();
        prop_assert_eq!((totals.used, totals.idle), (0, 0));
        prop_assert_eq!((totals.address, totals.page_tables), (0, 0));
        let most = (64 << 10) / pages.os().page_bytes() + 1;
        prop_assert!(pages.os().guarded_pages() <= totals.lost * most);
    }
}
