//! Giving blocks back, and what their size is.
//!
//! Past the fast path, each call asks whether it is checked or counted, and then leaves all of
//! itself to [`crate::watched`]. The rest of this file knows of no mode.

use crate::cache::heap::{Found, HEAP};
use crate::cache::machine;
use crate::cache::magazine::Tag;
use crate::cache::measures::Form;
use crate::cache::misuse::{self, Call};
use crate::init::{current, entered_to_free};
use crate::large;
use crate::reclaim::start::end_slow_path;
use crate::supply;
use crate::watched::{calls, stated};

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
    stated::check("free_sized", block, size, 1);
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// Takes back a block whose requested size and alignment the caller states.
///
/// # Safety
/// - As [`free`].
#[inline]
pub unsafe fn free_aligned_sized(block: *mut u8, align: usize, size: usize) {
    stated::check("free_aligned_sized", block, size, align);
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
    if HEAP.is_watched() {
        stated::refuse_other_form(block, form);
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
    if HEAP.is_watched() {
        stated::refuse_other_form(block, form);
    }
    stated::check_deleted(block, size, align, form);
    // SAFETY: the caller's promise.
    unsafe { free_slow(block) };
}

/// The usable bytes of `block`; 0 for null.
///
/// # Safety
/// - `block` is null or a block of this heap that is not given back.
#[unsafe(link_section = "neap_text")]
pub unsafe fn usable_size(block: *mut u8) -> usize {
    if HEAP.is_plain()
        && let Some((slab, class)) = HEAP.find_slab(block.addr())
    {
        misuse::start_of(Call::UsableSize, slab, class, block.addr());
        // SAFETY: the calling thread's own cache, or a sentinel.
        if unsafe { current().magazine(Tag::of(class)).newest() } == Some(block) {
            misuse::already_free(Call::UsableSize, block.addr());
        }
        return class.bytes();
    }
    // SAFETY: the caller's promise.
    unsafe { calls::usable_size(block) }
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
    if block.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        if HEAP.is_plain() {
            free_plain_from(block, caller);
        } else {
            calls::free(block, caller);
        }
    }
}

/// The rest of [`free_slow_from`], unless the call is watched. Out of line, so that null, which
/// programs free often, costs no stack frame.
///
/// # Safety
/// - As [`free`], of a block that is not null.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
unsafe extern "C" fn free_plain_from(block: *mut u8, caller: usize) {
    if !large::free_short(block.addr(), caller) {
        // SAFETY: the caller's promise.
        unsafe { free_missed_from(block, caller) };
    }
}

/// [`free_plain_from`] of any block but a large one in the first arena.
///
/// # Safety
/// - As [`free`], of a block that is not null.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
unsafe extern "C" fn free_missed_from(block: *mut u8, caller: usize) {
    // Should the process begin here, the block is older than its options.
    let cache = entered_to_free();
    match HEAP.find(block.addr()) {
        // SAFETY: the caller's promise.
        Found::Slab(slab, class) => unsafe { supply::take_back(cache, slab, class, block) },
        Found::Large(place) => large::free(&place, block.addr(), 0),
        // SAFETY: the caller's promise.
        found => unsafe { calls::free_other(block.addr(), found) },
    }
    end_slow_path(caller);
}
