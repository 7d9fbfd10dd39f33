//! The counters of a thread's cache: how many blocks may be given out before the profiler's next
//! sample, how often a magazine misses, and the calls that the counting mode counts.

use super::magazine::Magazine;
use crate::base::sync::plain::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};
use crate::base::sync::{AtomicUsize, Ordering};

/// One class's blocks before the next sample, and its misses. As long as a magazine, so that a tag
/// finds it without a shift.
#[repr(C)]
pub struct Countdown {
    /// Entries of the magazine at and above this address may be popped by `pop_sampling`; above
    /// every entry unless the fast path is [`super::bounds::FastPath::Sampling`]. Written under the
    /// cache's lock.
    pub(super) bottom: AtomicUsize,
    /// Blocks to be given out before the next sample; below 0, that one is due. Written by the
    /// owner, and under the cache's lock by a thread that switches sampling, while `bottom` keeps
    /// the owner from it. (An owner that read the old `bottom` just before may still write its own
    /// count: one draw too many or too few.)
    pub until_sample: AtomicI32,
    /// Refills and flushes since the magazine was last considered for shrinking, and [`FLUSHED`].
    /// Under the cache's lock.
    misses: AtomicU32,
    /// Refills so far; wraps. Under the cache's lock.
    refills: AtomicU32,
    /// Flushes so far; wraps. Under the cache's lock.
    flushes: AtomicU32,
}

const _: () = assert!(size_of::<Countdown>() == size_of::<Magazine>());

/// The rate of a cache's draws, and the countdown for blocks of no class. Written by the owner, and
/// under the cache's lock when sampling is switched: as with [`Countdown::until_sample`], either
/// may stay.
pub struct Drawn {
    /// The rate, in bytes.
    pub rate: AtomicU64,
    /// Bytes of large blocks to be given out before the next sampled one.
    pub bytes: AtomicI64,
}

impl Drawn {
    /// Nothing was drawn.
    pub const fn nothing() -> Drawn {
        Drawn {
            rate: AtomicU64::new(0),
            bytes: AtomicI64::new(0),
        }
    }

    /// Mean bytes between two samples; 0: none are taken.
    pub fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// A large block is given out. False if it is to be sampled.
    pub fn pass(&self, bytes: usize) -> bool {
        let ahead = self.bytes.load(Ordering::Relaxed) - bytes as i64;
        self.bytes.store(ahead.max(0), Ordering::Relaxed);
        ahead >= 0
    }
}

/// A magazine was flushed and not refilled since.
const FLUSHED: u32 = 1 << 31;

/// Why a magazine missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// It was empty.
    Refill = 0,
    /// It was full.
    Flush = 1,
}

/// How blocks move between a magazine and its slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// As far as the last two misses show, one way.
    OneWay,
    /// One way, and another thread moves them the other way.
    Across,
    /// This refill takes blocks that a larger magazine would still hold.
    ToAndFro,
}

/// Where the blocks of a magazine that misses go to, or come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Slabs,
    /// The exchange: another thread moves them the other way.
    Across,
    /// The exchange: the same thread wants them back.
    Beyond,
}

impl Way {
    /// How many blocks pass through the exchange at most, where `part` visit slabs.
    pub(super) fn most(self, part: usize) -> usize {
        match self {
            Way::Across => usize::MAX,
            _ => part,
        }
    }
}

/// A magazine's misses are mostly of one kind if there are this many times as many as of the other.
/// A refill may get the blocks of one slab only, so there may be several for each flush.
const MOSTLY: u32 = 16;

impl Countdown {
    /// Nothing is sampled.
    pub const fn off() -> Countdown {
        Countdown {
            bottom: AtomicUsize::new(0),
            until_sample: AtomicI32::new(0),
            misses: AtomicU32::new(0),
            refills: AtomicU32::new(0),
            flushes: AtomicU32::new(0),
        }
    }

    /// Notes that the magazine is too small, and tells whether this is a refill after a flush.
    pub(super) fn note_miss(&self, miss: Miss) -> Flow {
        let before = self.misses.load(Ordering::Relaxed);
        let flag = (miss as u32) << FLUSHED.trailing_zeros();
        let misses = before.wrapping_add(1) & !FLUSHED;
        self.misses.store(misses | flag, Ordering::Relaxed);
        match before & !flag & FLUSHED {
            0 => Flow::OneWay,
            _ => Flow::ToAndFro,
        }
    }

    /// Misses since the magazine was last considered for shrinking.
    pub(super) fn misses(&self) -> u32 {
        self.misses.load(Ordering::Relaxed) & !FLUSHED
    }

    /// Counts a refill or a flush.
    pub(super) fn note(&self, miss: Miss) {
        match miss {
            Miss::Refill => add(&self.refills),
            Miss::Flush => add(&self.flushes),
        }
    }

    /// Whether nearly all misses are of this kind.
    pub(super) fn is_mostly(&self, miss: Miss) -> bool {
        let [refills, flushes] = self.refills_and_flushes();
        let (most, least) = match miss {
            Miss::Refill => (refills, flushes),
            Miss::Flush => (flushes, refills),
        };
        most >= MOSTLY && most / MOSTLY >= least
    }

    /// Refills so far, and flushes.
    pub fn refills_and_flushes(&self) -> [u32; 2] {
        [&self.refills, &self.flushes].map(|count| count.load(Ordering::Relaxed))
    }

    /// Misses since the last call.
    pub(super) fn take_misses(&self) -> u32 {
        let misses = self.misses.load(Ordering::Relaxed);
        self.misses.store(misses & FLUSHED, Ordering::Relaxed);
        misses & !FLUSHED
    }

    /// One more block is given out. False if it is to be sampled.
    #[inline(always)]
    pub fn pass(&self) -> bool {
        let ahead = self.until_sample.load(Ordering::Relaxed);
        if ahead <= 0 {
            return false;
        }
        self.until_sample.store(ahead - 1, Ordering::Relaxed);
        true
    }
}

/// Adds one to a number that is written under a lock.
fn add(count: &AtomicU32) {
    let more = count.load(Ordering::Relaxed).wrapping_add(1);
    count.store(more, Ordering::Relaxed);
}

/// Calls as the counting mode counts them.
pub struct Counts {
    /// Blocks handed out.
    pub allocations: AtomicU64,
    /// Blocks taken back.
    pub frees: AtomicU64,
    /// Bytes asked for, summed over all allocations.
    pub requested: AtomicU64,
}

impl Counts {
    /// All zero.
    pub const fn new() -> Counts {
        Counts {
            allocations: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            requested: AtomicU64::new(0),
        }
    }

    /// Allocations, frees, requested bytes.
    pub fn all(&self) -> [u64; 3] {
        [&self.allocations, &self.frees, &self.requested].map(|count| count.load(Ordering::Relaxed))
    }

    /// Adds `by` to a counter that only this thread writes.
    pub fn bump(counter: &AtomicU64, by: u64) {
        let sum = counter.load(Ordering::Relaxed).wrapping_add(by);
        counter.store(sum, Ordering::Relaxed);
    }
}
