//! Purging the pages inside partly used slabs that hold nothing but free blocks.
//!
//! Round after round, about half a decay time apart: a slab that no thread claimed from or gave to
//! since the last round has its spare pages claimed, under the depot's lock; purged, without it,
//! the claimed bits pinning the slab; and withheld, under the lock again. Meanwhile the slab is
//! marked: it does not retire, and offers nothing that it withholds. A claimer or giver meanwhile
//! finds blocks missing, as if another thread held them; so at the end the slab is looked at once
//! more: it may be empty, or exhausted and to be reserved.

use super::{Depot, Depots, Source};
use crate::base::sync::{Ordering, full_barrier_after_rmw};
use crate::slab::class::Class;
use crate::slab::withheld::Units;
use crate::slab::{LISTED, Slab, UNLISTED};
use core::ptr::NonNull;

/// Most slabs looked at while a depot's lock is held.
const MOST_LOOKED_AT: usize = 32;

/// Which slabs a round is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// Those that were idle since the last round. All others are marked.
    Idle,
    /// All.
    All,
}

/// A slab with claimed units, or an empty one without.
struct Found {
    slab: NonNull<Slab>,
    units: Units,
}

/// Where a round stands: the class and the address to go on from.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    class: Option<Class>,
    key: usize,
}

impl Cursor {
    /// At the start.
    pub fn start() -> Cursor {
        Cursor {
            class: Class::all().next(),
            key: 0,
        }
    }

    /// At the end.
    pub const fn end() -> Cursor {
        Cursor {
            class: None,
            key: 0,
        }
    }

    /// At the start of one class.
    #[cfg(all(test, loom))]
    pub fn at(class: Class) -> Cursor {
        Cursor {
            class: Some(class),
            key: 0,
        }
    }

    /// Whether it is still at that class.
    #[cfg(all(test, loom))]
    pub fn is_at(&self, class: Class) -> bool {
        self.class == Some(class)
    }

    fn go_on(&mut self, class: Class, key: Option<usize>) {
        *self = match key {
            Some(key) => Cursor {
                class: Some(class),
                key,
            },
            None => Cursor {
                class: Class::all().nth(class.index()),
                key: 0,
            },
        };
    }
}

impl Depots {
    /// A step of a round, bounded in time: looks at some slabs, and purges the spare pages of one
    /// of them if it has such. Returns how many bytes; `None` at the end. The caller lets no fork
    /// come between.
    pub fn purge_spare<S: Source>(
        &self,
        round: Round,
        cursor: &mut Cursor,
        source: &S,
    ) -> Option<usize> {
        if source.keeps_pages(round) {
            *cursor = Cursor::end();
        }
        let class = cursor.class?;
        let depot = self.of(class);
        let (found, next) = depot.find_spare(class, cursor.key, round, source.pages());
        cursor.go_on(class, next);
        Some(found.map_or(0, |found| depot.purge_found(class, &found, source)))
    }
}

impl Depot {
    /// Looks at slabs from the address `key` on, until one has spare pages, which it claims, or is
    /// empty: while blocks were claimed in vain, whoever gave the last one back did not see that it
    /// was. Also the address to go on from; `None` at the end.
    fn find_spare(
        &self,
        class: Class,
        key: usize,
        round: Round,
        pages: usize,
    ) -> (Option<Found>, Option<usize>) {
        let open = self.open();
        let mut next = open.shelf.set.at_least(key);
        for _ in 0..MOST_LOOKED_AT {
            let Some(slab) = next else {
                return (None, None);
            };
            // SAFETY: slab records are type-stable.
            let record = unsafe { slab.as_ref() };
            let units = spare_units(record, class, round, pages);
            if !units.is_empty() {
                record.purging.store(1, Ordering::Relaxed);
                return (Some(Found { slab, units }), Some(record.base() + 1));
            }
            full_barrier_after_rmw();
            if record.all_free(class, 0) {
                return (Some(Found { slab, units }), Some(record.base() + 1));
            }
            next = open.shelf.set.above(record.base());
        }
        // SAFETY: as above.
        (None, next.map(|slab| unsafe { slab.as_ref() }.base()))
    }

    /// Purges claimed units and withholds their blocks, then lets the slab go if it is empty.
    /// Returns how many bytes were purged.
    fn purge_found<S: Source>(&self, class: Class, found: &Found, source: &S) -> usize {
        // SAFETY: slab records are type-stable.
        let slab = unsafe { found.slab.as_ref() };
        let bytes = if found.units.is_empty() {
            0
        } else {
            self.purge_units(class, found, source)
        };
        if slab.all_free(class, 0) {
            self.retire_if_empty(slab, class, source);
        }
        bytes
    }

    fn purge_units<S: Source>(&self, class: Class, found: &Found, source: &S) -> usize {
        let purged = source.purge(found.slab, found.units);
        if purged {
            source.note_withheld(found.units.bytes() as isize);
        }
        // SAFETY: slab records are type-stable.
        self.settle(unsafe { found.slab.as_ref() }, class, found.units, purged);
        if purged { found.units.bytes() } else { 0 }
    }

    fn settle(&self, slab: &Slab, class: Class, units: Units, purged: bool) {
        let open = self.open();
        slab.purging.store(0, Ordering::Relaxed);
        if purged {
            slab.withhold(class, units);
        } else {
            slab.give_up(class, units);
        }
        // Whoever gives a block back sets its bit, then looks at what is withheld; here it is the
        // other way round.
        full_barrier_after_rmw();
        if slab.listed.load(Ordering::Relaxed) != UNLISTED {
            return;
        }
        match slab.any_free(class) {
            true => open.shelf.list(NonNull::from(slab)),
            false => open.shelf.reserve_if_withheld(NonNull::from(slab)),
        }
    }
}

/// Claims the spare units of a listed slab, if the round is about it. Under the depot's lock.
fn spare_units(slab: &Slab, class: Class, round: Round, pages: usize) -> Units {
    debug_assert_eq!(slab.listed.load(Ordering::Relaxed), LISTED);
    let idle = slab.idle.swap(1, Ordering::Relaxed) != 0;
    let others = round == Round::Idle && !idle || slab.is_purging();
    if others || slab.all_free(class, 0) {
        return Units::NONE;
    }
    match slab.spare(class, pages) {
        Units::NONE => Units::NONE,
        units => slab.claim_units(class, units),
    }
}
