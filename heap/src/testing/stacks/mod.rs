//! Stacks on a fake system: against a naive model, and case by case.

mod model;

use self::model::{Step, word, world};
use super::StackError;
use super::pool::Pool;
use crate::base::units::SLICE_BYTES;
use crate::os::fake::{Call, Conditions, Fake, FakeGuard};
use crate::pages::{PageHeap, Sides, Tables};
use crate::testing::is_zero;
use std::boxed::Box;
use std::vec::Vec;

fn heap(conditions: Conditions) -> Box<PageHeap<Fake>> {
    let tables = Box::leak(Box::new(Tables::new()));
    let sides = Sides { near: 64, far: 64 };
    // SAFETY: new tables.
    Box::new(unsafe { PageHeap::new(Fake::new(conditions), sides, tables) })
}

#[test]
fn a_warm_stack_is_the_one_that_ended_last() {
    let (pages, pool) = (heap(Conditions::default()), Pool::new());
    let [one, two] = [(); 2].map(|()| pool.take(&pages, 64 << 10).unwrap());
    pool.give(&pages, one).unwrap();
    pool.give(&pages, two).unwrap();
    assert!(core::ptr::eq(pool.take(&pages, 60 << 10).unwrap(), two));
    assert!(core::ptr::eq(pool.take(&pages, 64 << 10).unwrap(), one));
    assert_eq!(pool.totals().recycled, 2);
}

#[test]
fn a_surplus_goes_back_with_one_dirty_page_each() {
    let (pages, pool) = (heap(Conditions::default()), Pool::new());
    let mut world = world(&pages, &pool);
    for stack in 0..300 {
        world.take(64 << 10);
        world.touch(stack, 0);
    }
    world.run(Step::GiveAll);
    world.check();
    let totals = pool.totals();
    assert!(totals.idle <= 64, "{totals:?}");
    let free = 300 - totals.idle;
    let heap = pages.totals();
    assert!(heap.free >= free * SLICE_BYTES);
    assert_eq!(heap.free_dirty, free * 4096, "just what was touched");
}

#[test]
fn without_answers_everything_is_dirty() {
    let (pages, pool) = (heap(Conditions::default()), Pool::new());
    let stack = pool.take(&pages, 64 << 10).unwrap();
    pool.give(&pages, stack).unwrap();
    pages.os().fail(Call::Ask, 0, u32::MAX);
    assert_eq!(pool.retire_all(&pages), 128 << 10);
    assert!(pages.totals().free_dirty >= 2 * SLICE_BYTES);
    assert_eq!(pages.check(), Ok(()));
}

#[test]
fn idle_stacks_are_retired_by_age() {
    let (pages, pool) = (heap(Conditions::default()), Pool::new());
    let stacks = [(); 3].map(|()| pool.take(&pages, 128 << 10).unwrap());
    for stack in stacks {
        pool.give(&pages, stack).unwrap();
        pages.os().advance(100);
    }
    assert_eq!(pool.retire_idle(&pages, 99), 192 << 10);
    assert_eq!(pool.totals().idle, 2);
    assert_eq!(pool.retire_idle(&pages, 99), 0);
    assert_eq!(pool.retire_idle(&pages, 200), 2 * (192 << 10));
}

#[test]
fn a_deep_stack_does_not_stay_deep() {
    let (pages, pool) = (heap(Conditions::default()), Pool::new());
    let deep = pool.take(&pages, 64 << 10).unwrap();
    let lowest = deep.limit(4096) as *mut u8;
    // SAFETY: all of the stack but its guard.
    unsafe { lowest.write_bytes(1, (64 << 10) - 4096) };
    pool.give(&pages, deep).unwrap();
    for _ in 0..16 {
        let again = pool.take(&pages, 64 << 10).unwrap();
        assert!(core::ptr::eq(again, deep));
        pool.give(&pages, again).unwrap();
    }
    // SAFETY: an idle stack's memory, which no other thread uses in this test.
    let kept = unsafe { core::slice::from_raw_parts(lowest, (64 << 10) - 4096) };
    let (below, above) = kept.split_at((48 << 10) - 4096);
    assert!(is_zero(below), "trimmed");
    assert!(above.iter().all(|&byte| byte == 1), "warm");
}

#[test]
fn guards_fall_back_to_mappings_within_their_share() {
    let conditions = Conditions {
        most_mappings: 40,
        ..Conditions::default()
    };
    let (pages, pool) = (heap(conditions), Pool::new());
    pages.os().fail(Call::InstallGuard, 0, u32::MAX);
    pages.os().fail(Call::InstallWriteGuard, 0, u32::MAX);
    let stacks: Vec<_> = (0..10)
        .map(|_| pool.take(&pages, 64 << 10).unwrap())
        .collect();
    for stack in &stacks {
        assert_eq!(pages.os().guard_at(stack.base()), Some(FakeGuard::Mapping));
    }
    assert_eq!(
        pool.take(&pages, 64 << 10).unwrap_err(),
        StackError::OutOfMappings
    );
    assert_eq!(
        pool.take(&pages, 8 << 10).unwrap_err(),
        StackError::OutOfMappings
    );
    assert_eq!(pool.totals().mapped_guards, 10);
    for stack in stacks {
        pool.give(&pages, stack).unwrap();
    }
    pool.retire_all(&pages);
    assert_eq!(pages.os().guarded_pages(), 0);
    assert!(
        pool.take(&pages, 64 << 10).is_ok(),
        "the share is free again"
    );
}

/// Heap and pool of a kernel without guards by advice, with some stacks of several sizes.
fn written() -> (Box<PageHeap<Fake>>, Pool, Vec<usize>) {
    let (pages, pool) = (heap(Conditions::default()), Pool::new());
    pages.os().fail(Call::InstallGuard, 0, u32::MAX);
    let sizes = [64, 64, 8, 1024, 64, 16].map(|kib: usize| kib << 10);
    let take = |bytes| pool.take(&pages, bytes).unwrap().base();
    let bases = sizes.into_iter().map(take).collect();
    (pages, pool, bases)
}

fn all_are(pages: &PageHeap<Fake>, bases: &[usize], guard: Option<FakeGuard>) -> bool {
    bases.iter().all(|&base| pages.os().guard_at(base) == guard)
}

#[test]
fn without_guards_by_advice_they_are_against_writes() {
    let (pages, pool, bases) = written();
    assert!(all_are(&pages, &bases, Some(FakeGuard::Write)));
    let totals = pool.totals();
    assert_eq!(totals.write_guards, bases.len());
    assert_eq!((totals.guards, totals.mapped_guards), (0, 0));
    // Of 8 and 16 KiB: the rest of a slice. Of 64 KiB and more: another slice and a page.
    assert_eq!(pages.os().guarded_pages(), 15 + 13 + 4 * 17);
}

/// The first slices of an arena begin in the middle of a 2 MiB range. The fake system looks.
#[test]
fn guards_against_writes_are_in_mapped_memory_alone() {
    let (pages, pool) = (
        heap(Conditions {
            most_claimed: 1 << 30,
            ..Conditions::default()
        }),
        Pool::new(),
    );
    pages.os().fail(Call::InstallGuard, 0, u32::MAX);
    for _ in 0..100 {
        pool.take(&pages, 64 << 10).unwrap();
    }
    assert_eq!(pool.totals().write_guards, 100);
}

#[test]
fn a_child_has_its_guards_back_before_it_has_a_stack() {
    let (pages, pool, bases) = written();
    let all = pages.os().guarded_pages();
    for size in [64 << 10, 64 << 10, 8 << 20] {
        pages.os().lose_write_guards();
        assert!(all_are(&pages, &bases, None));
        let stack = pool.take(&pages, size).unwrap();
        assert!(all_are(&pages, &bases, Some(FakeGuard::Write)));
        assert!(all_are(&pages, &[stack.base()], Some(FakeGuard::Write)));
        pages.os().lose_write_guards();
        pool.give(&pages, stack).unwrap();
        assert!(all_are(&pages, &bases, Some(FakeGuard::Write)));
    }
    // The two sizes taken.
    assert_eq!(pages.os().guarded_pages(), all + 2 * 17);
    pages.os().lose_write_guards();
    pool.retire_idle(&pages, 0);
    assert!(all_are(&pages, &bases, Some(FakeGuard::Write)), "a round");
    pool.retire_all(&pages);
    assert_eq!(pages.os().guarded_pages(), all);
}

#[test]
fn what_the_kernel_does_not_give_back_is_a_mapping_or_counted() {
    let conditions = Conditions {
        most_mappings: 8,
        ..Conditions::default()
    };
    let (pages, pool) = (heap(conditions), Pool::new());
    pages.os().fail(Call::InstallGuard, 0, u32::MAX);
    let stacks = [(); 5].map(|()| pool.take(&pages, 64 << 10).unwrap());
    pages.os().lose_write_guards();
    pages.os().fail(Call::InstallWriteGuard, 0, u32::MAX);
    pool.check_guards(&pages);
    let totals = pool.totals();
    assert_eq!(
        (totals.write_guards, totals.mapped_guards, totals.unguarded),
        (0, 2, 3)
    );
    for stack in stacks {
        pool.give(&pages, stack).unwrap();
    }
    pool.retire_all(&pages);
    let totals = pool.totals();
    assert_eq!(
        (totals.mapped_guards, totals.unguarded, totals.lost),
        (0, 0, 0)
    );
    assert_eq!(pages.os().guarded_pages(), 0);
}

#[test]
fn a_stack_does_not_keep_the_pages_of_a_block() {
    let (pages, pool) = (heap(Conditions::default()), Pool::new());
    let mut world = world(&pages, &pool);
    world.span(2);
    world.free_span(0);
    let stack = pool.take(&pages, 64 << 10).unwrap();
    // SAFETY: in a stack in use.
    let filled = |page: usize| unsafe { word(stack.limit(4096) + page * 4096).read() } != 0;
    assert!(
        (0..14).all(|page| !filled(page)) && filled(14),
        "only the top page, above the guard"
    );
}

#[test]
fn addresses_that_are_no_stacks_are_none() {
    let (pages, pool) = (heap(Conditions::default()), Pool::new());
    let mut world = world(&pages, &pool);
    world.span(2);
    let (block, _) = world.spans[0];
    let small = pool.take(&pages, 8 << 10).unwrap();
    let large = pool.take(&pages, 1 << 20).unwrap();
    for address in [
        0,
        1,
        block,
        block + SLICE_BYTES,
        small.base() - 1,
        usize::MAX,
    ] {
        assert!(Pool::overflow_at(&pages, address).is_none(), "{address:#x}");
        assert!(
            Pool::stack_in_use(&pages, address).is_none(),
            "{address:#x}"
        );
    }
    assert!(Pool::stack_in_use(&pages, large.top() - 4096).is_none());
    let (top, guard) = (large.top(), large.base());
    pool.give(&pages, large).unwrap();
    assert!(Pool::stack_in_use(&pages, top).is_none(), "idle");
    assert!(
        Pool::overflow_at(&pages, guard).is_some(),
        "its guard stays"
    );
    pool.retire_all(&pages);
    assert!(Pool::overflow_at(&pages, guard).is_none());
}
