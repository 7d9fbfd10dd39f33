//! The few figures that glibc's `mallinfo` reports, from counters alone.

use crate::{check, guard};
use neap_heap::cache::heap::{HEAP, class_of, slab_of};
use neap_heap::cache::opened::Opened;
use neap_heap::pages::{SliceRef, Use};

/// What the heap holds at one moment, in bytes except `large_blocks`. The fields of
/// [`neap_shared::stats::Snapshot`] with the same names define the figures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Brief {
    /// Address space reserved.
    pub reserved: u64,
    /// Committed address space.
    pub committed: u64,
    /// Usable bytes of live blocks.
    pub live: u64,
    /// Free blocks in magazines.
    pub magazines: u64,
    /// Usable bytes of large blocks.
    pub large_bytes: u64,
    /// Large blocks.
    pub large_blocks: u64,
    /// Pages of free spans that may be resident.
    pub free_dirty: u64,
}

/// Takes the figures. Visits every span in use and every magazine. Makes no system call, because
/// programs call `mallinfo2` in loops. Exact while no other thread allocates.
pub fn brief() -> Brief {
    let totals = HEAP.pages.totals();
    let large = &totals.by_use[Use::Large as usize - 1];
    let mut brief = Brief {
        reserved: totals.reserved as u64,
        committed: totals.committed as u64,
        large_bytes: large.bytes as u64,
        large_blocks: large.spans as u64,
        free_dirty: totals.free_dirty as u64,
        ..Brief::default()
    };
    // First: if a thread takes blocks from slabs meanwhile, `live` is too large rather than too
    // small.
    HEAP.registry.for_each(|cache| {
        let bytes = cache.open_other().map(|mut open| held_by(&mut open));
        brief.magazines += bytes.unwrap_or(0);
    });
    HEAP.pages.for_each_used(|place, use_| match use_ {
        Use::Slab => brief.live += bytes_out(&place),
        Use::Large | Use::Stack | Use::Meta => {}
    });
    guard::for_each_live(|_, class| brief.live += class.bytes() as u64);
    brief.sum_up();
    brief
}

impl Brief {
    /// Derives the live blocks: those in magazines and in quarantine are not live; large ones are.
    fn sum_up(&mut self) {
        let held = check::held();
        let in_slabs = (held.bytes - held.large_bytes) as u64;
        self.large_bytes = self.large_bytes.saturating_sub(held.large_bytes as u64);
        self.large_blocks = self.large_blocks.saturating_sub(held.large_blocks as u64);
        let small = self.live.saturating_sub(self.magazines + in_slabs);
        self.live = small + self.large_bytes;
    }
}

/// Bytes of a slab's blocks that the slab has handed out.
fn bytes_out(place: &SliceRef<'_>) -> u64 {
    let Some(class) = class_of(place) else {
        // Being cut into blocks, or given up.
        return 0;
    };
    let slab = slab_of(place);
    let free = slab.free_blocks() + slab.withheld_blocks(class);
    (class.blocks().saturating_sub(free) * class.bytes()) as u64
}

/// Bytes of the blocks in a cache's magazines.
fn held_by(open: &mut Opened<'_>) -> u64 {
    let classes = open.classes();
    let bytes = classes.map(|class| open.magazine(class).filled() * class.bytes());
    bytes.sum::<usize>() as u64
}
