//! Giving blocks back, and what their size is.

use crate::base::sync::{AtomicBool, Ordering};
use crate::cache::countdown::Counts;
use crate::cache::flush::give_one;
use crate::cache::heap::{Found, HEAP, Mode};
use crate::cache::machine;
use crate::cache::magazine::Tag;
use crate::cache::misuse::{self, Call};
use crate::hook;
use crate::init::entered;
use crate::large;
use crate::reclaim::start::end_slow_path;
use crate::slab::Slab;
use crate::slab::class::{Class, MAX_BLOCK};

/// Takes a block back. Null is allowed.
///
/// # Safety
/// - `block` is null or came from this heap and was not given back since; no thread uses it any
///   more. Where this is broken, the call aborts, or a later one does: see `docs/misuse.md`.
#[inline(always)]
pub unsafe fn free(block: *mut u8) {
    // SAFETY: the caller's promise.
    if unsafe { machine::push_freed(block) } {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { free_slow(block) };
}

/// Takes back a block whose requested size the caller states. Aborts if the block cannot be of that
/// size.
///
/// # Safety
/// - As [`free`].
#[inline]
pub unsafe fn free_sized(block: *mut u8, size: usize) {
    check_size(block, size, 1);
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// Takes back a block whose requested size and alignment the caller states.
///
/// # Safety
/// - As [`free`].
#[inline]
pub unsafe fn free_aligned_sized(block: *mut u8, align: usize, size: usize) {
    check_size(block, size, align);
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// Takes back a block whose size and alignment a C++ compiler states. Deleting through a base class
/// without a virtual destructor states the wrong size, is common, and harms nothing here: so only
/// the checking mode checks the size, and the plain mode pays one compare.
///
/// # Safety
/// - As [`free`].
#[inline(always)]
pub unsafe fn free_deleted(block: *mut u8, size: usize, align: usize) {
    if HEAP.mode() == Mode::Checking {
        check_size(block, size, align);
    }
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// The usable bytes of `block`; 0 for null.
///
/// # Safety
/// - `block` is null or a block of this heap that is not given back.
pub unsafe fn usable_size(block: *mut u8) -> usize {
    let address = block.addr();
    match HEAP.find(address) {
        _ if address == 0 => 0,
        Found::Slab(slab, class) => {
            start_of(Call::UsableSize, slab, class, address);
            class.bytes()
        }
        Found::Large(place) | Found::Sampled(place) => {
            large::bytes(Call::UsableSize, &place, address)
        }
        Found::Foreign => misuse::foreign(Call::UsableSize, address),
        Found::Nothing | Found::Stack => misuse::no_block(Call::UsableSize, address),
    }
}

/// The number of the block that starts at `address`; aborts if none does.
pub fn start_of(call: Call, slab: &Slab, class: Class, address: usize) -> usize {
    match class.block_at(address - slab.base()) {
        Some(block) => block,
        None => misuse::interior(call, address, class.bytes()),
    }
}

/// Whether a realloc could not move a block to its smaller class. From then on a block may be
/// larger than its size requires, so only sizes that are too large are misuse.
static SIZES_ARE_EXACT: AtomicBool = AtomicBool::new(true);

/// Notes that some block stayed in a class larger than its size.
pub(crate) fn sizes_are_loose() {
    SIZES_ARE_EXACT.store(false, Ordering::Relaxed);
}

fn check_size(block: *mut u8, size: usize, align: usize) {
    let address = block.addr();
    let (low, high) = match HEAP.find(address) {
        Found::Sampled(place) => (0, large::bytes(Call::Free, &place, address)),
        Found::Slab(_, class) => {
            // A stated alignment of 16 rounded a smaller size up to 16.
            let by_size = align <= 8 || (align == 16 && size >= 16);
            let exact = by_size && SIZES_ARE_EXACT.load(Ordering::Relaxed);
            (if exact { class.least_request() } else { 0 }, class.bytes())
        }
        // A large block's alignment may have made it large, whatever its size, or a realloc without
        // memory.
        Found::Large(place) => {
            let bytes = large::bytes(Call::Free, &place, address);
            (
                if align <= MAX_BLOCK
                    && bytes > MAX_BLOCK
                    && SIZES_ARE_EXACT.load(Ordering::Relaxed)
                {
                    MAX_BLOCK + 1
                } else {
                    0
                },
                bytes,
            )
        }
        // Null, or what `free` itself reports.
        Found::Foreign | Found::Nothing | Found::Stack => return,
    };
    if size < low || size > high {
        misuse::wrong_size(address, size, low, high);
    }
}

// The caller of `free`. The first instruction of the slow path notes the return address. `free`
// ends in a jump to its slow path, so there the top of the stack is the return address into the
// program. If a build turns the jump into a call, the address lies in this library, and `purge`
// treats it as unknown.
machine::with_caller!(free_slow, free_slow_from);

/// Not a slab's block in the primary arena, or its magazine is full, or there is none. `caller` is
/// an address in the code that called `free`, as far as that is known.
///
/// # Safety
/// - As [`free`].
#[cold]
#[inline(never)]
pub(crate) unsafe extern "C" fn free_slow_from(block: *mut u8, caller: usize) {
    if !block.is_null() {
        // SAFETY: the caller's promise.
        unsafe { free_missed(block) };
        end_slow_path(caller);
    }
}

/// # Safety
/// - As [`free`], of a block that is not null.
unsafe fn free_missed(block: *mut u8) {
    let address = block.addr();
    let cache = entered();
    let mode = HEAP.mode();
    if let (Mode::Counting, Some(cache)) = (mode, cache) {
        Counts::bump(&cache.counts.frees, 1);
    }
    let found = HEAP.find(address);
    if let (Found::Slab(slab, class), Mode::Plain | Mode::Counting) = (&found, mode) {
        let number = start_of(Call::Free, slab, *class, address);
        if slab.is_free(*class, number) {
            misuse::double_free(address, class.bytes());
        }
        return match cache {
            // SAFETY: the thread's own cache, and the caller's promise.
            Some(cache) => unsafe { HEAP.put(cache, *class, block) },
            // SAFETY: the caller's promise.
            None => unsafe { give_one(&HEAP, address) },
        };
    }
    if mode == Mode::Checking && hook::instruments().hold(address, &found) {
        return;
    }
    // SAFETY: the promise of `free`'s caller.
    unsafe { free_found(address, found) };
}

/// Takes back the block at `address`, past all magazines.
///
/// # Safety
/// - As [`free`]; `found` is what the heap [finds](crate::cache::heap::Heap::find) at `address`.
pub unsafe fn free_found(address: usize, found: Found) {
    match found {
        // SAFETY: the caller's promise.
        Found::Slab(..) => unsafe { give_one(&HEAP, address) },
        Found::Large(place) => large::free(&place, address, Tag::LARGE),
        Found::Sampled(place) => large::free(&place, address, Tag::SAMPLED),
        Found::Foreign => misuse::foreign(Call::Free, address),
        Found::Nothing | Found::Stack => misuse::no_block(Call::Free, address),
    }
}
