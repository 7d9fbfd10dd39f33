//! Giving memory back on request.

use crate::cache::heap::HEAP;
use crate::slab::depot::Round;

/// Empties all magazines, lets empty slabs go, and gives all free pages back to the kernel, those inside slabs that are partly
/// in use among them. `keep`,
/// the bytes that `malloc_trim` may leave at the top, has no meaning here. True if any page went back.
pub fn trim(_keep: usize) -> bool {
    HEAP.decay_round(Round::All) > 0
}

/// Looks whether the page heap's invariants hold; says which one does not. Takes its lock for long: for tests.
///
/// # Errors
/// The invariant that is broken.
pub fn check_consistency() -> Result<(), &'static str> {
    HEAP.pages.check()
}
