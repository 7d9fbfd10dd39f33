//! Depots: the part of a size class and a user that all threads share. Its lock guards its sets of
//! slabs. [`Source`] is where slabs come from and go to: what this layer needs of the one below it.

use super::class::Class;
use super::depot_id::{DEPOTS, DepotId, ROWS};
use super::page_set::{PageSet, bits_over};
use super::slab::{
    FETCHED, LISTED, RESERVED, Returned, Seen, Slab, Slice, State, Touched, UNLISTED,
};
pub use crate::base::policy::Scope;
use crate::base::sync::plain::AtomicBool;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::sync::{AtomicPtr, Ordering, UnsafeCell, full_barrier_after_rmw};
use crate::base::tree::Tree;
use crate::os::lock::{Guard, Lock, Rank};
#[cfg(not(loom))]
use crate::os::nodes;
use core::ptr::{self, NonNull};

/// Where slabs come from and go to.
///
/// # Safety
/// - A fresh slice's record and far words are never freed, and the slice is the slab's until it
///   retires. Its page masks are true, and its far words are zero.
/// - After [`Source::purge`] the pages of these units read as zero, or it returned false.
pub unsafe trait Source {
    /// A slice for a slab of this depot, with its tag; `None` when out of memory, or when it is to
    /// be of resident pages and there are none.
    fn fresh(&self, id: DepotId, pages: Pages) -> Option<Slice>;
    /// Takes back the slice of a slab of which all blocks were claimed and whose record is no slab
    /// any more.
    fn retire(&self, slab: NonNull<Slab>, touched: Touched);
    /// Notes that slabs withhold this many more bytes of pages than before (or fewer).
    fn note_withheld(&self, bytes: isize);
    /// Notes that slabs withhold this many bytes fewer, because they are about to offer them.
    /// Returns false, and notes nothing, if a limit refuses these pages. The caller holds no
    /// depot's lock.
    fn readmit(&self, bytes: usize) -> bool;
    /// Whether no page may go in a round of that scope.
    fn keeps_pages(&self, scope: Scope) -> bool;
    /// OS pages in a slice.
    fn pages(&self) -> usize;
    /// Gives the pages of these units of a slab back to the kernel. No thread uses them. False if
    /// it refuses.
    fn purge(&self, slab: NonNull<Slab>, units: PageSet) -> bool;
    /// Monotonic time in ms.
    fn now_ms(&self) -> u64;
}

/// Which slices a slab may be carved from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Those with resident pages.
    Resident,
    /// All.
    Any,
}

/// Slabs of one class and one user with free blocks.
pub(super) struct Depot {
    /// Guards `sets`, the links and the marks of the depot's slabs.
    lock: Lock,
    /// The slab to claim from; in the set, or null. Read without the lock, changed under it.
    pub(super) current: AtomicPtr<Slab>,
    /// Whether the depot ever had a slab. Rounds pass by most depots without taking their locks.
    pub(super) has_served: AtomicBool,
    /// How often the lock was taken.
    #[cfg(test)]
    openings: crate::base::sync::plain::AtomicUsize,
    /// guarded by: lock
    sets: UnsafeCell<DepotSets>,
}

/// A depot whose lock is held. The holder makes no system call and does not take the page heap's
/// lock.
pub(super) struct Open<'a> {
    pub(super) sets: &'a mut DepotSets,
    _guard: Guard<'a>,
}

// SAFETY: the cell is reached only under `lock` (see `Depot::open`).
unsafe impl Sync for Depot {}
// SAFETY: nothing in a depot belongs to a thread; slab records live as long as the arenas.
unsafe impl Send for Depot {}

/// All depots, by row and class.
pub struct Depots {
    all: [[Depot; DEPOTS]; ROWS],
}

impl Depots {
    /// Empty depots.
    #[cfg(not(loom))]
    pub const fn new() -> Depots {
        Depots {
            all: [const { [const { Depot::new() }; DEPOTS] }; ROWS],
        }
    }

    /// Empty depots.
    #[cfg(loom)]
    pub fn new() -> Depots {
        Depots {
            all: core::array::from_fn(|_| core::array::from_fn(|_| Depot::new())),
        }
    }

    pub(super) fn of(&self, id: DepotId) -> &Depot {
        &self.all[usize::from(id.row)][id.place()]
    }

    /// Whether the next block of `class` will most likely be one that is known to read as zero. A
    /// hint.
    pub fn next_is_fresh(&self, class: Class) -> bool {
        let current = self
            .of(DepotId::near(class))
            .current
            .load(Ordering::Acquire);
        // SAFETY: slab records are type-stable: the pointer is null or valid for ever.
        unsafe { current.as_ref() }.is_none_or(Slab::next_is_fresh)
    }

    /// Gives the blocks `bits` of `word` back. `Err` holds the bits that were free already (a
    /// double free).
    ///
    /// # Safety
    /// - As [`Slab::give`]; `slab` is of the depot `id`.
    pub unsafe fn give<S: Source>(
        &self,
        slab: &Slab,
        id: DepotId,
        word: usize,
        bits: u64,
        source: &S,
    ) -> Result<(), u64> {
        debug_assert!(slab.is_of(id));
        let state = slab.state();
        // SAFETY: the caller's promise.
        let given = unsafe { slab.give(State::plain(id), &slab.words(id.class)[word], bits) };
        let Some(before) = given else { return Ok(()) };
        let mut returned = Returned::none();
        let seen = Seen {
            state,
            word: before,
        };
        let settled = self.settle(&mut returned, slab, id, (word, bits), seen, source);
        self.list(&mut returned, source);
        settled.map(|_| ())
    }

    /// Does what [`Slab::give`] of the blocks `bits` of `word` has left. A slab that is to be
    /// listed joins `returned`, which the caller passes to [`Depots::list`] soon. Until then no
    /// refill finds its blocks. Returns whether slabs may have been given up. `Err` as in
    /// [`Depots::give`].
    pub fn settle<S: Source>(
        &self,
        returned: &mut Returned,
        slab: &Slab,
        id: DepotId,
        (word, bits): (usize, u64),
        seen: Seen,
        source: &S,
    ) -> Result<bool, u64> {
        let free = seen.word | bits_over(id.class, seen.state.withheld(), word);
        if free & bits != 0 {
            return Err(free & bits);
        }
        if !slab.note_given(word) {
            let is_full = !returned.has_room(id);
            if is_full {
                self.list(returned, source);
            }
            returned.add(slab, id);
            return Ok(is_full);
        }
        let is_whole = seen.word | bits == slab.offered_word(id.class, word);
        let is_empty = is_whole && slab.all_free(id.class, word);
        if is_empty {
            self.of(id).retire_if_empty(slab, id, source);
        }
        Ok(is_empty)
    }

    /// Lists slabs that have free blocks again.
    pub fn list<S: Source>(&self, returned: &mut Returned, source: &S) {
        if let Some((id, slabs)) = returned.take() {
            self.of(id).list(slabs, id, source);
        }
    }

    /// Lets go of the warm slab of every depot that has been empty since `before` (ms) or longer.
    #[cfg(test)]
    pub(crate) fn cool<S: Source>(&self, before: u64, source: &S) {
        for id in DepotId::all() {
            self.of(id).cool(id, before, source);
        }
    }

    /// How often a depot's lock was taken.
    #[cfg(test)]
    fn openings(&self, id: DepotId) -> usize {
        self.of(id).openings.load(Relaxed)
    }

    /// The locks of all depots in use, for a fork that has begun to close locks.
    #[cfg(not(loom))]
    pub fn locks(&self) -> impl Iterator<Item = &Lock> {
        let rows = &self.all[..DepotId::rows(nodes::most_used())];
        rows.as_flattened().iter().map(|depot| &depot.lock)
    }
}

impl Depot {
    #[cfg(not(loom))]
    const fn new() -> Depot {
        Depot {
            lock: Lock::new(Rank::Depot),
            current: AtomicPtr::new(ptr::null_mut()),
            has_served: AtomicBool::new(false),
            #[cfg(test)]
            openings: crate::base::sync::plain::AtomicUsize::new(0),
            sets: UnsafeCell::new(DepotSets::new()),
        }
    }

    #[cfg(loom)]
    fn new() -> Depot {
        Depot {
            lock: Lock::new(Rank::Depot),
            current: AtomicPtr::new(ptr::null_mut()),
            has_served: AtomicBool::new(false),
            #[cfg(test)]
            openings: crate::base::sync::plain::AtomicUsize::new(0),
            sets: UnsafeCell::new(DepotSets::new()),
        }
    }

    pub(super) fn open(&self) -> Open<'_> {
        let guard = self.lock.lock();
        #[cfg(test)]
        self.openings.fetch_add(1, Relaxed);
        // SAFETY: the lock is held for as long as the guard in the same value.
        let sets = unsafe { &mut *self.sets.get() };
        Open {
            sets,
            _guard: guard,
        }
    }

    /// Carves a fresh slice and lists the slab.
    pub(super) fn adopt<S: Source>(&self, id: DepotId, slice: &Slice, source: &S) {
        // SAFETY: slab records are type-stable.
        let slab = unsafe { slice.record.as_ref() };
        // SAFETY: the source's promise.
        unsafe { slab.carve(id, slice, source.pages()) };
        source.note_withheld(slab.withheld().bytes() as isize);
        self.has_served.store(true, Relaxed);
        let Open { sets, .. } = &mut self.open();
        sets.list(slice.record);
        if self.current.load(Ordering::Relaxed).is_null() {
            self.set_current(sets.set.first());
        }
    }

    /// The caller holds the lock.
    pub(super) fn set_current(&self, slab: Option<NonNull<Slab>>) {
        let slab = slab.map_or(ptr::null_mut(), NonNull::as_ptr);
        self.current.store(slab, Ordering::Release);
    }

    /// Puts slabs that have free blocks again into the set.
    fn list<S: Source>(&self, slabs: &[NonNull<Slab>], id: DepotId, source: &S) {
        {
            let Open { sets, .. } = &mut self.open();
            for &slab in slabs {
                // SAFETY: slab records are type-stable.
                let record = unsafe { slab.as_ref() };
                // Our blocks are back, so the slab may be in any use by now. Under the lock, it
                // cannot stop being this depot's, and becomes this depot's only when it is fetched.
                // `is_of` comes first, because a thread may carve the slab between the two loads.
                if record.is_of(id)
                    && !matches!(record.listed.load(Ordering::Relaxed), LISTED | FETCHED)
                {
                    sets.list(slab);
                }
            }
        }
        for slab in slabs {
            // SAFETY: as above.
            let slab = unsafe { slab.as_ref() };
            if slab.all_free(id.class, 0) {
                self.retire_if_empty(slab, id, source);
            }
        }
    }

    /// Retires a slab if all its blocks are free and another slab of the depot is empty already.
    pub(super) fn retire_if_empty<S: Source>(&self, slab: &Slab, id: DepotId, source: &S) {
        let open = self.open();
        if let Some(victim) = open.sets.surplus(slab, id, source) {
            self.retire(open, victim, id, source);
        }
    }

    /// Lets go of the warm slab if it has been empty since `before` (ms) or longer. False if there
    /// is none such.
    pub(super) fn cool<S: Source>(&self, id: DepotId, before: u64, source: &S) -> bool {
        let open = self.open();
        let warm = open.sets.warm.take_if(|(_, since)| *since <= before);
        if let Some((victim, _)) = warm {
            self.retire(open, victim, id, source);
        }
        warm.is_some()
    }

    /// Gives the slice of `victim` back, unless some block is out. Inlined: callers may have small
    /// stacks.
    #[inline(always)]
    fn retire<S: Source>(&self, open: Open<'_>, victim: NonNull<Slab>, id: DepotId, source: &S) {
        let touched = open.sets.claim_whole(victim, id);
        if touched.is_some() && self.current.load(Ordering::Relaxed) == victim.as_ptr() {
            self.set_current(None);
        }
        drop(open);
        if let Some(touched) = touched {
            source.note_withheld(-(touched.clean.bytes() as isize));
            source.retire(victim, touched);
        }
    }
}

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
    fn is_empty_slab(&self, slab: NonNull<Slab>, id: DepotId) -> bool {
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
    fn claim_whole(&mut self, victim: NonNull<Slab>, id: DepotId) -> Option<Touched> {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::slab::slab::{Grain, LINE_BLOCKS};
    use crate::testing::slab_model::{Slices, give, take, take_all};
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn refills_by_lines_share_no_line() {
        let (depots, slices) = (Depots::new(), Slices::new(20));
        for (size, want) in [
            (8, 8),
            (16, 8),
            (24, 8),
            (48, 20),
            (80, 40),
            (112, 70),
            (256, 9),
        ] {
            let class = Class::of_size_align8(size);
            take_all(&depots, &slices, class, 3);
            let mut lines = BTreeSet::new();
            for _ in 0..20 {
                let mut own = BTreeSet::new();
                let got = depots.take_by(
                    Grain::Lines,
                    DepotId::blocks(class),
                    want,
                    &slices,
                    &mut |slab, claim| {
                        let blocks = (0..64).filter(|bit| claim.bits >> bit & 1 != 0);
                        own.extend(blocks.flat_map(|bit| {
                            let start = slab.base() + (claim.word * 64 + bit) * class.bytes();
                            start / 64..=(start + class.bytes() - 1) / 64
                        }));
                    },
                );
                assert!(got > 0 && got < want + LINE_BLOCKS, "{size} {want}: {got}");
                assert!(lines.is_disjoint(&own), "{size} {want}");
                lines.extend(own);
            }
        }
    }

    #[test]
    fn lowest_addresses_come_first() {
        let (depots, slices) = (Depots::new(), Slices::new(2));
        let class = Class::of_size(1024);
        let blocks = take_all(&depots, &slices, class, 100);
        assert_eq!(blocks.len(), 100);
        assert!(blocks.is_sorted() && blocks[0] == 1 << 16);
        give(&depots, &slices, class, blocks[5]).unwrap();
        give(&depots, &slices, class, blocks[3]).unwrap();
        // The current slab is used up before the set is asked for its lowest.
        assert_eq!(take(&depots, &slices, class, 28).len(), 28);
        assert_eq!(take(&depots, &slices, class, 2), [blocks[3], blocks[5]]);
    }

    #[test]
    fn slabs_with_one_free_block_each_share_a_lock() {
        let (depots, slices) = (Depots::new(), Slices::new(20));
        let (class, slabs) = (Class::of_size(640), 8);
        let id = DepotId::blocks(class);
        let blocks = take_all(&depots, &slices, class, slabs * class.blocks());
        let before = depots.openings(id);
        let mut returned = Returned::none();
        for block in blocks.iter().step_by(class.blocks()) {
            let slab = slices.slab(*block);
            let (state, word) = (slab.state(), &slab.words(class)[0]);
            // SAFETY: taken above; the blocks are not real memory.
            let word = unsafe { slab.give(State::plain(id), word, 1) }.unwrap();
            let seen = Seen { state, word };
            let settled = depots.settle(&mut returned, slab, id, (0, 1), seen, &slices);
            assert_eq!(settled, Ok(false));
        }
        assert_eq!(depots.openings(id), before, "a lock for each slab");
        depots.list(&mut returned, &slices);
        assert_eq!(depots.openings(id), before + 1);
        assert_eq!(take(&depots, &slices, class, slabs).len(), slabs);
        assert!(depots.openings(id) <= before + 3, "a lock for each slab");
    }

    #[test]
    fn only_touched_words_count_as_touched() {
        let (depots, slices) = (Depots::new(), Slices::new(2));
        let class = Class::of_size(16);
        for slab in 0..2 {
            let blocks = take_all(&depots, &slices, class, if slab == 0 { 4096 } else { 70 });
            blocks
                .iter()
                .for_each(|&block| give(&depots, &slices, class, block).unwrap());
        }
        depots.cool(u64::MAX, &slices);
        let touched = slices.touched.borrow();
        assert_eq!(
            *touched,
            [65536],
            "one slab served both rounds, all of it was touched"
        );
        assert_eq!(slices.free().len(), 2);
    }

    #[test]
    fn one_empty_slab_stays_warm_until_it_is_old() {
        let (depots, slices) = (Depots::new(), Slices::new(3));
        let class = Class::of_size(32 << 10);
        let blocks = take_all(&depots, &slices, class, 6);
        blocks
            .iter()
            .for_each(|&block| give(&depots, &slices, class, block).unwrap());
        assert_eq!(
            slices.free().iter().copied().collect::<Vec<_>>(),
            [1, 2],
            "the lowest stays"
        );
        depots.cool(6, &slices);
        assert_eq!(slices.free().len(), 2);
        depots.cool(7, &slices);
        assert_eq!(slices.free().len(), 3);
    }

    #[test]
    fn blocks_are_fresh_until_they_are_handed_out() {
        let (depots, slices) = (Depots::new(), Slices::new(2));
        let class = Class::of_size(8192);
        let fresh = |want: usize| {
            let mut found = Vec::new();
            depots.take(DepotId::blocks(class), want, &slices, &mut |_, claim| {
                found.push((claim.bits, claim.fresh));
            });
            found
        };
        assert!(depots.next_is_fresh(class), "before the first slab");
        assert_eq!(fresh(3), [(0b111, 0b111)]);
        give(&depots, &slices, class, (1 << 16) + 8192).unwrap();
        assert!(!depots.next_is_fresh(class));
        assert_eq!(fresh(2), [(0b1010, 0b1000)]);
        assert!(depots.next_is_fresh(class));
        for block in 0..4 {
            give(&depots, &slices, class, (1 << 16) + block * 8192).unwrap();
        }
        depots.cool(u64::MAX, &slices);
        // Only the first four blocks were ever in a caller's hands.
        assert_eq!(*slices.touched.borrow(), [4 * 8192]);
    }
}
