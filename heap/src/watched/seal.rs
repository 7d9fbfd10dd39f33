//! What stands behind a block of a slab under `NEAP_HARDEN`, and which block serves a request
//! there.
//!
//! With `canary`, what stands behind a block says whether the program has the block and how many
//! bytes it requested.
//!
//! ```text
//!   | requested bytes | slack: zeros | canary: 8 bytes |     a block of the program's
//!   | zeros                          | canary or 0     |     a free block, or one held back
//! ```
//!
//! The canary is a word that a reader without the process's secrets cannot make. It holds the
//! requested size, the form of the call, and whether the block was freed.
//!
//! [`class_for`] says which block serves a request under the measures in force, and
//! [`least_request`] is its inverse. No other code states it, so the two cannot differ.
//! [`super::harden`] has most classes from a table. Debug builds compare them with these.

use super::stray::{CANARY_BYTES, canary_at, check_slack};
use crate::base::sync::Ordering;
use crate::base::units::SLICE_BYTES;
use crate::cache::heap::{Found, HEAP};
use crate::cache::measures::{Canary, EARLY, Key, Measures};
use crate::cache::misuse::{self, Call};
use crate::cache::tags::{self, Unchecked};
use crate::os::Os;
use crate::os::linux::Linux;
use crate::slab::class::{Class, MAX_BLOCK};
use core::ptr;

/// How the measures in force assign classes to requests.
#[derive(Clone, Copy)]
struct Rule {
    /// Bytes of a block's canary; 0 if blocks have none.
    canary: usize,
    /// The class of blocks of no bytes.
    no_bytes: Option<Class>,
}

impl Rule {
    fn in_force() -> Rule {
        let has_canary = HEAP.measures().has(Measures::CANARY);
        Rule {
            canary: usize::from(has_canary) * CANARY_BYTES,
            no_bytes: HEAP.class_of_no_bytes(),
        }
    }

    /// The class for `size` bytes at a multiple of `align` and what stands behind them; `None` if
    /// no slab serves it. Blocks of the class of no bytes are multiples of 16 only.
    fn class_for(self, size: usize, align: usize) -> Option<Class> {
        if size == 0 && align <= 16 && self.no_bytes.is_some() {
            return self.no_bytes;
        }
        match Class::of_layout(size.checked_add(self.canary)?, align.max(16)) {
            Some(class) if Some(class) == self.no_bytes => Rule::after(class, align),
            class => class,
        }
    }

    /// The class that serves what the class of no bytes would serve otherwise.
    fn after(no_bytes: Class, align: usize) -> Option<Class> {
        Class::of_layout(no_bytes.bytes() + 1, align.max(16))
    }

    /// The inverse of [`Rule::class_for`] at an alignment of 16: the smallest request that gets a
    /// block of `class`. Blocks older than the measures were requested with as many bytes or more.
    fn least_request(self, class: Class) -> usize {
        let served = match self.no_bytes {
            Some(no_bytes) if no_bytes == class => return 0,
            Some(no_bytes) if Rule::after(no_bytes, 16) == Some(class) => no_bytes,
            _ => class,
        };
        served.least_request().saturating_sub(self.canary)
    }
}

/// The class for `size` bytes at a multiple of `align`; `None` if no slab serves it.
pub(crate) fn class_for(size: usize, align: usize) -> Option<Class> {
    match guards(size) {
        true => None,
        false => Rule::in_force().class_for(size, align),
    }
}

/// The smallest request for which a block of `class` may have been handed out, alignment apart.
pub(crate) fn least_request(class: Class) -> usize {
    Rule::in_force().least_request(class)
}

/// The smallest request that no slab serves, alignment and guards apart.
pub(crate) fn least_large_request() -> usize {
    MAX_BLOCK + 1 - Rule::in_force().canary
}

/// Requests of more bytes than this get a block between guards, where guards are in force.
const MOST_UNFENCED: usize = 4096 - CANARY_BYTES;

/// Whether a request of `size` bytes gets a block between guards. No slice has room for them if it
/// is one OS page.
pub(crate) fn guards(size: usize) -> bool {
    HEAP.measures().has(Measures::GUARDS)
        && size > MOST_UNFENCED
        && Linux.page_bytes() < SLICE_BYTES
}

/// The smallest request that gets a block of `bytes` bytes between guards.
pub(crate) fn least_fenced_request(bytes: usize) -> usize {
    let before = bytes.saturating_sub(Linux.page_bytes());
    before.max(MOST_UNFENCED) + 1
}

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
    let stays = size > 0 && class_for(size, align) == Some(class);
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_least_request_of_each_class_is_the_boundary_under_every_rule() {
        for canary in [0, CANARY_BYTES] {
            for no_bytes in [None, Class::of_no_bytes()] {
                let rule = Rule { canary, no_bytes };
                let class_of = |size| rule.class_for(size, 16);
                for size in 0..=MAX_BLOCK - canary {
                    let class = class_of(size).unwrap();
                    let least = rule.least_request(class);
                    assert!(class.bytes() >= size + canary || Some(class) == no_bytes);
                    // An older block may have no bytes.
                    assert!(least <= size && (least == 0 || class_of(least) == Some(class)));
                    let below = least.checked_sub(1).and_then(class_of);
                    assert_ne!(below, Some(class));
                    // A block that is older than the measures.
                    let older = Class::serving(size);
                    assert!(rule.least_request(older) <= size);
                }
                assert_eq!(class_of(MAX_BLOCK + 1 - canary), None);
            }
        }
    }
}
