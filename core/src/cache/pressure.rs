//! What presses for memory: the soft limit, the control group, the machine.

use super::heap::Heap;
use crate::base::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::os::linux::cgroup::{self, GroupLimit};
use crate::slab::depot::{Round, Source};

/// How often the group and the machine are asked, in ms.
const ASK_MS: u64 = 1000;

/// The part of its group's limit that the heap leaves to what it knows nothing of.
const GROUP_PART: usize = 16;

/// From this part of the soft limit on free memory goes back before its time.
const NEAR_PART: usize = 8;

/// Share of the last ten seconds, in hundredths of a percent, that tasks waited for memory, from which on the machine is short of it.
const SHORT: usize = 1000;

/// Least time between two attempts to find memory for a request that failed, in ms.
const RELIEF_MS: u64 = 100;

/// What was found.
pub struct Pressure {
    asked_at: AtomicU64,
    /// The machine is short of memory.
    short: AtomicBool,
    relieved_at: AtomicU64,
    /// Bytes freed past magazines when memory was last looked for.
    relieved: AtomicUsize,
}

impl Pressure {
    /// Nothing known.
    pub const fn new() -> Pressure {
        Pressure {
            asked_at: AtomicU64::new(0),
            short: AtomicBool::new(false),
            relieved_at: AtomicU64::new(0),
            relieved: AtomicUsize::new(usize::MAX),
        }
    }
}

impl Default for Pressure {
    fn default() -> Pressure {
        Pressure::new()
    }
}

impl Heap {
    /// Asks the control group and the machine, at most once a second.
    pub fn look_around(&self) {
        let now = self.now_ms();
        let last = self.pressure.asked_at.load(Ordering::Relaxed);
        if last != 0 && now < last + ASK_MS {
            return;
        }
        self.pressure.asked_at.store(now, Ordering::Relaxed);
        let allowed = cgroup::group_limit().map_or(usize::MAX, |group| self.share_of(group));
        self.pages.limits().set_group(allowed);
        let short = cgroup::memory_pressure().is_some_and(|share| share >= SHORT);
        self.pressure.short.store(short, Ordering::Relaxed);
    }

    /// What a group's limit leaves this heap, when all others stay as they are.
    fn share_of(&self, group: GroupLimit) -> usize {
        let others = group.used.saturating_sub(self.pages.footprint().total());
        (group.limit - group.limit / GROUP_PART).saturating_sub(others)
    }

    /// Whether free memory should go back before its time.
    pub fn is_pressed(&self) -> bool {
        let soft = self.pages.limits().soft();
        let near = || self.pages.footprint().total() > soft - soft / NEAR_PART;
        self.pressure.short.load(Ordering::Relaxed) || (soft != usize::MAX && near())
    }

    /// Gives everything back that nobody uses, for a request of `bytes` that was refused: magazines, slabs, pages. False if that
    /// cannot help, or was done a moment ago, and nothing was freed since. The caller holds no lock.
    #[cold]
    pub fn relieve(&'static self, bytes: usize) -> bool {
        if bytes > self.pages.footprint().total() {
            return false;
        }
        let (now, freed) = (self.now_ms(), self.tide.freed());
        let pressure = &self.pressure;
        let again = now < pressure.relieved_at.load(Ordering::Relaxed) + RELIEF_MS;
        if again && pressure.relieved.load(Ordering::Relaxed) == freed {
            return false;
        }
        self.decay_round(Round::All);
        pressure.relieved_at.store(now, Ordering::Relaxed);
        pressure
            .relieved
            .store(self.tide.freed(), Ordering::Relaxed);
        true
    }
}
