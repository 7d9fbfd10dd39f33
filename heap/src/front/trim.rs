//! Giving memory back on request.

use crate::cache::heap::HEAP;
use crate::os::Os;
use crate::os::linux::Linux;
use crate::slab::depot::Round;

/// Empties all magazines, lets empty slabs go, and gives all free pages back to the kernel, those
/// inside slabs that are partly in use among them. `keep`, the bytes that `malloc_trim` may leave
/// at the top, has no meaning here. True if any page went back.
///
/// Where the program locked its memory, free spans go and the pages inside slabs stay: as under
/// glibc, which gives back the top of its heap, while its `MADV_DONTNEED` for holes below fails.
pub fn trim(_keep: usize) -> bool {
    let bytes = HEAP.decay_round(Round::All);
    let locked = match Linux.is_locked() {
        true => HEAP.pages.purge_locked(),
        false => 0,
    };
    bytes + locked > 0
}

/// Keeps `bytes` of free pages resident whatever their age, and gives none of them back by
/// itself; `usize::MAX`: all.
pub fn keep_free(bytes: usize) {
    HEAP.pages.limits().set_kept(bytes);
}

/// Gives up the address space that is reserved and was never used.
pub fn unreserve() {
    HEAP.pages.unreserve();
}

/// Looks whether the page heap's invariants hold; says which one does not. Takes its lock for long:
/// for tests.
///
/// # Errors
/// The invariant that is broken.
pub fn check_consistency() -> Result<(), &'static str> {
    HEAP.pages.check()
}
