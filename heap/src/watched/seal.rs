//! What stands behind a block of a slab under `NEAP_HARDEN`. With `canary`, it says whether the
//! program has the block and how many bytes it requested.
//!
//! ```text
//!   | requested bytes | slack: zeros | canary: 8 bytes |     a block of the program's
//!   | zeros                          | canary or 0     |     a free block, or one held back
//! ```
//!
//! The canary is a word that a reader without the process's secrets cannot make. It holds the
//! requested size, the form of the call, and whether the block was freed.

use super::rule;
use super::stray::{CANARY_BYTES, canary_at, check_slack};
use crate::base::sync::Ordering;
use crate::cache::heap::{Found, HEAP};
use crate::cache::measures::{Canary, EARLY, Key, Measures};
use crate::cache::misuse::{self, Call};
use crate::cache::tags::{self, Unchecked};
use crate::slab::class::Class;
use core::ptr;

/// What the blocks of a slab have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// All of their bytes are the program's.
    Open,
    /// No bytes, and no access.
    NoBytes,
    /// A canary at their end.
    Canary,
}

/// What the block of `class` at `address` has.
#[inline]
pub fn of(address: usize, class: Class) -> Seal {
    let measures = HEAP.measures();
    match measures.harden() && !EARLY.has(address) {
        true if HEAP.is_no_bytes(class) => Seal::NoBytes,
        true if measures.has(Measures::CANARY) => Seal::Canary,
        _ => Seal::Open,
    }
}

/// How many bytes of a block the program may use, and Neap fills when it is free.
pub(crate) fn held_bytes(seal: Seal, bytes: usize) -> usize {
    match seal {
        Seal::Open => bytes,
        Seal::NoBytes => 0,
        Seal::Canary => bytes - CANARY_BYTES,
    }
}

/// What the canary of a block says; `None` if it was overwritten.
///
/// # Safety
/// - As [`canary_at`].
pub(crate) unsafe fn canary_of(address: usize, class: Class) -> Option<Canary> {
    let _unchecked = Unchecked::begin();
    // SAFETY: the caller's promise.
    let word = unsafe { canary_at(address, class.bytes()) };
    Key::of(address).read(word.load(Ordering::Acquire))
}

/// How many bytes the program has of a block that is not freed: those that it requested, or all.
pub(crate) fn usable(call: Call, address: usize, class: Class) -> usize {
    match of(address, class) {
        Seal::Open => class.bytes(),
        Seal::NoBytes => 0,
        // SAFETY: such a block starts there.
        Seal::Canary => match unsafe { canary_of(address, class) } {
            Some(Canary::Live(_, size)) => size,
            Some(Canary::Freed) => refuse_free(call, address, class),
            None if is_unused(address) => refuse_free(call, address, class),
            None => misuse::canary(call, address, held_bytes(Seal::Canary, class.bytes())),
        },
    }
}

/// Aborts because a call names a block that is free.
#[cold]
fn refuse_free(call: Call, address: usize, class: Class) -> ! {
    match call {
        // By a `delete` or a free that states the size.
        Call::Free => misuse::double_free(address, class.bytes()),
        _ => misuse::already_free(call, address),
    }
}

/// [`usable`] for a block that may be free or overwritten. `None` if it is.
pub(crate) fn bytes_in_use(address: usize, class: Class) -> Option<usize> {
    match of(address, class) {
        Seal::Open => Some(class.bytes()),
        Seal::NoBytes => None,
        // SAFETY: a block of the class starts there.
        Seal::Canary => match unsafe { canary_of(address, class) } {
            Some(Canary::Live(_, size)) => Some(size),
            _ => None,
        },
    }
}

/// Notes that the block at a pointer, which stays where it is, has `size` bytes from now on. False
/// if it has no room for them.
///
/// # Safety
/// - A block of the caller's starts there, in use.
pub(crate) unsafe fn resize(pointer: usize, class: Class, size: usize, align: usize) -> bool {
    let address = tags::strip(pointer);
    let seal = of(address, class);
    let stays = size > 0 && rule::class_for(size, align) == Some(class);
    if seal == Seal::NoBytes || (seal == Seal::Open && !stays) {
        return false;
    }
    if seal == Seal::Canary {
        let _unchecked = Unchecked::begin();
        // SAFETY: the caller's promise.
        let (held, word) =
            unsafe { (canary_of(address, class), canary_at(address, class.bytes())) };
        let Some(Canary::Live(form, held)) = held else {
            return false;
        };
        if HEAP.measures().has(Measures::ZERO) {
            // SAFETY: the caller's promise.
            unsafe {
                check_slack(
                    Call::Realloc,
                    address,
                    held,
                    held_bytes(seal, class.bytes()),
                )
            };
        }
        if !stays {
            return false;
        }
        if size < held {
            // SAFETY: bytes of the block that the program gives up.
            unsafe { ptr::write_bytes((address + size) as *mut u8, 0, held - size) };
        }
        let live = Key::of(address).word(Canary::Live(form, size));
        word.store(live, Ordering::Release);
        // SAFETY: the caller's promise.
        unsafe { tags::tag_resized(pointer, held, size) };
    }
    true
}

/// Whether the program does not have the block that starts there: it is free in its slab, or in a
/// magazine. Slow, so only for the message before an abort.
#[cold]
pub(crate) fn is_unused(address: usize) -> bool {
    let Found::Slab(slab, class) = HEAP.find(address) else {
        return false;
    };
    let number = class.block_at(address - slab.base());
    let is_free = number.is_some_and(|number| slab.is_free(class, number));
    is_free || HEAP.registry.holds(class, address)
}
