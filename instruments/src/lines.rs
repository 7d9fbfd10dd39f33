//! The lines of the quarantine: queues in which freed blocks with canaries wait.
//!
//! A thread brings freed blocks to a line in groups. In return it gets the oldest group of that
//! line, and hands out these blocks again. A thread always uses the same line. Only at its end, it
//! brings its last blocks to line 0. So most blocks come back to the thread that freed them, whose
//! processor may still have them in its cache, and threads seldom wait for each other's locks.
//!
//! All lines together hold as much as one line alone may hold, because the lines that hold blocks
//! have equal shares. A thread that brings blocks to an empty line takes from all others what
//! exceeds their new share. Now and then, a thread takes a group from each line to which no thread
//! has brought blocks since the last such check. So the blocks of threads that have ended leave as
//! well.

use bytemuck::Zeroable;
use core::mem;
use neap_heap::base::sync::{AtomicUsize, Ordering};
use neap_heap::cache::thread_cache::CACHE_BYTES;
use neap_heap::cache::thread_cache::{self, Blocks};
use neap_heap::os::areas::Late;
use neap_heap::os::lock::{Lock, Rank};

/// The most blocks that wait.
pub(super) const PLACES: usize = 8192;
/// The most groups of them, except that each line may hold one more.
const GROUPS: usize = PLACES / thread_cache::MOST;
/// The most bytes of them, except that each line may hold one group more. Blocks of more bytes
/// would not stay in a processor's cache.
pub(super) const MOST_BYTES: usize = 1 << 20;
/// How many lines there are.
pub(super) const LINES: usize = 8;
/// After this many blocks have come to its line, a thread looks for lines to which no thread brings
/// blocks any more.
const ROUND: usize = 64 * thread_cache::MOST;

/// All lines.
pub(super) struct Lines {
    lines: [Line; LINES],
    /// How many lines hold blocks.
    joined: AtomicUsize,
}

/// A line of the quarantine. No two of them share a cache line of the processor.
#[repr(align(128))]
struct Line {
    lock: Lock,
    /// 68 KiB, mapped when the first block joins. guarded by: lock
    groups: Late<Groups>,
    /// Bytes of its blocks, for statistics and for threads of other lines. Written under `lock`.
    bytes: AtomicUsize,
    /// How many blocks threads have brought in all.
    came: AtomicUsize,
}

struct Groups {
    full: Ring<Blocks, GROUPS>,
    /// Blocks that did not come in a full group, fewer than a full group.
    single: Blocks,
    bytes: usize,
    /// [`Line::came`] of each line when a thread of this line last looked.
    seen: [usize; LINES],
}

// SAFETY: integers and flags, and 0 is a value of each.
unsafe impl Zeroable for Groups {}

/// How much a line may hold.
#[derive(Clone, Copy)]
struct Share {
    groups: usize,
    bytes: usize,
}

impl Share {
    const NOTHING: Share = Share {
        groups: 0,
        bytes: 0,
    };
}

/// The line of the thread whose cache is at the address `cache`. The addresses of two caches differ
/// by a multiple of [`CACHE_BYTES`].
pub(super) fn line_of(cache: usize) -> usize {
    cache / CACHE_BYTES % LINES
}

impl Lines {
    /// Lines without blocks.
    pub(super) const fn new() -> Lines {
        Lines {
            lines: [const { Line::new() }; LINES],
            joined: AtomicUsize::new(0),
        }
    }

    /// The lock of a line, for a fork.
    pub(super) const fn lock(&self, number: usize) -> &Lock {
        &self.lines[number].lock
    }

    /// Bytes of all blocks that wait.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |line: &Line| line.bytes.load(Ordering::Relaxed);
        self.lines.iter().map(bytes).sum()
    }

    /// Adds blocks to a line, and passes the blocks that leave the quarantine to `leave`, without
    /// holding a lock. False if there is no memory to note the new ones.
    pub(super) fn admit(&self, number: usize, blocks: &Blocks, leave: &dyn Fn(&Blocks)) -> bool {
        if blocks.count() == 0 {
            return true;
        }
        let share = self.share();
        let (mut is_first, mut moving) = (false, blocks.clone());
        let is_noted = self.change(number, &mut |groups| {
            is_first = groups.bytes == 0;
            groups.add(&mut moving, share);
        });
        if is_noted && moving.count() > 0 {
            leave(&moving);
        }
        match is_first {
            true => (0..LINES).for_each(|line| self.shorten(line, self.share(), leave)),
            false => self.shorten(number, share, leave),
        }
        let came = &self.lines[number].came;
        let before = came.fetch_add(blocks.count(), Ordering::Relaxed);
        if before / ROUND != (before + blocks.count()) / ROUND {
            self.relieve(number, leave);
        }
        is_noted
    }

    /// What each line may hold now.
    fn share(&self) -> Share {
        let joined = self.joined.load(Ordering::Relaxed).max(1);
        Share {
            groups: (GROUPS / joined).max(1),
            bytes: MOST_BYTES / joined,
        }
    }

    /// Takes groups from a line until it holds no more than its share.
    #[inline(never)]
    fn shorten(&self, number: usize, share: Share, leave: &dyn Fn(&Blocks)) {
        while let Some(blocks) = self.take(number, share) {
            leave(&blocks);
        }
    }

    /// Takes a group from each line to which no thread has brought blocks since a thread of this
    /// line last looked.
    fn relieve(&self, number: usize, leave: &dyn Fn(&Blocks)) {
        let mut is_left = [false; LINES];
        self.change(number, &mut |groups| {
            let came = self
                .lines
                .iter()
                .map(|line| line.came.load(Ordering::Relaxed));
            let lines = groups.seen.iter_mut().zip(came).zip(&mut is_left);
            for ((seen, came), is_left) in lines {
                *is_left = mem::replace(seen, came) == came;
            }
        });
        for line in (0..LINES).filter(|&line| is_left[line]) {
            if let Some(blocks) = self.take(line, Share::NOTHING) {
                leave(&blocks);
            }
        }
    }

    /// Takes the oldest group of a line, if the line holds more than `share`. The line may be
    /// another thread's.
    fn take(&self, number: usize, share: Share) -> Option<Blocks> {
        let mut taken = None;
        if self.lines[number].bytes.load(Ordering::Relaxed) > 0 {
            self.change(number, &mut |groups| taken = groups.release(share));
        }
        taken
    }

    /// Changes a line under its lock. False if there is no memory for it.
    #[inline(never)]
    fn change(&self, number: usize, change: &mut dyn FnMut(&mut Groups)) -> bool {
        let line = &self.lines[number];
        let _guard = line.lock.lock();
        let Some(mut groups) = line.groups.open() else {
            return false;
        };
        // SAFETY: the lock is held.
        let groups = unsafe { groups.as_mut() };
        let before = groups.bytes;
        change(groups);
        line.bytes.store(groups.bytes, Ordering::Relaxed);
        match (before, groups.bytes) {
            (0, 1..) => _ = self.joined.fetch_add(1, Ordering::Relaxed),
            (1.., 0) => _ = self.joined.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        true
    }
}

impl Line {
    const fn new() -> Line {
        Line {
            lock: Lock::new(Rank::Quarantine),
            groups: Late::new(),
            bytes: AtomicUsize::new(0),
            came: AtomicUsize::new(0),
        }
    }
}

impl Groups {
    /// Adds blocks, and replaces them by those that must leave, or by none.
    fn add(&mut self, blocks: &mut Blocks, share: Share) {
        self.bytes += blocks.bytes();
        match blocks.is_full() {
            true => self.full.exchange(blocks),
            false => self.add_single(blocks),
        }
        self.bytes -= blocks.bytes();
        if blocks.count() == 0
            && let Some(oldest) = self.release(share)
        {
            *blocks = oldest;
        }
    }

    /// [`Groups::add`] of fewer blocks than a full group.
    fn add_single(&mut self, blocks: &mut Blocks) {
        let mut leaving = Blocks::none();
        for (address, class) in blocks.iter() {
            self.single.push(address, class);
            if self.single.is_full() {
                leaving = mem::replace(&mut self.single, Blocks::none());
                self.full.exchange(&mut leaving);
            }
        }
        *blocks = leaving;
    }

    /// Removes and returns the oldest group, if the line holds more than its share.
    #[inline(never)]
    fn release(&mut self, share: Share) -> Option<Blocks> {
        match self.full.count > share.groups || self.bytes > share.bytes {
            true => self.pop(),
            false => None,
        }
    }

    /// Removes and returns the oldest group, or the blocks that are in no full group.
    fn pop(&mut self) -> Option<Blocks> {
        let oldest = match self.full.pop() {
            Some(oldest) => oldest.clone(),
            None if self.single.count() == 0 => return None,
            None => mem::replace(&mut self.single, Blocks::none()),
        };
        self.bytes -= oldest.bytes();
        Some(oldest)
    }
}

/// At most `MOST` blocks, or groups of them, in the order in which they came.
pub(super) struct Ring<T, const MOST: usize> {
    pub(super) places: [T; MOST],
    pub(super) first: usize,
    pub(super) count: usize,
}

impl<const MOST: usize> Ring<Blocks, MOST> {
    /// Adds the newest group. If the ring was full, the oldest one leaves and takes its place in
    /// `group`, otherwise no blocks.
    #[inline(never)]
    fn exchange(&mut self, group: &mut Blocks) {
        let (place, is_full) = self.next();
        match is_full {
            true => mem::swap(place, group),
            false => {
                *place = group.clone();
                group.clear();
            }
        }
    }
}

impl<T, const MOST: usize> Ring<T, MOST> {
    /// Adds the newest entry. If the ring was full, the oldest one leaves and is returned.
    pub(super) fn push(&mut self, newest: T) -> Option<T> {
        let (place, is_full) = self.next();
        let oldest = mem::replace(place, newest);
        is_full.then_some(oldest)
    }

    /// The place of the newest entry, which the caller sets, and whether the oldest one is there.
    fn next(&mut self) -> (&mut T, bool) {
        let (place, is_full) = ((self.first + self.count) % MOST, self.count == MOST);
        match is_full {
            true => self.first = (self.first + 1) % MOST,
            false => self.count += 1,
        }
        (&mut self.places[place], is_full)
    }

    /// Removes and returns the oldest entry.
    pub(super) fn pop(&mut self) -> Option<&T> {
        self.count = self.count.checked_sub(1)?;
        let oldest = self.first;
        self.first = (self.first + 1) % MOST;
        Some(&self.places[oldest % MOST])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_heap::slab::class::Class;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::vec::Vec;

    #[test]
    fn a_ring_gives_blocks_out_in_the_order_in_which_they_came() {
        let mut ring = Ring {
            places: [0; 8],
            first: 0,
            count: 0,
        };
        let mut model = VecDeque::new();
        for number in 1..100 {
            model.push_back(number);
            let oldest = match model.len() > 8 {
                true => model.pop_front(),
                false => None,
            };
            assert_eq!(ring.push(number), oldest);
            if number % 5 == 0 {
                assert_eq!(ring.pop().copied(), model.pop_front());
            }
        }
        assert_eq!(ring.count, model.len());
    }

    /// Lines, and a naive model of what they hold: the addresses and bytes of blocks.
    struct World {
        lines: Lines,
        model: RefCell<Vec<VecDeque<(usize, usize)>>>,
        next: usize,
        /// Whether all blocks came in full groups. Such groups overtake single blocks.
        is_ordered: bool,
    }

    impl World {
        fn new() -> World {
            World {
                lines: Lines::new(),
                model: RefCell::new((0..LINES).map(|_| VecDeque::new()).collect()),
                next: 1,
                is_ordered: true,
            }
        }

        /// Brings up to `count` blocks of `class` to a line. Returns the lines of those that leave.
        fn bring(&mut self, line: usize, count: usize, class: Class) -> Vec<usize> {
            let mut blocks = Blocks::none();
            while blocks.count() < count && !blocks.is_full() {
                blocks.push(self.next * 16, class);
                self.next += 1;
            }
            self.is_ordered &= blocks.is_full();
            let is_ordered = self.is_ordered;
            let (model, left) = (&self.model, RefCell::new(Vec::new()));
            let came = blocks
                .iter()
                .map(|(address, class)| (address, class.bytes()));
            model.borrow_mut()[line].extend(came);
            let leave = |blocks: &Blocks| {
                for block in blocks
                    .iter()
                    .map(|(address, class)| (address, class.bytes()))
                {
                    let mut model = model.borrow_mut();
                    let place = |line: &VecDeque<_>, most| {
                        line.iter().take(most).position(|&held| held == block)
                    };
                    // Most leave in the order in which they came.
                    let found = [1, usize::MAX].into_iter().find_map(|most| {
                        let mut lines = model.iter().enumerate();
                        lines.find_map(|(line, held)| Some((line, place(held, most)?)))
                    });
                    let (from, at) = found.expect("a block that waits");
                    model[from].remove(at);
                    assert!(at == 0 || !is_ordered);
                    left.borrow_mut().push(from);
                }
            };
            assert!(self.lines.admit(line, &blocks, &leave));
            left.into_inner()
        }

        fn held(&self) -> [usize; 2] {
            let model = self.model.borrow();
            let bytes = model.iter().flatten().map(|block| block.1).sum();
            assert_eq!(self.lines.bytes(), bytes);
            let joined = model.iter().filter(|line| !line.is_empty()).count();
            assert_eq!(self.lines.joined.load(Ordering::Relaxed), joined);
            [model.iter().map(VecDeque::len).sum(), bytes]
        }
    }

    #[test]
    fn blocks_leave_when_there_is_no_place_or_too_many_bytes() {
        let [small, large] = [16, 4096].map(Class::of_size);
        for count in [1, 5, thread_cache::MOST] {
            let (mut few, mut many) = (World::new(), World::new());
            for _ in 0..20_000 / count {
                many.bring(3, count, small);
                few.bring(3, count, large);
            }
            assert!((PLACES..PLACES + thread_cache::MOST).contains(&many.held()[0]));
            let bytes = MOST_BYTES - thread_cache::MOST_BYTES..=MOST_BYTES;
            assert!(bytes.contains(&few.held()[1]));
        }
    }

    #[test]
    fn threads_get_their_own_blocks_back_and_have_equal_shares() {
        for size in [16, 64, 500] {
            let mut world = World::new();
            let lines = [0, 1, 4, 7];
            for turn in 0..4000 {
                let line = lines[turn % lines.len()];
                let left = world.bring(line, thread_cache::MOST, Class::of_size(size));
                assert!(turn < 1000 || left.iter().all(|&from| from == line));
            }
            let model = world.model.borrow();
            let longest = lines.map(|line| model[line].len());
            assert!(
                longest
                    .iter()
                    .all(|&long| long.abs_diff(longest[0]) <= thread_cache::MOST)
            );
        }
    }

    #[test]
    fn blocks_of_threads_that_ended_leave() {
        let mut world = World::new();
        let class = Class::of_size(64);
        for turn in 0..GROUPS {
            world.bring(turn % 7, thread_cache::MOST, class);
        }
        // Remains that are no group.
        (0..4).for_each(|line| _ = world.bring(line, 5, class));
        for _ in 0..40 * ROUND / thread_cache::MOST {
            world.bring(7, thread_cache::MOST, class);
        }
        let model = world.model.borrow();
        assert!(model[..7].iter().all(VecDeque::is_empty));
        assert!((PLACES..PLACES + thread_cache::MOST).contains(&world.held()[0]));
    }

    #[test]
    fn blocks_wait_although_threads_bring_single_ones() {
        let (mut world, class) = (World::new(), Class::of_size(64));
        world.bring(0, thread_cache::MOST, class);
        for _ in 0..PLACES / 4 {
            assert!(world.bring(1, 1, class).is_empty());
        }
    }

    #[test]
    fn caches_beside_each_other_have_lines_of_their_own() {
        let lines = (0..LINES).map(|cache| line_of(cache * CACHE_BYTES + 16));
        assert!(lines.eq(0..LINES));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn nothing_is_lost_and_lines_have_bounds(
            steps in prop::collection::vec((0..LINES, 1..=thread_cache::MOST, 1..4096usize), 1..600),
        ) {
            let mut world = World::new();
            for (line, count, size) in steps {
                world.bring(line, count, Class::of_size(size));
                let [places, bytes] = world.held();
                prop_assert!(places <= PLACES + LINES * 2 * thread_cache::MOST);
                prop_assert!(bytes <= MOST_BYTES + LINES * thread_cache::MOST_BYTES);
            }
        }
    }
}
