//! The pool: slots of one OS page, each between two pages that no access may touch.
//!
//! A slot that was freed is the last to be used again. Until then each access to it faults, and the
//! table still tells whose it was.

use super::slots::{Mistake, SLOTS, Slot, State, Table, Wrong};
use super::trace::Trace;
use core::ptr::NonNull;
use neap_heap::base::sync::{AtomicUsize, Ordering};
use neap_heap::os::areas::Late;
use neap_heap::os::lock::{Guard, Lock, Rank};

/// Pages of the pool: one before each slot, and two at the end.
const PAGES: usize = 2 * SLOTS + 2;
/// At least this many slots stay in quarantine, whatever the program needs.
const QUARANTINED: usize = 31;
/// Fills what is beside a block on its page.
const PATTERN: u8 = 0xa7;
/// Bytes on each side of a block that are filled.
const FILLED: usize = 64;
/// How often a handler tries for the lock.
const TRIES: usize = 1 << 20;

/// How pages are made accessible and inaccessible.
pub(super) trait Doors {
    /// Bytes of a page.
    fn page_bytes(&self) -> usize;
    /// Makes a page of the pool accessible; it may read as anything. False if the kernel refuses.
    ///
    /// # Safety
    /// - The page is one of the pool's.
    unsafe fn open(&self, page: NonNull<u8>) -> bool;
    /// Makes pages of the pool inaccessible. False if the kernel refuses.
    ///
    /// # Safety
    /// - No block is on them that the program may use.
    unsafe fn shut(&self, first: NonNull<u8>, bytes: usize) -> bool;
    /// Takes away what the program may have mapped over a page of the pool. False if the kernel
    /// refuses: then no one may have the page.
    ///
    /// # Safety
    /// - No block is on it that the program may use.
    unsafe fn restore(&self, page: NonNull<u8>) -> bool;
}

/// The guarded blocks of a process.
pub(super) struct Pool<D> {
    pub(super) lock: Lock,
    /// The first page; 0 before the pool is made.
    base: AtomicUsize,
    live: AtomicUsize,
    /// Guarded by: lock.
    table: Late<Table>,
    pub(super) doors: D,
}

/// The table, with the lock.
struct Held<'a> {
    table: &'a mut Table,
    base: usize,
    _guard: Guard<'a>,
}

impl<D: Doors> Pool<D> {
    pub(super) const fn new(doors: D) -> Self {
        Pool {
            lock: Lock::new(Rank::Guarded),
            base: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            table: Late::new(),
            doors,
        }
    }

    /// Makes the pool, in memory that `memory` gives. False if it gives none.
    pub(super) fn make(&self, memory: impl FnOnce(usize) -> Option<NonNull<u8>>) -> bool {
        let _guard = self.lock.lock();
        let bytes = PAGES * self.doors.page_bytes();
        let Some(mut table) = self.table.open() else {
            return false;
        };
        if self.base.load(Ordering::Relaxed) != 0 {
            // SAFETY: the lock is held.
            let free = unsafe { table.as_ref() }.free_count();
            return free + self.live() > 0;
        }
        let Some(base) = memory(bytes) else {
            return false;
        };
        // SAFETY: the lock is held, and the memory is the pool's.
        let (table, shut) = unsafe { (table.as_mut(), self.doors.shut(base, bytes)) };
        if shut {
            table.free_all();
        }
        self.base.store(base.addr().get(), Ordering::Release);
        shut
    }

    /// Whether `address` is in the pool.
    pub(super) fn contains(&self, address: usize) -> bool {
        let base = self.base.load(Ordering::Acquire);
        base != 0 && address.wrapping_sub(base) < PAGES * self.doors.page_bytes()
    }

    /// How many blocks are live.
    pub(super) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// With [`Guarding::All`], whether the next block gets a slot; `random` decides. Every block
    /// does while fewer than 128 are in use. Each 16 more halve the share, so that long-lived
    /// blocks seldom take the last slots.
    ///
    /// [`Guarding::All`]: neap_heap::cache::heap::Guarding::All
    pub(super) fn spares(&self, random: u64) -> bool {
        const STEPS: usize = 16;
        let crowding = (self.live() * STEPS / SLOTS).saturating_sub(STEPS / 2 - 1);
        random.trailing_zeros() as usize >= crowding
    }

    /// Whether there is a slot for another block.
    pub(super) fn has_room(&self) -> bool {
        self.live() < SLOTS - QUARANTINED && self.base.load(Ordering::Relaxed) != 0
    }

    fn hold(&self) -> Option<Held<'_>> {
        self.held_by(self.lock.lock())
    }

    fn held_by<'a>(&'a self, guard: Guard<'a>) -> Option<Held<'a>> {
        let mut table = self.table.find()?;
        Some(Held {
            // SAFETY: the lock is held as long as the value lives.
            table: unsafe { table.as_mut() },
            base: self.base.load(Ordering::Relaxed),
            _guard: guard,
        })
    }

    /// A block of `bytes` bytes at a multiple of `align`, neither more than a page, at the end or
    /// at the start of its page as `random` says. `None` if there is no slot for it.
    pub(super) fn take(
        &self,
        [bytes, align]: [usize; 2],
        class: u32,
        random: u64,
        made: Trace,
    ) -> Option<NonNull<u8>> {
        let page = self.doors.page_bytes();
        debug_assert!(bytes <= page && align <= page && align.is_power_of_two());
        let held = self.hold()?;
        let number = self.has_room().then(|| held.table.oldest()).flatten()?;
        let first = held.page_of(number, page);
        // SAFETY: a page of the pool.
        if !unsafe { self.doors.open(NonNull::new(first as *mut u8)?) } {
            held.table.push(number);
            return None;
        }
        let start = match random & 1 {
            0 => first,
            _ => first + page - bytes.max(1).next_multiple_of(align),
        };
        held.table.slots[number] = Slot {
            start,
            bytes,
            class,
            state: State::Live as u32,
            made,
            freed: Trace::NONE,
        };
        for (from, to) in sides(first, page, start, bytes) {
            // SAFETY: bytes of the page, which is accessible and no other thread's.
            unsafe { (from as *mut u8).write_bytes(PATTERN, to - from) };
        }
        self.live.fetch_add(1, Ordering::Relaxed);
        NonNull::new(start as *mut u8)
    }

    /// Takes the block at `address` back.
    pub(super) fn give(&self, address: usize, freed: Trace) -> Result<(), Mistake> {
        let page = self.doors.page_bytes();
        let Some(held) = self.hold() else {
            return Ok(());
        };
        let number = held.live_at(address, page)?;
        let first = held.page_of(number, page);
        let slot = &mut held.table.slots[number];
        // SAFETY: bytes of the page, which is accessible.
        let is_written = |at: &usize| unsafe { (*at as *const u8).read_volatile() } != PATTERN;
        let mut beside = sides(first, page, address, slot.bytes)
            .into_iter()
            .flat_map(|(from, to)| from..to);
        if let Some(at) = beside.find(is_written) {
            let wrong = Wrong::Written(at);
            return Err(Mistake { wrong, number });
        }
        (slot.state, slot.freed) = (State::Freed as u32, freed);
        if let Some(first) = NonNull::new(first as *mut u8)
            // SAFETY: the program has given the block back.
            && unsafe { self.doors.restore(first) }
        {
            // If the kernel refuses, nothing is detected on this page until it is used again.
            // SAFETY: as above.
            unsafe { self.doors.shut(first, page) };
            held.table.push(number);
        }
        self.live.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// The requested bytes of the block at `address`.
    pub(super) fn bytes(&self, address: usize) -> Result<usize, Mistake> {
        let Some(held) = self.hold() else {
            return Ok(0);
        };
        let number = held.live_at(address, self.doors.page_bytes())?;
        Ok(held.table.slots[number].bytes)
    }

    /// What the table knows of a slot, if it was ever used.
    pub(super) fn slot(&self, number: usize) -> Option<Slot> {
        let held = self.hold()?;
        held.table
            .slots
            .get(number)
            .filter(|slot| slot.start != 0)
            .copied()
    }

    /// Calls `visit` with the page and the class of each live block.
    pub(super) fn for_each_live(&self, mut visit: impl FnMut(usize, u32)) {
        let page = self.doors.page_bytes();
        let Some(held) = self.hold() else {
            return;
        };
        let slots = held.table.slots.iter().enumerate();
        for (number, slot) in slots.filter(|(_, slot)| slot.state() == State::Live) {
            visit(held.page_of(number, page), slot.class);
        }
    }

    /// The slot that an access to `address` most likely meant. In a handler: it waits for no lock.
    /// `None` if another thread keeps the lock, or no block was ever near.
    pub(super) fn meant_by(&self, address: usize) -> Option<Slot> {
        let guard = (0..TRIES).find_map(|_| self.lock.try_lock())?;
        let held = self.held_by(guard)?;
        held.table
            .meant_by(address, held.base, self.doors.page_bytes())
    }
}

impl Held<'_> {
    /// The page of a slot.
    fn page_of(&self, number: usize, page: usize) -> usize {
        self.base + (2 * number + 1) * page
    }

    /// The number of the slot whose live block starts at `address`.
    fn live_at(&self, address: usize, page: usize) -> Result<usize, Mistake> {
        self.table.live_at(address, self.base, page)
    }
}

/// What is filled of a block's page: before the block, and after it.
fn sides(first: usize, page: usize, start: usize, bytes: usize) -> [(usize, usize); 2] {
    let end = start + bytes;
    [
        (start.saturating_sub(FILLED).max(first), start),
        (end, (end + FILLED).min(first + page)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;
    use std::vec::Vec;

    const PAGE: usize = 4096;

    /// Pages that are open, and how often the kernel refuses.
    struct Fake {
        open: RefCell<BTreeSet<usize>>,
        refuses: RefCell<Vec<bool>>,
        /// Whether what the program maps over a page stays there.
        stays: Cell<bool>,
    }

    impl Fake {
        fn refuses(&self) -> bool {
            self.refuses.borrow_mut().pop().unwrap_or(false)
        }
    }

    impl Doors for Fake {
        fn page_bytes(&self) -> usize {
            PAGE
        }

        unsafe fn open(&self, page: NonNull<u8>) -> bool {
            !self.refuses() && self.open.borrow_mut().insert(page.addr().get())
        }

        unsafe fn shut(&self, first: NonNull<u8>, bytes: usize) -> bool {
            let from = first.addr().get();
            self.open
                .borrow_mut()
                .retain(|page| !(from..from + bytes).contains(page));
            true
        }

        unsafe fn restore(&self, _page: NonNull<u8>) -> bool {
            !self.stays.get()
        }
    }

    fn pool(refuses: Vec<bool>) -> Pool<Fake> {
        let refuses = RefCell::new(refuses);
        let (open, stays) = Default::default();
        let pool = Pool::new(Fake {
            open,
            refuses,
            stays,
        });
        assert!(pool.make(|bytes| {
            let layout = std::alloc::Layout::from_size_align(bytes, PAGE).ok()?;
            // SAFETY: not of size 0. Left to the process's end.
            NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
        }));
        pool
    }

    fn take(pool: &Pool<Fake>, bytes: usize, align: usize, random: u64) -> Option<usize> {
        let block = pool.take([bytes, align], 1, random, Trace::NONE);
        block.map(|block| block.addr().get())
    }

    #[test]
    fn blocks_end_or_begin_at_a_page() {
        let pool = pool(Vec::new());
        let (left, right) = (take(&pool, 24, 8, 0), take(&pool, 24, 8, 1));
        let (left, right) = (left.unwrap(), right.unwrap());
        assert_eq!((left % PAGE, right % PAGE), (0, PAGE - 24));
        assert_eq!(right / PAGE - left / PAGE, 2);
    }

    #[test]
    fn long_lived_blocks_leave_slots() {
        let pool = pool(Vec::new());
        let guarded = (1..=1000_u64).filter(|number| {
            let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8;
            pool.spares(random) && take(&pool, 100, 16, random).is_some()
        });
        let guarded: Vec<u64> = guarded.collect();
        assert!((1..=128).all(|number| guarded.contains(&number)));
        // From 128 on, one step for each 16 slots.
        let rare = |zeros: u32| pool.spares(1 << zeros);
        assert!(
            (208..224).contains(&pool.live()) == (rare(6) && !rare(5)),
            "{}",
            pool.live()
        );
        assert!(
            pool.has_room() && guarded.len() > 3 * SLOTS / 4,
            "{}",
            guarded.len()
        );
    }

    #[test]
    fn a_slot_waits_until_the_others_were_used() {
        // How many other blocks are freed before the first one's slot is used again.
        for (live, others) in [(1, SLOTS - 1), (SLOTS - QUARANTINED, QUARANTINED)] {
            let pool = pool(Vec::new());
            let take = || take(&pool, 100, 16, 0);
            let blocks: Vec<_> = (0..live).map(|_| take()).collect();
            let first = blocks[0];
            assert!(live == 1 || take().is_none());
            assert!(pool.give(first.unwrap(), Trace::NONE).is_ok());
            let next = || take().filter(|&next| Some(next) != first);
            let given =
                core::iter::from_fn(next).take_while(|&next| pool.give(next, Trace::NONE).is_ok());
            assert_eq!(given.count(), others);
        }
    }

    #[test]
    fn a_page_that_is_not_the_heaps_is_not_used_again() {
        let pool = pool(Vec::new());
        let lost = take(&pool, PAGE, PAGE, 0).unwrap();
        pool.doors.stays.set(true);
        assert!(pool.give(lost, Trace::NONE).is_ok() && pool.live() == 0);
        pool.doors.stays.set(false);
        for _ in 0..2 * SLOTS {
            let next = take(&pool, PAGE, PAGE, 0).unwrap();
            assert!(next != lost && pool.give(next, Trace::NONE).is_ok());
        }
    }

    #[test]
    fn mistakes_are_told_apart() {
        let pool = pool(Vec::new());
        let block = take(&pool, 24, 16, 1).unwrap();
        let wrong = |address| pool.bytes(address).map_err(|mistake| mistake.wrong);
        assert_eq!(wrong(block), Ok(24));
        assert_eq!(wrong(block + 8), Err(Wrong::Interior));
        assert_eq!(wrong(block + PAGE), Err(Wrong::NoBlock));
        // SAFETY: on the block's page.
        unsafe { ((block + 24) as *mut u8).write(0) };
        let given = pool
            .give(block, Trace::NONE)
            .map_err(|mistake| mistake.wrong);
        assert_eq!(given, Err(Wrong::Written(block + 24)));
        let next = take(&pool, 24, 16, 0).unwrap();
        assert!(pool.give(next, Trace::NONE).is_ok());
        let again = pool
            .give(next, Trace::NONE)
            .map_err(|mistake| mistake.wrong);
        assert_eq!(again, Err(Wrong::Freed));
    }

    #[test]
    fn an_access_between_two_blocks_is_of_the_nearer_one() {
        let pool = pool(Vec::new());
        let right = take(&pool, 32, 16, 1).unwrap();
        let left = take(&pool, 48, 16, 0).unwrap();
        let meant = |address| pool.meant_by(address).map(|slot| slot.start);
        assert_eq!(meant(right + 32 + 100), Some(right));
        assert_eq!(meant(left - 100), Some(left));
        assert_eq!(meant(right - 1), Some(right));
        assert_eq!(meant(left + 48 + PAGE), Some(left));
    }

    proptest! {
        #[test]
        fn no_address_is_given_out_twice(
            steps in prop::collection::vec((any::<bool>(), 0..=PAGE, any::<u64>()), 1..1500),
            refuses in prop::collection::vec(any::<bool>(), 0..50),
        ) {
            let pool = pool(refuses);
            let mut live: Vec<(usize, usize)> = Vec::new();
            for (takes, bytes, random) in steps {
                let align = 1 << (random >> 8 & 7);
                if takes {
                    let Some(start) = take(&pool, bytes, align, random) else { continue };
                    let page = start / PAGE;
                    prop_assert!(live.iter().all(|(other, _)| other / PAGE != page));
                    prop_assert!(start.is_multiple_of(align) && bytes <= PAGE - start % PAGE);
                    live.push((start, bytes));
                } else if !live.is_empty() {
                    let (start, bytes) = live.swap_remove(random as usize % live.len());
                    prop_assert!(matches!(pool.bytes(start), Ok(found) if found == bytes));
                    prop_assert!(pool.give(start, Trace::NONE).is_ok());
                }
                let open: BTreeSet<_> = live.iter().map(|(start, _)| start / PAGE * PAGE).collect();
                prop_assert_eq!(&open, &*pool.doors.open.borrow());
                prop_assert_eq!(pool.live(), live.len());
                prop_assert!(live.len() <= SLOTS - QUARANTINED);
            }
        }
    }
}
