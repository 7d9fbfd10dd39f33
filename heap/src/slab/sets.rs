//! The data that a depot's lock guards: its sets of slabs.

use super::class::Class;
use super::depot_id::DepotId;
use super::slab::{LISTED, RESERVED, Slab, Touched, UNLISTED};
use super::source::{Pages, Source};
use crate::base::sync::{Ordering, full_barrier_after_rmw};
use crate::base::tree::Tree;
use core::ptr::NonNull;

/// One depot's sets.
pub(super) struct DepotSets {
    /// All listed slabs, lowest address first.
    pub(super) set: Tree<Slab>,
    /// Slabs without free blocks that withhold some.
    pub(super) reserve: Tree<Slab>,
    /// A slab that was seen empty and stays, and since when (ms).
    pub(super) warm: Option<(NonNull<Slab>, u64)>,
}

impl DepotSets {
    pub(super) const fn new() -> DepotSets {
        DepotSets {
            set: Tree::new(),
            reserve: Tree::new(),
            warm: None,
        }
    }

    /// Takes an exhausted slab out of the set. False if it has free blocks after all.
    pub(super) fn unlist(&mut self, victim: NonNull<Slab>, class: Class) -> bool {
        // SAFETY: slab records are type-stable.
        let slab = unsafe { victim.as_ref() };
        slab.listed.swap(UNLISTED, Ordering::AcqRel);
        full_barrier_after_rmw();
        if slab.any_free(class) {
            slab.listed.store(LISTED, Ordering::Relaxed);
            return false;
        }
        // SAFETY: the current slab is listed, so in the set.
        unsafe { self.set.remove(victim) };
        self.reserve_if_withheld(victim);
        true
    }

    /// Puts a slab that is in no set into the reserve, if it withholds blocks and may offer them.
    pub(super) fn reserve_if_withheld(&mut self, slab: NonNull<Slab>) {
        // SAFETY: slab records are type-stable.
        let record = unsafe { slab.as_ref() };
        if !record.withheld().is_empty() && !record.is_purging() {
            record.listed.store(RESERVED, Ordering::Relaxed);
            // SAFETY: in no set: the caller's word; records are type-stable.
            unsafe { self.reserve.insert(slab) };
        }
    }

    /// Puts a slab that is not in the set into it.
    pub(super) fn list(&mut self, slab: NonNull<Slab>) {
        // SAFETY: slab records are type-stable.
        let record = unsafe { slab.as_ref() };
        if record.listed.load(Ordering::Relaxed) == RESERVED {
            // SAFETY: slabs marked so are in the reserve.
            unsafe { self.reserve.remove(slab) };
        }
        record.listed.store(LISTED, Ordering::Relaxed);
        if cfg!(any(loom, debug_assertions)) {
            let held = self.set.at_least(record.base());
            assert_ne!(held, Some(slab), "a slab is listed twice");
        }
        // SAFETY: in no set now; records are type-stable.
        unsafe { self.set.insert(slab) };
    }

    /// Which slices a fresh slab is to be carved from when the set has no slab: resident ones only
    /// while there are withheld blocks to fall back on.
    pub(super) fn wanted_pages(&self) -> Pages {
        match self.reserve.first() {
            Some(_) => Pages::Resident,
            None => Pages::Any,
        }
    }

    /// A listed slab, or else one of which all blocks are withheld or in use. If the latter
    /// withholds at most `admitted` bytes, it is listed and offers them, and `admitted` is reduced
    /// by them. Otherwise `Err` says how many bytes it withholds; 0 if there is no slab.
    pub(super) fn next_offered(
        &mut self,
        class: Class,
        admitted: &mut usize,
    ) -> Result<NonNull<Slab>, usize> {
        if let Some(listed) = self.set.first() {
            return Ok(listed);
        }
        let reserved = self.reserve.first().ok_or(0usize)?;
        // SAFETY: slab records are type-stable.
        let slab = unsafe { reserved.as_ref() };
        let bytes = slab.withheld().bytes();
        *admitted = admitted.checked_sub(bytes).ok_or(bytes)?;
        self.list(reserved);
        slab.offer_all(class);
        Ok(reserved)
    }

    /// Whether `slab` is a listed slab of this depot with all blocks free, and no thread is about
    /// to use it.
    pub(super) fn is_empty_slab(&self, slab: NonNull<Slab>, id: DepotId) -> bool {
        // SAFETY: slab records are type-stable.
        let slab = unsafe { slab.as_ref() };
        slab.is_of(id)
            && slab.listed.load(Ordering::Relaxed) == LISTED
            && !slab.is_purging()
            && slab.all_free(id.class, 0)
    }

    /// Takes a slab that was seen empty. Keeps the lowest empty slab warm, and returns the other.
    pub(super) fn surplus<S: Source>(
        &mut self,
        slab: &Slab,
        id: DepotId,
        source: &S,
    ) -> Option<NonNull<Slab>> {
        let slab = NonNull::from(slab);
        if !self.is_empty_slab(slab, id) {
            return None;
        }
        match self.warm {
            Some((warm, _)) if warm == slab => None,
            Some((warm, since)) if self.is_empty_slab(warm, id) => {
                // SAFETY: slab records are type-stable.
                let base = |slab: NonNull<Slab>| unsafe { slab.as_ref() }.base();
                let (low, high) = if base(warm) < base(slab) {
                    (warm, slab)
                } else {
                    (slab, warm)
                };
                self.warm = Some((low, since));
                Some(high)
            }
            _ => {
                self.warm = Some((slab, source.now_ms()));
                None
            }
        }
    }

    /// Claims all blocks of `victim` and takes it out of the set. `None` if some block was out.
    /// Else what was touched of what is no slab any more.
    pub(super) fn claim_whole(&mut self, victim: NonNull<Slab>, id: DepotId) -> Option<Touched> {
        // SAFETY: slab records are type-stable.
        let slab = unsafe { victim.as_ref() };
        while self.is_empty_slab(victim, id) {
            if !slab.claim_all(id.class) {
                // A thread that gave a block back meanwhile may have missed that it was the last:
                // look again.
                continue;
            }
            // SAFETY: listed slabs of the depot are in its set.
            unsafe { self.set.remove(victim) };
            slab.listed.store(UNLISTED, Ordering::Relaxed);
            let touched = Touched {
                bytes: slab.touched_bytes(id.class),
                clean: slab.withheld(),
            };
            slab.uncarve();
            return Some(touched);
        }
        None
    }
}
