//! Plain data: the board, a few pages of figures that other processes of the same user read, and the words by which they ask.
//!
//! A memory file, sealed against a change of its size, which the process maps at its start; it keeps a descriptor on it, through
//! which others find and open it (`/proc/PID/fd/N`, a link to `/memfd:neap-board (deleted)`). All fields are 64-bit words,
//! so that any bytes are some value. Neither side may trust what it finds: the process believes of [`Control`] only that
//! a number changed, and bounds the rest; readers get any bytes at all from a process that means harm.
//!
//! ```text
//!   HEAD_AT       Head      written once
//!   CONTROL_AT    Control   written by others
//!   SERVED_AT     Served    what was done about it
//!   ARENAS_AT     Arenas    where the heap is
//!   COARSE_AT     Coarse    kept up to date by the page heap: a sequence number, then the figures
//!   FIGURES_AT    a sequence number, then a Snapshot: written when somebody asked
//!   SIZES_AT      [SizeFigure; SIZES]: sizes asked for, in the counting mode only
//! ```
//!
//! A sequence number is odd while what follows it is being written. A reader takes it before and after; if it was odd or
//! differs, the reader tries again.

use crate::stats::{Snapshot, SpanFigures};
use bytemuck::{Pod, Zeroable};

/// What the memory file is called.
pub const NAME: &core::ffi::CStr = c"neap-board";
/// The first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NeapBord");
/// The layout's number: changes with every change of this file or of [`Snapshot`].
pub const VERSION: u64 = 2;

/// Where [`Head`] stands, in bytes; so for the others.
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
/// Bytes of the whole board.
pub const BYTES: usize = (SIZES_AT + SIZES * size_of::<SizeFigure>()).next_multiple_of(64 << 10);

/// Sizes are told apart in steps of so many bytes.
pub const SIZE_STEP: usize = 8;
/// How many entries the table of sizes has: entry `n` is for sizes over `8 * (n - 1)` and up to `8 * n` bytes, the last
/// one for all that no slab serves.
pub const SIZES: usize = crate::slab::class::MAX_BLOCK / SIZE_STEP + 2;

/// Written once, before the board can be found.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u64,
    /// [`BYTES`].
    pub bytes: u64,
    /// The process.
    pub pid: u64,
    /// Bytes of an OS page there.
    pub page_bytes: u64,
    /// 1: the C frontend (libneap.so); 2: a Rust program's own allocator.
    pub frontend: u64,
    /// When the board was made, in ms of `CLOCK_MONOTONIC`.
    pub made_ms: u64,
}

/// What others ask for. Written by them, with writes of 8 bytes; the process writes it never.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Control {
    /// Any other number than before: write the figures soon.
    pub ask: u64,
    /// Until when somebody watches, in ms of `CLOCK_MONOTONIC`: the purge thread stays and writes the figures at intervals. Counts for at most [`LEASE_MS`] from now.
    pub lease_until_ms: u64,
    /// The interval, in ms; at least [`LEAST_INTERVAL_MS`].
    pub interval_ms: u64,
    /// Any other number than before: give all that is free back to the kernel.
    pub purge: u64,
    /// Any other number than before: sample as `sample_rate` says.
    pub sample: u64,
    /// Mean bytes between two samples; 0: off.
    pub sample_rate: u64,
    /// The purge thread sleeps on the first four bytes, as on a futex that processes share. Whoever has written above adds 1 to them, by an
    /// atomic addition in a mapping of its own, and wakes all who sleep there.
    pub bell: u64,
}

/// The longest lease, in ms.
pub const LEASE_MS: u64 = 60_000;
/// The shortest interval, in ms.
pub const LEAST_INTERVAL_MS: u64 = 20;

/// What was done. Each word is valid by itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// The last [`Control::ask`] that the figures answer.
    pub ask: u64,
    /// The last [`Control::purge`] that was carried out.
    pub purge: u64,
    /// Bytes that it gave back.
    pub purged_bytes: u64,
    /// The last [`Control::sample`] that was looked at.
    pub sample: u64,
    /// The rate in force; 0: off.
    pub sample_rate: u64,
    /// Why not what was asked: see [`Refusal`].
    pub sample_refusal: u64,
    /// Times that the figures were written.
    pub written: u64,
    /// Processor time that writing them took, all together, in ns.
    pub cost_ns: u64,
    /// Whether a thread answers: see [`ThreadState`].
    pub thread: u64,
}

/// Whether the process has a purge thread, and why not.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    /// Not yet: the heap is small, or no safe moment has come to start it.
    NotYet = 0,
    /// It is there.
    Here = 1,
    /// `NEAP_PURGE_THREAD=0`.
    Off = 2,
    /// A Rust program that has not asked for one.
    NotAsked = 3,
    /// The process forbade itself system calls, or `NEAP_ASK=0`.
    Sandboxed = 4,
}

/// Why sampling was not switched on.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was.
    None = 0,
    /// The rate is out of bounds.
    Rate = 1,
    /// No memory for the region.
    Memory = 2,
    /// The process forbade itself system calls.
    Sandbox = 3,
}

/// Where the heap is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Arenas {
    /// How many entries of `ranges` count.
    pub count: u64,
    /// First address and bytes of each.
    pub ranges: [[u64; 2]; MOST_ARENAS],
}

/// Arenas that are told; a heap of this many is many TiB large.
pub const MOST_ARENAS: usize = 47;

impl Default for Arenas {
    fn default() -> Arenas {
        Arenas::zeroed()
    }
}

/// The page heap's own figures, out by less than a sixty-fourth of the heap (a MiB in a small one). `sequence` guards the rest.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Coarse {
    /// See the head of this file.
    pub sequence: u64,
    /// By [`crate::page::Use`], in its order.
    pub spans: [SpanFigures; crate::page::USES],
    /// Bytes of large blocks.
    pub large_bytes: u64,
    /// Bytes of free spans.
    pub free: u64,
    /// Bytes of their pages that may be resident.
    pub free_dirty: u64,
    /// Bytes of tables.
    pub tables: u64,
    /// Bytes committed.
    pub committed: u64,
    /// Bytes reserved.
    pub reserved: u64,
    /// Times that pages were given back.
    pub purges: u64,
    /// Bytes of these.
    pub purged_bytes: u64,
}

/// Sizes asked for, of one step.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SizeFigure {
    /// Allocations.
    pub count: u64,
    /// Their bytes.
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

/// What a process sends, with the descriptor of its board or of its profile, to the Unix socket whose path `NEAP_MONITOR` is:
/// this word, then one of the two kinds, then its number, 8 bytes each.
pub const GREETING: u64 = u64::from_le_bytes(*b"NeapHere");
/// The descriptor is of a board.
pub const KIND_BOARD: u64 = 1;
/// The descriptor is of a profile's region ([`crate::sites`]).
pub const KIND_PROFILE: u64 = 2;
