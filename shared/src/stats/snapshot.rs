//! The figures of the heap at one moment.

use crate::classes::CLASSES;
use crate::ledger::Ledger;
use bytemuck::{Pod, Zeroable};

/// The heap at one moment. Bytes unless said otherwise. 64-bit words only: it is copied as it is
/// (see [`crate::status_page`]).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// When it was taken, in ms of `CLOCK_MONOTONIC`.
    pub at_ms: u64,
    /// Processor time that taking it took, in ns.
    pub cost_ns: u64,
    /// Where every byte is.
    pub ledger: Ledger,
    /// Coroutine stacks.
    pub stacks: StackFigures,
    /// When `resident` was read and counting began, in ms of `CLOCK_MONOTONIC`.
    pub began_ms: u64,
    /// Page faults of the process that needed no disk.
    pub minor_faults: u64,
    /// Page faults of the process that did.
    pub major_faults: u64,
    /// Address space reserved.
    pub reserved: u64,
    /// Readable and writable address space.
    pub committed: u64,
    /// Of the whole process, in RAM, as the kernel counts; 0 without /proc.
    pub resident: u64,
    /// The most that was resident of the whole process.
    pub peak_resident: u64,
    /// Usable bytes of blocks in the program's hands.
    pub live: u64,
    /// Free blocks in magazines.
    pub magazines: u64,
    /// What the magazines may hold (the sum of their capacities).
    pub granted: u64,
    /// Free blocks in slabs.
    pub slab_free: u64,
    /// Pages of these that were given back to the kernel, or were not resident to begin with.
    pub slab_purged: u64,
    /// Freed blocks that wait in the checking mode's quarantine.
    pub quarantine: u64,
    /// Free spans.
    pub free_spans: u64,
    /// Pages of free spans that may be resident.
    pub free_dirty: u64,
    /// Neap's own data.
    pub metadata: u64,
    /// Usable bytes of large blocks.
    pub large_bytes: u64,
    /// Large blocks.
    pub large_blocks: u64,
    /// The most bytes of spans that were in use at once.
    pub peak_spans: u64,
    /// Times that pages were given back.
    pub purges: u64,
    /// Bytes given back so far.
    pub purged_bytes: u64,
    /// Of these, bytes of free spans that the program wanted again within the decay time.
    pub regretted_bytes: u64,
    /// Written with zeros for callers who asked for zeros in large blocks.
    pub zeroed: u64,
    /// Asked for as zero in large blocks, and known to be zero, so not written.
    pub zero_spared: u64,
    /// Given back to the kernel instead, so that they read as zero; not in `purged_bytes`, which is
    /// about free spans.
    pub zero_purged: u64,
    /// Times the kernel was asked which pages of a reused block, or of samples of it, are
    /// populated.
    pub questions: u64,
    /// Times it could not be asked, or gave an incomplete answer.
    pub unanswered: u64,
    /// Requests for a block that got none, by a limit or by the kernel. Not in bytes.
    pub refused: u64,
    /// Threads that have a cache.
    pub threads: u64,
    /// By [`Use`], in its order.
    pub spans: [SpanFigures; USES],
    /// By class, smallest first.
    pub classes: [ClassFigures; CLASSES],
    /// Calls, if they are being counted.
    pub counted: Counted,
}

/// Calls, as the counting mode counts them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// 1 if they are being counted.
    pub known: u64,
    /// Allocations so far.
    pub allocations: u64,
    /// Frees so far.
    pub frees: u64,
    /// Bytes asked for so far.
    pub requested: u64,
}

/// Coroutine stacks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackFigures {
    /// In the program's hands.
    pub used: u64,
    /// Ended and kept warm.
    pub idle: u64,
    /// Always 0. Stacks of less than 64 KiB once shared spans, and their unused parts counted here.
    pub free: u64,
    /// Bytes of address space of all of these.
    pub address: u64,
    /// Taken from the page heap so far.
    pub created: u64,
    /// Handed out again so far.
    pub recycled: u64,
    /// Bytes of page tables that they need, estimated.
    pub page_tables: u64,
}

// SAFETY: 64-bit words only, no padding; zero is a value.
unsafe impl Zeroable for Snapshot {}
// SAFETY: as above, and any bits are a value.
unsafe impl Pod for Snapshot {}

/// Spans of one use.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SpanFigures {
    /// How many.
    pub spans: u64,
    /// Their slices (64 KiB each).
    pub slices: u64,
}

/// Blocks of one size class.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassFigures {
    /// Bytes of a block.
    pub bytes: u64,
    /// Slabs.
    pub slabs: u64,
    /// Blocks of these slabs.
    pub blocks: u64,
    /// Of these, free in their slabs.
    pub free: u64,
    /// Of these, free in magazines.
    pub cached: u64,
    /// Refills of the class's magazines by live threads.
    pub refills: u64,
    /// Flushes of the class's magazines by live threads.
    pub flushes: u64,
    /// Allocations so far, in the counting mode; else 0.
    pub allocations: u64,
    /// Bytes that these asked for.
    pub requested: u64,
}

impl ClassFigures {
    /// Blocks in the program's hands.
    pub fn live(&self) -> u64 {
        self.blocks
            .saturating_sub(self.free.saturating_add(self.cached))
    }
}

impl Default for Snapshot {
    fn default() -> Snapshot {
        Snapshot::zeroed()
    }
}

/// What a span is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Use {
    /// One slice cut into equal blocks.
    Slab = 1,
    /// One large block.
    Large = 2,
    /// A coroutine stack.
    Stack = 3,
    /// Neap's own data.
    Meta = 4,
}

/// How many uses there are.
pub const USES: usize = 4;

impl Use {
    /// The use whose number is `code`.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Slab),
            2 => Some(Self::Large),
            3 => Some(Self::Stack),
            4 => Some(Self::Meta),
            _ => None,
        }
    }
}

/// Names of the uses, in their order.
pub const USE_NAMES: [&str; USES] = ["slabs", "large blocks", "stacks", "metadata"];

impl Snapshot {
    /// The byte figures with their names (JSON keys) and what they mean, in reading order.
    pub fn lines(&self) -> [(&'static str, u64, &'static str); 19] {
        [
            (
                "live",
                self.live,
                "usable bytes of blocks in the program's hands",
            ),
            ("large", self.large_bytes, "of these, in large blocks"),
            (
                "magazines",
                self.magazines,
                "free blocks in the threads' magazines",
            ),
            ("slab_free", self.slab_free, "free blocks in slabs"),
            (
                "slab_purged",
                self.slab_purged,
                "of these, pages that are not resident",
            ),
            (
                "quarantine",
                self.quarantine,
                "freed blocks held back by --check or --harden",
            ),
            ("free_spans", self.free_spans, "free spans"),
            (
                "free_dirty",
                self.free_dirty,
                "of these, pages that may be resident",
            ),
            ("metadata", self.metadata, "Neap's own tables and caches"),
            (
                "committed",
                self.committed,
                "readable and writable address space",
            ),
            ("reserved", self.reserved, "address space"),
            (
                "peak_spans",
                self.peak_spans,
                "the most bytes of spans in use at once",
            ),
            (
                "purged",
                self.purged_bytes,
                "of free memory, given back to the kernel so far",
            ),
            (
                "regretted",
                self.regretted_bytes,
                "of these, free spans wanted again within the decay time",
            ),
            (
                "zeroed",
                self.zeroed,
                "written with zeros for large callocs",
            ),
            (
                "zero_spared",
                self.zero_spared,
                "of large callocs, known to be zero and not written",
            ),
            (
                "zero_purged",
                self.zero_purged,
                "of large callocs, given back to the kernel instead",
            ),
            ("resident", self.resident, "the whole process, in RAM now"),
            (
                "peak_resident",
                self.peak_resident,
                "the whole process, the most so far",
            ),
        ]
    }
}
