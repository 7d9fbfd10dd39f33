//! Magazines in hardened mode: their owner takes a random one of the blocks that a magazine holds.
//!
//! Magazines are closed to the fast path. The owner tops up a magazine when a quarter of it is
//! left, so that each choice is among many blocks. Blocks that leave the quarantine go into the
//! magazines of the thread that brings others there. The bitmap of a slab does not show that a
//! block in a magazine is free. The block's canary does, and it is 0 if the block was never handed
//! out.
//!
//! Each call chooses the block that the next call takes, and makes it the newest entry. So the
//! processor can fetch that block's first and last bytes in the meantime. Blocks that come back go
//! below that entry, because a program could foresee which of them comes last.
//!
//! A program that allocates 1,000 blocks and then frees them would move half of a small magazine
//! to slabs and back each time. So magazines grow, and a full one returns only a few blocks to
//! slabs.

use super::bounds::{FastPath, Held};
use super::budget::Verdict;
use super::countdown::{Flow, Miss};
use super::flush::give_one;
use super::heap::Heap;
use super::machine;
use super::magazine::Tag;
use super::measures::{Measures, SECRETS, next_random};
use super::opened::Opened;
use super::refill::{Paced, Share};
use super::thread_cache::Blocks;
use super::thread_cache::Cache;
use crate::pages::Age;
use crate::slab::class::Class;
use core::ptr;

/// The most blocks of a magazine.
const MOST_ENTRIES: usize = 2048;
/// The most bytes of these blocks. The threads of a process divide them equally.
const MOST_BYTES: usize = 512 << 10;
/// The most bytes of a magazine in a process with many threads, unless [`LEAST_FIRST`] blocks take
/// more.
const LEAST_BYTES: usize = 16 << 10;
/// A magazine begins with its most bytes divided by this.
const FIRST_PART: usize = 4;
/// The fewest blocks that it begins with, if they take no more than [`MOST_FIRST_BYTES`].
const LEAST_FIRST: usize = 16;
const MOST_FIRST_BYTES: usize = 64 << 10;
/// The most blocks that it begins with.
const MOST_FIRST: usize = 1024;
/// The fewest blocks that a full magazine returns to slabs, because each return takes a lock.
const LEAST_GIVEN: usize = 64;

impl Heap {
    /// Opens a cache for its owner, closed to the fast path. The thread that puts measures into
    /// force may not have come to it yet.
    fn open_closed<'a>(&self, cache: &'a Cache) -> Opened<'a> {
        let mut open = cache.open();
        if !open.inner.access.path.is_closed() {
            open.set_path(self.fast_path());
        }
        open
    }

    /// A block of `class` from the thread's magazine, a random one if choices are random. Null when
    /// out of memory.
    ///
    /// # Safety
    /// - `cache` is the calling thread's own, and closed to the fast path.
    pub(crate) unsafe fn draw(&'static self, cache: &Cache, class: Class) -> *mut u8 {
        let mut open = self.open_closed(cache);
        open.lose_patience();
        if open.magazine(class).is_low() {
            // SAFETY: the caller's promise.
            return unsafe { self.draw_few(open, class) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.draw_held(&mut open, class) }.unwrap_or(ptr::null_mut())
    }

    /// A block of the magazine. Chooses it first, because the newest entry may not be a random one.
    ///
    /// # Safety
    /// - As [`Heap::draw`].
    #[inline]
    unsafe fn draw_held(&self, open: &mut Opened<'_>, class: Class) -> Option<*mut u8> {
        let mut magazine = open.magazine(class);
        // SAFETY: the caller's promise.
        unsafe {
            self.choose_newest(&mut magazine);
            let block = magazine.pop();
            self.choose_newest(&mut magazine);
            block
        }
    }

    /// Makes a random block the newest, if choices are random.
    ///
    /// # Safety
    /// - As [`Held::choose`], except that the magazine may be empty.
    #[inline(never)]
    unsafe fn choose_newest(&self, magazine: &mut Held<'_>) {
        let filled = magazine.filled();
        if filled > 0 && self.measures().has(Measures::RANDOM) {
            // SAFETY: the caller's promise.
            unsafe { magazine.choose(filled, SECRETS.next()) };
        }
    }

    /// Adds a block below the newest one. False if the magazine is full or empty.
    ///
    /// A magazine that a thread fills by frees alone would keep its first block as the newest. So
    /// the newest is chosen again whenever the number of blocks has doubled.
    ///
    /// # Safety
    /// - As [`Held::push`]; the magazine is closed to the fast path.
    #[inline(always)]
    unsafe fn put_below(&self, magazine: &mut Held<'_>, block: *mut u8) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let count = magazine.push_below(block);
            if count.is_some_and(usize::is_power_of_two) {
                self.choose_newest(magazine);
            }
            count.is_some()
        }
    }

    /// [`Heap::draw`] from a magazine that holds few blocks: tops it up first.
    ///
    /// # Safety
    /// - As [`Heap::draw`].
    #[cold]
    #[inline(never)]
    unsafe fn draw_few(&'static self, mut open: Opened<'_>, class: Class) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { open.magazine(class).settle() };
        open.countdown(class).note_miss(Miss::Refill);
        let share = self.widen(&mut open, class);
        let (filled, capacity) = {
            let magazine = open.magazine(class);
            (magazine.filled(), magazine.bounds.capacity as usize)
        };
        // Three quarters, so that there is room for blocks that come back.
        let want = (capacity - capacity / 4).saturating_sub(filled);
        if want > 0 {
            self.fill(&mut open, class, want);
        }
        let paced = self.tidy(&mut open);
        // SAFETY: the caller's promise.
        let block = unsafe { self.draw_held(&mut open, class) };
        drop(open);
        self.reclaim_for(share);
        if paced == Paced::Due {
            self.decay_on_the_way();
        }
        match block {
            Some(block) => block,
            // Out of memory, or without capacity.
            None => self.take_past(class),
        }
    }

    /// A block straight from a slab, past all magazines, a random one if choices are random. Null
    /// when out of memory.
    pub(crate) fn take_past(&'static self, class: Class) -> *mut u8 {
        match self.measures().has(Measures::RANDOM) {
            true => self.take_any(class),
            false => self.take_one(class),
        }
    }

    /// Doubles the capacity of a magazine that runs low or full, as far as the budget allows.
    fn widen(&'static self, open: &mut Opened<'_>, class: Class) -> Share {
        let capacity = open.magazine(class).bounds.capacity as usize;
        let bytes = (MOST_BYTES / self.registry.count().max(1)).max(LEAST_BYTES);
        let most = most_capacity(class, bytes);
        // Many threads do not live long.
        let first = most_capacity(class, bytes / FIRST_PART).min(MOST_FIRST);
        let mut wanted = (capacity * 2).clamp(first, most);
        while wanted > capacity {
            match self.grow(open, class, wanted, Flow::OneWay) {
                Verdict::Granted => return Share::Fair,
                Verdict::ProcessFull if wanted == 1 => return Share::Crumbs,
                Verdict::ProcessFull | Verdict::ThreadFull => wanted /= 2,
            }
        }
        Share::Fair
    }

    /// Takes a free block into the thread's magazine. A full magazine first returns some of its
    /// blocks to slabs.
    ///
    /// # Safety
    /// - As [`Heap::draw`].
    /// - `block` is a block of `class` that nothing uses any more.
    pub(crate) unsafe fn keep(&'static self, cache: &Cache, class: Class, block: *mut u8) {
        let mut open = self.open_closed(cache);
        // SAFETY: the caller's promise.
        if !unsafe { self.put_below(&mut open.magazine(class), block) } {
            // SAFETY: as above.
            unsafe { self.keep_full(open, class, block) };
        }
    }

    /// [`Heap::keep`] of several blocks, each of its class.
    ///
    /// # Safety
    /// - As [`Heap::keep`].
    pub(crate) unsafe fn keep_all(&'static self, cache: &Cache, blocks: &Blocks) {
        let mut open = self.open_closed(cache);
        for (address, tag) in blocks.tagged() {
            let block = address as *mut u8;
            // SAFETY: a class's tag; the caller's promise.
            let count = unsafe { open.magazine_of(tag).push_below(block) };
            // `put_below` written out, because a reference to the magazine would force its
            // addresses out of registers.
            if count.is_some_and(|count| !count.is_power_of_two()) {
                continue;
            }
            // SAFETY: as above.
            unsafe {
                match (count, tag.class()) {
                    (Some(_), _) => self.choose_newest(&mut open.magazine_of(tag)),
                    (None, Some(class)) => {
                        self.keep_full(open, class, block);
                        open = cache.open();
                    }
                    (None, None) => {}
                }
            }
        }
    }

    /// [`Heap::keep`] in a magazine that is full or empty, or has no array.
    ///
    /// # Safety
    /// - As [`Heap::keep`].
    #[cold]
    #[inline(never)]
    unsafe fn keep_full(&'static self, mut open: Opened<'_>, class: Class, block: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { open.magazine(class).settle() };
        open.countdown(class).note_miss(Miss::Flush);
        let share = self.widen(&mut open, class);
        let magazine = open.magazine(class);
        let (filled, capacity) = (magazine.filled(), magazine.bounds.capacity as usize);
        if filled >= capacity {
            // SAFETY: the caller's promise; settled above.
            unsafe { self.flush(&mut open, class, given_back(filled), Age::New) };
        }
        let mut magazine = open.magazine(class);
        // SAFETY: the caller's promise.
        let is_kept = unsafe { self.put_below(&mut magazine, block) || magazine.push(block) };
        let paced = self.tidy(&mut open);
        drop(open);
        if !is_kept {
            // SAFETY: the caller's promise.
            unsafe { give_one(self, block.addr()) };
        }
        self.reclaim_for(share);
        if paced == Paced::Due {
            self.decay_on_the_way();
        }
    }
}

impl Opened<'_> {
    /// A block of the class of `tag`, whose blocks have `bytes` bytes, from the thread's magazine,
    /// a random one if choices are random. `None` if the magazine holds few blocks, or if calls may
    /// not be short any more.
    ///
    /// # Safety
    /// - `tag` is a class's, and the cache is the calling thread's own.
    #[inline(always)]
    pub(crate) unsafe fn draw(
        &mut self,
        tag: Tag,
        bytes: usize,
        measures: Measures,
    ) -> Option<*mut u8> {
        if self.inner.access.path != FastPath::Hardened {
            return None;
        }
        let random = next_random(&mut self.inner.random);
        // SAFETY: the caller's promise. A magazine that is not low holds two blocks or more.
        unsafe {
            let mut magazine = self.magazine_of(tag);
            let filled = magazine.filled_enough()?;
            let block = magazine.pop_newest(filled);
            if measures.has(Measures::RANDOM) {
                let next = magazine.choose(filled - 1, random);
                machine::prefetch(next.wrapping_add(bytes - 1));
                machine::prefetch(next);
            }
            Some(block)
        }
    }

    /// Holds back a freed block of `bytes` bytes.
    #[inline(always)]
    pub(crate) fn hold(&mut self, address: usize, tag: Tag, bytes: usize) -> Hold {
        let Some(mut blocks) = self.inner.waiting else {
            return Hold::Refused;
        };
        // SAFETY: the thread's own memory, which only the holder of the lock reaches.
        let blocks = unsafe { blocks.as_mut() };
        match blocks.push_tagged(address, tag, bytes) {
            // This is a signal handler that interrupted the thread before it could bring them.
            false => Hold::Refused,
            true if blocks.is_full() => Hold::Last,
            true => Hold::Done,
        }
    }
}

/// Whether a thread holds a freed block back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It does.
    Done,
    /// It does, and it must now bring to quarantine all blocks that it holds back.
    Last,
    /// It does not, because it has no room.
    Refused,
}

impl Heap {
    /// Returns blocks to their slabs.
    ///
    /// # Safety
    /// - The program freed them, and nothing uses them any more.
    pub(crate) unsafe fn give_all(&'static self, blocks: &Blocks) {
        for (address, _) in blocks.iter() {
            // SAFETY: the caller's promise.
            unsafe { give_one(self, address) };
        }
    }
}

/// How many blocks a full magazine returns to their slabs.
fn given_back(filled: usize) -> usize {
    (filled / 8).max(LEAST_GIVEN).min(filled.div_ceil(2))
}

/// The most blocks for which a magazine of `class` has room, if they may take `bytes` bytes.
fn most_capacity(class: Class, bytes: usize) -> usize {
    let least = (MOST_FIRST_BYTES / class.bytes()).clamp(1, LEAST_FIRST);
    (bytes / class.bytes()).clamp(least, MOST_ENTRIES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::heap::HEAP;
    use crate::testing::crew::with_threads;
    use crate::testing::own_cache;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// Draws and keeps blocks of `class` in a thread of its own, whose fast path is closed. Returns
    /// what `work` returns.
    fn in_a_closed_cache<R: Send>(work: impl Fn(&Cache) -> R + Sync) -> R {
        let work = || {
            let cache = own_cache::enter().expect("a cache");
            cache.open().set_path(FastPath::Off);
            work(cache)
        };
        with_threads(1, work, |mut results| results.remove(0))
    }

    fn draw(cache: &Cache, class: Class) -> usize {
        // SAFETY: the thread's own cache.
        unsafe { HEAP.draw(cache, class) }.addr()
    }

    fn keep(cache: &Cache, class: Class, block: usize) {
        // SAFETY: the thread's own cache; drawn from it.
        unsafe { HEAP.keep(cache, class, block as *mut u8) };
    }

    #[test]
    fn a_block_is_one_of_many() {
        for size in [16, 64, 328, 1024] {
            let class = Class::of_size(size);
            let fewest = in_a_closed_cache(|cache| {
                let count = |_| {
                    let block = draw(cache, class);
                    let left = cache.open().magazine(class).filled();
                    (block, left)
                };
                let drawn: Vec<_> = (0..2000).map(count).collect();
                let blocks: BTreeSet<_> = drawn.iter().map(|&(block, _)| block).collect();
                assert_eq!(blocks.len(), drawn.len(), "{class:?}: a block came twice");
                blocks.iter().for_each(|&block| keep(cache, class, block));
                drawn.iter().map(|&(_, left)| left).min()
            });
            // What a magazine begins with in a process with many threads. It is topped up when a
            // quarter of it is left.
            let first = (LEAST_BYTES / FIRST_PART / class.bytes()).max(LEAST_FIRST);
            assert!(
                fewest.is_some_and(|fewest| fewest >= first / 4),
                "{class:?}"
            );
        }
    }

    #[test]
    fn a_magazine_holds_no_more_than_it_is_to_hold() {
        let class = Class::of_size(64);
        in_a_closed_cache(|cache| {
            let blocks: Vec<_> = (0..3000).map(|_| draw(cache, class)).collect();
            for block in blocks {
                keep(cache, class, block);
                let mut open = cache.open();
                assert!(open.magazine(class).bounds.capacity as usize <= MOST_ENTRIES);
                assert!(open.magazine(class).filled() <= MOST_ENTRIES);
            }
        });
    }

    #[test]
    fn what_is_kept_is_known_to_be_cached() {
        let class = Class::of_size(200);
        in_a_closed_cache(|cache| {
            let block = draw(cache, class);
            assert!(!HEAP.registry.holds(class, block));
            keep(cache, class, block);
            assert!(HEAP.registry.holds(class, block));
            // The newest entry is the block that was chosen for the next call.
            let [chosen, kept] = [(); 2].map(|()| own_cache::pop_held(cache, class));
            assert_eq!(kept, Some(block as *mut u8));
            let both = [chosen, kept].into_iter().flatten();
            both.for_each(|block| keep(cache, class, block.addr()));
        });
    }

    #[test]
    fn any_block_of_a_magazine_may_be_drawn() {
        let class = Class::of_size(4000);
        in_a_closed_cache(|cache| {
            let block = draw(cache, class);
            let held: BTreeSet<_> = cache.open().magazine(class).blocks().collect();
            let mut drawn = BTreeSet::new();
            for turn in 0..64u64 {
                // SAFETY: the thread's own cache.
                let block = unsafe {
                    let mut open = cache.open();
                    let mut magazine = open.magazine(class);
                    magazine.choose(magazine.filled(), turn << 58);
                    magazine.pop()
                };
                let block = block.expect("a block").addr();
                drawn.insert(block);
                keep(cache, class, block);
            }
            assert_eq!(drawn, held);
            keep(cache, class, block);
        });
    }
}
