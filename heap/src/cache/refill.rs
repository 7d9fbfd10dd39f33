//! Refill: the slow path of `malloc`, which also learns how much each magazine should hold.

use super::bounds::array_bytes;
use super::budget::{
    DEEP_BYTES, Depth, FIRST_BYTES, FIRST_ENTRIES, MAGAZINE_BYTES, MAGAZINE_ENTRIES, Verdict,
};
use super::countdown::{Flow, Miss, Way};
use super::heap::Heap;
use super::magazine::GUARD;
use super::misuse;
use super::opened::Opened;
use super::origin::Origin;
use super::thread_cache::Cache;
use crate::base::policy::{Driver, START_BYTES};
use crate::base::sync::{Ordering, fence, light_barrier};
use crate::base::units::SLICE_BYTES;
use crate::os::nodes;
use crate::pages::Age;
use crate::slab::class::Class;
use crate::slab::depot_id::DepotId;
use crate::slab::{Grain, LINE_BLOCKS};
use core::ptr;

/// After this many slow-path events, one magazine is considered for shrinking, and the clock is
/// read.
const TIDY_EVERY: u32 = 64;

/// The same for the clock alone, while memory is short.
const PRESSED_EVERY: u32 = 2;

/// The least room of an array, in entries: small arrays are of one size, so that a small program
/// touches one page of them.
const LEAST_ROOM: usize = 16;

/// How many entries a refill checks, of those that the magazine gave out last. Checking all would
/// cost five more instructions per `malloc` where a program frees nothing.
const CHECKED_ENTRIES: usize = 32;

/// A magazine holds blocks of up to this many bytes from its first miss on.
const UNPROVEN_BYTES: usize = 2 << 10;

/// A magazine for larger blocks misses once for every `MISS_BYTES` bytes of a block before it may
/// hold one.
const MISS_BYTES: usize = 512;

/// A magazine gets deeper only while all magazines together have at most the bytes of this many
/// shards of cached spans.
const DEEP_SHARDS: usize = 8;

/// A miss of a deep magazine moves this part of it.
const DEEP_PART: usize = 8;

/// Most entries of a magazine whose blocks pass through the exchange. With more, magazines take
/// more memory, and save no instructions.
const PASSED_ENTRIES: usize = 64;

/// After this many slow-path events, a thread that has more than its share shrinks a magazine.
const OWING_EVERY: u32 = 8;

/// What a thread has of the capacity that the process may grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Enough to work with.
    Fair,
    /// A first capacity at most, because others hold the rest.
    Crumbs,
}

/// Whether enough slow-path events have passed to look at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paced {
    Due,
    NotYet,
}

impl Heap {
    /// Fills the magazine of `class` to half of its capacity and takes one block. Null when out of
    /// memory. Aborts if the newest block was freed twice.
    ///
    /// # Safety
    /// - `cache` is the calling thread's own.
    pub unsafe fn refill(&'static self, cache: &Cache, class: Class) -> *mut u8 {
        let mut open = cache.open();
        // SAFETY: the caller's promise.
        unsafe { open.magazine(class).settle() };
        open.lose_patience();
        if let Some(twice) = open.magazine(class).repeated() {
            misuse::double_free(twice.addr(), class.bytes());
        }
        // SAFETY: the caller's promise.
        if let Some(block) = unsafe { open.magazine(class).pop() } {
            return block;
        }
        self.refuse_free_given(&mut open, class);
        let (share, way) = self.learn(&mut open, class, Miss::Refill);
        if open.magazine(class).bounds.capacity == 0 {
            open.countdown(class).note(Miss::Refill);
            drop(open);
            self.reclaim_for(share);
            return self.take_one(class);
        }
        let want = half_capacity(&mut open, class);
        if way == Way::Slabs || !self.take_handed(&mut open, class, way.most(want)) {
            self.fill(&mut open, class, want);
        }
        let paced = self.tidy(&mut open);
        // SAFETY: the caller's promise.
        let block = unsafe { open.magazine(class).pop() }.unwrap_or(ptr::null_mut());
        drop(open);
        self.reclaim_for(share);
        if paced == Paced::Due {
            self.decay_on_the_way();
        }
        block
    }

    /// Adds about `want` blocks to a settled magazine, which has room for that many: with whole
    /// cache lines where it has room, so that no two threads' refills share one.
    pub(super) fn fill(&'static self, open: &mut Opened<'_>, class: Class, want: usize) {
        let magazine = open.magazine(class);
        let filled = magazine.filled();
        let room = magazine.bounds.capacity as usize - filled;
        debug_assert!((1..=room).contains(&want));
        let (grain, most) = match want + LINE_BLOCKS - 1 {
            most if most <= room => (Grain::Lines, most),
            _ => (Grain::Blocks, want),
        };
        let base = (magazine.bounds.base + 8 * filled) as *mut usize;
        // Written downwards, so that the lowest address comes out first.
        // SAFETY: at most the room that is left in the array.
        let mut at = unsafe { base.add(most) };
        let origin = Origin::blocks(self, Age::New);
        let id = DepotId::near(class);
        let got = self
            .depots
            .take_by(grain, id, want, &origin, &mut |slab, claim| {
                let first = slab.base() + claim.word * 64 * class.bytes();
                // SAFETY: no more than `most` bits come in all.
                at = unsafe { write_down(at, first, class.bytes(), claim.bits) };
            });
        open.countdown(class).note(Miss::Refill);
        if at != base {
            // SAFETY: the entries written are [at, at + got), inside the array.
            unsafe { ptr::copy(at, base, got) };
        }
        // What stands above is of earlier refills. Before the magazine is filled, because a handler
        // of a signal may use it then.
        let old =
            (filled + got..CHECKED_ENTRIES.min(open.magazine(class).bounds.room as usize)).len();
        // SAFETY: within the room of the array.
        unsafe { ptr::write_bytes(base.add(got), 0, old) };
        if let Some(stamp) = open.magazine(class).stamp() {
            *stamp = self.given_back();
        }
        // SAFETY: as above; the owner fills it.
        unsafe { open.magazine(class).set_filled(filled + got) };
    }

    /// Aborts if one of the last blocks that an empty magazine gave out since its refill is free in
    /// its slab: the program freed it before any `malloc` had returned it. The slab would give it
    /// out once more. Certain only if no block went back to a slab since, because another thread
    /// may free what this one gave out.
    fn refuse_free_given(&'static self, open: &mut Opened<'_>, class: Class) {
        let (now, mut magazine) = (self.given_back(), open.magazine(class));
        if magazine.stamp().is_none_or(|stamp| *stamp != now) {
            return;
        }
        let count = CHECKED_ENTRIES.min(magazine.bounds.room as usize);
        // SAFETY: the room of the array; a refill has written this many, and only the owner writes.
        let given =
            unsafe { core::slice::from_raw_parts(magazine.bounds.base as *const usize, count) };
        let mut before = 0;
        for &address in given.iter().take_while(|&&address| address != 0) {
            // What a refill wrote stands in rows.
            let is_in_row = address.wrapping_add(class.bytes()) == before;
            before = address;
            if !is_in_row && self.is_free(address) && self.given_back() == now {
                misuse::double_free(address, class.bytes());
            }
        }
    }

    /// Whether a block is free in its slab.
    fn is_free(&'static self, address: usize) -> bool {
        let is_free = self.find_slab(address).is_some_and(|(slab, class)| {
            let block = class.block_at(address.wrapping_sub(slab.base()));
            block.is_some_and(|block| slab.is_free(class, block))
        });
        fence(Ordering::Acquire);
        is_free
    }

    /// A number that changes before a block that was out goes back to its slab; never 0.
    fn given_back(&self) -> usize {
        let drained = self.drained.load(Ordering::Relaxed);
        (self.tide.freed.bytes().wrapping_add(drained)).wrapping_add(1)
    }

    /// Lets a thread that has almost no capacity take from threads that sleep.
    pub(super) fn reclaim_for(&'static self, share: Share) {
        if share == Share::Crumbs {
            self.reclaim();
        }
    }

    /// A magazine that misses is too small: double it, within the bounds. Also tells where its
    /// blocks go to or come from.
    pub(super) fn learn(
        &'static self,
        open: &mut Opened<'_>,
        class: Class,
        miss: Miss,
    ) -> (Share, Way) {
        let flow = open.countdown(class).note_miss(miss);
        let way = self.way(open, class, miss);
        let flow = if way == Way::Across {
            Flow::Across
        } else {
            flow
        };
        let capacity = open.magazine(class).bounds.capacity;
        if capacity == 0 && open.countdown(class).misses() <= misses_before(class) {
            // Shows a drainer that the owner is at work.
            open.inner.events = open.inner.events.wrapping_add(1);
            return (Share::Fair, way);
        }
        if flow == Flow::Across && capacity as usize > passed_at_once(class) {
            // It grew before it was known that its blocks move between threads.
            self.shrink(open, class);
            return (Share::Fair, way);
        }
        (self.widen_for(open, class, flow), way)
    }

    /// Blocks of the class go through the exchange if the thread's magazine of it nearly always
    /// misses in this way, or is deep. Where there are several nodes, the latter do not, because
    /// they would leave theirs.
    #[inline(never)]
    fn way(&self, open: &mut Opened<'_>, class: Class, miss: Miss) -> Way {
        let capacity = open.magazine(class).bounds.capacity as usize;
        let way = match open.countdown(class).is_mostly(miss) {
            true => Way::Across,
            false if capacity > most_capacity(class) && nodes::count() == 1 => Way::Beyond,
            false => Way::Slabs,
        };
        match way != Way::Slabs && self.may_trade(open, class, miss) {
            true => way,
            false => Way::Slabs,
        }
    }

    /// Doubles a magazine, as far as the flow of its blocks and the budget allow.
    pub(super) fn widen_for(
        &'static self,
        open: &mut Opened<'_>,
        class: Class,
        flow: Flow,
    ) -> Share {
        let capacity = open.magazine(class).bounds.capacity as usize;
        let most = match flow {
            Flow::ToAndFro if capacity >= most_capacity(class) => capacity_of(class, DEEP_BYTES),
            Flow::Across => passed_at_once(class),
            _ => most_capacity(class),
        };
        let wanted = match capacity < first_capacity(class) {
            true => first_capacity(class),
            false => (capacity * 2).min(most),
        };
        if wanted <= capacity {
            return Share::Fair;
        }
        match self.grow(open, class, wanted, flow) {
            Verdict::Granted => Share::Fair,
            Verdict::ThreadFull => {
                // Another of its magazines may have more than it needs.
                self.tidy_one(open);
                Share::Fair
            }
            Verdict::ProcessFull if capacity <= first_capacity(class) => Share::Crumbs,
            Verdict::ProcessFull => Share::Fair,
        }
    }

    /// Raises a capacity to `wanted` entries, if the budget allows it, and the memory.
    #[inline(never)]
    pub(super) fn grow(
        &'static self,
        open: &mut Opened<'_>,
        class: Class,
        wanted: usize,
        flow: Flow,
    ) -> Verdict {
        let more = (wanted - open.magazine(class).bounds.capacity as usize) * class.bytes();
        let held = open.inner.granted;
        let deep = self.deep_bytes(open);
        let is_over = wanted > most_capacity(class)
            || flow != Flow::OneWay && held - deep + more > self.budget.plain_bytes();
        let (depth, part) = match is_over && !open.inner.access.path.is_closed() {
            true => (self.deep(), deep),
            false => (Depth::Plain, held - deep),
        };
        // Before the budget counts it: see `restore`.
        open.inner.granted += more;
        light_barrier();
        let verdict = self.judge(depth, part, class, wanted, more);
        if verdict != Verdict::Granted {
            open.inner.granted = held;
            return verdict;
        }
        if wanted > open.magazine(class).bounds.room as usize && !self.enlarge(open, class, wanted)
        {
            self.restore(open, more);
            return Verdict::ThreadFull;
        }
        open.magazine(class).bounds.capacity = wanted as u32;
        open.magazine(class).publish();
        Verdict::Granted
    }

    /// Bytes that a thread's magazines may hold only because their blocks come and go: what a deep
    /// one has beyond [`MAGAZINE_BYTES`], and all of them beyond the plain bound. Hardened mode,
    /// which has bounds of its own, has none.
    #[inline(never)]
    pub(super) fn deep_bytes(&self, open: &Opened<'_>) -> usize {
        if open.inner.access.path.is_closed() {
            return 0;
        }
        let deep = |class: Class| {
            let capacity = open.inner.bounds[class.index()].capacity as usize;
            (capacity * class.bytes()).saturating_sub(MAGAZINE_BYTES)
        };
        // In a fork's child, the cache of a thread that stayed in the parent may have no grant.
        let shallow = (open.inner.granted).saturating_sub(open.classes().map(deep).sum());
        open.inner.granted - shallow.min(self.budget.plain_bytes())
    }

    /// No magazine gets deeper where no spans are cached. Under a limit of some MiB, deep magazines
    /// would hold what a request needs. Nor does one in a larger heap without a purge thread, where
    /// only calls that miss the magazines give memory back.
    fn deep(&self) -> Depth {
        let limits = self.pages.limits();
        let most = limits.cache_slices() * SLICE_BYTES * DEEP_SHARDS;
        let most = match limits.driver() {
            Driver::Thread => most,
            Driver::Callers if self.pages.extent() < START_BYTES => most.min(START_BYTES / 2),
            Driver::Callers => 0,
        };
        Depth::Deep { most }
    }

    /// Takes a grant back. At every step the cache notes at least what the budget counts for it,
    /// because the child of a fork in a signal handler resets the budget to what its caches note.
    pub(super) fn restore(&self, open: &mut Opened<'_>, bytes: usize) {
        self.budget.restore(bytes);
        light_barrier();
        open.inner.granted -= bytes;
    }

    /// Requests `more` bytes from the budget. Every thread gets a first capacity of small blocks,
    /// whatever the others have.
    fn judge(
        &self,
        depth: Depth,
        held: usize,
        class: Class,
        wanted: usize,
        more: usize,
    ) -> Verdict {
        let is_first = class.bytes() <= FIRST_BYTES && wanted <= first_capacity(class);
        match is_first && self.budget.grant_first(held, more) {
            true => Verdict::Granted,
            false => self.budget.grant(depth, held, more, self.registry.count()),
        }
    }

    /// Moves a magazine into an array of at least `room` entries. False when out of memory.
    fn enlarge(&'static self, open: &mut Opened<'_>, class: Class, room: usize) -> bool {
        let room = room.max(LEAST_ROOM).next_power_of_two();
        let Some(array) = self.take_meta(array_bytes(room)) else {
            return false;
        };
        // SAFETY: the word behind the room: no stamp.
        unsafe { array.cast::<usize>().add(GUARD + room).write(0) };
        // SAFETY: taken above, and larger than the old one, whose entries are settled.
        if let Some((old, old_room)) = unsafe { open.set_array(class, array, room) } {
            // SAFETY: allocated here for the same room; nothing points into it any more.
            unsafe { self.give_meta(old, array_bytes(old_room)) };
        }
        true
    }

    /// Now and then shrinks one magazine. Returns whether it is time to read the clock.
    pub(super) fn tidy(&'static self, open: &mut Opened<'_>) -> Paced {
        open.inner.events += 1;
        if !open.inner.events.is_multiple_of(TIDY_EVERY) {
            self.pay_now_and_then(open);
            let pressed =
                self.pages.limits().is_pressed() && open.inner.events.is_multiple_of(PRESSED_EVERY);
            return if pressed { Paced::Due } else { Paced::NotYet };
        }
        self.tidy_one(open);
        Paced::Due
    }

    /// Shrinks a magazine if it was idle since the last visit.
    fn tidy_one(&'static self, open: &mut Opened<'_>) {
        let class = open.next_class();
        if open.countdown(class).take_misses() == 0 {
            self.shrink(open, class);
        }
    }

    /// Shrinks a magazine of a thread that has more than its share, while others lack.
    fn pay_now_and_then(&'static self, open: &mut Opened<'_>) {
        let due = open.inner.events.is_multiple_of(OWING_EVERY);
        if due && self.budget.owes(open.inner.granted, self.registry.count()) {
            let class = open.next_class();
            if open.magazine(class).bounds.capacity as usize > first_capacity(class) {
                self.shrink(open, class);
            }
        }
    }

    /// Halves a capacity and gives back what no longer fits.
    fn shrink(&'static self, open: &mut Opened<'_>, class: Class) {
        // SAFETY: only the owner's slow path shrinks.
        unsafe { open.magazine(class).settle() };
        let capacity = open.magazine(class).bounds.capacity as usize;
        let excess = open.magazine(class).filled().saturating_sub(capacity / 2);
        // SAFETY: as above; settled.
        unsafe { self.flush(open, class, excess, Age::New) };
        let less = (capacity - capacity / 2) * class.bytes();
        self.restore(open, less);
        open.magazine(class).bounds.capacity = (capacity / 2) as u32;
        open.magazine(class).publish();
    }
}

/// Writes the addresses of the set bits of a word below `at`, lowest address at the lowest place.
///
/// # Safety
/// - There is room for as many entries below `at` as `bits` has set bits.
unsafe fn write_down(mut at: *mut usize, first: usize, bytes: usize, mut bits: u64) -> *mut usize {
    if bits == u64::MAX {
        // SAFETY: the caller's promise.
        return unsafe { write_word_down(at, first, bytes) };
    }
    while bits != 0 {
        // SAFETY: as above.
        at = unsafe { at.sub(1) };
        // SAFETY: as above.
        unsafe { *at = first + bits.trailing_zeros() as usize * bytes };
        bits &= bits - 1;
    }
    at
}

/// [`write_down`] for a whole word, the common case of a fresh slab: a plain loop.
///
/// # Safety
/// - There is room for 64 entries below `at`.
unsafe fn write_word_down(at: *mut usize, first: usize, bytes: usize) -> *mut usize {
    // SAFETY: the caller's promise.
    let entries = unsafe { &mut *at.sub(64).cast::<[usize; 64]>() };
    let mut address = first + 63 * bytes;
    for entry in entries.iter_mut() {
        *entry = address;
        address = address.wrapping_sub(bytes);
    }
    entries.as_mut_ptr()
}

/// How often a magazine misses before it may hold anything. A drainer leaves each magazine its
/// newest block, so a thread that sleeps would keep a block of every class that it ever used. For
/// large blocks that is a lot of memory, and a few more misses cost little beside the use of the
/// blocks.
fn misses_before(class: Class) -> u32 {
    match class.bytes() {
        ..=UNPROVEN_BYTES => 0,
        bytes => (bytes / MISS_BYTES) as u32,
    }
}

/// How many blocks a refill takes.
pub(super) fn half_capacity(open: &mut Opened<'_>, class: Class) -> usize {
    let capacity = open.magazine(class).bounds.capacity as usize;
    moved_at_once(class, capacity).max(1)
}

/// How many of a magazine's `entries` a miss moves from or to slabs: half, but fewer of a deep one,
/// so that no call takes long.
#[inline(never)]
pub(super) fn moved_at_once(class: Class, entries: usize) -> usize {
    let most = most_capacity(class).div_ceil(2).max(entries / DEEP_PART);
    entries.div_ceil(2).min(most)
}

pub(super) fn first_capacity(class: Class) -> usize {
    (FIRST_BYTES / class.bytes()).clamp(1, FIRST_ENTRIES)
}

/// The most blocks of `class` that pass between a thread and the exchange at once.
pub(super) fn passed_at_once(class: Class) -> usize {
    most_capacity(class).min(PASSED_ENTRIES)
}

/// The most entries of a magazine of `class` that is not deep.
pub(super) fn most_capacity(class: Class) -> usize {
    capacity_of(class, MAGAZINE_BYTES)
}

fn capacity_of(class: Class, bytes: usize) -> usize {
    (bytes / class.bytes()).clamp(1, MAGAZINE_ENTRIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::cache::budget::{DEEP_THREAD, THREAD_BYTES};
    use crate::cache::heap::HEAP;
    use crate::testing::crew::with_threads;
    use crate::testing::own_cache;
    use std::vec::Vec;

    /// Several slabs of metadata hold the arrays of this many threads.
    const THREADS: usize = 300;
    const CAPACITY: usize = 128;

    /// Lets the calling thread's magazine of blocks of 64 bytes miss until it should hold
    /// [`CAPACITY`] blocks. Returns what it holds.
    fn grown_capacity() -> usize {
        capacities(64, CAPACITY, 8)[7]
    }

    /// Allocates `count` blocks of the calling thread's own, as its misses allow, then frees them.
    fn cycle(cache: &Cache, class: Class, count: usize) {
        let take = |_| {
            own_cache::pop_held(cache, class).unwrap_or_else(|| own_cache::refill(cache, class))
        };
        let blocks: Vec<_> = (0..count).map(take).collect();
        blocks
            .into_iter()
            .for_each(|block| own_cache::put(cache, class, block));
    }

    /// The capacities of a magazine after each of some cycles of `count` blocks of `size` bytes.
    fn capacities(size: usize, count: usize, cycles: usize) -> Vec<usize> {
        let (cache, class) = (own_cache::enter().expect("a cache"), Class::of_size(size));
        let capacity = |_| {
            cycle(cache, class, count);
            cache.open().magazine(class).bounds.capacity as usize
        };
        (0..cycles).map(capacity).collect()
    }

    #[test]
    fn a_magazine_that_is_flushed_and_refilled_by_turns_gets_deep() {
        HEAP.pages.limits().set_driver(Driver::Thread);
        for size in [512, 4 << 10, 32 << 10] {
            let class = Class::of_size(size);
            let (most, deepest) = (most_capacity(class), capacity_of(class, DEEP_BYTES));
            let of_thread = || capacities(size, 2 * deepest, 12);
            let got = with_threads(1, of_thread, |mut got| got.remove(0));
            // The first flush is of blocks that the thread may never want again.
            assert!(got[0] <= most, "{size}: {got:?}");
            assert!(
                got.iter().all(|&capacity| capacity <= deepest),
                "{size}: {got:?}"
            );
            assert_eq!(got[11], deepest, "{size}: {got:?}");
        }
    }

    #[test]
    fn a_magazine_that_is_only_flushed_or_only_refilled_stays_shallow() {
        let class = Class::of_size(16 << 10);
        let (sender, blocks) = std::sync::mpsc::sync_channel(4);
        let capacity = |cache: &Cache| cache.open().magazine(class).bounds.capacity as usize;
        let give = move || {
            let cache = own_cache::enter().expect("a cache");
            for _ in 0..2000 {
                let held = own_cache::pop_held(cache, class);
                let block = held.unwrap_or_else(|| own_cache::refill(cache, class));
                sender.send(block.addr()).expect("a receiver");
            }
            capacity(cache)
        };
        let got = std::thread::scope(|scope| {
            let giver = scope.spawn(give);
            let taker = scope.spawn(move || {
                let cache = own_cache::enter().expect("a cache");
                blocks
                    .iter()
                    .for_each(|block| own_cache::put(cache, class, block as *mut u8));
                capacity(cache)
            });
            [giver, taker].map(|thread| thread.join().expect("no panic"))
        });
        assert!(
            got.iter().all(|&capacity| capacity == most_capacity(class)),
            "{got:?}"
        );
    }

    #[test]
    fn deep_magazines_leave_others_their_room() {
        HEAP.pages.limits().set_driver(Driver::Thread);
        let room = || {
            let cache = own_cache::enter().expect("a cache");
            for size in [16 << 10, 20 << 10, 24 << 10] {
                (0..12).for_each(|_| cycle(cache, Class::of_size(size), 600));
            }
            let class = Class::of_size(64);
            (0..12).for_each(|_| cycle(cache, class, 5000));
            let mut open = cache.open();
            let deep = HEAP.deep_bytes(&open);
            let granted = core::mem::take(&mut open.inner.granted);
            assert_eq!(HEAP.deep_bytes(&open), 0, "without a grant");
            open.inner.granted = granted;
            (
                deep,
                open.inner.granted,
                open.magazine(class).bounds.capacity as usize,
            )
        };
        let (deep, granted, capacity) = with_threads(1, room, |got| got[0]);
        assert!(
            deep > 4 << 20 && deep <= DEEP_THREAD * THREAD_BYTES,
            "{deep}"
        );
        assert!(granted - deep <= THREAD_BYTES, "{granted}");
        assert_eq!(capacity, most_capacity(Class::of_size(64)));
    }

    /// 500 live blocks of 2 to 32 KiB, replaced at random.
    #[test]
    fn blocks_of_many_classes_that_come_and_go_have_room_beyond_the_plain_bound() {
        HEAP.pages.limits().set_driver(Driver::Thread);
        let granted = || {
            let cache = own_cache::enter().expect("a cache");
            let mut state = 1_u64;
            let mut next = |below: u64| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                ((state >> 33) % below) as usize
            };
            let mut live = Vec::new();
            for _ in 0..20_000 {
                let class = Class::of_size((2 << 10) + next(30 << 10));
                let held = own_cache::pop_held(cache, class);
                live.push((
                    class,
                    held.unwrap_or_else(|| own_cache::refill(cache, class)),
                ));
                if live.len() > 500 {
                    let (class, block) = live.swap_remove(next(500));
                    own_cache::put(cache, class, block);
                }
            }
            for (class, block) in live {
                own_cache::put(cache, class, block);
            }
            cache.open().inner.granted
        };
        let granted = with_threads(1, granted, |got| got[0]);
        let most = (1 + DEEP_THREAD) * THREAD_BYTES;
        assert!(granted > 2 * THREAD_BYTES && granted <= most, "{granted}");
    }

    #[test]
    fn a_miss_moves_a_part_of_a_deep_magazine() {
        for class in Class::all() {
            let (most, deepest) = (most_capacity(class), capacity_of(class, DEEP_BYTES));
            assert_eq!(moved_at_once(class, most), most.div_ceil(2));
            let moved = moved_at_once(class, deepest);
            assert_eq!(moved, most.div_ceil(2).max(deepest / 8), "{class:?}");
        }
    }

    #[test]
    fn the_magazines_of_hundreds_of_threads_grow() {
        // All arrays are in use at once.
        let capacities = with_threads(THREADS, grown_capacity, |capacities| capacities);
        let small = capacities.iter().filter(|&&got| got < CAPACITY);
        assert_eq!(small.count(), 0, "{capacities:?}");
    }
}
