//! The state of a fake system: its reservations, page by page, and which calls are to fail.

#[cfg(doc)]
use super::Os;
use super::{Claim, ClaimError, Huge, Unknown};
use crate::os::access::{self, Access};
use crate::testing::is_zero;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::MutexGuard;
use std::vec::Vec;

/// The filling of uncommitted memory, which must never be read.
pub(super) const POISON: u8 = 0xa5;

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Os::reserve`], [`Os::claim`], and [`Os::map_claimed`] of what is to be reserved.
    Reserve,
    /// [`Os::commit`], and [`Os::map_claimed`] of what is to be committed.
    Commit,
    /// [`Os::map_claimed`], because something is mapped there.
    Place,
    /// [`Os::uncommit`].
    Uncommit,
    /// [`Os::purge`].
    Purge,
    /// [`Os::populated`], by the page.
    Ask,
    /// [`Os::install_guard`].
    InstallGuard,
    /// [`Os::protect`].
    Protect,
    /// [`Os::install_write_guard`].
    InstallWriteGuard,
    /// [`Os::remove_write_guard`].
    RemoveWriteGuard,
}
const CALLS: usize = 10;

/// What makes an access to a committed page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FakeGuard {
    /// [`Os::install_guard`].
    Advice,
    /// [`Os::protect`].
    Mapping,
    /// [`Os::install_write_guard`].
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Reserved {
        poisoned: bool,
    },
    Committed,
    /// Of a claimed range, and never mapped.
    Claimed,
    Released,
}

impl Page {
    /// Of a new reservation.
    pub(super) const FRESH: Self = Self::Reserved { poisoned: false };

    pub(super) fn is_mapped(self) -> bool {
        !matches!(self, Self::Claimed | Self::Released)
    }
}

pub(super) struct Reservation {
    pub(super) allocation: *mut u8,
    pub(super) layout: Layout,
    pub(super) base: usize,
    pub(super) pages: Vec<Page>,
    /// Pages that a query found to be populated and that were not given back since; pages to which
    /// zeros are written stay populated.
    pub(super) populated: Vec<bool>,
    pub(super) guards: BTreeMap<usize, FakeGuard>,
}

/// The calls after the next `after` fail, `times` of them.
#[derive(Clone, Copy, Default)]
pub(super) struct Failure {
    pub(super) after: u32,
    pub(super) times: u32,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) reservations: Vec<Reservation>,
    pub(super) failures: [Failure; CALLS],
    pub(super) failed: usize,
    /// How many calls of each kind there were.
    pub(super) calls: [usize; CALLS],
    pub(super) committed_pages: usize,
    pub(super) now_ms: u64,
    pub(super) node: usize,
    pub(super) locked: bool,
    /// Addresses of single pages that are locked.
    pub(super) locked_pages: BTreeSet<usize>,
    /// Whether a purge is under way.
    pub(super) purging: bool,
    pub(super) address_limit: Option<usize>,
    /// The newest generation of guards against writes, and the last one that was lost.
    pub(super) write_guards: u64,
    pub(super) lost_guards: u64,
    /// Address, bytes and advice, in the order in which it was given.
    pub(super) advice: Vec<(usize, usize, Huge)>,
}

// SAFETY: the allocations belong to the state alone.
unsafe impl Send for State {}

impl State {
    /// A reservation, granted, or a claimed range.
    pub(super) fn reserve(
        &mut self,
        bytes: usize,
        align: usize,
        page_bytes: usize,
        page: Page,
    ) -> Option<NonNull<u8>> {
        // Aligned by hand: an allocation of small alignment is zeroed by the kernel, not by
        // touching it.
        let layout = Layout::from_size_align(bytes + align, 16).ok()?;
        // SAFETY: the layout is not empty.
        let allocation = unsafe { alloc_zeroed(layout) };
        let base = (allocation as usize).next_multiple_of(align);
        let pages = vec![page; bytes / page_bytes];
        self.reservations.push(Reservation {
            allocation,
            layout,
            base,
            populated: vec![false; pages.len()],
            guards: BTreeMap::new(),
            pages,
        });
        let base = NonNull::new(base as *mut u8)?;
        access::set(base, bytes, Access::Denied);
        Some(base)
    }

    /// Writes `byte` over a range, whatever the state of its pages.
    pub(super) fn fill(&mut self, addr: NonNull<u8>, bytes: usize, page_bytes: usize, byte: u8) {
        access::set(addr, bytes, Access::Allowed);
        // SAFETY: the callers name ranges of a reservation, which is real memory of ours.
        unsafe { addr.as_ptr().write_bytes(byte, bytes) }
        self.tell(addr, bytes, page_bytes);
    }

    /// Maps a part of a claimed range.
    pub(super) fn map_claimed(
        &mut self,
        addr: NonNull<u8>,
        bytes: usize,
        page_bytes: usize,
        claim: Claim,
    ) -> Result<(), ClaimError> {
        let after = self.mapped(page_bytes).saturating_add(bytes);
        if self.address_limit.is_some_and(|limit| after > limit) {
            self.failed += 1;
            return Err(ClaimError::OutOfMemory);
        }
        if self.fails(Call::Place) {
            return Err(ClaimError::Taken);
        }
        if claim == Claim::Reserved && self.fails(Call::Reserve) {
            return Err(ClaimError::OutOfMemory);
        }
        if claim == Claim::Extended {
            let before = NonNull::new(addr.as_ptr().wrapping_sub(page_bytes)).expect("an address");
            let before = self.pages(before, page_bytes, page_bytes);
            assert!(before[0].is_mapped(), "nothing to extend");
        }
        for page in self.pages(addr, bytes, page_bytes) {
            assert!(!page.is_mapped(), "a mapping over another");
            let poisoned = *page == Page::Released;
            *page = Page::Reserved { poisoned };
        }
        Ok(())
    }

    /// Whether a claimed range goes on after this part of it, and nothing is mapped there.
    pub(super) fn is_claimed_after(
        &self,
        addr: NonNull<u8>,
        bytes: usize,
        page_bytes: usize,
    ) -> bool {
        let end = addr.as_ptr().addr() + bytes;
        let within =
            |one: &&Reservation| (one.base..one.base + one.pages.len() * page_bytes).contains(&end);
        let reservation = self.reservations.iter().find(within);
        reservation.is_some_and(|one| !one.pages[(end - one.base) / page_bytes].is_mapped())
    }

    /// Gives a reservation back, or a part of it.
    pub(super) fn unmap(&mut self, base: NonNull<u8>, bytes: usize, page_bytes: usize) {
        let pages = self.pages(base, bytes, page_bytes);
        assert!(pages.iter().all(|page| page.is_mapped()), "unmapped twice");
        let committed = pages.iter().filter(|&&page| page == Page::Committed);
        let gone = committed.count();
        pages.fill(Page::Released);
        self.committed_pages -= gone;
        let whole = |one: &Reservation| one.pages.iter().all(|&page| page == Page::Released);
        match self.reservations.iter().position(whole) {
            Some(index) => Self::forget(self.reservations.swap_remove(index)),
            None => self.fill(base, bytes, page_bytes, POISON),
        }
    }

    /// Makes a range zero up to its first locked page, as the kernel does. Returns how many bytes.
    pub(super) fn purge(&mut self, addr: NonNull<u8>, bytes: usize, page_bytes: usize) -> usize {
        let start = addr.as_ptr().addr();
        let stop = self.locked_pages.range(start..start + bytes).next();
        let purged = stop.map_or(bytes, |stop| stop - start);
        if purged > 0 {
            self.range(addr, purged, page_bytes).1.fill(false);
            self.fill(addr, purged, page_bytes, 0);
            self.remove_guards(addr, purged, page_bytes, FakeGuard::Write);
        }
        purged
    }

    /// Tells sanitizers which pages of a range may be accessed: what is committed and has no guard.
    pub(super) fn tell(&mut self, addr: NonNull<u8>, bytes: usize, page_bytes: usize) {
        let guards = self.guards(addr, bytes);
        let pages = self.pages(addr, bytes, page_bytes);
        for (index, page) in pages.iter().enumerate() {
            let access = match page {
                Page::Committed => Access::Allowed,
                _ => Access::Denied,
            };
            // SAFETY: within the range.
            access::set(unsafe { addr.add(index * page_bytes) }, page_bytes, access);
        }
        for (at, _) in guards {
            // SAFETY: within the range.
            let guarded = unsafe { addr.add(at - addr.as_ptr().addr()) };
            access::set(guarded, page_bytes, Access::Denied);
        }
    }

    /// Gives back the allocation behind a reservation that is gone.
    pub(super) fn forget(reservation: Reservation) {
        // SAFETY: allocated by `reserve` with this layout, and out of use.
        unsafe { dealloc(reservation.allocation, reservation.layout) };
    }

    /// Bytes of reservations that were not given back.
    pub(super) fn mapped(&self, page_bytes: usize) -> usize {
        let pages = self.reservations.iter().flat_map(|one| &one.pages);
        pages.filter(|page| page.is_mapped()).count() * page_bytes
    }

    pub(super) fn fails(&mut self, call: Call) -> bool {
        self.calls[call as usize] += 1;
        let failure = &mut self.failures[call as usize];
        if failure.after > 0 {
            failure.after -= 1;
            return false;
        }
        let fails = failure.times > 0;
        failure.times -= u32::from(fails);
        self.failed += usize::from(fails);
        fails
    }

    /// The pages of a range, which lies in one reservation.
    pub(super) fn pages(
        &mut self,
        addr: NonNull<u8>,
        bytes: usize,
        page_bytes: usize,
    ) -> &mut [Page] {
        self.range(addr, bytes, page_bytes).0
    }

    /// The guards of a range.
    pub(super) fn guards(&mut self, addr: NonNull<u8>, bytes: usize) -> Vec<(usize, FakeGuard)> {
        let start = addr.as_ptr() as usize;
        let reservations = self.reservations.iter();
        let within = |reservation: &Reservation| {
            let range = reservation.guards.range(start..start + bytes);
            range.map(|(&at, &guard)| (at, guard)).collect::<Vec<_>>()
        };
        reservations.flat_map(within).collect()
    }

    /// Gives the pages of a committed range guards of one kind.
    pub(super) fn set_guards(
        &mut self,
        addr: NonNull<u8>,
        bytes: usize,
        page: usize,
        guard: FakeGuard,
    ) {
        let start = addr.as_ptr() as usize;
        let pages = self.pages(addr, bytes, page);
        assert!(
            pages.iter().all(|&page| page == Page::Committed),
            "a guard where nothing is committed"
        );
        for reservation in &mut self.reservations {
            let end = reservation.base + reservation.pages.len() * page;
            if (reservation.base..end).contains(&start) {
                let range = (start..start + bytes).step_by(page);
                reservation.guards.extend(range.map(|at| (at, guard)));
            }
        }
        self.tell(addr, bytes, page);
    }

    /// Takes away the guards of one kind in a range.
    pub(super) fn remove_guards(
        &mut self,
        addr: NonNull<u8>,
        bytes: usize,
        page_bytes: usize,
        kind: FakeGuard,
    ) {
        let start = addr.as_ptr() as usize;
        for reservation in &mut self.reservations {
            reservation
                .guards
                .retain(|at, guard| *guard != kind || !(start..start + bytes).contains(at));
        }
        self.tell(addr, bytes, page_bytes);
    }

    /// Whether the OS page of `page` bytes at `at` is populated.
    pub(super) fn is_populated(&mut self, at: NonNull<u8>, page: usize) -> Result<bool, Unknown> {
        if self.fails(Call::Ask) {
            let from = at.as_ptr().addr();
            return Err(Unknown { from });
        }
        if !self.guards(at, page).is_empty() {
            return Ok(true);
        }
        let (pages, populated) = self.range(at, page, page);
        assert_eq!(pages, [Page::Committed], "a question about what is not");
        // SAFETY: a committed page.
        let contents = unsafe { core::slice::from_raw_parts(at.as_ptr(), page) };
        populated[0] |= !is_zero(contents);
        Ok(populated[0])
    }

    /// The pages of a range, and which of them were found populated.
    pub(super) fn range(
        &mut self,
        addr: NonNull<u8>,
        bytes: usize,
        page_bytes: usize,
    ) -> (&mut [Page], &mut [bool]) {
        let start = addr.as_ptr() as usize;
        let holds = |reservation: &&mut Reservation| {
            let end = reservation.base + reservation.pages.len() * page_bytes;
            (reservation.base..end).contains(&start) && start + bytes <= end
        };
        let reservation = self
            .reservations
            .iter_mut()
            .rev()
            .find(holds)
            .expect("a range in one reservation");
        let first = (start - reservation.base) / page_bytes;
        let range = first..first + bytes / page_bytes;
        (
            &mut reservation.pages[range.clone()],
            &mut reservation.populated[range],
        )
    }
}

impl super::Fake {
    /// Marks the pages of a range as populated, as after a first write.
    pub fn touch(&self, addr: NonNull<u8>, bytes: usize) {
        let page = self.conditions.page_bytes;
        self.state().range(addr, bytes, page).1.fill(true);
    }

    /// Bytes of pages that were touched or found populated, and have not been given back since.
    pub fn resident(&self) -> usize {
        let state = self.state();
        let pages = state.reservations.iter().flat_map(|one| &one.populated);
        pages.filter(|&&populated| populated).count() * self.conditions.page_bytes
    }

    /// Whether the byte at `address` may be read and written.
    pub fn is_committed(&self, address: usize) -> bool {
        let page_bytes = self.conditions.page_bytes;
        self.state().reservations.iter().any(|reservation| {
            let page = address.wrapping_sub(reservation.base) / page_bytes;
            reservation.pages.get(page) == Some(&Page::Committed)
        })
    }

    /// The state of the page at `address`, a page's start.
    pub fn guard_at(&self, address: usize) -> Option<FakeGuard> {
        let state = self.state();
        let guards = |reservation: &Reservation| reservation.guards.get(&address).copied();
        state.reservations.iter().find_map(guards)
    }

    /// Loses all guards against writes, as a fork's child does.
    pub fn lose_write_guards(&self) {
        let mut state = self.state();
        state.lost_guards = state.write_guards;
        for reservation in &mut state.reservations {
            reservation
                .guards
                .retain(|_, guard| *guard != FakeGuard::Write);
        }
    }

    /// How many pages have a guard.
    pub fn guarded_pages(&self) -> usize {
        let state = self.state();
        let guards = |reservation: &Reservation| reservation.guards.len();
        state.reservations.iter().map(guards).sum()
    }

    /// The advice about huge pages so far: address, bytes, advice.
    pub fn advice(&self) -> Vec<(usize, usize, Huge)> {
        self.state().advice.clone()
    }

    /// Bytes committed now.
    pub fn committed(&self) -> usize {
        self.state().committed_pages * self.conditions.page_bytes
    }

    /// While the answer lives, purges wait in the kernel.
    pub fn stop_purges(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().expect("no test panics with it")
    }

    /// Whether a purge is under way.
    pub fn is_purging(&self) -> bool {
        self.state().purging
    }

    /// Locks all memory, or unlocks it.
    pub fn set_locked(&self, locked: bool) {
        self.state().locked = locked;
    }

    /// Locks the page at `address`, a page's start, or unlocks it.
    pub fn set_page_locked(&self, address: usize, locked: bool) {
        let pages = &mut self.state().locked_pages;
        match locked {
            true => pages.insert(address),
            false => pages.remove(&address),
        };
    }
}
