//! An operating system for tests. It uses real memory, checks every rule of [`Os`], and fails on
//! demand.

#[path = "fake_state.rs"]
mod state;

pub use self::state::{Call, FakeGuard};
use self::state::{Failure, POISON, Page, State};
use super::lock_order::{Rank, assert_free, may_hold};
use super::{
    Answers, Backing, Claim, ClaimError, GuardRefused, Huge, Os, OutOfMemory, Populated, Purged,
    RemapError, Unknown,
};
use core::ops::Range;
use core::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

/// How a fake system behaves.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Bytes in an OS page.
    pub page_bytes: usize,
    /// Whether every commit is charged.
    pub strict: bool,
    /// Huge pages are set to `always`.
    pub huge_everywhere: bool,
    /// Largest reservation, in bytes.
    pub most_reserved: usize,
    /// Longest range that can be claimed, in bytes.
    pub most_claimed: usize,
    /// How far into the first claimed range the others begin, which are an eighth as long; `None`:
    /// they are apart.
    pub claims_overlap: Option<usize>,
    /// Longest part that is mapped just before another, in bytes.
    pub most_before: usize,
    /// Most bytes committed at once.
    pub most_committed: usize,
    /// `RLIMIT_AS`.
    pub address_limit: Option<usize>,
    /// `RLIMIT_DATA`.
    pub data_limit: Option<usize>,
    /// One populated page in this many is in swap.
    pub swapped: usize,
    /// What backs the others.
    pub backing: Backing,
    /// How questions about populated pages are answered.
    pub answers: Answers,
    /// `vm.max_map_count`.
    pub most_mappings: usize,
    /// The most bytes that one move of the program break adds.
    pub most_at_break: usize,
    /// NUMA nodes.
    pub nodes: usize,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            page_bytes: 4096,
            strict: false,
            huge_everywhere: false,
            most_reserved: 32 << 20,
            most_claimed: 0,
            claims_overlap: None,
            most_before: usize::MAX,
            most_committed: usize::MAX,
            address_limit: None,
            data_limit: None,
            swapped: usize::MAX,
            backing: Backing::Ram,
            answers: Answers::Runs,
            most_mappings: 65_530,
            most_at_break: 0,
            nodes: 1,
        }
    }
}

/// The fake.
pub struct Fake {
    conditions: Conditions,
    state: Mutex<State>,
    /// Taken by a purge before it does anything.
    gate: Mutex<()>,
}

impl Fake {
    /// A system under these conditions, its clock at 0.
    pub fn new(conditions: Conditions) -> Self {
        Self {
            conditions,
            state: Mutex::new(State {
                address_limit: conditions.address_limit,
                ..State::default()
            }),
            gate: Mutex::new(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Moves all threads to a node.
    pub fn run_on(&self, node: usize) {
        self.state().node = node;
    }

    /// Sets the clock forward.
    pub fn advance(&self, ms: u64) {
        self.state().now_ms += ms;
    }

    /// After `after` more calls of one kind, `times` of them fail.
    pub fn fail(&self, call: Call, after: u32, times: u32) {
        self.state().failures[call as usize] = Failure { after, times };
    }

    /// How many calls of a kind there were so far.
    pub fn calls(&self, call: Call) -> usize {
        self.state().calls[call as usize]
    }

    /// How many calls failed so far.
    pub fn failed(&self) -> usize {
        self.state().failed
    }

    /// Bytes of reservations that were not given back.
    pub fn mapped(&self) -> usize {
        self.state().mapped(self.conditions.page_bytes)
    }

    /// Sets `RLIMIT_AS`.
    pub fn set_address_limit(&self, limit: Option<usize>) {
        self.state().address_limit = limit;
    }

    /// What backs the populated page at `address`.
    pub fn backing(&self, address: usize) -> Backing {
        match address / self.conditions.page_bytes % self.conditions.swapped {
            0 => Backing::Swap,
            _ => self.conditions.backing,
        }
    }

    fn check_range(&self, addr: NonNull<u8>, bytes: usize) {
        assert_free();
        let page = self.conditions.page_bytes;
        assert!(bytes > 0, "an empty range");
        assert!(
            (addr.as_ptr() as usize).is_multiple_of(page),
            "an address within a page"
        );
        assert!(bytes.is_multiple_of(page), "a part of a page");
    }
}

impl Os for Fake {
    fn page_bytes(&self) -> usize {
        self.conditions.page_bytes
    }

    fn reserve(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        assert_free();
        let mut state = self.state();
        let left = state.address_limit.map_or(usize::MAX, |limit| {
            limit.saturating_sub(state.mapped(self.conditions.page_bytes))
        });
        let most = self.conditions.most_reserved.min(left);
        let granted = align.is_power_of_two() && bytes <= most;
        if !granted || state.fails(Call::Reserve) {
            state.failed += usize::from(!granted);
            return None;
        }
        state.reserve(bytes, align, self.conditions.page_bytes, Page::FRESH)
    }

    fn claim(&self, bytes: usize, align: usize, _owner: usize, _nth: usize) -> Option<NonNull<u8>> {
        assert_free();
        let mut state = self.state();
        if bytes > self.conditions.most_claimed || state.fails(Call::Reserve) {
            return None;
        }
        match (self.conditions.claims_overlap, state.reservations.first()) {
            (Some(_), Some(_)) if bytes > self.conditions.most_claimed / 8 => None,
            (Some(offset), Some(first)) => NonNull::new((first.base + offset) as *mut u8),
            _ => state.reserve(bytes, align, self.conditions.page_bytes, Page::Claimed),
        }
    }

    unsafe fn map_claimed(
        &self,
        addr: NonNull<u8>,
        bytes: usize,
        claim: Claim,
    ) -> Result<(), ClaimError> {
        self.check_range(addr, bytes);
        let page_bytes = self.conditions.page_bytes;
        let is_long = bytes > self.conditions.most_before;
        if is_long && !self.state().is_claimed_after(addr, bytes, page_bytes) {
            return Err(ClaimError::Taken);
        }
        self.state().map_claimed(addr, bytes, page_bytes, claim)?;
        if claim == Claim::Reserved {
            return Ok(());
        }
        // SAFETY: mapped just above.
        let committed = unsafe { self.commit(addr, bytes) };
        if committed.is_err() {
            // SAFETY: as above.
            unsafe { self.unmap(addr, bytes) };
        }
        Ok(committed?)
    }

    unsafe fn unmap(&self, base: NonNull<u8>, bytes: usize) {
        self.check_range(base, bytes);
        self.state().unmap(base, bytes, self.conditions.page_bytes);
    }

    fn reserve_at_break(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let page = self.conditions.page_bytes;
        let granted = bytes <= self.conditions.most_at_break;
        let base = granted.then(|| self.state().reserve(bytes, align, page, Page::FRESH))??;
        // SAFETY: reserved just above.
        unsafe { self.commit(base, bytes) }.ok().map(|()| base)
    }

    unsafe fn commit(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
        self.check_range(addr, bytes);
        let (page_bytes, mut state) = (self.conditions.page_bytes, self.state());
        let pages = state.pages(addr, bytes, page_bytes);
        assert!(
            pages.iter().all(|page| page.is_mapped()),
            "a commit of what is not mapped"
        );
        let fresh = pages
            .iter()
            .filter(|&&page| page != Page::Committed)
            .count();
        let most = self.conditions.most_committed / page_bytes;
        if state.committed_pages + fresh > most {
            state.failed += 1;
            return Err(OutOfMemory);
        }
        if state.fails(Call::Commit) {
            return Err(OutOfMemory);
        }
        for offset in (0..bytes).step_by(page_bytes) {
            // SAFETY: within the range.
            let at = unsafe { addr.add(offset) };
            let [page] = state.pages(at, page_bytes, page_bytes) else {
                unreachable!("one page");
            };
            let before = core::mem::replace(page, Page::Committed);
            if before == (Page::Reserved { poisoned: true }) {
                state.fill(at, page_bytes, page_bytes, 0);
            }
        }
        state.remove_guards(addr, bytes, page_bytes, FakeGuard::Mapping);
        state.committed_pages += fresh;
        Ok(())
    }

    unsafe fn uncommit(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
        self.check_range(addr, bytes);
        let mut state = self.state();
        if state.fails(Call::Uncommit) {
            return Err(OutOfMemory);
        }
        assert_eq!(state.guards(addr, bytes), [], "guards in what is given up");
        let pages = state.pages(addr, bytes, self.conditions.page_bytes);
        let gone = pages
            .iter()
            .filter(|&&page| page == Page::Committed)
            .count();
        pages.fill(Page::Reserved { poisoned: true });
        state
            .range(addr, bytes, self.conditions.page_bytes)
            .1
            .fill(false);
        state.committed_pages -= gone;
        state.fill(addr, bytes, self.conditions.page_bytes, POISON);
        Ok(())
    }

    unsafe fn purge(&self, addr: NonNull<u8>, bytes: usize) -> Purged {
        self.check_range(addr, bytes);
        self.state().purging = true;
        drop(self.gate.lock());
        let mut state = self.state();
        state.purging = false;
        let pages = state.pages(addr, bytes, self.conditions.page_bytes);
        assert!(
            pages.iter().all(|&page| page == Page::Committed),
            "a purge of what is not committed"
        );
        if state.fails(Call::Purge) || state.locked {
            return Purged::MaybeDirty;
        }
        match state.purge(addr, bytes, self.conditions.page_bytes) == bytes {
            true => Purged::Zero,
            false => Purged::MaybeDirty,
        }
    }

    unsafe fn purge_locked(&self, addr: NonNull<u8>, bytes: usize) -> Purged {
        let locked = core::mem::replace(&mut self.state().locked, false);
        // SAFETY: the caller's promise.
        let purged = unsafe { self.purge(addr, bytes) };
        self.state().locked = locked;
        purged
    }

    fn is_locked(&self) -> bool {
        self.state().locked
    }

    unsafe fn advise_huge(&self, addr: NonNull<u8>, bytes: usize, huge: Huge) {
        self.check_range(addr, bytes);
        self.state()
            .advice
            .push((addr.as_ptr().addr(), bytes, huge));
    }

    /// A page is populated if it is not zero, or was not at an earlier query; every third such page
    /// is in swap.
    unsafe fn populated(
        &self,
        addr: NonNull<u8>,
        bytes: usize,
        mut visit: impl FnMut(Populated),
    ) -> Result<(), Unknown> {
        self.check_range(addr, bytes);
        let page = self.conditions.page_bytes;
        for offset in (0..bytes).step_by(page) {
            // SAFETY: within the range.
            let at = unsafe { addr.add(offset) };
            if self.state().is_populated(at, page)? {
                visit(Populated {
                    start: at.as_ptr().addr(),
                    bytes: page,
                    backing: self.backing(at.as_ptr().addr()),
                });
            }
        }
        Ok(())
    }

    fn answers(&self) -> Answers {
        self.conditions.answers
    }

    unsafe fn move_pages(
        &self,
        from: NonNull<u8>,
        to: NonNull<u8>,
        bytes: usize,
        _most_pieces: usize,
    ) -> Result<(), RemapError> {
        for range in [from, to] {
            self.check_range(range, bytes);
            let mut state = self.state();
            let pages = state.pages(range, bytes, self.conditions.page_bytes);
            assert!(
                pages.iter().all(|&page| page == Page::Committed),
                "a move of what is not committed"
            );
        }
        assert!(
            may_hold(Rank::Committing)
                || !self
                    .state()
                    .is_claimed_after(from, bytes, self.conditions.page_bytes),
            "a move that takes the page after it, while an arena may grow"
        );
        // SAFETY: both are committed ranges; the caller promises that they are disjoint.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), bytes) };
        let (page, mut state) = (self.conditions.page_bytes, self.state());
        let populated = state.range(from, bytes, page).1.to_vec();
        state.range(to, bytes, page).1.copy_from_slice(&populated);
        state.range(from, bytes, page).1.fill(false);
        state.fill(from, bytes, page, 0);
        Ok(())
    }

    unsafe fn renew(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), RemapError> {
        self.check_range(addr, bytes);
        let mut state = self.state();
        let pages = state.pages(addr, bytes, self.conditions.page_bytes);
        assert!(
            pages.iter().all(|&page| page == Page::Committed),
            "a renewal of what is not committed"
        );
        assert_eq!(state.guards(addr, bytes), [], "guards in what is renewed");
        state.purge(addr, bytes, self.conditions.page_bytes);
        Ok(())
    }

    unsafe fn install_guard(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), GuardRefused> {
        self.check_range(addr, bytes);
        let (page, mut state) = (self.conditions.page_bytes, self.state());
        if state.fails(Call::InstallGuard) {
            return Err(GuardRefused);
        }
        state.set_guards(addr, bytes, page, FakeGuard::Advice);
        state.range(addr, bytes, page).1.fill(false);
        state.fill(addr, bytes, page, 0);
        Ok(())
    }

    unsafe fn remove_guard(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), GuardRefused> {
        self.check_range(addr, bytes);
        let page = self.conditions.page_bytes;
        self.state()
            .remove_guards(addr, bytes, page, FakeGuard::Advice);
        Ok(())
    }

    unsafe fn install_write_guard(
        &self,
        addr: NonNull<u8>,
        bytes: usize,
        within: Range<usize>,
        least: Range<usize>,
    ) -> Result<u64, GuardRefused> {
        self.check_range(addr, bytes);
        let (page, mut state) = (self.conditions.page_bytes, self.state());
        let start = addr.as_ptr().addr();
        assert!(least.start <= start && start + bytes <= least.end);
        assert!(within.start <= least.start && least.end <= within.end);
        let first = NonNull::new(within.start as *mut u8).unwrap();
        let pages = state.pages(first, within.len(), page);
        assert!(
            pages.iter().all(|page| page.is_mapped()),
            "a guard among addresses that are not mapped"
        );
        if state.fails(Call::InstallWriteGuard) {
            return Err(GuardRefused);
        }
        state.write_guards = state.write_guards.max(state.lost_guards + 1);
        state.set_guards(addr, bytes, page, FakeGuard::Write);
        Ok(state.write_guards)
    }

    unsafe fn remove_write_guard(
        &self,
        addr: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), GuardRefused> {
        self.check_range(addr, bytes);
        let (page, mut state) = (self.conditions.page_bytes, self.state());
        if state.fails(Call::RemoveWriteGuard) {
            return Err(GuardRefused);
        }
        state.remove_guards(addr, bytes, page, FakeGuard::Write);
        state.purge(addr, bytes, page);
        Ok(())
    }

    fn write_guards(&self, _: bool) -> u64 {
        let state = self.state();
        match state.write_guards > state.lost_guards {
            true => state.write_guards,
            false => 0,
        }
    }

    unsafe fn protect(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
        self.check_range(addr, bytes);
        let (page, mut state) = (self.conditions.page_bytes, self.state());
        if state.fails(Call::Protect) {
            return Err(OutOfMemory);
        }
        state.set_guards(addr, bytes, page, FakeGuard::Mapping);
        Ok(())
    }

    fn most_mappings(&self) -> usize {
        self.conditions.most_mappings
    }

    fn nodes(&self) -> usize {
        self.conditions.nodes
    }

    fn node(&self) -> usize {
        self.state().node
    }

    fn learn_nodes(&self, _is_forking: fn() -> bool) {}

    fn now_ms(&self) -> u64 {
        self.state().now_ms
    }

    fn has_huge_everywhere(&self) -> bool {
        self.conditions.huge_everywhere
    }

    fn strict_commit(&self) -> bool {
        self.conditions.strict
    }

    fn address_limit(&self) -> Option<usize> {
        assert_free();
        self.state().address_limit
    }

    fn data_limit(&self) -> Option<usize> {
        self.conditions.data_limit
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        for reservation in self.state().reservations.drain(..) {
            State::forget(reservation);
        }
    }
}
