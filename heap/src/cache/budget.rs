//! How many bytes the magazines may hold: one bound for each thread and one for the process.

use crate::base::sync::{AtomicUsize, Ordering};
use crate::os::process::{Hardware as Machine, hardware};

/// Default bound for a thread, in bytes.
pub const THREAD_BYTES: usize = 1 << 20;
/// Least default bound for the process, in bytes.
pub const LEAST_PROCESS_BYTES: usize = 64 << 20;
/// Most of the default bound for the process, in bytes.
const MOST_PROCESS_BYTES: usize = 4 << 30;
/// The same for each processor that the process may run on.
const PROCESSOR_BYTES: usize = 256 << 20;
/// The same as a part of the memory of the machine, and of the control group.
const MEMORY_PART: usize = 32;
/// Most bytes one magazine may hold.
pub const MAGAZINE_BYTES: usize = 128 << 10;
/// The same of a deep magazine: one that was refilled after a flush.
pub const DEEP_BYTES: usize = 8 << 20;
/// Beyond the plain bound, a thread's magazines may have this many times the thread's bound.
pub const DEEP_THREAD: usize = 8;
/// Most entries of one magazine.
pub const MAGAZINE_ENTRIES: usize = 2048;
/// Bytes of a magazine's first capacity (at least one block, at most [`FIRST_ENTRIES`]).
pub const FIRST_BYTES: usize = 4 << 10;
/// Most entries of a magazine's first capacity.
pub const FIRST_ENTRIES: usize = 16;

/// The part of the process's bound that is kept for threads that have less than their share.
const RESERVE_PART: usize = 8;
/// The part of a thread's bound that is kept for first capacities.
const FIRST_PART: usize = 4;
/// The value of a bound that was not set.
const DEFAULT: usize = usize::MAX;

/// What has been granted of the process's bound. The bounds are read one at a time, because they do
/// not depend on each other. A cache notes a grant before `granted` counts it, and notes the end of
/// a grant after `granted` has subtracted it (`Heap::restore`).
pub struct Budget {
    thread: AtomicUsize,
    /// [`DEFAULT`], or what was set.
    process: AtomicUsize,
    /// The default bound for this machine; 0 until more than the least one is requested.
    of_machine: AtomicUsize,
    /// Bytes that the control group allows.
    group: AtomicUsize,
    granted: AtomicUsize,
}

/// The default bound for the process on a machine.
fn default_for(machine: Machine) -> usize {
    let most = machine.processors.saturating_mul(PROCESSOR_BYTES);
    let most = most
        .min(MOST_PROCESS_BYTES)
        .min(machine.bytes / MEMORY_PART);
    most.max(LEAST_PROCESS_BYTES)
}

/// Which bytes of a magazine a grant is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Up to [`MAGAZINE_BYTES`], within the plain bound of the thread.
    Plain,
    /// Those beyond. They are granted while all magazines of the process have at most `most`, and
    /// at most half of the process's bound.
    Deep {
        /// Bytes.
        most: usize,
    },
}

/// Whether a magazine may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Granted,
    /// The thread has as much as one thread may have.
    ThreadFull,
    /// All threads together have as much as they may have, and this one has its share.
    ProcessFull,
}

impl Budget {
    /// The default bounds, nothing granted.
    pub const fn new() -> Budget {
        Budget {
            thread: AtomicUsize::new(THREAD_BYTES),
            process: AtomicUsize::new(DEFAULT),
            of_machine: AtomicUsize::new(0),
            group: AtomicUsize::new(usize::MAX),
            granted: AtomicUsize::new(0),
        }
    }

    /// Sets the bound for a thread, in bytes. It applies only to later growth.
    pub fn set_thread(&self, bytes: usize) {
        self.thread.store(bytes, Ordering::Relaxed);
    }

    /// Sets the bound for the process, in bytes. It applies only to later growth.
    pub fn set_process(&self, bytes: usize) {
        self.process.store(bytes, Ordering::Relaxed);
    }

    /// Sets how many bytes the control group allows. A bound that was set stays in force.
    pub fn note_group(&self, bytes: usize) {
        self.group.store(bytes, Ordering::Relaxed);
    }

    /// Bytes granted to all magazines together.
    pub fn granted(&self) -> usize {
        self.granted.load(Ordering::Relaxed)
    }

    /// The most that a thread's magazines may have that are not deep, first capacities apart.
    pub fn plain_bytes(&self) -> usize {
        let thread = self.thread.load(Ordering::Relaxed);
        thread - thread / FIRST_PART
    }

    /// Grants `bytes` more to one of `threads` threads, which has `held` in this depth, if it may
    /// have them. Returns whether it did.
    ///
    /// Near the process's bound only threads that have less than their share get more.
    pub fn grant(&self, depth: Depth, held: usize, bytes: usize, threads: usize) -> Verdict {
        let most = match depth {
            Depth::Plain => self.plain_bytes(),
            Depth::Deep { .. } => self.thread.load(Ordering::Relaxed) * DEEP_THREAD,
        };
        if held + bytes > most {
            return Verdict::ThreadFull;
        }
        let total = self.granted.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let most = match depth {
            Depth::Plain => self.bound(total),
            Depth::Deep { most } => most.min(self.bound(2 * total) / 2),
        };
        let has_share = held + bytes > most / threads.max(1);
        if total > most || has_share && total > most - most / RESERVE_PART {
            self.restore(bytes);
            return Verdict::ProcessFull;
        }
        Verdict::Granted
    }

    /// Grants a first capacity of `bytes` to a thread that has `held`, whatever the other threads
    /// have; false if the thread's bound would be passed.
    pub fn grant_first(&self, held: usize, bytes: usize) -> bool {
        let fits = held + bytes <= self.thread.load(Ordering::Relaxed);
        if fits {
            self.granted.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Whether one of `threads` threads, which has `held`, should make room for those that have
    /// less.
    pub fn owes(&self, held: usize, threads: usize) -> bool {
        let total = self.granted();
        let most = self.bound(total);
        total > most - most / RESERVE_PART && held > most / threads.max(1)
    }

    /// The process's bound, if `total` bytes are granted. It looks up the machine's memory only
    /// beyond the least default, and only once.
    fn bound(&self, total: usize) -> usize {
        let set = self.process.load(Ordering::Relaxed);
        if set != DEFAULT {
            return set;
        }
        if total <= LEAST_PROCESS_BYTES - LEAST_PROCESS_BYTES / RESERVE_PART {
            return LEAST_PROCESS_BYTES;
        }
        let of_machine = match self.of_machine.load(Ordering::Relaxed) {
            0 => {
                let asked = hardware().map_or(LEAST_PROCESS_BYTES, default_for);
                self.of_machine.store(asked, Ordering::Relaxed);
                asked
            }
            known => known,
        };
        let of_group = self.group.load(Ordering::Relaxed) / MEMORY_PART;
        of_machine.min(of_group.max(LEAST_PROCESS_BYTES))
    }

    /// Takes a grant back.
    pub fn restore(&self, bytes: usize) {
        let before = self.granted.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more is given back than was granted");
    }

    /// In a fork's child only one thread is left, which holds `bytes`.
    pub fn reset(&self, bytes: usize) {
        self.granted.store(bytes, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn both_bounds_hold() {
        let budget = Budget::new();
        budget.set_thread(400);
        budget.set_process(800);
        assert_eq!(budget.grant(Depth::Plain, 0, 301, 1), Verdict::ThreadFull);
        assert_eq!(budget.grant(Depth::Plain, 0, 300, 2), Verdict::Granted);
        assert_eq!(budget.grant(Depth::Plain, 0, 300, 2), Verdict::Granted);
        assert_eq!(budget.grant(Depth::Plain, 0, 201, 2), Verdict::ProcessFull);
        budget.restore(300);
        assert_eq!(budget.grant(Depth::Plain, 0, 201, 2), Verdict::Granted);
        assert_eq!(budget.granted(), 501);
    }

    #[test]
    fn the_last_part_is_for_threads_below_their_share() {
        let budget = Budget::new();
        budget.set_process(8 * MIB);
        assert_eq!(budget.grant(Depth::Plain, 0, MIB / 2, 16), Verdict::Granted);
        (0..13)
            .for_each(|_| assert_eq!(budget.grant(Depth::Plain, 0, MIB / 2, 16), Verdict::Granted));
        // Seven of eight are granted, and the share is half a MiB.
        assert_eq!(
            budget.grant(Depth::Plain, MIB / 2, 1, 16),
            Verdict::ProcessFull
        );
        assert_eq!(
            budget.grant(Depth::Plain, MIB / 4, MIB / 4, 16),
            Verdict::Granted
        );
        assert!(budget.owes(MIB / 2 + 1, 16) && !budget.owes(MIB / 2, 16));
    }

    #[test]
    fn deep_magazines_have_bounds_of_their_own() {
        let budget = Budget::new();
        budget.set_process(40 * MIB);
        let deep = |most, held| budget.grant(Depth::Deep { most }, held, MIB, 1);
        assert_eq!(deep(usize::MAX, 7 * MIB), Verdict::Granted);
        assert_eq!(deep(usize::MAX, 8 * MIB), Verdict::ThreadFull);
        assert_eq!(deep(2 * MIB, 0), Verdict::Granted);
        assert_eq!(deep(2 * MIB, 0), Verdict::ProcessFull);
        assert_eq!(deep(0, 0), Verdict::ProcessFull);
        (2..20).for_each(|_| assert_eq!(deep(usize::MAX, 0), Verdict::Granted));
        assert_eq!(
            deep(usize::MAX, 0),
            Verdict::ProcessFull,
            "half of the bound"
        );
        assert_eq!(budget.granted(), 20 * MIB);
    }

    #[test]
    fn a_first_capacity_is_refused_by_the_threads_own_bound_only() {
        let budget = Budget::new();
        budget.set_process(0);
        assert!(budget.grant_first(0, 4096));
        assert_eq!(budget.granted(), 4096);
        budget.set_thread(0);
        assert!(!budget.grant_first(0, 4096));
    }

    #[test]
    fn the_default_follows_memory_and_processors() {
        let of = |bytes, processors| default_for(Machine { bytes, processors }) / MIB;
        assert_eq!(of(MIB << 10, 2), 64, "at least 64 MiB");
        assert_eq!(of(MIB << 13, 2), 256, "a part of the memory");
        assert_eq!(of(MIB << 18, 2), 512, "so much a processor");
        assert_eq!(of(MIB << 20, 128), 4096, "at most 4 GiB");
    }

    #[test]
    fn a_control_group_counts_as_the_machines_memory() {
        let budget = Budget::new();
        budget.of_machine.store(1024 * MIB, Ordering::Relaxed);
        budget.note_group(8 << 30);
        assert_eq!(budget.bound(100 * MIB), 256 * MIB);
        budget.note_group(1 << 30);
        assert_eq!(budget.bound(100 * MIB), LEAST_PROCESS_BYTES);
    }
}
