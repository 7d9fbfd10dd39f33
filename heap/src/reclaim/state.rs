//! What the rounds of decay and the look for pressure need to know of the heap's life.

use super::wakeup::{Bell, Freed, Pair, Urgency};
use crate::base::policy::{ASK_MS, Reason};
use crate::base::sync::plain::AtomicU32;
use crate::base::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, UnsafeCell};
use crate::os::lock::{Lock, Rank};
use crate::slab::class::Class;
use crate::slab::decommitted::Cursor;

/// What the rounds of decay need to know of the heap's life.
pub struct Tide {
    /// Held during a step that a fork must not cut in two. See [`crate::os::lock_order`].
    pub step: Lock,
    /// What went back past magazines.
    pub freed: Freed,
    /// The round that callers do on their way. Guarded by: step.
    pub(super) on_the_way: UnsafeCell<Round>,
    /// Bytes that the heap held when that round began.
    pub(super) began_with: AtomicUsize,
    /// Where the purge thread sleeps.
    pub bell: Bell<Pair>,
    /// The thread is to end.
    ends: AtomicBool,
    /// The thread must give back what it can before it ends, because no thread may follow it.
    pub(super) leaves_clean: AtomicBool,
}

// SAFETY: the cell is reached only under `step`.
unsafe impl Sync for Tide {}

impl Tide {
    /// Nothing freed yet.
    pub(crate) const fn new() -> Tide {
        Tide {
            step: Lock::new(Rank::Step),
            on_the_way: UnsafeCell::new(Round {
                reason: Reason::Age,
                stage: Stage::Over,
                began: 0,
                gained: 0,
            }),
            began_with: AtomicUsize::new(0),
            freed: Freed::new(),
            bell: Bell::new(),
            ends: AtomicBool::new(false),
            leaves_clean: AtomicBool::new(false),
        }
    }

    /// Notes that `bytes` went back past a magazine. Wakes the purge thread if it is due by these.
    #[inline]
    pub fn note_freed(&self, bytes: usize) {
        if self.freed.note(bytes) {
            self.bell.ring(Urgency::Soon);
        }
    }

    /// The purge thread should deal with what is freed, however little that is. Wakes it if it is
    /// parked.
    #[cold]
    pub fn want(&self) {
        self.freed.want();
        self.bell.ring(Urgency::Soon);
    }

    /// A thread is about to begin: what its predecessor was told is void.
    pub fn begin(&self) {
        self.ends.store(false, Ordering::SeqCst);
        self.leaves_clean.store(false, Ordering::SeqCst);
    }

    /// Tells the thread to end.
    pub fn end_soon(&self) {
        self.ends.store(true, Ordering::SeqCst);
        self.bell.ring(Urgency::Now);
    }

    /// Whether the thread is to end.
    pub fn is_to_end(&self) -> bool {
        self.ends.load(Ordering::SeqCst)
    }
}

/// What [`Pressure::gathering`] says: no thread gathers free memory, or one does.
pub(super) const AT_REST: u32 = 0;
pub(super) const AT_WORK: u32 = 1;

/// A round, in bounded steps.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) reason: Reason,
    pub(super) stage: Stage,
    /// When it began, in ms.
    pub(super) began: u64,
    /// Bytes that it gave back so far.
    pub(super) gained: usize,
}

/// Where a round stands. What a stage frees, a later one gives back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// This shard of cached spans is next.
    Cached(usize),
    /// The blocks of this class in the exchange are next; `None` if no more are to go.
    Exchange(Option<Class>),
    /// So many threads' caches are still to be looked at.
    Magazines(usize),
    Stacks,
    Slabs(Cursor),
    Over,
}

/// What was found.
pub struct Pressure {
    pub(super) asked_at: AtomicU64,
    /// The most bytes that the heap was found to hold. Each reading lowers it a little.
    pub(super) most_held: AtomicUsize,
    /// The machine is short of memory.
    pub(super) short: AtomicBool,
    /// Whether a thread gathers free memory for a refused request; waited on.
    pub(super) gathering: AtomicU32,
    pub(super) relieved_at: AtomicU64,
    /// Bytes freed past magazines when free memory was last gathered.
    pub(super) relieved: AtomicUsize,
    /// Requests for a block that a limit or the kernel refused.
    pub refused: AtomicU64,
}

impl Pressure {
    /// Nothing known.
    pub(crate) const fn new() -> Pressure {
        Pressure {
            asked_at: AtomicU64::new(0),
            most_held: AtomicUsize::new(0),
            short: AtomicBool::new(false),
            gathering: AtomicU32::new(AT_REST),
            relieved_at: AtomicU64::new(0),
            relieved: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// In a fork's child: the thread that gathered stayed in the parent.
    pub fn rest(&self) {
        // Writes only where it must: in a child a write costs a page.
        if self.gathering.load(Ordering::Relaxed) != AT_REST {
            self.gathering.store(AT_REST, Ordering::Relaxed);
        }
    }

    /// Whether the group and the machine may be asked again at `now` (ms).
    pub fn is_outdated(&self, now: u64) -> bool {
        let last = self.asked_at.load(Ordering::Relaxed);
        last == 0 || now >= last + ASK_MS
    }
}
