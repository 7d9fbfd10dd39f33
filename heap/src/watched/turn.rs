//! Hardened mode's short calls: `malloc` and `free` of a small block with a canary, by a thread
//! that has its magazines to itself for a turn ([`crate::cache::bias`]).
//!
//! Short calls do what the slow path does for such a block, without the slow path's locks and
//! periodic work. If a block or its canary is not as expected, they change nothing, and the slow
//! path reports what is wrong. The slow path also serves a call if the magazine holds few blocks,
//! or if the thread gets no turn. A thread holds back the blocks that it frees. The `free` after
//! which it has enough of them brings them to quarantine, and then ends as the slow path does.

use super::harden;
use super::rule;
use super::stray::CANARY_BYTES;
use crate::base::sync::Ordering;
use crate::base::units::{SLICE_BYTES, SLICE_SHIFT};
use crate::cache::draw::Hold;
use crate::cache::heap::HEAP;
use crate::cache::magazine::{Start, Tag};
use crate::cache::measures::Measures;
use crate::cache::misuse::Call;
use crate::cache::tags;
use crate::cache::thread_cache::Cache;
use crate::cache::waiting::Blocks;
use crate::hook;
use crate::init::current;
use crate::slab::class::TABLE_BYTES;
use core::ptr::NonNull;

/// A block of `size` bytes at a multiple of 16. If freed blocks are filled with zeros, its bytes
/// are zero. `None` if the call must take the slow path.
#[inline(never)]
pub(crate) fn allocate(size: usize) -> Option<NonNull<u8>> {
    let cache = current();
    let mut turn = cache.begin_turn()?;
    // For a request of no bytes, the difference wraps around to the largest number.
    let tag = match size.wrapping_sub(1) < TABLE_BYTES - CANARY_BYTES {
        // The table has the classes of C requests, whose blocks are multiples of 16.
        true => match cache.tags[size + CANARY_BYTES] {
            tag if HEAP.is_no_bytes_tag(tag) => unusual_tag_for(size)?,
            tag => tag,
        },
        false => unusual_tag_for(size)?,
    };
    debug_assert_eq!(Some(tag), rule::class_for(size, 16).map(Tag::of));
    let (measures, bytes) = (HEAP.measures(), cache.start(tag).bytes as usize);
    // SAFETY: a class's.
    let block = unsafe { turn.draw(tag, bytes, measures)? };
    drop(turn);
    // SAFETY: drawn from the thread's magazine of that class, which holds free blocks.
    NonNull::new(unsafe { harden::hand_out_sealed(block, size, bytes, measures) })
}

/// The tag of the class for `size` bytes and a canary behind them, where the table does not have
/// it. `None` if a block of this size has no canary.
#[inline(never)]
fn unusual_tag_for(size: usize) -> Option<Tag> {
    (size > 0).then(|| rule::class_for(size, 16).map(Tag::of))?
}

/// What became of a freed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// This call did not take it, and the slow path must.
    Not,
    /// The thread holds it back.
    Held,
    /// The thread has brought freed blocks to quarantine, this one among them. The caller must end
    /// the call as the slow path does.
    Brought,
}

/// Takes a block back, if it has a canary that says that it is in use.
///
/// # Safety
/// - As [`crate::free::free`].
#[inline(always)]
pub(crate) unsafe fn free(block: *mut u8) -> Freed {
    let (cache, address) = (current(), tags::strip(block.addr()));
    if !cache.has_turns() {
        return Freed::Not;
    }
    let measures = HEAP.measures();
    if !measures.has(Measures::DELAY) {
        return Freed::Not;
    }
    let Some((tag, start)) = starting_at(cache, address) else {
        return Freed::Not;
    };
    if HEAP.is_no_bytes_tag(tag) {
        return Freed::Not;
    }
    if tags::is_on()
        && let Some(class) = tag.class()
    {
        tags::refuse_other(Call::Free, block.addr(), class);
    }
    let bytes = start.bytes as usize;
    // SAFETY: a block with a canary starts there; the caller's promise.
    let Some(closing) = (unsafe { harden::close_if_in_use(address, bytes, measures) }) else {
        return Freed::Not;
    };
    // Begun only now: a fault or an abort in between may run a handler that never returns.
    let mut turn = cache.begin_ready_turn();
    if !closing.end(turn.as_ref().map(|work| &work.turn)) {
        return Freed::Not;
    }
    let hold = match &mut turn {
        Some(turn) => turn.hold(address, tag, bytes),
        None => Hold::Refused,
    };
    drop(turn);
    match hold {
        Hold::Done => return Freed::Held,
        Hold::Last => bring_waiting(cache),
        Hold::Refused => bring_alone(cache, address, tag),
    }
    Freed::Brought
}

/// The tag of the class of the block that starts at `address`, and its class's [`Start`]. `None` if
/// no block of a slab in the first arena starts there.
#[inline(always)]
fn starting_at(cache: &Cache, address: usize) -> Option<(Tag, Start)> {
    let base = HEAP.pages.primary_base.load(Ordering::Relaxed);
    let slice = address.wrapping_sub(base) >> SLICE_SHIFT;
    if slice >= HEAP.pages.primary_slices.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: the first arena begins with its tag table, a byte of a tag for each slice.
    let tag = unsafe { Tag::from_byte(*((base + slice) as *const u8)) };
    let start = cache.start(tag);
    let offset = (address % SLICE_BYTES) as u32;
    // If the tag is not a class's, no offset is below the limit.
    let starts = offset.wrapping_mul(start.test) < start.limit;
    starts.then_some((tag, start))
}

/// Brings to quarantine the blocks that the calling thread holds back. Out of line, because their
/// copy takes room on the stack.
#[cold]
#[inline(never)]
fn bring_waiting(cache: &Cache) {
    bring(&HEAP.take_waiting(cache));
}

/// Brings closed blocks to quarantine.
#[cold]
#[inline(never)]
fn bring(blocks: &Blocks) {
    // SAFETY: freed by the program, and held back since.
    unsafe {
        if !hook::instruments().hold_back(blocks) {
            harden::reuse_all(blocks);
        }
    }
}

/// Brings to quarantine a closed block that the thread could not hold back. Either the thread has
/// no memory for such blocks yet, or another thread has the cache's lock, or this is a signal
/// handler that interrupted the thread before it could bring the blocks that it holds back.
#[cold]
#[inline(never)]
fn bring_alone(cache: &'static Cache, address: usize, tag: Tag) {
    HEAP.prepare_waiting(cache);
    let mut blocks = Blocks::none();
    if let Some(class) = tag.class() {
        blocks.push(address, class);
    }
    bring(&blocks);
}
