//! Flush: the slow path of `free`. Blocks that leave a magazine are gathered by slab and word, so
//! that each word costs one atomic operation.

use super::countdown::Miss;
use super::heap::{Found, Heap};
use super::misuse::{self, Call};
use super::opened::Opened;
use super::origin::Origin;
use super::refill::{Paced, half_capacity};
use super::thread_cache::Cache;
use crate::base::units::SLICE_BYTES;
use crate::pages::Age;
use crate::slab::class::Class;
use crate::slab::depot_id::DepotId;
use crate::slab::{Returned, Slab};
use core::ptr;

/// How many words are collected at once. Direct-mapped: a word that another one displaces is given
/// back early.
const PLACES: usize = 32;

/// Bytes that processors exchange at once. Larger blocks share a line with at most one other at
/// each end.
const CACHE_LINE: usize = 64;

/// How many of the entries that it keeps a flush checks for blocks that are free in their slabs,
/// newest first, because these are handed out next. Checking all would cost 108 more instructions
/// per malloc and free if frees are scattered.
const CHECKED_ENTRIES: usize = 32;

impl Heap {
    /// Takes a freed block into the magazine of `class`; a full one first gives its older half
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
        let share = self.learn(&mut open, class);
        if is_first && class.bytes() < CACHE_LINE && open.magazine(class).bounds.capacity > 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.put_handed(open, class, block) };
        }
        let half = open.magazine(class).filled().div_ceil(2);
        // SAFETY: the caller's promise; settled above.
        unsafe { self.flush(&mut open, class, half) };
        // SAFETY: the caller's promise.
        if !unsafe { open.magazine(class).push(block) } {
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

    /// Gives the `count` oldest blocks of a magazine back to their slabs.
    ///
    /// # Safety
    /// - The calling thread owns the cache.
    /// - The magazine is settled and holds at least `count` blocks.
    #[inline(never)]
    pub(super) unsafe fn flush(&'static self, open: &mut Opened<'_>, class: Class, count: usize) {
        if count == 0 {
            return;
        }
        debug_assert!(open.magazine(class).filled() >= count);
        let rest = open.magazine(class).filled() - count;
        open.countdown(class).note(Miss::Flush);
        let store = open.magazine(class).bounds;
        self.tide.note_freed(count * class.bytes());
        let base = store.base as *mut usize;
        let mut gather = Gather::new(Origin::blocks(self, Age::New));
        // SAFETY: the magazine is settled, so its entries start at `base`; count is at most their
        // number.
        let oldest = unsafe { core::slice::from_raw_parts(base, count) };
        // SAFETY: what a magazine holds, nothing uses.
        unsafe { gather.add(oldest) };
        gather.finish();
        // SAFETY: as above, of the entries that stay.
        let kept = unsafe { core::slice::from_raw_parts(base.add(count), rest) };
        refuse_free(self, &kept[rest.saturating_sub(CHECKED_ENTRIES)..]);
        // SAFETY: both ranges lie in the array.
        unsafe { ptr::copy(base.add(count), base, rest) };
        // SAFETY: the caller's promise, and the copy above.
        unsafe { open.magazine(class).set_filled(rest) };
    }
}

#[derive(Clone, Copy)]
struct Word {
    slab: &'static Slab,
    bits: u64,
    word: u32,
    class: Class,
}

/// Blocks on their way back to their slabs. Give back the rest with [`Gather::finish`].
pub(super) struct Gather {
    /// Where slabs go that are empty then.
    origin: Origin,
    /// Slabs that have free blocks again, to be listed together.
    returned: Returned,
    places: [Option<Word>; PLACES],
}

impl Gather {
    /// Nothing gathered yet.
    pub(super) fn new(origin: Origin) -> Self {
        Gather {
            origin,
            returned: Returned::none(),
            places: [None; PLACES],
        }
    }

    /// Adds freed blocks. Aborts if one is no block or was added twice.
    ///
    /// # Safety
    /// - They are blocks that nothing uses any more.
    pub(super) unsafe fn add(&mut self, blocks: &[usize]) {
        each_word(self.origin.heap, blocks, &mut |word| self.add_word(word));
    }

    #[inline(never)]
    fn add_word(&mut self, new: Word) {
        let place = &mut self.places[place_of(new.slab, new.word as usize)];
        match place {
            Some(held) if core::ptr::eq(held.slab, new.slab) && held.word == new.word => {
                if held.bits & new.bits != 0 {
                    refuse_twice(new, held.bits & new.bits);
                }
                held.bits |= new.bits;
            }
            _ => {
                if let Some(evicted) = place.replace(new) {
                    give(evicted, self.origin, &mut self.returned);
                }
            }
        }
    }

    /// Gives back all that is left. By reference, because a copy would take as much stack again,
    /// and that may be a coroutine's.
    pub(super) fn finish(&mut self) {
        for word in self.places.iter_mut().filter_map(Option::take) {
            give(word, self.origin, &mut self.returned);
        }
        let depots = &self.origin.heap.depots;
        depots.list(&mut self.returned, &self.origin);
    }
}

/// Aborts if one of these blocks, which a magazine keeps, is free in its slab: it was freed twice,
/// or never handed out. Runs after a flush, so that a copy of what was flushed just now is seen.
fn refuse_free(heap: &'static Heap, blocks: &[usize]) {
    each_word(heap, blocks, &mut |word| {
        let free = word.slab.free_bits(word.class, word.word as usize) & word.bits;
        if free != 0 {
            refuse_twice(word, free);
        }
    });
}

/// Calls `visit` with the words of freed blocks. Aborts if one is no block, or stands there twice
/// in a run.
#[inline(always)]
fn each_word(heap: &'static Heap, mut blocks: &[usize], visit: &mut impl FnMut(Word)) {
    while let Some(&first) = blocks.first() {
        let (slab, class) = slab_at(heap, first);
        let seen = match is_in_order(class, blocks) {
            true => {
                let word = row_word(slab, class, blocks);
                visit(word);
                word.bits.count_ones() as usize
            }
            false => visit_run(slab, class, blocks, visit),
        };
        blocks = &blocks[seen..];
    }
}

/// Visits blocks as long as they are of one slab and not in a row. Bits of one word collect in a
/// register. Returns how many.
fn visit_run(
    slab: &'static Slab,
    class: Class,
    blocks: &[usize],
    visit: &mut impl FnMut(Word),
) -> usize {
    let base = slab.base();
    let starts = class.starts();
    let (mut word, mut bits) = (0, 0u64);
    let mut seen = 0;
    let of_word = |word: usize, bits| Word {
        slab,
        bits,
        word: word as u32,
        class,
    };
    while let Some(&address) = blocks.get(seen) {
        let offset = address.wrapping_sub(base);
        if offset >= SLICE_BYTES {
            break;
        }
        let Some(block) = starts.block_at(offset) else {
            misuse::interior(Call::Free, address, class.bytes())
        };
        if block / 64 != word {
            if bits != 0 {
                visit(of_word(word, bits));
                bits = 0;
                if is_in_order(class, &blocks[seen..]) {
                    return seen;
                }
            }
            word = block / 64;
        }
        let before = bits;
        bits |= 1 << (block % 64);
        if bits == before {
            misuse::double_free(address, class.bytes());
        }
        seen += 1;
    }
    visit(of_word(word, bits));
    seen
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

/// The row of blocks that two neighbours begin, as far as its word goes. Aborts if the first is no
/// block.
#[inline(never)]
fn row_word(slab: &'static Slab, class: Class, blocks: &[usize]) -> Word {
    let Some(block) = class.block_at(blocks[0].wrapping_sub(slab.base())) else {
        misuse::interior(Call::Free, blocks[0], class.bytes())
    };
    Word {
        slab,
        bits: row_bits(class, block, blocks),
        word: block as u32 / 64,
        class,
    }
}

/// The bits of the row that two neighbours begin, of which `block` is the first.
fn row_bits(class: Class, block: usize, blocks: &[usize]) -> u64 {
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
    u64::MAX >> (64 - count) << lowest
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

/// The word and the bit of a block in its slab; aborts if no block starts at `address`.
fn place_in(class: Class, address: usize) -> (u32, u64) {
    match class.block_at(address % SLICE_BYTES) {
        Some(block) => (block as u32 / 64, 1 << (block % 64)),
        None => misuse::interior(Call::Free, address, class.bytes()),
    }
}

fn refuse_twice(word: Word, twice: u64) -> ! {
    let block = word.word as usize * 64 + twice.trailing_zeros() as usize;
    misuse::double_free(
        word.slab.base() + block * word.class.bytes(),
        word.class.bytes(),
    )
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
    let (word, bits) = place_in(class, address);
    let freed = Word {
        slab,
        class,
        word,
        bits,
    };
    heap.tide.note_freed(class.bytes());
    let (origin, mut returned) = (Origin::blocks(heap, Age::New), Returned::none());
    give(freed, origin, &mut returned);
    heap.depots.list(&mut returned, &origin);
}

fn place_of(slab: &Slab, word: usize) -> usize {
    let slab = core::ptr::from_ref(slab).addr() / size_of::<Slab>();
    (slab + word) % PLACES
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

fn give(word: Word, origin: Origin, returned: &mut Returned) {
    let Word {
        slab, class, bits, ..
    } = word;
    let depots = &origin.heap.depots;
    // SAFETY: freed blocks, as the callers of `Gather::add` and `give_one` promise.
    let given = unsafe {
        let id = DepotId::blocks(class);
        depots.give_with(returned, slab, id, word.word as usize, bits, &origin)
    };
    if let Err(twice) = given {
        refuse_twice(word, twice);
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
        row_bits(class, numbers[0], &addresses(class, numbers))
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
