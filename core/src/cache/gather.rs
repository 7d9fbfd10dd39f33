//! Gathering: a flush collects freed blocks by slab and word, so that each word costs one atomic operation.

use super::heap::{Found, Heap};
use super::misuse::{self, Call};
use crate::slab::Slab;
use crate::slab::class::Class;

/// Words under collection. Direct-mapped: a word that another one pushes out is given back early.
const PLACES: usize = 32;

#[derive(Clone, Copy)]
struct Word {
    slab: &'static Slab,
    class: Class,
    word: usize,
    bits: u64,
}

/// Blocks on their way back to their slabs. Give back the rest with [`Gather::finish`].
pub struct Gather {
    heap: &'static Heap,
    places: [Option<Word>; PLACES],
}

impl Gather {
    /// Nothing gathered yet.
    pub fn new(heap: &'static Heap) -> Gather {
        Gather { heap, places: [None; PLACES] }
    }

    /// Adds a freed block. Aborts if it is no block or was added twice.
    pub fn add(&mut self, address: usize) {
        let Word { slab, class, word, bits } = locate(self.heap, address);
        let place = &mut self.places[place_of(slab, word)];
        match place {
            Some(held) if core::ptr::eq(held.slab, slab) && held.word == word => {
                if held.bits & bits != 0 {
                    misuse::double_free(address, class.bytes());
                }
                held.bits |= bits;
            }
            _ => {
                let evicted = place.replace(Word { slab, class, word, bits });
                if let Some(evicted) = evicted {
                    give(self.heap, evicted);
                }
            }
        }
    }

    /// Gives back all that is left.
    pub fn finish(self) {
        for word in self.places.into_iter().flatten() {
            give(self.heap, word);
        }
    }
}

/// Gives one block back to its slab. Aborts if it is no block or free already.
pub fn give_one(heap: &'static Heap, address: usize) {
    give(heap, locate(heap, address));
}

fn place_of(slab: &Slab, word: usize) -> usize {
    let slab = core::ptr::from_ref(slab).addr() / size_of::<Slab>();
    (slab + word) % PLACES
}

/// The slab, word and bit of a freed block.
fn locate(heap: &'static Heap, address: usize) -> Word {
    match heap.find(address) {
        Found::Slab(slab, class) => match class.block_at(address - slab.base()) {
            Some(block) => Word { slab, class, word: block / 64, bits: 1 << (block % 64) },
            None => misuse::interior(Call::Free, address, class.bytes()),
        },
        Found::Foreign => misuse::foreign(Call::Free, address),
        Found::Nothing | Found::Large(_) | Found::Stack => misuse::no_block(Call::Free, address),
    }
}

fn give(heap: &'static Heap, word: Word) {
    let Word { slab, class, word, bits } = word;
    if let Err(twice) = heap.depots.give(slab, class, word, bits, heap) {
        let block = word * 64 + twice.trailing_zeros() as usize;
        misuse::double_free(slab.base() + block * class.bytes(), class.bytes());
    }
}
