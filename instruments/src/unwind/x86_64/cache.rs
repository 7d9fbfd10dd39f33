//! Cached rules: a fixed-size table that every thread and every signal handler reads and writes
//! without a lock.
//!
//! An entry is two words, and another thread's store may come between the two loads. So the first
//! word is the address mixed with the second. Words that do not belong together give another
//! address, except in one case in 2^64. A wrong rule leads to a wrong frame but not to a fault,
//! because the walk trusts no value that it reads.

use super::rule::Rule;
use bytemuck::Zeroable;
use core::ptr::NonNull;
use neap_heap::base::sync::plain::{AtomicU16, AtomicU64, Ordering};
use neap_heap::os::areas::Late;

/// log2 of the number of entries; 64 KiB in all, mapped when the first rule is cached.
const BITS: u32 = 12;
/// An odd number without a pattern. Multiplication by it mixes the bits and is invertible.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bits of an address in user space.
const ADDRESS_BITS: u32 = 48;

struct Entry {
    check: AtomicU64,
    rule: AtomicU64,
}

type Entries = [Entry; 1 << BITS];

// SAFETY: integers only, and 0 is a value of each.
unsafe impl Zeroable for Entry {}

static ENTRIES: Late<Entries> = Late::new();

/// Counts how often all entries were invalidated; part of each entry's address.
#[unsafe(link_section = "neap_fork")]
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

fn entry_of(entries: NonNull<Entries>, address: usize) -> &'static Entry {
    // SAFETY: from `ENTRIES`: mapped for good, and written by atomics only.
    let entries: &'static Entries = unsafe { entries.as_ref() };
    &entries[((address as u64).wrapping_mul(MIX) >> (64 - BITS)) as usize]
}

/// The cached rule of the code at `address`.
#[inline]
pub(super) fn find(address: usize) -> Option<Rule> {
    let entry = entry_of(ENTRIES.find()?, address);
    let rule = entry.rule.load(Ordering::Relaxed);
    let key = entry.check.load(Ordering::Relaxed) ^ rule.wrapping_mul(MIX);
    (key == key_of(address)).then(|| Rule::of_word(rule))
}

/// Caches a rule, in place of the entry there. Without memory for the table it caches nothing.
pub(super) fn keep(address: usize, rule: Rule) {
    let Some(entries) = ENTRIES.open() else {
        return;
    };
    let entry = entry_of(entries, address);
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

    fn entry_at(address: usize) -> &'static Entry {
        entry_of(ENTRIES.open().unwrap(), address)
    }

    #[test]
    fn an_entry_is_its_own_addresss_only() {
        let rule = Rule::simple(Base::Sp, 48, Some(-16));
        let neighbours = || (HERE + 1..).filter(|at| core::ptr::eq(entry_at(*at), entry_at(HERE)));
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
        entry_at(at).rule.store(other.word(), Ordering::Relaxed);
        assert_eq!(find(at), None);
    }
}
