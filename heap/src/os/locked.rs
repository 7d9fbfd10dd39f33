//! Whether the program locked its memory (`mlockall`).
//!
//! A program that does so wants no page fault later, so no page that it had once may go: neither by
//! advice that works on locked memory nor by mapping afresh. Who calls `mlockall` past the
//! library's own wrapper is noticed by range, for the kernel refuses `MADV_DONTNEED` there.

use crate::base::sync::plain::{AtomicBool, Ordering};

static LOCKED: AtomicBool = AtomicBool::new(false);

/// Whether the program is known to have locked its memory.
#[inline]
pub fn is_locked() -> bool {
    LOCKED.load(Ordering::Relaxed)
}

/// The program locked its memory.
pub fn note_locked() {
    LOCKED.store(true, Ordering::Relaxed);
}

/// The program unlocked its memory, or this process is the child of one that locked its own: locks
/// are not inherited.
pub fn note_unlocked() {
    // Writes only where it must: in a fork's child a write costs a page.
    if LOCKED.load(Ordering::Relaxed) {
        LOCKED.store(false, Ordering::Relaxed);
    }
}
