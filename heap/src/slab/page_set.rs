//! Blocks that a slab withholds, because the OS pages they lie in are not resident.
//!
//! A slab may be carved from a slice of which only some pages are resident, and pages that hold
//! nothing but free blocks may be purged while others are in use. The slab itself claims the blocks
//! that touch such pages: their bits are 0, although no thread holds the blocks, until the class
//! has no other free block and no resident slice is left. So resident memory is used first, and a
//! purged page stays non-resident as long as possible.
//!
//! Pages are counted in units of 4 KiB, 16 to a slice, whatever the size of an OS page.

use super::class::Class;
use crate::base::units::SLICE_BYTES;
use core::ops::Range;

/// Units in a slice.
pub(super) const UNITS: usize = 16;
const UNIT_BYTES: usize = SLICE_BYTES / UNITS;

/// A set of the units of a slice, the lowest in the lowest bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSet(pub u16);

impl PageSet {
    /// No unit.
    pub const NONE: PageSet = PageSet(0);

    /// The units of the OS pages in `mask`, of which a slice has `pages`.
    pub fn of_pages(mask: u16, pages: usize) -> PageSet {
        let wide = UNITS / pages;
        PageSet::all(|unit| mask & (1 << (unit / wide)) != 0)
    }

    /// All units for which `is_in` returns true.
    pub(super) fn all(is_in: impl Fn(usize) -> bool) -> PageSet {
        let bit = |unit| u16::from(is_in(unit)) << unit;
        PageSet((0..UNITS).fold(0, |bits, unit| bits | bit(unit)))
    }

    /// The units that touch this range of offsets in a slice.
    pub fn touched_by(range: Range<usize>) -> PageSet {
        let (from, end) = (range.start / UNIT_BYTES, range.end.min(SLICE_BYTES));
        PageSet::all(|unit| (from..end.div_ceil(UNIT_BYTES)).contains(&unit))
    }

    /// The OS pages, of which a slice has `pages`, all of whose units are in the set.
    pub fn whole_pages(self, pages: usize) -> u16 {
        let wide = UNITS / pages;
        let unit_bits = u16::MAX >> (UNITS - wide);
        let whole = |page: &usize| self.0 >> (page * wide) & unit_bits == unit_bits;
        (0..pages)
            .filter(whole)
            .fold(0, |bits, page| bits | 1 << page)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Bytes of the set.
    pub fn bytes(self) -> usize {
        self.0.count_ones() as usize * UNIT_BYTES
    }

    /// The units that are not in the set.
    fn others(self) -> PageSet {
        PageSet(!self.0)
    }

    pub(super) fn with(self, other: PageSet) -> PageSet {
        PageSet(self.0 | other.0)
    }

    pub(super) fn without(self, other: PageSet) -> PageSet {
        PageSet(self.0 & !other.0)
    }

    /// Runs of neighbours.
    pub(super) fn runs(self) -> impl Iterator<Item = Range<usize>> {
        let mut from = 0;
        core::iter::from_fn(move || {
            let rest = u32::from(self.0) >> from << from;
            (rest != 0).then(|| {
                let start = rest.trailing_zeros() as usize;
                let end = start + (!(rest >> start)).trailing_zeros() as usize;
                from = end;
                start..end
            })
        })
    }

    /// Runs of neighbours, as byte offsets in the slice.
    pub fn byte_runs(self) -> impl Iterator<Item = Range<usize>> {
        self.runs()
            .map(|run| run.start * UNIT_BYTES..run.end * UNIT_BYTES)
    }
}

/// The blocks of `class` that touch a run of units.
pub(super) fn blocks_over(class: Class, run: &Range<usize>) -> Range<usize> {
    let (from, to) = (run.start * UNIT_BYTES, run.end * UNIT_BYTES);
    from / class.bytes()..to.div_ceil(class.bytes()).min(class.blocks())
}

/// The bits of one bitmap word that represent blocks of a range.
fn bits_in(word: usize, blocks: &Range<usize>) -> u64 {
    let (low, high) = (word * 64, word * 64 + 64);
    let (from, to) = (blocks.start.max(low), blocks.end.min(high));
    if from >= to {
        return 0;
    }
    (u64::MAX >> (64 - (to - from))) << (from - low)
}

/// The words in which a range of blocks has bits, with these bits.
pub(super) fn words_of(blocks: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let words = blocks.start / 64..blocks.end.div_ceil(64).max(blocks.start / 64);
    words
        .map(move |word| (word, bits_in(word, &blocks)))
        .filter(|(_, bits)| *bits != 0)
}

/// The bits of one bitmap word whose blocks touch `units`.
pub(super) fn bits_over(class: Class, units: PageSet, word: usize) -> u64 {
    units.runs().fold(0, |bits, run| {
        bits | bits_in(word, &blocks_over(class, &run))
    })
}

/// What a slab of `class` withholds when of its slice the units `resident` are resident:
/// nothing if they hold no whole block.
pub(super) fn to_withhold(class: Class, resident: PageSet) -> PageSet {
    let cold = resident.others();
    let offered = |word: usize| class.full_word(word) & !bits_over(class, cold, word) != 0;
    if (0..class.words()).any(offered) {
        cold
    } else {
        PageSet::NONE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn units_and_pages() {
        assert_eq!(PageSet::of_pages(0b10, 16), PageSet(0b10));
        assert_eq!(PageSet::of_pages(0b10, 4), PageSet(0xf0));
        assert_eq!(PageSet::of_pages(1, 1), PageSet(u16::MAX));
        assert_eq!(PageSet(0xf7).whole_pages(4), 0b10);
        assert_eq!(PageSet(0x7fff).whole_pages(1), 0);
        assert_eq!(PageSet::of_pages(1, 16).bytes(), 4096);
    }

    #[test]
    fn runs_are_those_of_set_bits() {
        let runs = |bits| PageSet(bits).runs().collect::<std::vec::Vec<_>>();
        assert_eq!(runs(0), []);
        assert_eq!(runs(u16::MAX).first(), Some(&(0..16)));
        assert_eq!(runs(0b1000_0000_0110_1001), [0..1, 3..4, 5..7, 15..16]);
    }

    #[test]
    fn a_block_over_two_units_is_withheld_with_either() {
        let class = Class::of_size(3072);
        assert_eq!(class.bytes(), 3072);
        let over = |units| bits_over(class, PageSet(units), 0);
        assert_eq!(over(0b1), 0b11);
        assert_eq!(over(0b10), 0b110);
        assert_eq!(over(0b101), 0b1111);
        assert_eq!(over(u16::MAX), class.full_word(0));
    }

    #[test]
    fn only_whole_blocks_in_resident_pages_are_offered() {
        let withheld = |size, resident| to_withhold(Class::of_size(size), PageSet(resident));
        assert_eq!(withheld(4096, 1 << 15), PageSet(0x7fff));
        assert_eq!(withheld(64, 1), PageSet(0xfffe));
        // No block of 8 KiB lies in one page.
        assert_eq!(withheld(8192, 1 << 15), PageSet::NONE);
        assert_eq!(withheld(8192, 0b11), PageSet(0xfffc));
        assert_eq!(withheld(64, u16::MAX), PageSet::NONE);
        assert_eq!(withheld(64, 0), PageSet::NONE);
    }
}
