//! Slabs on their way back into their depot's set.

use super::depot_id::DepotId;
use super::slab::Slab;
use core::ptr::NonNull;

/// The most slabs in one batch.
const MOST: usize = 16;

/// Slabs of one depot that have free blocks again while they are in no set. They are listed
/// together, because frees in random order bring back one slab per block.
pub struct Returned {
    id: Option<DepotId>,
    count: usize,
    slabs: [NonNull<Slab>; MOST],
}

impl Returned {
    /// No slabs.
    pub fn none() -> Returned {
        Returned {
            id: None,
            count: 0,
            slabs: [NonNull::dangling(); MOST],
        }
    }

    pub(super) fn has_room(&self, id: DepotId) -> bool {
        self.count == 0 || self.id == Some(id) && self.count < MOST
    }

    /// The caller has made room.
    pub(super) fn add(&mut self, slab: &Slab, id: DepotId) {
        self.id = Some(id);
        self.slabs[self.count] = NonNull::from(slab);
        self.count += 1;
    }

    /// The slabs and their depot, if there are any. None are left.
    pub(super) fn take(&mut self) -> Option<(DepotId, &[NonNull<Slab>])> {
        let count = core::mem::take(&mut self.count);
        Some((self.id.take()?, &self.slabs[..count]))
    }
}
