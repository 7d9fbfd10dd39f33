//! How many bytes went back past magazines, and whether a thread should deal with them.
//!
//! Whoever frees adds its bytes, then reads the wish. Whoever deals with them forgets the wish,
//! then reads the bytes. A full barrier stands between the two steps on either side, so one of the
//! two sees the other: a wish that is forgotten is for bytes that were read, and bytes that were
//! not read find no wish.
//!
//! `testing/freed_models.rs` has the loom model.

use crate::base::sync::{AtomicBool, AtomicUsize, Ordering, fence, full_barrier_after_rmw};

/// Freed bytes that are worth waking the purge thread: a wake-up costs some 15 µs.
pub(crate) const FLOOR_BYTES: usize = 2 << 20;

/// The bytes, and the wish.
pub struct Freed {
    /// Bytes that went back past a magazine so far; wraps.
    bytes: AtomicUsize,
    /// What `bytes` was when a thread last dealt with it.
    attended: AtomicUsize,
    /// More than the floor was freed since.
    wanted: AtomicBool,
}

impl Freed {
    /// Nothing freed yet.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Freed {
        Freed {
            bytes: AtomicUsize::new(0),
            attended: AtomicUsize::new(0),
            wanted: AtomicBool::new(false),
        }
    }

    /// Nothing freed yet.
    #[cfg(loom)]
    pub(crate) fn new() -> Freed {
        Freed {
            bytes: AtomicUsize::new(0),
            attended: AtomicUsize::new(0),
            wanted: AtomicBool::new(false),
        }
    }

    /// Notes that `bytes` went back past a magazine. True if a thread should deal with them, and
    /// the caller is to [wish](Freed::want) for that.
    #[inline]
    pub fn note(&self, bytes: usize) -> bool {
        let freed = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        full_barrier_after_rmw();
        let freed = freed.wrapping_add(bytes);
        // Negative if a thread has dealt with later bytes meanwhile.
        let since = freed.wrapping_sub(self.attended.load(Ordering::Relaxed)) as isize;
        let over = since > FLOOR_BYTES as isize;
        // The first to say so has rung. Or `attend` has not seen these bytes, and its word is read.
        over && !self.wanted.load(Ordering::Relaxed)
    }

    /// A thread should deal with what is freed, however little that is.
    #[inline]
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Whether a thread should deal with what is freed.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// The bytes so far; wraps.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A thread deals with all that was freed so far, or gives up on it: as many bytes as returned.
    pub fn attend(&self) -> usize {
        self.forget();
        fence(Ordering::SeqCst);
        self.read()
    }

    /// The first half of [`Freed::attend`].
    #[inline]
    pub(crate) fn forget(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// The second half.
    #[inline]
    pub(crate) fn read(&self) -> usize {
        let freed = self.bytes.load(Ordering::Relaxed);
        self.attended.store(freed, Ordering::Relaxed);
        freed
    }
}
