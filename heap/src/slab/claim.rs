//! Blocks claimed from a slab.

use super::class::Class;
use super::slab::{Slab, WORDS};
use super::word::{Grain, claim_bits};
use crate::base::sync::Ordering;
use core::ops::Range;

/// A random claim chooses among the free blocks of this many words, so that a slab's pages are
/// touched one after another.
const RANDOM_WORDS: usize = 4;

/// Blocks claimed from one word of a slab's bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The word's number.
    pub word: usize,
    /// The claimed bits.
    pub bits: u64,
    /// Those of them that are known to read as zero.
    pub fresh: u64,
}

impl Slab {
    /// Claims up to `want` blocks from one word, lowest addresses first: one atomic operation on a
    /// word that has free blocks.
    pub(super) fn claim(&self, class: Class, want: usize, grain: Grain) -> Option<Claim> {
        if let Grain::Random(draw) = grain {
            return self.claim_any(class, draw);
        }
        let words = self.words(class);
        let start = (self.lowest.load(Ordering::Relaxed) as usize).min(words.len() - 1);
        let claimed = |word: usize| {
            let got = claim_bits(&words[word], want, grain);
            if got == 0 { None } else { Some((word, got)) }
        };
        let found = (start..words.len()).find_map(claimed);
        let (word, bits) = found.or_else(|| (0..start).find_map(claimed))?;
        self.note_use();
        // The thread goes on to the words after this one.
        self.note_claim(word, word..(word + want.div_ceil(64)).min(WORDS));
        let fresh = self.take_fresh(bits);
        Some(Claim { word, bits, fresh })
    }

    /// Claims a random free block in one of [`RANDOM_WORDS`] words. The first of these is the first
    /// word that has free blocks.
    fn claim_any(&self, class: Class, draw: u64) -> Option<Claim> {
        let words = self.words(class);
        let is_free = |word: &usize| words[*word].load(Ordering::Relaxed) != 0;
        let start = (self.lowest.load(Ordering::Relaxed) as usize).min(words.len() - 1);
        loop {
            let first = (start..words.len()).chain(0..start).find(is_free)?;
            let any = first + draw as usize % RANDOM_WORDS;
            let word = match any < words.len() && is_free(&any) {
                true => any,
                false => first,
            };
            let bits = claim_bits(&words[word], 1, Grain::Random(draw));
            if bits == 0 {
                // Other threads were faster.
                continue;
            }
            self.note_use();
            self.note_claim(first, word..word + 1);
            let fresh = self.take_fresh(bits);
            return Some(Claim { word, bits, fresh });
        }
    }

    /// Address of the first block of a claim.
    #[inline]
    pub fn address_of(&self, class: Class, claim: Claim) -> usize {
        let number = claim.word * 64 + claim.bits.trailing_zeros() as usize;
        self.base() + number * class.bytes()
    }

    /// Which of these blocks of the first word, just claimed, were fresh. Marks them as no longer
    /// fresh.
    fn take_fresh(&self, bits: u64) -> u64 {
        match self.fresh.load(Ordering::Relaxed) {
            0 => 0,
            _ => u64::from(self.fresh.fetch_and(!(bits as u16), Ordering::Relaxed)) & bits,
        }
    }

    /// Notes a claim from the first of `words`; the thread goes on to the others. No word below
    /// `lowest` has free blocks, most likely.
    #[inline]
    fn note_claim(&self, lowest: usize, words: Range<usize>) {
        if self.lowest.load(Ordering::Relaxed) as usize != lowest {
            self.lowest.store(lowest as u16, Ordering::Relaxed);
        }
        // fetch_max: two claimers of different words must not lower each other's mark.
        if (self.high_water.load(Ordering::Relaxed) as usize) <= words.start {
            self.high_water
                .fetch_max(words.end as u16, Ordering::Relaxed);
        }
    }

    /// Claims every block. True if all were free or withheld; otherwise all are given back.
    pub(super) fn claim_all(&self, class: Class) -> bool {
        let words = self.words(class);
        for (word, bits) in words.iter().enumerate() {
            let got = bits.swap(0, Ordering::AcqRel);
            if got == self.offered_word(class, word) {
                continue;
            }
            bits.fetch_or(got, Ordering::AcqRel);
            // The words before this one were claimed whole.
            for (before, bits) in words[..word].iter().enumerate() {
                bits.fetch_or(self.offered_word(class, before), Ordering::AcqRel);
            }
            return false;
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::slab::class::Class;
    use crate::slab::depot::Depots;
    use crate::testing::slab_model::{Slices, take};

    #[test]
    fn the_mark_of_what_was_touched_is_above_all_claims() {
        let (depots, slices) = (Depots::new(), Slices::new(1));
        let class = Class::of_size(16);
        for (want, words) in [(1, 1), (63, 1), (200, 5), (5000, 64)] {
            let blocks = take(&depots, &slices, class, want);
            let touched = slices.slab(blocks[0]).touched_bytes(class);
            assert_eq!(touched, words * 64 * class.bytes(), "{want}");
        }
    }
}
