//! How many bytes went back past magazines, and from how many on the purge thread should look.
//!
//! A thread that frees adds its bytes, then reads where the purge thread is due. The purge thread
//! sets that anew, then, before it sleeps, reads the bytes. A full barrier stands between the two
//! steps on either side, so one of the two sees the other's: the thread that frees rings, or the
//! purge thread does not sleep.
//!
//! `testing/freed_models.rs` has the loom model.

use crate::base::sync::{AtomicUsize, Ordering, full_barrier_after_rmw};

/// Freed bytes that are worth waking the purge thread: a wake-up costs some 15 µs.
pub(crate) const FLOOR_BYTES: usize = 2 << 20;

/// The bytes, and where the purge thread is due.
pub struct Freed {
    /// Bytes that went back past a magazine so far; wraps.
    bytes: AtomicUsize,
    /// With more bytes than this, the purge thread is due; wraps.
    most: AtomicUsize,
}

/// Whether `bytes` are more than `most`. Both wrap.
fn exceeds(bytes: usize, most: usize) -> bool {
    bytes.wrapping_sub(most).cast_signed() > 0
}

impl Freed {
    /// Nothing freed yet.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Freed {
        Freed {
            bytes: AtomicUsize::new(0),
            most: AtomicUsize::new(FLOOR_BYTES),
        }
    }

    /// Nothing freed yet.
    #[cfg(loom)]
    pub(crate) fn new() -> Freed {
        Freed {
            bytes: AtomicUsize::new(0),
            most: AtomicUsize::new(FLOOR_BYTES),
        }
    }

    /// Notes that `bytes` went back past a magazine. True if the purge thread is due by these
    /// bytes, and the caller is to ring for it.
    #[inline]
    pub fn note(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        full_barrier_after_rmw();
        let most = self.most.load(Ordering::Relaxed);
        exceeds(before.wrapping_add(bytes), most) && !exceeds(before, most)
    }

    /// The purge thread is due, however little is freed.
    pub fn want(&self) {
        let most = self.bytes().wrapping_sub(1);
        self.most.store(most, Ordering::Relaxed);
    }

    /// Whether the purge thread is due.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        exceeds(self.bytes(), self.most.load(Ordering::Relaxed))
    }

    /// The bytes so far; wraps.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A thread deals with all that was freed so far, or gives up on it: as many bytes as returned.
    pub fn attend(&self) -> usize {
        let bytes = self.bytes();
        self.most
            .store(bytes.wrapping_add(FLOOR_BYTES), Ordering::Relaxed);
        bytes
    }
}
