//! What a process reported about its heap, as a recording keeps it.

use neap_shared::ledger::Ledger;
use neap_shared::stats::{Snapshot, SpanFigures, Use};
use neap_shared::status_page::Coarse;
use neap_shared::units::SLICE_SHIFT;
use serde::{Deserialize, Serialize};

/// Spans by use, in bytes. The page heap's counts are exact to a sixty-fourth of the heap, or to 1
/// MiB in a small one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spans {
    /// Slabs, including the free blocks in them.
    pub slabs: u64,
    /// Large blocks.
    pub large: u64,
    /// Free spans.
    pub free: u64,
    /// Pages of free spans that may be resident.
    pub free_dirty: u64,
}

impl Spans {
    /// Slabs and large blocks: an upper bound of what the program holds.
    pub fn taken(&self) -> u64 {
        self.slabs.saturating_add(self.large)
    }
}

impl From<&Coarse> for Spans {
    fn from(coarse: &Coarse) -> Self {
        Self {
            slabs: slab_bytes(&coarse.spans),
            large: coarse.large_bytes,
            free: coarse.free,
            free_dirty: coarse.free_dirty,
        }
    }
}

impl From<&Snapshot> for Spans {
    fn from(figures: &Snapshot) -> Self {
        Self {
            slabs: slab_bytes(&figures.spans),
            large: figures.large_bytes,
            free: figures.free_spans,
            free_dirty: figures.free_dirty,
        }
    }
}

fn slab_bytes(spans: &[SpanFigures]) -> u64 {
    let slices = spans[Use::Slab as usize - 1].slices;
    slices.saturating_mul(1 << SLICE_SHIFT)
}

/// The heap's own figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heap {
    /// How old these figures were at the sample's `t_ms`. A sleeping process does not write them.
    pub age_ms: u64,
    /// How long the process took to count; on a busy machine that may be long.
    #[serde(default)]
    pub took_ms: u64,
    /// The page heap's counts when these figures were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans: Option<Spans>,
    /// Resident bytes of the whole process when these figures were written; 0: unknown.
    pub rss: u64,
    /// The highest resident count up to then, including between two samples; 0: unknown.
    #[serde(default)]
    pub most_rss: u64,
    /// Where every byte is.
    #[serde(with = "LedgerFields")]
    pub ledger: Ledger,
    /// Minor page faults so far.
    pub minor_faults: u64,
    /// Major page faults so far.
    pub major_faults: u64,
    /// Purges so far.
    pub purges: u64,
    /// Bytes purged so far.
    pub purged_bytes: u64,
    /// Of these, bytes that were wanted again within the decay time; 0 in older recordings.
    #[serde(default)]
    pub regretted_bytes: u64,
    /// Bytes zeroed by stores for large callocs so far.
    pub zeroed: u64,
    /// Bytes of large callocs known to be zero, and so not written, so far.
    pub zero_spared: u64,
    /// Bytes of large callocs purged instead of zeroed, so far.
    pub zero_purged: u64,
    /// Threads with a cache.
    pub threads: u64,
    /// Usable bytes of large blocks.
    pub large_bytes: u64,
    /// Large blocks.
    pub large_blocks: u64,
    /// Committed address space.
    pub committed: u64,
    /// Coroutine stacks.
    pub stacks: Stacks,
}

/// Numbers of coroutine stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stacks {
    /// In use.
    pub used: u64,
    /// Ended and kept warm.
    #[serde(alias = "parked")]
    pub idle: u64,
    /// Without memory.
    pub free: u64,
    /// Address space of all of these, in bytes.
    pub address: u64,
}

impl Heap {
    /// The part of `figures` that a recording keeps. They are `age_ms` old.
    pub fn new(figures: &Snapshot, age_ms: u64) -> Self {
        Self {
            age_ms,
            took_ms: figures.at_ms.saturating_sub(figures.began_ms),
            spans: Some(Spans::from(figures)),
            rss: figures.resident,
            most_rss: figures.peak_resident,
            ledger: figures.ledger,
            minor_faults: figures.minor_faults,
            major_faults: figures.major_faults,
            purges: figures.purges,
            purged_bytes: figures.purged_bytes,
            regretted_bytes: figures.regretted_bytes,
            zeroed: figures.zeroed,
            zero_spared: figures.zero_spared,
            zero_purged: figures.zero_purged,
            threads: figures.threads,
            large_bytes: figures.large_bytes,
            large_blocks: figures.large_blocks,
            committed: figures.committed,
            stacks: Stacks {
                used: figures.stacks.used,
                idle: figures.stacks.idle,
                free: figures.stacks.free,
                address: figures.stacks.address,
            },
        }
    }

    /// Bytes of large callocs that were not written with zeros.
    pub fn zeroing_saved(&self) -> u64 {
        self.zero_spared.saturating_add(self.zero_purged)
    }
}

/// The ledger's lines by name.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Ledger")]
struct LedgerFields {
    requested: u64,
    rounding: u64,
    untouched: u64,
    swapped: u64,
    tails: u64,
    slab_free: u64,
    magazines: u64,
    quarantine: u64,
    free_dirty: u64,
    huge_excess: u64,
    stacks_used: u64,
    #[serde(alias = "stacks_parked")]
    stacks_idle: u64,
    stacks_free: u64,
    metadata: u64,
    sampling: u64,
    resident: u64,
    requested_by: u64,
    asked_kernel: u64,
    swapped_free: u64,
}
