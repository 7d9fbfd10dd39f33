//! Frees under watch, and what the size of a block is: calls are checked or counted. Also the frees
//! of blocks that were sampled or guarded, in any mode.

use super::fences;
use super::harden::{self, Freed};
use super::seal;
use crate::cache::countdown::Counts;
use crate::cache::heap::{Found, HEAP, Mode};
use crate::cache::magazine::Tag;
use crate::cache::misuse::{self, Call};
use crate::cache::tags;
use crate::hook;
use crate::init::{current, entered_to_free};
use crate::mapped_over;
use crate::reclaim::start::end_slow_path;
use crate::slab::class::Class;
use crate::supply;

/// Takes a block back whose free missed the fast path. `caller` is an address in the code that
/// called.
///
/// # Safety
/// - As [`crate::free::free`], of a block that is not null.
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) unsafe fn free(block: *mut u8, caller: usize) {
    let cache = current();
    if !cache.is_hardened() {
        // SAFETY: the caller's promise.
        return unsafe { free_long(block, caller) };
    }
    // SAFETY: as above.
    match unsafe { harden::free_short(cache, block) } {
        Freed::Held => {}
        Freed::Brought => end_slow_path(caller),
        // SAFETY: as above.
        Freed::Not => unsafe { free_long(block, caller) },
    }
}

/// [`free`], unless the call is short.
///
/// # Safety
/// - As [`free`].
#[inline(never)]
#[unsafe(link_section = "neap_text")]
unsafe fn free_long(block: *mut u8, caller: usize) {
    let cache = entered_to_free();
    if HEAP.is_counting() {
        match cache {
            Some(cache) => Counts::bump(&cache.counts.frees, 1),
            None => HEAP.registry.count_free(),
        }
    }
    let address = tags::strip(block.addr());
    let found = HEAP.find(address);
    match found {
        // SAFETY: the caller's promise.
        Found::Slab(slab, class) if HEAP.mode() == Mode::Plain => unsafe {
            supply::take_back(cache, slab, class, block);
        },
        found => {
            if let Found::Slab(_, class) = &found {
                tags::refuse_other(Call::Free, block.addr(), *class);
            }
            // SAFETY: the caller's promise.
            unsafe { free_other(address, found) };
        }
    }
    end_slow_path(caller);
}

/// Takes back the block at `address`: any but a plain one.
///
/// # Safety
/// - As [`crate::free::free`]; `found` is what the heap [finds](crate::cache::heap::Heap::find) at
///   `address`.
pub(crate) unsafe fn free_other(address: usize, found: Found) {
    // SAFETY: the caller's promise.
    if mapped_over::is_noted() && !unsafe { restore(address, &found) } {
        return;
    }
    if HEAP.mode() == Mode::Checking && hook::instruments().hold(address, &found) {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { free_found(address, found) };
}

/// What [`mapped_over::restore`] returns for the block that was found at `address`.
///
/// # Safety
/// - As there.
#[cold]
unsafe fn restore(address: usize, found: &Found) -> bool {
    let (Found::Slab(slab, class) | Found::Sampled(slab, class)) = found else {
        return true;
    };
    // What is no start of a block is the caller's to report, and has no canary.
    let starts = class.block_at(address - slab.base()).is_some();
    let held = match found {
        Found::Slab(..) if starts => seal::bytes_in_use(address, *class),
        _ => Some(class.bytes()),
    };
    // SAFETY: the caller's promise.
    unsafe { mapped_over::restore(address, slab, *class, held) }
}

/// Takes back the block at `address`, past the fast path and, if it is of a slab, in the checking
/// mode.
///
/// # Safety
/// - As [`crate::free::free`]; `found` is what the heap [finds](crate::cache::heap::Heap::find) at
///   `address`.
pub unsafe fn free_found(address: usize, found: Found) {
    match found {
        // SAFETY: the caller's promise.
        Found::Slab(slab, class) => unsafe { harden::give(slab, class, address) },
        Found::Large(place) => fences::free(&place, address),
        Found::Sampled(slab, class) => {
            misuse::start_of(Call::Free, slab, class, address);
            hook::sampled_freed(address);
            // SAFETY: the caller's promise.
            unsafe { HEAP.give_sampled(address, class) };
        }
        Found::Guarded => hook::instruments().guarded_freed(address),
        Found::Foreign => misuse::foreign(Call::Free, address),
        Found::NoBlock | Found::Stack => misuse::no_block(Call::Free, address),
    }
}

/// The usable bytes of any block; 0 for null. Aborts if the block is known to be free.
///
/// # Safety
/// - As [`crate::free::usable_size`].
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) unsafe fn usable_size(block: *mut u8) -> usize {
    let (call, address) = (Call::UsableSize, tags::strip(block.addr()));
    if address == 0 {
        return 0;
    }
    let bytes = match HEAP.find(address) {
        Found::Slab(slab, class) => {
            misuse::start_of(call, slab, class, address);
            tags::refuse_other(call, block.addr(), class);
            refuse_newest(block, address, class);
            refuse_quarantined(call, address);
            return seal::usable(call, address, class);
        }
        Found::Large(place) => fences::bytes(call, &place, address),
        Found::Sampled(slab, class) => {
            misuse::refuse_free(call, slab, class, address);
            class.bytes()
        }
        Found::Guarded => return hook::instruments().guarded_bytes(call, address),
        Found::Foreign => misuse::foreign(call, address),
        Found::NoBlock | Found::Stack => misuse::no_block(call, address),
    };
    refuse_quarantined(call, address);
    bytes
}

/// Aborts if the block is the newest of the thread's magazine.
fn refuse_newest(block: *mut u8, address: usize, class: Class) {
    // SAFETY: the calling thread's own cache, or a sentinel.
    if unsafe { current().magazine(Tag::of(class)).newest() } == Some(block) {
        misuse::already_free(Call::UsableSize, address);
    }
}

/// Aborts if the block waits in quarantine.
pub(super) fn refuse_quarantined(call: Call, address: usize) {
    if HEAP.mode() == Mode::Checking && hook::instruments().holds(address) {
        misuse::already_free(call, address);
    }
}
