//! Which block serves a request under the measures in force, and the inverse: which requests a
//! block may serve. No other code states it, so the two cannot differ. [`super::harden`] has most
//! classes from a table. Debug builds compare them with these.

use super::stray::CANARY_BYTES;
use crate::base::units::SLICE_BYTES;
use crate::cache::heap::HEAP;
use crate::cache::measures::Measures;
use crate::os::Os;
use crate::os::linux::Linux;
use crate::slab::class::{Class, MAX_BLOCK};

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
