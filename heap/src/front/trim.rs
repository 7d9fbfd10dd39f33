//! Giving memory back on request.

use crate::cache::heap::HEAP;
use crate::os::Os;
use crate::os::linux::Linux;
use crate::slab::Round;

/// Empties all magazines, lets empty slabs go, and gives all free pages back to the kernel, those
/// inside slabs that are partly in use among them. Returns how many bytes of pages went back.
///
/// Where the program locked its memory, free spans go and the pages inside slabs stay: as under
/// glibc, which gives back the top of its heap, while its `MADV_DONTNEED` for holes below fails.
pub fn purge_all() -> usize {
    let bytes = HEAP.decay_round(Round::All);
    match Linux.is_locked() {
        true => bytes + HEAP.pages.purge_locked(),
        false => bytes,
    }
}

/// Keeps `bytes` of free pages resident whatever their age, and gives none of them back by
/// itself; `usize::MAX`: all.
pub fn keep_free(bytes: usize) {
    HEAP.pages.limits().set_kept(bytes);
}

/// Gives up the address space that is reserved and was never used.
pub fn give_up_rest() {
    HEAP.pages.give_up_rest();
}

/// Looks whether the page heap's invariants hold; says which one does not. Takes its lock for long:
/// for tests.
///
/// # Errors
/// The invariant that is broken.
pub fn check_consistency() -> Result<(), &'static str> {
    HEAP.pages.check()
}
