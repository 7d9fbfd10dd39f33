//! Measures against memory errors (`NEAP_HARDEN`, `NEAP_CHECK`), and the process's secrets.
//!
//! Neap chooses the measures at the start of the process. All of them need the checking mode, in
//! which every call takes the slow path, so that they cost the fast path nothing.
//! [`crate::watched::harden`] carries them out for blocks of slabs, [`crate::watched::fences`] for
//! large blocks, and the instruments hold freed blocks back.

use crate::base::sync::plain::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::os::process;
use crate::os::tagging::TAGS;
use core::ops::Range;

/// A set of measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measures(pub(super) u16);

impl Measures {
    /// A random choice among the free blocks of a slab, and a random address of the heap.
    pub const RANDOM: Measures = Measures(1);
    /// A word behind each block of a slab, which a write past the end changes.
    pub const CANARY: Measures = Measures(1 << 1);
    /// Freed blocks wait before they are handed out again.
    pub const DELAY: Measures = Measures(1 << 2);
    /// Neap fills freed blocks with zeros, and checks these before it hands a block out again.
    pub const ZERO: Measures = Measures(1 << 3);
    /// Blocks of no bytes are not accessible.
    pub const NO_BYTES: Measures = Measures(1 << 4);
    /// Large blocks lie between pages that are not accessible.
    pub const GUARDS: Measures = Measures(1 << 5);
    /// A C++ `delete` must state the size and the form of the `new`.
    pub const DELETES: Measures = Measures(1 << 6);
    /// Blocks of slabs have memory tags, where the machine has these.
    pub const TAG: Measures = Measures(1 << 7);
    /// The measure of `NEAP_CHECK`: freed blocks wait, filled with a pattern.
    pub const CHECK: Measures = Measures(1 << 8 | Measures::DELAY.0);
    /// All of `NEAP_HARDEN`, in the order of its names.
    pub const ALL: Measures = Measures((1 << neap_shared::control::HARDEN.len()) - 1);

    /// The measures that `bits` names: it has a bit for each name of `NEAP_HARDEN`.
    pub fn named(bits: u32) -> Measures {
        Measures(bits as u16 & Measures::ALL.0)
    }

    /// These measures and others.
    #[must_use]
    pub fn and(self, other: Measures) -> Measures {
        Measures(self.0 | other.0)
    }

    /// Whether all of `measures` are among these.
    #[inline]
    pub fn has(self, measures: Measures) -> bool {
        self.0 & measures.0 == measures.0
    }

    /// Whether any measure of `NEAP_HARDEN` is among these that `NEAP_CHECK` does not have.
    #[inline]
    pub fn harden(self) -> bool {
        self.0 & Measures::ALL.0 & !Measures::DELAY.0 != 0
    }
}

/// The addresses that the heap used before Neap chose the measures. No slab there has canaries or
/// guards, not even a later one, so Neap need not know which slabs are older.
pub(crate) struct Early {
    start: AtomicUsize,
    bytes: AtomicUsize,
}

/// The process's early addresses.
pub(crate) static EARLY: Early = Early {
    start: AtomicUsize::new(0),
    bytes: AtomicUsize::new(0),
};

impl Early {
    /// Sets the addresses, before there are any measures.
    pub(crate) fn set(&self, addresses: Range<usize>) {
        self.start.store(addresses.start, Relaxed);
        self.bytes.store(addresses.len(), Relaxed);
    }

    /// Whether there are no such addresses.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.load(Relaxed) == 0
    }

    /// Whether an address is one of them.
    #[inline]
    pub(crate) fn has(&self, address: usize) -> bool {
        address.wrapping_sub(self.start.load(Relaxed)) < self.bytes.load(Relaxed)
    }
}

/// Random numbers that an attacker who chooses a program's input does not know.
pub(crate) struct Secrets {
    /// The numbers from which [`Key::of`] makes keys. The second one is odd.
    words: [AtomicU64; 2],
    /// The state of the random choices.
    draws: AtomicU64,
}

/// The process's secrets. A forked child keeps them, because the blocks that it inherits have
/// canaries.
pub(crate) static SECRETS: Secrets = Secrets {
    words: [const { AtomicU64::new(0) }; 2],
    draws: AtomicU64::new(0),
};

impl Secrets {
    /// Draws the secrets, unless the process has them already.
    pub(crate) fn draw(&self) {
        if self.words[1].load(Relaxed) == 0 {
            let [first, second, third] = process::random_words();
            self.words[0].store(first, Relaxed);
            self.words[1].store(second | 1, Relaxed);
            self.draws.store(third, Relaxed);
        }
    }

    /// A random number. Threads that draw at the same moment may get the same one.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        let mut state = self.draws.load(Relaxed);
        let random = next_random(&mut state);
        self.draws.store(state, Relaxed);
        random
    }
}

/// Advances `state`, and returns the random number that belongs to the new state.
#[inline(always)]
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

/// Which call allocated a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// Not known: any call may free it.
    Any = 0,
    /// A form of `malloc`.
    Malloc = 1,
    /// `operator new`.
    New = 2,
    /// `operator new[]`.
    Array = 3,
}

impl Form {
    /// The form of these low bits.
    pub(crate) fn of(bits: u64) -> Form {
        match bits & 3 {
            0 => Form::Any,
            1 => Form::Malloc,
            2 => Form::New,
            _ => Form::Array,
        }
    }
}

/// What a block's canary says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// The program has the block. The form of its allocation, and the requested bytes.
    Live(Form, usize),
    /// The block was freed, and has not been handed out since.
    Freed,
}

/// Bits of a payload that hold a size.
const SIZE_BITS: u32 = 16;
const FREED: u64 = 4 << SIZE_BITS;
/// Payloads are below this. The payload of a freed block holds its last memory tag.
const PAYLOADS: u64 = FREED + TAGS;
/// Spreads the sum of payload and key over the word, so that a write to any byte of the word makes
/// it the word of no payload, except in one case of 2^45.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// The inverse of [`SPREAD`] modulo 2^64.
const GATHER: u64 = {
    let (mut inverse, mut round) = (SPREAD, 0);
    while round < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(SPREAD.wrapping_mul(inverse)));
        round += 1;
    }
    inverse
};

const _: () = assert!(SPREAD.wrapping_mul(GATHER) == 1);

/// The key of one block's canary: a secret number that is added to the payload before the sum is
/// multiplied by [`SPREAD`].
#[derive(Clone, Copy)]
pub(crate) struct Key {
    base: u64,
    /// How much `base` grows with each byte by which the address grows.
    step: u64,
}

impl Key {
    /// The key of the block at `address`.
    #[inline(always)]
    pub(crate) fn of(address: usize) -> Key {
        let [first, step] = [&SECRETS.words[0], &SECRETS.words[1]].map(|word| word.load(Relaxed));
        let base = (address as u64).wrapping_mul(step).wrapping_add(first);
        Key { base, step }
    }

    /// The keys of the blocks `distance` bytes before and behind this one.
    #[inline(always)]
    pub(crate) fn beside(self, distance: usize) -> (Key, Key) {
        let grown = (distance as u64).wrapping_mul(self.step);
        let [before, behind] = [self.base.wrapping_sub(grown), self.base.wrapping_add(grown)]
            .map(|base| Key { base, ..self });
        (before, behind)
    }

    /// The word of a canary.
    #[inline(always)]
    pub(crate) fn word(self, canary: Canary) -> u64 {
        self.spread(canary.payload())
    }

    /// The word of a freed block that had this memory tag.
    #[inline(always)]
    pub(crate) fn freed_word(self, tag: u8) -> u64 {
        self.spread(FREED + u64::from(tag))
    }

    #[inline(always)]
    fn spread(self, payload: u64) -> u64 {
        self.base.wrapping_add(payload).wrapping_mul(SPREAD)
    }

    /// The payload from which this key makes a word.
    #[inline(always)]
    fn gather(self, word: u64) -> u64 {
        word.wrapping_mul(GATHER).wrapping_sub(self.base)
    }

    /// What a word says; `None` if it is no canary.
    #[inline(always)]
    pub(crate) fn read(self, word: u64) -> Option<Canary> {
        match self.gather(word) {
            FREED..PAYLOADS => Some(Canary::Freed),
            PAYLOADS.. => None,
            payload => {
                let size = payload as usize & ((1 << SIZE_BITS) - 1);
                Some(Canary::Live(Form::of(payload >> SIZE_BITS), size))
            }
        }
    }

    /// Whether a word says that the program has the block.
    #[inline(always)]
    pub(crate) fn is_live(self, word: u64) -> bool {
        self.gather(word) < FREED
    }

    /// The memory tag that a freed block had; 0 if the word is that of no freed block.
    #[inline(always)]
    pub(crate) fn last_tag(self, word: u64) -> u8 {
        match self.gather(word) {
            payload @ FREED..PAYLOADS => (payload - FREED) as u8,
            _ => 0,
        }
    }
}

impl Canary {
    #[inline]
    fn payload(self) -> u64 {
        match self {
            Canary::Live(form, size) => (form as u64) << SIZE_BITS | size as u64,
            Canary::Freed => FREED,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_canary_says_what_it_was_made_of_and_any_other_byte_makes_it_none() {
        SECRETS.draw();
        let address = 0x7123_4567_8900;
        let key = Key::of(address);
        let said = [
            Canary::Freed,
            Canary::Live(Form::Any, 0),
            Canary::Live(Form::Malloc, 8),
            Canary::Live(Form::Array, 32 << 10),
        ];
        for canary in said {
            let word = key.word(canary);
            assert_eq!(key.read(word), Some(canary));
            assert_eq!(Key::of(address + 16).read(word), None);
            for tag in 0..TAGS as u8 {
                let word = key.freed_word(tag);
                assert_eq!(key.read(word), Some(Canary::Freed));
                assert_eq!(key.last_tag(word), tag);
            }
            for bit in 0..64 {
                assert_eq!(key.read(word ^ (1 << bit)), None);
            }
        }
        assert_eq!(key.read(0), None);
        for distance in [16, 80, 4080] {
            let (before, behind) = key.beside(distance);
            assert_eq!(before.base, Key::of(address - distance).base);
            assert_eq!(behind.base, Key::of(address + distance).base);
        }
    }

    #[test]
    fn names_are_in_the_order_of_the_option() {
        let by_name = [
            ("random", Measures::RANDOM),
            ("canary", Measures::CANARY),
            ("delay", Measures::DELAY),
            ("zero", Measures::ZERO),
            ("nullpage", Measures::NO_BYTES),
            ("guards", Measures::GUARDS),
            ("deletes", Measures::DELETES),
            ("tag", Measures::TAG),
        ];
        let declared = neap_shared::control::HARDEN.iter().enumerate();
        for ((at, name), (expected, measure)) in declared.zip(by_name) {
            assert_eq!((*name, Measures::named(1 << at)), (expected, measure));
        }
        assert!(!Measures::CHECK.harden() && Measures::ZERO.harden());
    }
}
