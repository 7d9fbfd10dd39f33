//! The fast path in plain Rust, for machines without a version of their own. [`pop_sized`] takes a
//! block for a size from its magazine, [`pop`] takes one from a magazine that the caller knows, and
//! [`pop_sampling`] takes one while the profiler counts. [`push_freed`] finds a freed block's
//! magazine and pushes the block; [`push_deleted`] also compares a stated size.
//!
//! Compilers do not fold these atomic loads into compares, which costs six instructions per pair,
//! so x86-64 has its own version. So has AArch64, for what C programs call. The rest comes from
//! here. The tests below run both.

use crate::base::sync::{AtomicU64, Ordering, fence};
use crate::base::units::{SLICE_BYTES, SLICE_SHIFT};
#[cfg(target_arch = "aarch64")]
use crate::cache::aarch64::slot;
use crate::cache::heap::HEAP;
use crate::cache::magazine::{Start, Tag};
use crate::cache::thread_cache::Cache;
#[cfg(target_arch = "x86_64")]
use crate::cache::x86_64::slot;

/// Takes a block for a request of `size` bytes; `None` if its magazine has none or holds it twice,
/// if requests of that size are not in the table, or if a drainer is at work or the
/// fast path is not on.
///
/// # Safety
/// - `cache` is the calling thread's own, or a sentinel.
#[inline(always)]
pub unsafe fn pop_sized(cache: &Cache, size: usize) -> Option<*mut u8> {
    if !serves(cache, size) {
        return None;
    }
    let magazine = cache.magazine(cache.tags[size]);
    // SAFETY: while the bound is above 0, every class's top is above an entry or the guard.
    unsafe { magazine.take(magazine.top.load(Ordering::Relaxed)) }
}

/// Whether [`pop_sized`] serves requests of `size` bytes. Then there is an entry or the guard below
/// the top of each class.
#[inline(always)]
pub fn serves(cache: &Cache, size: usize) -> bool {
    // Acquire: the guards that were written before the bound was published are seen.
    size < cache.below().load(Ordering::Acquire)
}

/// Whether one of the three words below the top of a magazine is this address.
///
/// # Safety
/// - There is an entry below the top, or the guard.
#[inline(always)]
pub unsafe fn may_be_recent(cache: &Cache, tag: Tag, address: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { cache.magazine(tag).may_be_recent(address) }
}

/// Takes the newest block of a magazine; `None` if there is none, if it lies again two entries
/// below, or if the magazine is closed.
///
/// # Safety
/// - `cache` is the calling thread's own, or a sentinel.
#[inline(always)]
pub unsafe fn pop(cache: &Cache, tag: Tag) -> Option<*mut u8> {
    // SAFETY: the caller's promise.
    unsafe { cache.magazine(tag).pop() }
}

/// Takes the newest block of a magazine while the profiler counts what is given out; `None` if this
/// one is to be sampled, if there is none, or if the profiler does not sample.
///
/// # Safety
/// - `cache` is the calling thread's own, or a sentinel.
/// - `tag` is a class's.
#[inline(always)]
pub unsafe fn pop_sampling(cache: &Cache, tag: Tag) -> Option<*mut u8> {
    // SAFETY: the caller's promise.
    let countdown = unsafe { cache.countdown_of(tag) };
    let magazine = cache.magazine(tag);
    let bottom = countdown.bottom.load(Ordering::Relaxed);
    if magazine.top.load(Ordering::Relaxed) <= bottom {
        return None;
    }
    let left = countdown
        .until_sample
        .load(Ordering::Relaxed)
        .wrapping_sub(1);
    countdown.until_sample.store(left, Ordering::Relaxed);
    if left < 0 {
        return None;
    }
    // SAFETY: as above; the bottom is published.
    unsafe { magazine.pop_above(bottom) }
}

/// Pushes a block onto the calling thread's magazine of its class. False if that takes the slow
/// path: not in the primary arena, no block of a slab, no room, no cache, or freed by the call
/// before.
///
/// # Safety
/// - `block` is a block of this heap that is not given back, or no block of it at all.
#[inline(always)]
pub unsafe fn push_freed(block: *mut u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe { push(block, |_| true) }
}

/// [`push_freed`] of a block that is said to hold `size` bytes. False as well if it holds less.
///
/// # Safety
/// - As [`push_freed`].
#[inline(always)]
pub unsafe fn push_deleted(block: *mut u8, size: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { push(block, |start| size <= start.bytes as usize) }
}

/// [`push_freed`] if the class is one that `fits`.
///
/// # Safety
/// - As [`push_freed`].
#[inline(always)]
unsafe fn push(block: *mut u8, fits: impl FnOnce(Start) -> bool) -> bool {
    let base = HEAP.pages.primary_base.load(Ordering::Relaxed);
    let slice = block.addr().wrapping_sub(base) >> SLICE_SHIFT;
    if slice >= HEAP.pages.primary_slices.load(Ordering::Relaxed) {
        return false;
    }
    // SAFETY: the primary arena begins with its tag table, a byte of a tag for each slice.
    let tag = unsafe { Tag::from_byte(*((base + slice) as *const u8)) };
    // SAFETY: the slot holds a sentinel or the thread's cache, which lives until the slot changes.
    let cache = unsafe { &*slot() };
    // A slab is one slice at a multiple of its size, so the product says whether a block starts
    // here.
    let start = cache.start(tag);
    let offset = (block.addr() % SLICE_BYTES) as u32;
    if offset.wrapping_mul(start.test) >= start.limit || !fits(start) {
        return false;
    }
    let magazine = cache.magazine(tag);
    // SAFETY: the word below the top of a magazine that has room can be read (see `Magazine`).
    if magazine.has_room() && unsafe { magazine.below_top() } == block {
        return false;
    }
    // SAFETY: the caller's promise, and the thread's own cache.
    unsafe { magazine.push(block) }
}

/// Writes a word that no other thread writes to, and returns what it was. By one operation, because
/// a read of a page that was never touched costs a fault of its own.
///
/// # Safety
/// - The caller may write the word.
#[inline(always)]
pub unsafe fn exchange_own(word: &AtomicU64, new: u64) -> u64 {
    let before = word.swap(new, Ordering::AcqRel);
    // Who sees what the caller writes next sees the word first.
    fence(Ordering::Release);
    before
}

#[cfg(test)]
mod tests {
    use crate::base::units::SLICE_BYTES;

    use crate::cache::magazine::Tag;
    use crate::cache::thread_cache::Cache;
    use crate::cache::{machine, portable};
    use crate::slab::class::{Class, TABLE_BYTES};
    use crate::testing::own_cache;
    use std::vec::Vec;

    fn popped(cache: &Cache, tag: Tag, size: usize) -> [Option<*mut u8>; 4] {
        // SAFETY: the calling thread's own cache.
        unsafe {
            [
                portable::pop(cache, tag),
                machine::pop(cache, tag),
                portable::pop_sized(cache, size),
                machine::pop_sized(cache, size),
            ]
        }
    }

    #[test]
    fn both_forms_refuse_a_block_that_lies_two_below() {
        let (class, size) = (Class::of_size(264), 264);
        let tag = Tag::of(class);
        let cache = own_cache::enter().expect("a cache");
        let [p, q] = [
            own_cache::refill(cache, class),
            own_cache::refill(cache, class),
        ];
        for block in [p, q] {
            // SAFETY: blocks of the heap.
            assert!(unsafe { machine::push_freed(block) });
        }
        // On AArch64 `free` looks two below, and `malloc` does not.
        if cfg!(target_arch = "aarch64") {
            // SAFETY: refused before anything is written.
            assert!(unsafe { !machine::push_freed(p) });
            assert!(cache.open().magazine(class).is_newest(p));
            return;
        }
        // SAFETY: the second copy of `p` is taken out below.
        assert!(unsafe { machine::push_freed(p) });
        assert_eq!(popped(cache, tag, size), [None; 4]);
        let mut open = cache.open();
        assert_eq!(open.magazine(class).repeated(), Some(p));
        assert!(open.magazine(class).is_newest(p) && open.magazine(class).is_newest(q));
        // SAFETY: the thread's own cache.
        assert_eq!(unsafe { open.magazine(class).pop() }, Some(p));
        assert_eq!(open.magazine(class).repeated(), None);
        drop(open);
        assert_eq!(own_cache::pop_sized(cache, size), Some(q));
        // SAFETY: the thread's own cache.
        assert_eq!(unsafe { portable::pop_sized(cache, size) }, Some(p));
    }

    #[test]
    fn a_class_without_an_array_and_a_size_past_the_table_are_refused() {
        let cache = own_cache::enter().expect("a cache");
        let class = Class::of_size(1016);
        assert_eq!(popped(cache, Tag::of(class), 1016), [None; 4]);
        for size in [TABLE_BYTES + 1, usize::MAX] {
            assert_eq!(popped(cache, Tag::of(class), size), [None; 4]);
        }
    }

    /// Fills, by the machine's form and the portable form in turn, until both miss.
    #[test]
    fn both_forms_see_the_same_magazine() {
        let class = Class::of_size(200);
        let tag = Tag::of(class);
        let cache = own_cache::enter().expect("a cache");
        let first = own_cache::refill(cache, class);
        assert!(core::ptr::eq(machine::slot(), cache));
        let mut blocks: Vec<*mut u8> = std::vec![first];
        loop {
            // SAFETY: the thread's own cache.
            let next = unsafe {
                match blocks.len() % 4 {
                    0 => portable::pop(cache, tag),
                    1 => machine::pop(cache, tag),
                    2 => portable::pop_sized(cache, 200),
                    _ => machine::pop_sized(cache, 200),
                }
            };
            let Some(block) = next else { break };
            assert!(!blocks.contains(&block));
            blocks.push(block);
        }
        assert!(blocks.len() > 4);
        assert_eq!(popped(cache, tag, 200), [None; 4]);
        for (number, &block) in blocks.iter().enumerate() {
            // SAFETY: blocks of the heap, each given back once.
            let pushed = unsafe {
                if number.is_multiple_of(2) {
                    machine::push_freed(block)
                } else {
                    portable::push_freed(block)
                }
            };
            assert!(pushed);
        }
        // A block that is said to hold more than it does, then one that holds as much.
        let taken = own_cache::pop_sized(cache, 200).expect("a block");
        for size in [class.bytes() + 1, usize::from(u16::MAX)] {
            // SAFETY: refused before anything is written.
            let pushed = unsafe {
                machine::push_deleted(taken, size) || portable::push_deleted(taken, size)
            };
            assert!(!pushed, "{size}");
        }
        // SAFETY: a block of the heap, given back once.
        assert!(unsafe { machine::push_deleted(taken, class.bytes()) });
        assert_eq!(own_cache::pop_sized(cache, 200), Some(taken));
        // SAFETY: as above.
        assert!(unsafe { portable::push_deleted(taken, 1) });
        // The three that were pushed last, and the one before.
        for (block, is_recent) in blocks.iter().rev().zip([true, true, true, false]) {
            // SAFETY: the magazine has more entries.
            let both = unsafe {
                [portable::may_be_recent, machine::may_be_recent]
                    .map(|form| form(cache, tag, block.addr()))
            };
            assert_eq!(both, [is_recent; 2]);
        }
        // The block that was pushed last.
        if let Some(&newest) = blocks.last() {
            // SAFETY: refused before anything is written.
            assert!(unsafe { !machine::push_freed(newest) && !portable::push_freed(newest) });
        }
        let middle = (blocks[0].addr() + 8) as *mut u8;
        let outside = (&raw const middle).cast_mut().cast::<u8>();
        // Past the slab's last block, at a multiple of the block's size.
        let slab = blocks[0].addr() / SLICE_BYTES * SLICE_BYTES;
        let tail = (slab + class.blocks() * class.bytes()) as *mut u8;
        for refused in [middle, outside, tail, core::ptr::null_mut()] {
            // SAFETY: refused before anything is written.
            assert!(unsafe { !machine::push_freed(refused) && !portable::push_freed(refused) });
        }
    }
}
