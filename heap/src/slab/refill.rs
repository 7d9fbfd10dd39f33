//! Taking blocks from a depot, for a magazine.

use super::claim::Claim;
use super::class::Class;
use super::depot::{Depot, Depots, Open};
use super::depot_id::DepotId;
use super::slab::Slab;
use super::source::{Pages, Source};
use super::word::Grain;
use crate::base::sync::Ordering;
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

    /// Like [`Depots::take`]; with [`Grain::Lines`] up to [`LINE_BLOCKS`](super::word::LINE_BLOCKS)
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
