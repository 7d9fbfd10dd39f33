//! Cached rules: a fixed-size table that every thread and every signal handler reads and writes
//! without a lock.
//!
//! An entry is two words, and another thread's store may come between the two loads. So the first
//! word is the address mixed with the second. Words that do not belong together give another
//! address, except in one case in 2^64. A wrong rule leads to a wrong frame but not to a fault,
//! because the walk trusts no value that it reads.

use super::rule::Rule;
use crate::base::sync::plain::{AtomicU16, AtomicU64, Ordering};

/// log2 of the number of entries; 64 KiB in all, untouched in a program that takes no profile.
const BITS: u32 = 12;
/// An odd number without a pattern. Multiplication by it mixes the bits and is invertible.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bits of an address in user space.
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

/// Counts how often all entries were invalidated; part of each entry's address.
static GENERATION: AtomicU16 = AtomicU16::new(1);

/// Invalidates all entries.
pub(in crate::unwind) fn forget() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The address, with the generation in its unused bits.
fn key_of(address: usize) -> u64 {
    let generation = u64::from(GENERATION.load(Ordering::Relaxed));
    address as u64 ^ generation << ADDRESS_BITS
}

fn entry_of(address: usize) -> &'static Entry {
    &ENTRIES[((address as u64).wrapping_mul(MIX) >> (64 - BITS)) as usize]
}

/// The cached rule of the code at `address`.
#[inline]
pub(super) fn find(address: usize) -> Option<Rule> {
    let entry = entry_of(address);
    let rule = entry.rule.load(Ordering::Relaxed);
    let key = entry.check.load(Ordering::Relaxed) ^ rule.wrapping_mul(MIX);
    (key == key_of(address)).then(|| Rule::of_word(rule))
}

/// Caches a rule, in place of the entry there.
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

    // Not canonical, so no test's code is there.
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
