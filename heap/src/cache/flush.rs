//! Flush: the slow path of `free`. Blocks leave a magazine for their slabs.

use super::countdown::{Miss, Way};
use super::heap::{Found, Heap};
use super::machine;
use super::misuse::{self, Call};
use super::opened::Opened;
use super::origin::Origin;
use super::refill::{Paced, half_capacity, moved_at_once};
use super::thread_cache::Cache;
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::units::SLICE_BYTES;
use crate::pages::{Age, SideTable};
use crate::slab::class::Class;
use crate::slab::class::Starts;
use crate::slab::depot_id::DepotId;
use crate::slab::{Returned, Seen, Slab, State};
use core::mem::MaybeUninit;
use core::ptr;

/// How many blocks in no order are looked up before the first goes back, so that the processor
/// loads their words at the same time.
const BATCH: usize = 32;

/// Bytes that processors exchange at once. Larger blocks share a line with at most one other at
/// each end.
const CACHE_LINE: usize = 64;

/// How many of the entries that it keeps a flush checks at most for blocks that are free in their
/// slabs, newest first, because these are handed out next: all that a small magazine keeps, and
/// otherwise one for [`CHECKED_OF`] that it gives back. Checking all would cost 108 more
/// instructions per malloc and free if frees are scattered.
const CHECKED_ENTRIES: usize = 32;
/// See [`CHECKED_ENTRIES`].
const CHECKED_OF: usize = 4;

/// Magazines of blocks of this many bytes give back an eighth, but at least [`BATCH`] blocks.
const EIGHTH_BYTES: usize = 512;

impl Heap {
    /// Takes a freed block into the magazine of `class`; a full one first gives its oldest blocks
    /// back. Aborts if the block is one of the two newest ones there.
    ///
    /// # Safety
    /// - `cache` is the calling thread's own.
    /// - `block` is a block of `class` that nothing uses any more.
    #[inline(never)]
    pub unsafe fn put(&'static self, cache: &Cache, class: Class, block: *mut u8) {
        let mut open = cache.open();
        // SAFETY: the caller's promise.
        unsafe { open.magazine(class).settle() };
        if open.magazine(class).is_newest(block) {
            misuse::double_free(block.addr(), class.bytes());
        }
        // SAFETY: the caller's promise.
        if unsafe { open.magazine(class).push(block) } {
            return;
        }
        let is_first = open.magazine(class).bounds.capacity == 0;
        let (share, way) = self.learn(&mut open, class, Miss::Flush);
        if is_first && class.bytes() < CACHE_LINE && open.magazine(class).bounds.capacity > 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.put_handed(open, class, block) };
        }
        let count = given_at_once(class, open.magazine(class).filled());
        if way == Way::Slabs || !self.hand_over(&mut open, class, way.most(count)) {
            // SAFETY: the caller's promise; settled above.
            unsafe { self.flush(&mut open, class, count, Age::New) };
        }
        // SAFETY: the caller's promise.
        if !unsafe { open.magazine(class).push(block) } {
            open.countdown(class).note(Miss::Flush);
            drop(open);
            self.reclaim_for(share);
            // SAFETY: the caller's promise.
            return unsafe { give_one(self, block.addr()) };
        }
        if self.tidy(&mut open) == Paced::Due {
            drop(open);
            self.decay_on_the_way();
        }
    }

    /// Takes a freed block into a magazine that never held one. So another thread has handed it to
    /// this one, and other threads may use the rest of its cache line. The next block that the
    /// magazine gives out is of a line of the thread's own; the freed one comes after it. There a
    /// second free of it still shows in the next `malloc`.
    ///
    /// # Safety
    /// - As [`Heap::put`]; `open` is of that cache, and the magazine is empty.
    unsafe fn put_handed(&'static self, mut open: Opened<'_>, class: Class, block: *mut u8) {
        let want = half_capacity(&mut open, class);
        self.fill(&mut open, class, want);
        // SAFETY: the caller's promise.
        let own = unsafe { open.magazine(class).pop() };
        for block in [Some(block), own].into_iter().flatten() {
            // SAFETY: the caller's promise, or popped just above.
            unsafe {
                if !open.magazine(class).push(block) {
                    give_one(self, block.addr());
                }
            }
        }
    }

    /// Gives the `count` oldest blocks of a magazine back to their slabs. Slabs that are empty then
    /// are as old as `age` says.
    ///
    /// # Safety
    /// - The calling thread owns the cache.
    /// - The magazine is settled and holds at least `count` blocks.
    #[inline(never)]
    pub(super) unsafe fn flush(
        &'static self,
        open: &mut Opened<'_>,
        class: Class,
        count: usize,
        age: Age,
    ) {
        if count == 0 {
            return;
        }
        debug_assert!(open.magazine(class).filled() >= count);
        open.countdown(class).note(Miss::Flush);
        let base = open.magazine(class).bounds.base as *mut usize;
        self.tide.note_freed(count * class.bytes());
        let mut map = Map::of(self, class);
        let mut back = GiveBack::new(Origin::blocks(self, age));
        // SAFETY: the magazine is settled, so its entries start at `base`; count is at most their
        // number.
        let oldest = unsafe { core::slice::from_raw_parts(base, count) };
        // SAFETY: what a magazine holds, nothing uses.
        unsafe { back.add(&mut map, oldest) };
        back.finish();
        let rest = open.magazine(class).filled() - count;
        // SAFETY: as above, of the entries that stay.
        let kept = unsafe { core::slice::from_raw_parts(base.add(count), rest) };
        let checked = match rest {
            ..=CHECKED_ENTRIES => rest,
            _ => CHECKED_ENTRIES.min(count.div_ceil(CHECKED_OF)),
        };
        refuse_free(&map, &kept[rest.saturating_sub(checked)..]);
        // SAFETY: both ranges lie in the array.
        unsafe { ptr::copy(base.add(count), base, rest) };
        // SAFETY: the caller's promise, and the copy above.
        unsafe { open.magazine(class).set_filled(rest) };
    }
}

/// Where the bit of a block is.
#[derive(Clone, Copy)]
struct Place {
    slab: &'static Slab,
    word: &'static AtomicU64,
    block: usize,
}

impl Place {
    /// Of the block at an address in a slab of `class`. Aborts if none starts there.
    fn of(slab: &'static Slab, class: Class, address: usize) -> Place {
        let block = misuse::start_of(Call::Free, slab, class, address);
        let word = &slab.words(class)[block / 64];
        Place { slab, word, block }
    }

    /// The bit.
    #[inline(always)]
    fn bit(&self) -> u64 {
        1 << (self.block % 64)
    }

    /// Aborts if blocks of the word are free that a magazine keeps.
    #[inline(always)]
    fn refuse_free(&self, class: Class, kept: u64) {
        let free = self.word.load(Ordering::Relaxed) & kept;
        if free != 0 {
            self.refuse_twice(class, free);
        }
    }

    #[cold]
    fn refuse_twice(&self, class: Class, twice: u64) -> ! {
        let block = self.block / 64 * 64 + twice.trailing_zeros() as usize;
        misuse::double_free(self.slab.base() + block * class.bytes(), class.bytes())
    }
}

/// Where the blocks of a class are: loaded once for many.
pub(super) struct Map {
    heap: &'static Heap,
    class: Class,
    starts: Starts,
    /// Of the slabs of one node: the thread's at first.
    plain: State,
    has_near_words: bool,
    sides: Option<SideTable>,
}

impl Map {
    pub(super) fn of(heap: &'static Heap, class: Class) -> Map {
        Map {
            heap,
            class,
            starts: class.starts(),
            plain: State::plain(DepotId::near(class)),
            has_near_words: Slab::has_near_words(class),
            sides: heap.pages.sides(),
        }
    }

    /// The place of a block, if its slab is plain. `None` says nothing.
    #[inline(always)]
    fn find_plain(&self, address: usize) -> Option<Place> {
        let side = self.sides?.entry::<Slab>(address)?;
        // SAFETY: an entry of the heap's.
        let slab: &Slab = unsafe { side.as_ref() };
        if slab.state() != self.plain {
            return None;
        }
        let block = self.starts.block_at(address % SLICE_BYTES)?;
        let word = match self.has_near_words {
            true => slab.near_word(block / 64),
            // SAFETY: the slab is carved.
            false => unsafe { slab.far_word(block / 64) },
        };
        Some(Place { slab, word, block })
    }

    /// Finds blocks up to the first that takes a closer look, and lets the processor load their
    /// words. Writes them to the first places of `found`, and returns how many.
    #[inline(never)]
    fn find_batch(&self, blocks: &[usize], found: &mut [MaybeUninit<Place>; BATCH]) -> usize {
        let mut count = 0;
        for (place, &address) in found.iter_mut().zip(blocks) {
            let Some(block) = self.find_plain(address) else {
                break;
            };
            let word = ptr::from_ref(place.write(block).word);
            machine::prefetch(word.cast_mut().cast());
            count += 1;
        }
        count
    }

    /// The place of a block. Aborts if it is none of the class: then its slab was given up, because
    /// the block was freed twice.
    #[inline(never)]
    fn find(&self, address: usize) -> Place {
        if let Some(place) = self.find_plain(address) {
            return place;
        }
        match slab_at(self.heap, address) {
            (slab, class) if class == self.class => Place::of(slab, class, address),
            _ => misuse::no_block(Call::Free, address),
        }
    }

    /// The row that two neighbours begin, as far as its word goes: where its first block is, its
    /// bits and its length.
    fn find_row(&self, blocks: &[usize]) -> (Place, u64, usize) {
        let first = self.find(blocks[0]);
        let (bits, count) = row_bits(self.class, first.block, blocks);
        (first, bits, count)
    }
}

/// Blocks on their way back to their slabs. Ends with [`GiveBack::finish`].
pub(super) struct GiveBack {
    /// Where slabs go that are empty then.
    origin: Origin,
    /// Slabs that have free blocks again, to be listed together.
    returned: Returned,
}

impl GiveBack {
    pub(super) fn new(origin: Origin) -> Self {
        GiveBack {
            origin,
            returned: Returned::none(),
        }
    }

    /// Gives blocks of a magazine back. Aborts if one is no block of its class, or is free.
    ///
    /// # Safety
    /// - They are blocks that nothing uses any more.
    pub(super) unsafe fn add(&mut self, map: &mut Map, mut blocks: &[usize]) {
        while !blocks.is_empty() {
            let count = match is_in_order(map.class, blocks) {
                true => self.add_row(map, blocks),
                false => self.add_scattered(map, blocks),
            };
            blocks = &blocks[count..];
        }
    }

    /// Gives back the row that two neighbours begin, as far as its word goes. Returns how many.
    fn add_row(&mut self, map: &Map, blocks: &[usize]) -> usize {
        let (first, bits, count) = map.find_row(blocks);
        self.give(map.class, &first, bits);
        count
    }

    /// Gives back blocks in no order, at most [`BATCH`]. Returns how many.
    #[inline(never)]
    fn add_scattered(&mut self, map: &mut Map, blocks: &[usize]) -> usize {
        let mut found = [const { MaybeUninit::uninit() }; BATCH];
        let count = map.find_batch(blocks, &mut found);
        for (number, place) in found[..count].iter().enumerate() {
            // SAFETY: `find_batch` has written it.
            let place: &Place = unsafe { place.assume_init_ref() };
            // Another thread may have withheld its page since. Then a second free shows only there.
            if place.slab.state() != map.plain {
                return number;
            }
            // SAFETY: a freed block, as the callers of `GiveBack::add` promise.
            let before = unsafe { place.slab.give(map.plain, place.word, place.bit()) };
            if let Some(word) = before
                && self.settle(
                    map.class,
                    place,
                    place.bit(),
                    Seen {
                        state: map.plain,
                        word,
                    },
                )
            {
                // The next block may be a second copy of one whose slab is gone.
                return number + 1;
            }
        }
        if count == 0 {
            let first = map.find(blocks[0]);
            // Its neighbours are probably of the same node.
            map.plain = State::plain(first.slab.state().id_of(map.class));
            self.give(map.class, &first, first.bit());
        }
        count.max(1)
    }

    /// Gives back the blocks `bits` of the word at `place`.
    fn give(&mut self, class: Class, place: &Place, bits: u64) {
        let state = place.slab.state();
        let plain = State::plain(state.id_of(class));
        // SAFETY: freed blocks, as the callers of `GiveBack::add` and `give_one` promise.
        if let Some(word) = unsafe { place.slab.give(plain, place.word, bits) } {
            self.settle(class, place, bits, Seen { state, word });
        }
    }

    /// Does what a give-back has left. Returns whether slabs may have been given up.
    #[inline(never)]
    fn settle(&mut self, class: Class, place: &Place, bits: u64, seen: Seen) -> bool {
        let (slab, id, at) = (
            place.slab,
            seen.state.id_of(class),
            (place.block / 64, bits),
        );
        let (depots, returned) = (self.origin.heap.depots, &mut self.returned);
        match depots.settle(returned, slab, id, at, seen, &self.origin) {
            Ok(are_gone) => are_gone,
            Err(twice) => place.refuse_twice(class, twice),
        }
    }

    /// Lists the slabs that have free blocks again.
    pub(super) fn finish(&mut self) {
        self.origin
            .heap
            .depots
            .list(&mut self.returned, &self.origin);
    }
}

/// How many blocks a full magazine of `entries` gives back. Of larger blocks, it has few entries,
/// and so is full more often, and each may cost as much as a row of smaller ones.
fn given_at_once(class: Class, entries: usize) -> usize {
    let most = match class.bytes() {
        ..EIGHTH_BYTES => usize::MAX,
        _ => (entries / 8).max(BATCH),
    };
    moved_at_once(class, entries).min(most)
}

/// Aborts if one of these blocks, which a magazine keeps, is free in its slab: it was freed twice,
/// or never handed out. Runs after a flush, so that a copy of what was flushed just now is seen.
fn refuse_free(map: &Map, mut blocks: &[usize]) {
    while is_in_order(map.class, blocks) {
        let (first, bits, count) = map.find_row(blocks);
        first.refuse_free(map.class, bits);
        blocks = &blocks[count..];
    }
    for &address in blocks {
        let place = map.find_plain(address).unwrap_or_else(|| map.find(address));
        place.refuse_free(map.class, place.bit());
    }
}

/// Whether the first two blocks are neighbours. Blocks come in this way when a program frees in the
/// order of allocation or in the reverse order, and when a refill wrote them.
#[inline]
fn is_in_order(class: Class, blocks: &[usize]) -> bool {
    match blocks {
        [first, second, ..] => {
            let step = second.wrapping_sub(*first);
            step == class.bytes() || step.wrapping_neg() == class.bytes()
        }
        _ => false,
    }
}

/// The bits of the row that two neighbours begin, of which `block` is the first, as far as its word
/// goes, and how many they are.
fn row_bits(class: Class, block: usize, blocks: &[usize]) -> (u64, usize) {
    let (bytes, bit) = (class.bytes(), block % 64);
    let step = blocks[1].wrapping_sub(blocks[0]);
    let most = match step == bytes {
        true => (64 - bit).min(class.blocks() - block),
        false => bit + 1,
    };
    let count = match blocks.first_chunk::<64>() {
        Some(chunk) if most == 64 && is_whole(chunk, step) => 64,
        _ => count_steps(blocks, step, most),
    };
    let lowest = if step == bytes { bit } else { bit + 1 - count };
    (u64::MAX >> (64 - count) << lowest, count)
}

/// How many of the first `most` blocks each lie `step` after the previous one, including the first.
fn count_steps(blocks: &[usize], step: usize, most: usize) -> usize {
    let mut expected = blocks[0];
    let is_other = |&address: &usize| {
        let is_other = address != expected;
        expected = expected.wrapping_add(step);
        is_other
    };
    let blocks = &blocks[..most.min(blocks.len())];
    blocks.iter().position(is_other).unwrap_or(blocks.len())
}

/// Whether all of 64 blocks do. The loop has no branches, so compilers vectorize it.
fn is_whole(blocks: &[usize; 64], step: usize) -> bool {
    if blocks[63].wrapping_sub(blocks[0]) != step.wrapping_mul(63) {
        return false;
    }
    let mut expected = blocks[0];
    let mut wrong = 0;
    for &block in blocks {
        wrong |= block ^ expected;
        expected = expected.wrapping_add(step);
    }
    wrong == 0
}

/// Gives one block back to its slab. Aborts if it is no block or free already.
///
/// # Safety
/// - Nothing uses the block at `address` any more.
pub unsafe fn give_one(heap: &'static Heap, address: usize) {
    let (slab, class) = slab_at(heap, address);
    // SAFETY: the caller's promise.
    unsafe { give_found(heap, slab, class, address) };
}

/// [`give_one`] of a block of this slab of `class`.
///
/// # Safety
/// - As [`give_one`]; the address is in the slab.
pub unsafe fn give_found(heap: &'static Heap, slab: &'static Slab, class: Class, address: usize) {
    debug_assert_eq!(slab.base(), address / SLICE_BYTES * SLICE_BYTES);
    let place = Place::of(slab, class, address);
    heap.tide.note_freed(class.bytes());
    let mut back = GiveBack::new(Origin::blocks(heap, Age::New));
    back.give(class, &place, place.bit());
    back.finish();
}

/// The slab that a freed block is in.
#[inline]
fn slab_at(heap: &'static Heap, address: usize) -> (&'static Slab, Class) {
    match heap.find(address) {
        Found::Slab(slab, class) => (slab, class),
        Found::Foreign => misuse::foreign(Call::Free, address),
        Found::NoBlock | Found::Large(_) | Found::Stack | Found::Sampled(..) | Found::Guarded => {
            misuse::no_block(Call::Free, address)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    use crate::testing::crew::with_threads;
    use crate::testing::own_cache;
    use std::vec::Vec;

    /// A thread that frees a block which another one handed to it, and then takes one: it would
    /// share a cache line with the neighbours of the first for ever.
    #[test]
    fn a_thread_that_was_handed_a_block_gets_a_line_of_its_own() {
        let cache = own_cache::enter().expect("a cache");
        for class in [16, 32, 48].map(Class::of_size) {
            let handed = own_cache::refill(cache, class).addr();
            let replaced = || {
                let own = own_cache::enter().expect("a cache");
                own_cache::put(own, class, handed as *mut u8);
                own_cache::pop_held(own, class).expect("a block").addr()
            };
            let got = with_threads(1, replaced, |got| got[0]);
            assert_ne!(got / CACHE_LINE, handed / CACHE_LINE, "{class:?}");
            own_cache::put(cache, class, got as *mut u8);
        }
    }

    fn addresses(class: Class, numbers: &[usize]) -> Vec<usize> {
        let address = |&number: &usize| (1 << 30) + number * class.bytes();
        numbers.iter().map(address).collect()
    }

    fn row_of(class: Class, numbers: &[usize]) -> u64 {
        row_bits(class, numbers[0], &addresses(class, numbers)).0
    }

    #[test]
    fn neighbours_begin_a_row() {
        let class = Class::of_size(64);
        let is = |numbers: &[usize]| is_in_order(class, &addresses(class, numbers));
        assert!(is(&[5, 6]) && is(&[6, 5]));
        assert!(!is(&[5, 7]) && !is(&[5, 5]) && !is(&[5]) && !is(&[]));
    }

    #[test]
    fn a_row_ends_at_a_gap_and_with_its_word() {
        let class = Class::of_size(64);
        assert_eq!(row_of(class, &[5, 6, 7, 9]), 0b111 << 5);
        assert_eq!(row_of(class, &[7, 6, 5, 3]), 0b111 << 5);
        assert_eq!(row_of(class, &[5, 6, 5]), 0b11 << 5);
        assert_eq!(row_of(class, &[62, 63, 64, 65]), 0b11 << 62);
        assert_eq!(row_of(class, &[63, 64]), 1 << 63);
        assert_eq!(row_of(class, &[65, 64, 63, 62]), 0b11);
        assert_eq!(row_of(class, &[64, 63]), 1);
        assert_eq!(row_of(class, &[1, 0]), 0b11);
    }

    #[test]
    fn a_row_is_as_long_as_a_word_or_as_what_the_slab_has_of_it() {
        for class in Class::all() {
            let up: Vec<usize> = (0..200).collect();
            let most = class.blocks().min(64);
            let all = class.full_word(0);
            assert_eq!(row_of(class, &up), all, "{class:?}");
            let down: Vec<usize> = (0..most).rev().collect();
            assert_eq!(row_of(class, &down), all, "{class:?}");
        }
    }

    #[test]
    fn one_block_out_of_order_ends_a_row_wherever_it_stands() {
        let class = Class::of_size(64);
        for wrong in 2..64 {
            let mut numbers: Vec<usize> = (0..64).collect();
            numbers[wrong] = 100;
            assert_eq!(row_of(class, &numbers).count_ones() as usize, wrong);
        }
    }
}
