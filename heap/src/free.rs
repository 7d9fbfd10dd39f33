//! Giving blocks back, and what their size is.

use crate::base::sync::{AtomicBool, Ordering};
use crate::cache::countdown::Counts;
use crate::cache::flush::give_one;
use crate::cache::heap::{Found, HEAP, Mode};
use crate::cache::machine;
use crate::cache::magazine::Tag;
use crate::cache::measures::Measures;
use crate::cache::misuse::{self, Call};
use crate::form;
use crate::harden::{self, Form};
use crate::hook;
use crate::init::{current, entered_to_free};
use crate::large;
use crate::mapped_over;
use crate::reclaim::start::end_slow_path;
use crate::rule;
use crate::seal::{self, Seal};
use crate::slab::Slab;
use crate::slab::class::{Class, MAX_BLOCK};
use crate::tags;
use crate::turn::{self, Freed};

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
    check_size("free_sized", block, size, 1, Sizes::Requested);
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// Takes back a block whose requested size and alignment the caller states.
///
/// # Safety
/// - As [`free`].
#[inline]
pub unsafe fn free_aligned_sized(block: *mut u8, align: usize, size: usize) {
    check_size("free_aligned_sized", block, size, align, Sizes::Requested);
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// Takes back a block whose size and alignment a C++ compiler states. Aborts if the block holds
/// less. Deleting through a base class without a virtual destructor states a size that is too
/// small, is common, and harms nothing here: so only the checking mode refuses that.
///
/// # Safety
/// - As [`free`].
#[inline(always)]
pub unsafe fn free_deleted(block: *mut u8, size: usize, align: usize, form: Form) {
    // SAFETY: the caller's promise.
    if unsafe { machine::push_deleted(block, size) } {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { free_deleted_slow(block, size, align, form) };
}

/// Takes back a block by `delete` or `delete[]`.
///
/// # Safety
/// - As [`free`].
#[inline(always)]
pub unsafe fn free_formed(block: *mut u8, form: Form) {
    // SAFETY: the caller's promise.
    if unsafe { machine::push_freed(block) } {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { free_formed_slow(block, form) };
}

/// As [`free_slow_from`], after a look at the form.
///
/// # Safety
/// - As [`free`].
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
unsafe fn free_formed_slow(block: *mut u8, form: Form) {
    if HEAP.mode() == Mode::Checking {
        form::refuse_other(tags::strip(block.addr()), form);
    }
    // SAFETY: the caller's promise.
    unsafe { free_slow(block) };
}

/// The stated size is too large, or the block takes the slow path for another reason.
///
/// # Safety
/// - As [`free`].
#[cold]
#[inline(never)]
#[unsafe(link_section = "neap_text")]
unsafe fn free_deleted_slow(block: *mut u8, size: usize, align: usize, form: Form) {
    let measures = HEAP.measures();
    let sizes = match measures.has(Measures::CHECK) || measures.has(Measures::DELETES) {
        true => Sizes::Requested,
        false => Sizes::UpToTheBlocks,
    };
    if HEAP.mode() == Mode::Checking {
        form::refuse_other(block.addr(), form);
    }
    check_size(form::delete(form), block, size, align, sizes);
    // SAFETY: the caller's promise.
    unsafe { free_slow(block) };
}

/// The usable bytes of `block`; 0 for null.
///
/// # Safety
/// - `block` is null or a block of this heap that is not given back.
#[unsafe(link_section = "neap_text")]
pub unsafe fn usable_size(block: *mut u8) -> usize {
    let address = tags::strip(block.addr());
    if address == 0 {
        return 0;
    }
    match HEAP.find_quickly(address) {
        Found::Slab(slab, class) => {
            start_of(Call::UsableSize, slab, class, address);
            tags::refuse_other(Call::UsableSize, block.addr(), class);
            // SAFETY: the calling thread's own cache, or a sentinel.
            match unsafe { current().magazine(Tag::of(class)).newest() } {
                Some(newest) if newest == block => misuse::already_free(Call::UsableSize, address),
                Some(_) => class.bytes(),
                // As in the checking mode.
                None => unless_quarantined(address, || usable_bytes(address, class)),
            }
        }
        Found::Large(place) => {
            let bytes = large::bytes(Call::UsableSize, &place, address);
            unless_quarantined(address, || bytes)
        }
        Found::Sampled(slab, class) => {
            refuse_free(Call::UsableSize, slab, class, address);
            unless_quarantined(address, || class.bytes())
        }
        Found::Guarded => hook::instruments().guarded_bytes(Call::UsableSize, address),
        Found::Foreign => misuse::foreign(Call::UsableSize, address),
        Found::NoBlock | Found::Stack => misuse::no_block(Call::UsableSize, address),
    }
}

/// The number of the block that starts at `address`; aborts if none does.
pub fn start_of(call: Call, slab: &Slab, class: Class, address: usize) -> usize {
    match class.block_at(address - slab.base()) {
        Some(block) => block,
        None => misuse::interior(call, address, class.bytes()),
    }
}

/// Aborts if the block is free, or none starts at the address.
#[inline]
pub(crate) fn refuse_free(call: Call, slab: &Slab, class: Class, address: usize) {
    let number = start_of(call, slab, class, address);
    if slab.is_free(class, number) {
        misuse::already_free(call, address);
    }
}

/// Aborts if the block waits in quarantine.
pub(crate) fn refuse_quarantined(call: Call, address: usize) {
    if HEAP.mode() == Mode::Checking && hook::instruments().holds(address) {
        misuse::already_free(call, address);
    }
}

/// `bytes`, unless the block waits in quarantine: then it aborts.
#[inline(always)]
fn unless_quarantined(address: usize, bytes: impl FnOnce() -> usize) -> usize {
    #[cold]
    #[inline(never)]
    fn refuse(address: usize) {
        refuse_quarantined(Call::UsableSize, address);
    }
    if HEAP.mode() == Mode::Checking {
        refuse(address);
    }
    bytes()
}

/// The usable bytes of a block of a slab.
#[inline(always)]
fn usable_bytes(address: usize, class: Class) -> usize {
    #[cold]
    #[inline(never)]
    #[unsafe(link_section = "neap_text")]
    fn checked(address: usize, class: Class) -> usize {
        seal::usable(Call::UsableSize, address, class)
    }
    match HEAP.mode() {
        Mode::Checking => checked(address, class),
        _ => class.bytes(),
    }
}

/// Whether a realloc could not move a block to its smaller class. From then on a block may be
/// larger than its size requires, so only sizes that are too large are misuse.
static SIZES_ARE_EXACT: AtomicBool = AtomicBool::new(true);

/// Notes that some block stayed in a class larger than its size.
pub(crate) fn sizes_are_loose() {
    SIZES_ARE_EXACT.store(false, Ordering::Relaxed);
}

/// Which stated sizes are right.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizes {
    /// Those for which a request gets such a block.
    Requested,
    /// All that the block can hold.
    UpToTheBlocks,
}

/// Aborts if the block of the stated size, or one at the stated alignment, cannot be this one.
fn check_size(call: &str, block: *mut u8, size: usize, align: usize, sizes: Sizes) {
    let address = tags::strip(block.addr());
    let is_exact = SIZES_ARE_EXACT.load(Ordering::Relaxed);
    let (low, high) = match HEAP.find(address) {
        Found::Sampled(_, class) => (0, class.bytes()),
        Found::Slab(slab, class) if seal::of(address, class) != Seal::Open => {
            start_of(Call::Free, slab, class, address);
            let size = seal::usable(Call::Free, address, class);
            (if is_exact { size } else { 0 }, size)
        }
        Found::Slab(_, class) => {
            // A stated alignment of 16 rounded a smaller size up to 16.
            let by_size = align <= 8 || (align == 16 && size >= 16);
            let low = if by_size && is_exact {
                rule::least_request(class)
            } else {
                0
            };
            (low, class.bytes())
        }
        // A large block's alignment may have made it large, whatever its size, or a realloc without
        // memory.
        Found::Large(place) => {
            let bytes = large::bytes(Call::Free, &place, address);
            let low = match is_exact {
                true if large::is_fenced(&place) => rule::least_fenced_request(bytes),
                true if align <= MAX_BLOCK && bytes > MAX_BLOCK => rule::least_large_request(),
                _ => 0,
            };
            (low, bytes)
        }
        Found::Guarded => (0, hook::instruments().guarded_bytes(Call::Free, address)),
        // Null, or what `free` itself reports.
        Found::Foreign | Found::NoBlock | Found::Stack => return,
    };
    let is_small = size < low && sizes == Sizes::Requested;
    if is_small || size > high {
        let low = if HEAP.is_in_pool(address) { high } else { low };
        misuse::wrong_size(call, address, size, low, high);
    }
    if align.is_power_of_two() && !address.is_multiple_of(align) {
        misuse::wrong_alignment(call, address, align);
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
#[unsafe(link_section = "neap_text")]
pub(crate) unsafe extern "C" fn free_slow_from(block: *mut u8, caller: usize) {
    if !block.is_null() {
        // SAFETY: the caller's promise.
        unsafe { free_missed_from(block, caller) };
    }
}

/// The rest of [`free_slow_from`]. Out of line, so that null, which programs free often, costs no
/// stack frame.
///
/// # Safety
/// - As [`free`], of a block that is not null.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
unsafe extern "C" fn free_missed_from(block: *mut u8, caller: usize) {
    // SAFETY: the caller's promise.
    match unsafe { turn::free(block) } {
        Freed::Held => return,
        Freed::Brought => {}
        // SAFETY: as above.
        Freed::Not => unsafe { free_missed(block) },
    }
    end_slow_path(caller);
}

/// # Safety
/// - As [`free`], of a block that is not null.
unsafe fn free_missed(block: *mut u8) {
    let address = tags::strip(block.addr());
    let cache = entered_to_free();
    let mode = HEAP.mode();
    if HEAP.is_counting() {
        match cache {
            Some(cache) => Counts::bump(&cache.counts.frees, 1),
            None => HEAP.registry.count_free(),
        }
    }
    let found = HEAP.find(address);
    if let (Found::Slab(slab, class), Mode::Plain) = (&found, mode) {
        let number = start_of(Call::Free, slab, *class, address);
        if slab.is_free(*class, number) {
            misuse::double_free(address, class.bytes());
        }
        // SAFETY: the caller's promise.
        if !unsafe { mapped_over::restore(address, slab, *class) } {
            return;
        }
        return match cache {
            // SAFETY: the thread's own cache, and the caller's promise.
            Some(cache) => unsafe { HEAP.put(cache, *class, block) },
            // SAFETY: the caller's promise.
            None => unsafe { give_one(&HEAP, address) },
        };
    }
    if let (true, Found::Slab(_, class)) = (tags::is_on(), &found) {
        tags::refuse_other(Call::Free, block.addr(), *class);
    }
    if let Found::Slab(slab, class) | Found::Sampled(slab, class) = &found
        // SAFETY: the caller's promise.
        && !unsafe { mapped_over::restore(address, slab, *class) }
    {
        return;
    }
    if mode == Mode::Checking && hook::instruments().hold(address, &found) {
        return;
    }
    // SAFETY: the promise of `free`'s caller.
    unsafe { free_found(address, found) };
}

/// Takes back the block at `address`, past the fast path and, if it is of a slab, in the checking
/// mode.
///
/// # Safety
/// - As [`free`]; `found` is what the heap [finds](crate::cache::heap::Heap::find) at `address`.
pub unsafe fn free_found(address: usize, found: Found) {
    match found {
        // SAFETY: the caller's promise.
        Found::Slab(slab, class) => unsafe { harden::give(slab, class, address) },
        Found::Large(place) => large::free(&place, address, 0),
        Found::Sampled(slab, class) => {
            start_of(Call::Free, slab, class, address);
            hook::sampled_freed(address);
            // SAFETY: the caller's promise.
            unsafe { HEAP.give_sampled(address, class) };
        }
        Found::Guarded => hook::instruments().guarded_freed(address),
        Found::Foreign => misuse::foreign(Call::Free, address),
        Found::NoBlock | Found::Stack => misuse::no_block(Call::Free, address),
    }
}
