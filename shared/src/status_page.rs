//! Plain data: the status page, which the documentation calls the status page. Other processes of
//! the same user read figures there, and make requests through it.
//!
//! The process maps a memory file at its start and seals its size. It keeps a descriptor open on
//! the file, through which observers find it (`/proc/PID/fd/N`, a link to
//! `/memfd:neap-status (deleted)`). All fields are 64-bit words, so any bytes are a valid value.
//! Neither side trusts the other's data. The process only notices that a number in [`Control`]
//! changed, and bounds the rest. A reader must expect arbitrary bytes from a hostile process.
//!
//! ```text
//!   HEAD_AT       Head      written once
//!   CONTROL_AT    Control   written by observers
//!   SERVED_AT     Served    which requests were served
//!   ARENAS_AT     Arenas    where the heap is
//!   COARSE_AT     Coarse    kept up to date by the page heap: a sequence number, then the figures
//!   FIGURES_AT    a sequence number, then a Snapshot: written on request
//!   SIZES_AT      [SizeFigure; SIZES]: requested sizes, in the counting mode only
//! ```
//!
//! A sequence number is odd while its writer changes the data behind it. A reader loads it before
//! and after reading. If it was odd or has changed, the reader tries again.

use crate::classes::MAX_BLOCK;
use crate::stats::{Snapshot, SpanFigures, USES};
use bytemuck::{Pod, Zeroable};
use core::ops::RangeInclusive;

/// The memory file's name.
pub const NAME: &core::ffi::CStr = c"neap-status";
/// The status page's first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NeapBord");
/// The layout's version; changes with every change of this file or of [`Snapshot`].
pub const VERSION: u64 = 6;

/// Offset of [`Head`] in bytes; the constants below are the offsets of the other parts.
pub const HEAD_AT: usize = 0;
/// See [`HEAD_AT`].
pub const CONTROL_AT: usize = 512;
/// See [`HEAD_AT`].
pub const SERVED_AT: usize = 1024;
/// See [`HEAD_AT`].
pub const ARENAS_AT: usize = 1280;
/// See [`HEAD_AT`].
pub const COARSE_AT: usize = 2048;
/// See [`HEAD_AT`].
pub const FIGURES_AT: usize = 4096;
/// See [`HEAD_AT`].
pub const SIZES_AT: usize = 64 << 10;
/// Bytes of the whole status page.
pub const BYTES: usize = (SIZES_AT + SIZES * size_of::<SizeFigure>()).next_multiple_of(64 << 10);

/// The table of sizes counts in steps of this many bytes.
pub const SIZE_STEP: usize = 8;
/// Entries of the table of sizes. Entry `n` counts sizes over `8 * (n - 1)` and up to `8 * n`
/// bytes; the last one counts all sizes that no slab serves.
pub const SIZES: usize = MAX_BLOCK / SIZE_STEP + 2;

/// Written once, before the status page can be found.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u64,
    /// [`BYTES`].
    pub bytes: u64,
    /// The process's ID.
    pub pid: u64,
    /// Bytes of an OS page.
    pub page_bytes: u64,
    /// 1: the C frontend (libneap.so); 2: a Rust program's own allocator.
    pub frontend: u64,
    /// When the process made the status page, in ms of `CLOCK_MONOTONIC`.
    pub made_ms: u64,
}

/// Requests. Observers write them, 8 bytes at a time; the process never does.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Control {
    /// A new number: write the figures soon.
    pub ask: u64,
    /// When the observer's lease ends, in ms of `CLOCK_MONOTONIC`. Until then the purge thread
    /// writes the figures at intervals. The process honours at most [`LEASE_MS`] from now.
    pub lease_until_ms: u64,
    /// The interval, in ms; at least [`LEAST_INTERVAL_MS`].
    pub interval_ms: u64,
    /// A new number: give all free pages back to the kernel.
    pub purge: u64,
    /// A new number: sample at `sample_rate`.
    pub sample: u64,
    /// Mean bytes between two samples; 0: off.
    pub sample_rate: u64,
    /// A new number: guard allocations as `guard_interval` says.
    pub guard: u64,
    /// Which allocations: the word of a [`Guards`].
    pub guard_interval: u64,
    /// The purge thread sleeps on the first four bytes, as on a futex that processes share. After
    /// writing a request, an observer adds 1 to them with an atomic addition in its own mapping,
    /// and wakes all sleepers.
    pub bell: u64,
}

/// The longest lease, in ms.
pub const LEASE_MS: u64 = 60_000;
/// The shortest interval, in ms.
pub const LEAST_INTERVAL_MS: u64 = 20;

/// Requests served. Each word is valid by itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// The last [`Control::ask`] that the process answered with figures.
    pub ask: u64,
    /// The last [`Control::purge`] that the process carried out.
    pub purge: u64,
    /// Bytes that this purge gave back.
    pub purged_bytes: u64,
    /// The last [`Control::sample`] that the process considered.
    pub sample: u64,
    /// The rate in force; 0: off.
    pub sample_rate: u64,
    /// Why the process refused, if it did: see [`Refusal`].
    pub sample_refusal: u64,
    /// The last [`Control::guard`] that the process considered.
    pub guard: u64,
    /// Which allocations are guarded: the word of a [`Guards`].
    pub guard_interval: u64,
    /// Why the process refused, if it did: see [`Refusal`].
    pub guard_refusal: u64,
    /// Guarded blocks handed out so far. Written with each block.
    pub guarded_blocks: u64,
    /// Memory errors that these have shown so far. Written before the report of each.
    pub memory_errors: u64,
    /// How many times the process wrote the figures.
    pub written: u64,
    /// Processor time spent writing them, in total, in ns.
    pub cost_ns: u64,
    /// Whether the process has a thread that answers: see [`ThreadState`].
    pub thread: u64,
}

/// Whether the process has a purge thread, and why not.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    /// Not yet: the heap is small, or there was no safe moment to start it.
    NotYet = 0,
    /// It runs.
    Here = 1,
    /// `NEAP_PURGE_THREAD=never`.
    Off = 2,
    /// A Rust program that has not asked for one.
    NotAsked = 3,
    /// The process forbade itself system calls, or set `NEAP_KERNEL_QUERIES=0`.
    Sandboxed = 4,
}

/// Which allocations are guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guards {
    /// None.
    Off,
    /// One of each thread, once in so many ms on average: one of [`GUARD_MS`].
    Every(u64),
    /// All small ones for which there is room.
    All,
}

/// The intervals of [`Guards::Every`], in ms. Those of `NEAP_GUARD`.
pub const GUARD_MS: RangeInclusive<u64> = 1..=3_600_000;

/// The word of [`Guards::All`].
const GUARD_ALL: u64 = u64::MAX;

impl Guards {
    /// What a word of the status page says. `None`: an interval out of bounds.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Guards> {
        match word {
            0 => Some(Guards::Off),
            GUARD_ALL => Some(Guards::All),
            ms => GUARD_MS.contains(&ms).then_some(Guards::Every(ms)),
        }
    }

    /// The word of the status page.
    #[must_use]
    pub const fn word(self) -> u64 {
        match self {
            Guards::Off => 0,
            Guards::Every(ms) => ms,
            Guards::All => GUARD_ALL,
        }
    }
}

/// Why sampling or guards were not switched on.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was switched on.
    None = 0,
    /// The rate, or the interval, is out of bounds.
    Rate = 1,
    /// No memory for the profile's region, or for the pool of guarded blocks.
    Memory = 2,
    /// The process forbade itself system calls.
    Sandbox = 3,
}

/// Where the heap is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Arenas {
    /// How many entries of `ranges` are valid.
    pub count: u64,
    /// First address and length in bytes of each.
    pub ranges: [[u64; 2]; MOST_ARENAS],
}

/// The most arenas listed here; a heap with this many spans many TiB.
pub const MOST_ARENAS: usize = 47;

impl Default for Arenas {
    fn default() -> Arenas {
        Arenas::zeroed()
    }
}

/// The page heap's own figures. They lag by less than a sixty-fourth of the heap (1 MiB in a small
/// one). `sequence` guards the rest.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Coarse {
    /// See the head of this file.
    pub sequence: u64,
    /// By [`crate::stats::Use`], in its order.
    pub spans: [SpanFigures; USES],
    /// Bytes of large blocks.
    pub large_bytes: u64,
    /// Bytes of free spans.
    pub free: u64,
    /// Bytes of pages in free spans that may be resident.
    pub free_dirty: u64,
    /// Bytes of tables.
    pub tables: u64,
    /// Bytes committed.
    pub committed: u64,
    /// Bytes reserved.
    pub reserved: u64,
    /// How many times pages were given back.
    pub purges: u64,
    /// Bytes given back by these purges.
    pub purged_bytes: u64,
    /// Of these, bytes of free spans that the program wanted again within the decay time.
    pub regretted_bytes: u64,
}

/// The requests of one step of sizes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SizeFigure {
    /// Number of allocations.
    pub count: u64,
    /// Sum of their requested bytes.
    pub bytes: u64,
}

macro_rules! words {
    ($($name:ty),*) => {$(
        // SAFETY: 64-bit words only, no padding; zero is a value.
        unsafe impl Zeroable for $name {}
        // SAFETY: as above, and any bits are a value.
        unsafe impl Pod for $name {}
    )*};
}

words!(Head, Control, Served, Arenas, Coarse, SizeFigure);

const _: () = assert!(
    size_of::<Head>() <= CONTROL_AT
        && CONTROL_AT + size_of::<Control>() <= SERVED_AT
        && SERVED_AT + size_of::<Served>() <= ARENAS_AT
        && ARENAS_AT + size_of::<Arenas>() <= COARSE_AT
        && COARSE_AT + size_of::<Coarse>() <= FIGURES_AT
        && FIGURES_AT + 8 + size_of::<Snapshot>() <= SIZES_AT
);

/// The first word of the message that a process sends, with the descriptor of its status page or of
/// its profile, to the Unix socket at the path `NEAP_MONITOR`. The kind and the process's ID
/// follow, 8 bytes each.
pub const GREETING: u64 = u64::from_le_bytes(*b"NeapHere");
/// The descriptor is of a status page.
pub const KIND_STATUS_PAGE: u64 = 1;
/// The descriptor is of a profile's region ([`crate::sites`]).
pub const KIND_PROFILE: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Kind, find};

    #[test]
    fn words_of_guards_are_bounded() {
        for guards in [
            Guards::Off,
            Guards::Every(1),
            Guards::Every(3_600_000),
            Guards::All,
        ] {
            assert_eq!(Guards::from_word(guards.word()), Some(guards));
        }
        for hostile in [3_600_001, 1 << 32, 1 << 63, u64::MAX - 1] {
            assert_eq!(Guards::from_word(hostile), None, "{hostile}");
        }
    }

    #[test]
    fn a_running_process_takes_the_intervals_of_the_option() {
        let option = find(b"NEAP_GUARD").expect("the option is declared");
        let (min, max) = (*GUARD_MS.start(), *GUARD_MS.end());
        assert!(matches!(option.kind, Kind::Interval { min: a, max: b } if (a, b) == (min, max)));
    }
}
