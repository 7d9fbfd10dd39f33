//! Plain data: the ledger, in which every byte of the heap falls into exactly one line.
//!
//! The ledger begins with what the program asked for and ends with what the kernel counts as
//! resident in the heap's arenas:
//!
//! ```text
//!     requested + rounding                        usable bytes of live blocks
//!   - untouched - swapped                         of these, not in RAM
//!   + tails + slab_free + magazines + quarantine  in RAM, in slabs and large spans, not live
//!   + free_dirty + huge_excess                    free spans in RAM
//!   + stacks_used + stacks_idle + stacks_free   in RAM, of coroutine stacks
//!   + metadata + sampling                         in RAM, the heap's own
//!   = resident
//! ```
//!
//! Every line but the first four counts bytes of resident pages. gperftools' `MALLOCSTATS=2` is the
//! model.

use bytemuck::{Pod, Zeroable};

/// The ledger at one moment, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Bytes that the program asked for in its live blocks. See `requested_by`.
    pub requested: u64,
    /// Bytes that size classes and whole pages add to them.
    pub rounding: u64,
    /// Bytes of both that the program never touched since the kernel gave the pages: neither in RAM
    /// nor swapped.
    pub untouched: u64,
    /// Bytes of both that are swapped out.
    pub swapped: u64,
    /// Ends of slabs and of large spans in which no block fits.
    pub tails: u64,
    /// Free blocks in slabs.
    pub slab_free: u64,
    /// Free blocks in threads' magazines.
    pub magazines: u64,
    /// Freed blocks that the checking mode holds back.
    pub quarantine: u64,
    /// Pages of free spans that were used before.
    pub free_dirty: u64,
    /// Pages of free spans that were never used since the kernel gave them, but are resident
    /// because a huge page brought them.
    pub huge_excess: u64,
    /// Coroutine stacks in the program's hands.
    pub stacks_used: u64,
    /// Ended stacks that are kept warm.
    pub stacks_idle: u64,
    /// Other resident pages in spans of stacks.
    pub stacks_free: u64,
    /// The heap's own tables and caches.
    pub metadata: u64,
    /// The rest of the pages that hold only a sampled block (`--profile`) or a guarded one
    /// (`--guard`).
    pub sampling: u64,
    /// Resident bytes of the arenas: the sum.
    pub resident: u64,
    /// How `requested` was determined: one of [`Requested`].
    pub requested_by: u64,
    /// 1: the kernel reported which pages are resident. 0: the kernel could not be asked, and every
    /// page that may be resident counts as resident.
    pub asked_kernel: u64,
    /// Swapped out and not live: in no line.
    pub swapped_free: u64,
}

/// How the requested bytes were determined.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requested {
    /// Estimated from the middle of each class's requests.
    Guessed = 0,
    /// Estimated from the blocks that the profiler sampled.
    Sampled = 1,
    /// Estimated from each class's mean request in the counting mode.
    Counted = 2,
}

/// Whether a line is added or subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Added.
    Plus,
    /// Subtracted.
    Minus,
}

impl Sign {
    /// The sign as a character.
    #[must_use]
    pub fn mark(self) -> char {
        match self {
            Sign::Plus => '+',
            Sign::Minus => '-',
        }
    }
}

/// One line of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its name: a JSON key, and after `neap_` a Prometheus name.
    pub name: &'static str,
    /// Added or subtracted.
    pub sign: Sign,
    /// Bytes.
    pub bytes: u64,
    /// What the line counts.
    pub meaning: &'static str,
}

/// A line's bytes as they count in the sum.
#[must_use]
pub fn signed(line: &Line) -> i128 {
    match line.sign {
        Sign::Plus => i128::from(line.bytes),
        Sign::Minus => -i128::from(line.bytes),
    }
}

/// Bytes of live blocks in RAM.
#[must_use]
pub fn held(ledger: &Ledger) -> u64 {
    let held: i128 = ledger.lines()[..OF_BLOCKS].iter().map(signed).sum();
    u64::try_from(held).map_or(0, |held| held.min(ledger.resident))
}

/// How many of the first lines are about live blocks.
pub const OF_BLOCKS: usize = 4;

/// How many lines there are before the sum.
pub const LINES: usize = 15;

impl Ledger {
    /// The lines, in order; their sum is `resident`.
    #[must_use]
    pub fn lines(&self) -> [Line; LINES] {
        use Sign::{Minus, Plus};
        let line = |name, sign, bytes, meaning| Line {
            name,
            sign,
            bytes,
            meaning,
        };
        [
            line("requested", Plus, self.requested, self.requested_meaning()),
            line(
                "rounding",
                Plus,
                self.rounding,
                "what size classes and whole pages add",
            ),
            line(
                "untouched",
                Minus,
                self.untouched,
                "of live blocks, on pages never touched",
            ),
            line(
                "swapped",
                Minus,
                self.swapped,
                "of live blocks, swapped out",
            ),
            line(
                "tails",
                Plus,
                self.tails,
                "ends of slabs and spans where no block fits",
            ),
            line("slab_free", Plus, self.slab_free, "free blocks in slabs"),
            line(
                "magazines",
                Plus,
                self.magazines,
                "free blocks in threads' magazines",
            ),
            line(
                "quarantine",
                Plus,
                self.quarantine,
                "freed blocks held back by --check or --harden",
            ),
            line(
                "free_dirty",
                Plus,
                self.free_dirty,
                "pages of free spans, used before",
            ),
            line(
                "huge_excess",
                Plus,
                self.huge_excess,
                "pages of free spans that huge pages brought",
            ),
            line(
                "stacks_used",
                Plus,
                self.stacks_used,
                "coroutine stacks in use",
            ),
            line(
                "stacks_idle",
                Plus,
                self.stacks_idle,
                "ended stacks that are kept warm",
            ),
            line(
                "stacks_free",
                Plus,
                self.stacks_free,
                "what else is in spans of stacks",
            ),
            line(
                "metadata",
                Plus,
                self.metadata,
                "Neap's own tables and caches",
            ),
            line(
                "sampling",
                Plus,
                self.sampling,
                "pages around sampled blocks",
            ),
        ]
    }

    /// The sum of the lines, in bytes. Equal to `resident` in every ledger that the heap writes.
    #[must_use]
    pub fn sum(&self) -> i128 {
        self.lines().iter().map(signed).sum()
    }

    /// What the sum counts.
    #[must_use]
    pub fn resident_meaning(&self) -> &'static str {
        match self.asked_kernel {
            0 => "the sum, at most: the kernel did not report which pages are resident",
            _ => "the sum: resident, of Neap's arenas",
        }
    }

    fn requested_meaning(&self) -> &'static str {
        match self.requested_by {
            1 => "asked for by the program (estimated from samples)",
            2 => "asked for by the program (estimated from counts)",
            _ => "asked for by the program (estimated)",
        }
    }
}

// SAFETY: 64-bit words only, no padding; zero is a value.
unsafe impl Zeroable for Ledger {}
// SAFETY: as above, and any bits are a value.
unsafe impl Pod for Ledger {}
