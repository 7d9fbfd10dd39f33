//! Rules that were learnt: a table of fixed size that every thread and every handler of signals reads and writes without a lock.
//!
//! An entry is two words, and another thread's store may come between the two loads. So the first word is the address mixed with the second:
//! words that do not belong together give another address, but for one case in 2^64. A wrong rule leads to a wrong
//! frame, not to a fault: nothing of what it leads to is believed.

use super::rule::Rule;
use crate::base::sync::plain::{AtomicU16, AtomicU64, Ordering};

/// Entries; 64 KiB in all, of which a program that takes no profile touches nothing.
const BITS: u32 = 12;
/// An odd number without a pattern: multiplication by it mixes, and loses nothing.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bits of an address of the program.
const ADDRESS_BITS: u32 = 48;

struct Entry {
    check: AtomicU64,
    rule: AtomicU64,
}

static ENTRIES: [Entry; 1 << BITS] = [const {
    Entry {
        check: AtomicU64::new(0),
        rule: AtomicU64::new(0),
    }
}; 1 << BITS];

/// Counts how often everything was forgotten; part of each entry's address.
static GENERATION: AtomicU16 = AtomicU16::new(1);

/// Makes all entries void.
pub(in crate::unwind) fn forget() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The address, with the generation in the bits that it leaves free.
fn key_of(address: usize) -> u64 {
    let generation = u64::from(GENERATION.load(Ordering::Relaxed));
    address as u64 ^ generation << ADDRESS_BITS
}

fn entry_of(address: usize) -> &'static Entry {
    &ENTRIES[((address as u64).wrapping_mul(MIX) >> (64 - BITS)) as usize]
}

/// The rule of the code at `address`, if it was kept.
#[inline]
pub(super) fn find(address: usize) -> Option<Rule> {
    let entry = entry_of(address);
    let rule = entry.rule.load(Ordering::Relaxed);
    let key = entry.check.load(Ordering::Relaxed) ^ rule.wrapping_mul(MIX);
    (key == key_of(address)).then(|| Rule::of_word(rule))
}

/// Keeps a rule, in place of whichever was there.
pub(super) fn keep(address: usize, rule: Rule) {
    let entry = entry_of(address);
    let word = rule.word();
    entry
        .check
        .store(key_of(address) ^ word.wrapping_mul(MIX), Ordering::Relaxed);
    entry.rule.store(word, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::super::rule::Base;
    use super::*;

    // Not canonical: code of no test is there.
    const HERE: usize = 0xf000_1234_5678;

    #[test]
    fn an_entry_is_its_own_addresss_only() {
        let rule = Rule::simple(Base::Sp, 48, Some(-16));
        let neighbours = || (HERE + 1..).filter(|at| core::ptr::eq(entry_of(*at), entry_of(HERE)));
        keep(HERE, rule);
        let other = neighbours().next().unwrap();
        assert_eq!(find(other), None);
        keep(other, Rule::End);
        assert_eq!(find(HERE), None);
    }

    #[test]
    fn halves_of_two_entries_are_none() {
        let at = HERE + 0x1000;
        keep(at, Rule::simple(Base::Sp, 48, Some(-16)));
        let other = Rule::simple(Base::Sp, 56, Some(-16));
        entry_of(at).rule.store(other.word(), Ordering::Relaxed);
        assert_eq!(find(at), None);
    }
}
