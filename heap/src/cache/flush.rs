//! Flush: the slow path of `free`. Blocks that leave a magazine are gathered by slab and word, so
//! that each word costs one atomic operation.

use super::countdown::Miss;
use super::heap::{Found, Heap, Origin};
use super::misuse::{self, Call};
use super::refill::Paced;
use super::thread_cache::{Cache, Opened};
use crate::base::units::SLICE_BYTES;
use crate::page::Age;
use crate::slab::Slab;
use crate::slab::class::Class;
use core::ptr;

/// Words under collection. Direct-mapped: a word that another one pushes out is given back early.
const PLACES: usize = 32;

/// How many of the entries that a flush keeps, newest first, it looks at for blocks that are free
/// in their slabs: those that are handed out next. All of them would cost 108 instructions more a
/// malloc and free where frees are scattered.
const CHECKED_ENTRIES: usize = 32;

impl Heap {
    /// Takes a freed block into the magazine of `class`; a full one first gives its older half
    /// back. Aborts if the block is one of the two newest ones there.
    pub fn put(&'static self, cache: &Cache, class: Class, block: *mut u8) {
        let mut open = cache.open();
        open.magazine(class).settle();
        if open.magazine(class).is_newest(block) {
            misuse::double_free(block.addr(), class.bytes());
        }
        if open.magazine(class).push(block) {
            return;
        }
        let share = self.learn(&mut open, class);
        let half = open.magazine(class).filled().div_ceil(2);
        self.flush(&mut open, class, half);
        if !open.magazine(class).push(block) {
            drop(open);
            self.reclaim_for(share);
            return give_one(self, block.addr());
        }
        if self.tidy(&mut open) == Paced::Due {
            drop(open);
            self.decay_on_the_way();
        }
    }

    /// Gives the `count` oldest blocks of a magazine back to their slabs. For the owner only.
    #[inline(never)]
    pub fn flush(&'static self, open: &mut Opened<'_>, class: Class, count: usize) {
        if count == 0 {
            return;
        }
        let rest = open.magazine(class).filled() - count;
        open.counted(class).note(Miss::Flush);
        let store = open.magazine(class).bounds;
        self.tide.note_freed(count * class.bytes());
        let base = store.base as *mut usize;
        let mut gather = Gather::new(Origin::blocks(self, Age::New));
        // SAFETY: the magazine is settled, so its entries start at `base`; count is at most their
        // number.
        gather.add(unsafe { core::slice::from_raw_parts(base, count) });
        gather.finish();
        // SAFETY: as above, of the entries that stay.
        let kept = unsafe { core::slice::from_raw_parts(base.add(count), rest) };
        refuse_free(self, &kept[rest.saturating_sub(CHECKED_ENTRIES)..]);
        // SAFETY: both ranges lie in the array.
        unsafe { ptr::copy(base.add(count), base, rest) };
        open.magazine(class).set_filled(rest);
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
pub struct Gather {
    /// Where slabs go that are empty then.
    origin: Origin,
    places: [Option<Word>; PLACES],
}

impl Gather {
    /// Nothing gathered yet.
    pub(super) fn new(origin: Origin) -> Self {
        Gather {
            origin,
            places: [None; PLACES],
        }
    }

    /// Adds freed blocks. Aborts if one is no block or was added twice.
    pub fn add(&mut self, mut blocks: &[usize]) {
        while let Some(&first) = blocks.first() {
            let (slab, class) = slab_at(self.origin.heap, first);
            let added = self.add_run(slab, class, blocks);
            blocks = &blocks[added..];
        }
    }

    /// Adds blocks as long as they are of one slab, those of one word after the other in a
    /// register. Returns how many.
    fn add_run(&mut self, slab: &'static Slab, class: Class, blocks: &[usize]) -> usize {
        let base = slab.base();
        let starts = class.starts();
        let (mut word, mut bits) = (0, 0u64);
        let mut added = 0;
        let of_word = |word: usize, bits| Word {
            slab,
            bits,
            word: word as u32,
            class,
        };
        while let Some(&address) = blocks.get(added) {
            let offset = address.wrapping_sub(base);
            if offset >= SLICE_BYTES {
                break;
            }
            let Some(block) = starts.block_at(offset) else {
                misuse::interior(Call::Free, address, class.bytes())
            };
            if block / 64 != word {
                self.add_word(of_word(word, bits));
                (word, bits) = (block / 64, 0);
            }
            if block % 64 == 0 && bits == 0 && is_whole_word(class, block, &blocks[added..]) {
                bits = u64::MAX;
                added += 64;
                continue;
            }
            let before = bits;
            bits |= 1 << (block % 64);
            if bits == before {
                misuse::double_free(address, class.bytes());
            }
            added += 1;
        }
        self.add_word(of_word(word, bits));
        added
    }

    #[inline(never)]
    fn add_word(&mut self, new: Word) {
        if new.bits == 0 {
            return;
        }
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
                    give(evicted, self.origin);
                }
            }
        }
    }

    /// Gives back all that is left. By reference, for a copy would take as much stack again, and
    /// that may be a coroutine's.
    pub fn finish(&mut self) {
        for word in self.places.iter_mut().filter_map(Option::take) {
            give(word, self.origin);
        }
    }
}

/// Aborts if one of these blocks, which a magazine keeps, is free in its slab: it was freed twice,
/// or never handed out. Runs after a flush, so that a copy of what was flushed just now is seen.
pub fn refuse_free(heap: &'static Heap, mut blocks: &[usize]) {
    while let Some(&first) = blocks.first() {
        let (slab, class) = slab_at(heap, first);
        let checked = refuse_run(slab, class, blocks);
        blocks = &blocks[checked..];
    }
}

/// [`refuse_free`] of blocks as long as they are of one slab. Returns how many.
fn refuse_run(slab: &Slab, class: Class, blocks: &[usize]) -> usize {
    let (base, starts) = (slab.base(), class.starts());
    let (mut word, mut free) = (0, slab.free_bits(class, 0));
    let mut checked = 0;
    while let Some(&address) = blocks.get(checked) {
        let offset = address.wrapping_sub(base);
        if offset >= SLICE_BYTES {
            break;
        }
        let Some(block) = starts.block_at(offset) else {
            misuse::interior(Call::Free, address, class.bytes())
        };
        if block / 64 != word {
            word = block / 64;
            free = slab.free_bits(class, word);
        }
        if free == 0 && block % 64 == 0 && is_whole_word(class, block, &blocks[checked..]) {
            checked += 64;
            continue;
        }
        if free & 1 << (block % 64) != 0 {
            misuse::double_free(address, class.bytes());
        }
        checked += 1;
    }
    checked
}

/// Whether the next 64 freed blocks are the 64 blocks from `first` on, in order: so they come when
/// a program frees in the order of allocation. A loop without branches, which compilers make wide.
fn is_whole_word(class: Class, first: usize, blocks: &[usize]) -> bool {
    let Some(blocks) = blocks.first_chunk::<64>() else {
        return false;
    };
    let (start, step) = (blocks[0], class.bytes());
    if first + 64 > class.blocks() || blocks[63].wrapping_sub(start) != 63 * step {
        return false;
    }
    let mut expected = start;
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
pub fn give_one(heap: &'static Heap, address: usize) {
    let (slab, class) = slab_at(heap, address);
    let (word, bits) = place_in(class, address);
    let freed = Word {
        slab,
        class,
        word,
        bits,
    };
    give(freed, Origin::blocks(heap, Age::New));
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
        Found::Nothing | Found::Large(_) | Found::Stack | Found::Sampled(_) => {
            misuse::no_block(Call::Free, address)
        }
    }
}

fn give(word: Word, origin: Origin) {
    let Word {
        slab, class, bits, ..
    } = word;
    let depots = &origin.heap.depots;
    if let Err(twice) = depots.give(slab, class, word.word as usize, bits, &origin) {
        refuse_twice(word, twice);
    }
}
