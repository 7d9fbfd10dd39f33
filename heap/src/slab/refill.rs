//! Taking blocks from a depot, for a magazine: claiming them from its slabs.

use super::class::Class;
use super::depot::{Depot, Depots, Open, Pages, Source};
use super::depot_id::DepotId;
use super::slab::{Grain, Slab, WORDS, claim_bits};
use crate::base::sync::Ordering;
use core::ops::Range;
use core::ptr::NonNull;

/// Once a refill has some blocks, it passes at most this many exhausted slabs.
const MOST_PASSED: usize = 8;

/// Blocks on their way into a magazine.
struct Refill<'a, F> {
    id: DepotId,
    grain: Grain,
    /// How many more are wanted; 0 or less at the end.
    left: isize,
    got: usize,
    /// How many exhausted slabs it passed since it had some blocks.
    passed: usize,
    sink: &'a mut F,
}

impl<F: FnMut(&Slab, Claim)> Refill<'_, F> {
    fn is_over(&self) -> bool {
        self.left <= 0 || self.passed > MOST_PASSED
    }

    /// Claims blocks of one word.
    fn claim(&self, slab: &Slab) -> Option<Claim> {
        slab.claim(self.id.class, self.left as usize, self.grain)
    }

    fn add(&mut self, slab: &Slab, claim: Claim) {
        let count = claim.bits.count_ones();
        self.got += count as usize;
        self.left -= count as isize;
        (self.sink)(slab, claim);
    }

    /// Claims what a listed slab of the depot has, as far as it is wanted. Under the depot's lock.
    fn claim_rest(&mut self, slab: &Slab) {
        while !self.is_over()
            && let Some(claim) = self.claim(slab)
        {
            self.add(slab, claim);
        }
    }
}

/// What a refill does next, after it found the current slab exhausted.
enum Next {
    /// It has enough, or looks again, because there is another.
    Done,
    /// It fetches a fresh slab.
    Fetch(Pages),
    /// It gets no more blocks.
    Exhausted,
}

impl Depots {
    /// Claims at most `want` blocks of one depot, lowest addresses first, and hands each word's
    /// share to `sink`. Returns how many; 0 only when out of memory.
    ///
    /// Costs one atomic operation for each word with free blocks and a load of the shared
    /// `current`; for each exhausted slab a step in the depot's set, for several the lock once.
    pub fn take<S: Source>(
        &self,
        id: DepotId,
        want: usize,
        source: &S,
        sink: &mut impl FnMut(&Slab, Claim),
    ) -> usize {
        self.take_by(Grain::Blocks, id, want, source, sink)
    }

    /// Like [`Depots::take`]; with [`Grain::Lines`] up to [`LINE_BLOCKS`](super::slab::LINE_BLOCKS)
    /// more, less one.
    pub fn take_by<S: Source>(
        &self,
        grain: Grain,
        id: DepotId,
        want: usize,
        source: &S,
        sink: &mut impl FnMut(&Slab, Claim),
    ) -> usize {
        let depot = self.of(id);
        let mut refill = Refill {
            id,
            grain,
            left: want as isize,
            got: 0,
            passed: 0,
            sink,
        };
        while !refill.is_over() {
            let current = depot.current.load(Ordering::Acquire);
            // SAFETY: slab records are type-stable: the pointer is null, or stays valid.
            if let Some(slab) = unsafe { current.as_ref() }
                && let Some(claim) = self.claim_from(slab, &refill, source)
            {
                refill.add(slab, claim);
                continue;
            }
            if !depot.advance(current, &mut refill, source) {
                break;
            }
        }
        refill.got
    }

    /// Claims from a slab that may have become another depot's in the meantime.
    fn claim_from<S: Source, F: FnMut(&Slab, Claim)>(
        &self,
        slab: &Slab,
        refill: &Refill<'_, F>,
        source: &S,
    ) -> Option<Claim> {
        let claim = refill.claim(slab)?;
        // The claimed bits pin the slab, so its depot cannot change now.
        if slab.is_of(refill.id) {
            return Some(claim);
        }
        match slab.depot() {
            // SAFETY: claimed just now, and the slab is of the depot that its record names.
            Some(other) => unsafe {
                let _ = self.give(slab, other, claim.word, claim.bits, source);
            },
            None => unreachable!("a slab with claimed blocks is a depot's"),
        }
        None
    }
}

impl Depot {
    /// Makes another slab current after `seen` was found exhausted. False: there is none.
    ///
    /// A fresh slab is fetched without the lock, because the page heap may have to ask the kernel.
    /// Several threads may do so at once: each gets a slab of its own, and the others later find
    /// what it leaves in it.
    fn advance<S: Source, F: FnMut(&Slab, Claim)>(
        &self,
        seen: *mut Slab,
        refill: &mut Refill<'_, F>,
        source: &S,
    ) -> bool {
        let id = refill.id;
        let pages = match self.next_listed(seen, refill) {
            Next::Done => return true,
            Next::Exhausted => return false,
            Next::Fetch(pages) => pages,
        };
        if let Some(slice) = source.fresh(id, pages) {
            self.adopt(id, &slice, source);
            return true;
        }
        self.advance_to_withheld(id.class, source)
    }

    /// Makes current a slab that another thread listed meanwhile, or else one that withholds
    /// blocks, if the limit admits their pages. False if there is none.
    ///
    /// The lock is not held while the page heap checks its limit, so the next slab may be another
    /// one afterwards.
    fn advance_to_withheld<S: Source>(&self, class: Class, source: &S) -> bool {
        let mut admitted = 0;
        let advances = loop {
            let open = self.open();
            let bytes = match open.sets.next_offered(class, &mut admitted) {
                Ok(next) => {
                    self.set_current(Some(next));
                    break true;
                }
                Err(bytes) => bytes,
            };
            drop(open);
            if bytes == 0 || !source.readmit(bytes - admitted) {
                break false;
            }
            admitted = bytes;
        };
        source.note_withheld(admitted as isize);
        advances
    }

    /// Takes blocks from the next listed slabs after `seen` was found exhausted, and makes the
    /// first one current that has some left. Each of these slabs may have one free block only, so
    /// one lock serves for several. The sink may fault in a page of the magazine under the lock.
    fn next_listed<F: FnMut(&Slab, Claim)>(
        &self,
        seen: *mut Slab,
        refill: &mut Refill<'_, F>,
    ) -> Next {
        let Open { sets, .. } = &mut self.open();
        if self.current.load(Ordering::Relaxed) != seen {
            return Next::Done;
        }
        let mut next = NonNull::new(seen);
        loop {
            if let Some(slab) = next
                && !sets.unlist(slab, refill.id.class)
            {
                return Next::Done;
            }
            next = sets.set.first();
            self.set_current(next);
            let Some(slab) = next else { break };
            // SAFETY: slab records are type-stable.
            refill.claim_rest(unsafe { slab.as_ref() });
            // Nothing is left of a slab only if other threads claim from it at the same time.
            refill.passed += usize::from(refill.got > 0);
            if refill.is_over() {
                return Next::Done;
            }
        }
        match refill.got {
            0 => Next::Fetch(sets.wanted_pages()),
            _ => Next::Exhausted,
        }
    }
}

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
