//! Purging the pages inside partly used slabs that hold nothing but free blocks.
//!
//! Rounds are about half a decay time apart. If no thread has claimed blocks from a slab or given
//! blocks back to it since the last round, the round treats the slab's spare pages in three steps.
//! It claims them under the depot's lock. It purges them without the lock, while the claimed bits
//! pin the slab. It withholds them under the lock again. In between, the slab is marked: it does
//! not retire, and does not offer what it withholds. Threads that claim or give back at that time
//! find blocks missing, as if another thread held them. So at the end the round looks at the slab
//! once more: it may have become empty, or exhausted, in which case it joins the reserve.

use super::class::Class;
use super::depot::{Depot, Depots, Scope, Source};
use super::depot_id::DepotId;
use super::page_set::{PageSet, UNITS, bits_over, blocks_over, words_of};
use super::slab::{LISTED, Slab, UNLISTED, WORDS};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::sync::{Ordering, full_barrier_after_rmw};
use core::ops::Range;
use core::ptr::NonNull;

/// Most slabs looked at while a depot's lock is held.
const MOST_LOOKED_AT: usize = 32;

/// A slab with claimed units, or an empty slab without any.
struct Found {
    slab: NonNull<Slab>,
    units: PageSet,
}

/// How far a round has come: the depot and the address from which to continue.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    depot: Option<DepotId>,
    key: usize,
}

impl Cursor {
    /// At the start.
    pub fn start() -> Cursor {
        Cursor {
            depot: Some(DepotId::FIRST),
            key: 0,
        }
    }

    /// At the start of one depot.
    #[cfg(all(test, loom))]
    pub fn at(id: DepotId) -> Cursor {
        Cursor {
            depot: Some(id),
            key: 0,
        }
    }

    /// Whether it is still at that depot.
    #[cfg(all(test, loom))]
    pub fn is_at(&self, id: DepotId) -> bool {
        self.depot == Some(id)
    }

    fn go_on(&mut self, id: DepotId, key: Option<usize>) {
        *self = match key {
            Some(key) => Cursor {
                depot: Some(id),
                key,
            },
            None => Cursor {
                depot: id.next(),
                key: 0,
            },
        };
    }
}

impl Slab {
    /// The OS pages, as units, of which every block is free or withheld, but for those that are
    /// withheld already. A slice has `pages` OS pages. A snapshot.
    pub(super) fn spare(&self, class: Class, pages: usize) -> PageSet {
        let withheld = self.withheld();
        let mut free = [0; WORDS];
        for (word, bits) in self.words(class).iter().enumerate() {
            free[word] = bits.load(Ordering::Relaxed) | bits_over(class, withheld, word);
        }
        let spare = PageSet::all(|unit| {
            words_of(blocks_over(class, &(unit..unit + 1)))
                .all(|(word, bits)| free[word] & bits == bits)
        });
        PageSet::of_pages(spare.whole_pages(pages), pages).without(withheld)
    }

    /// Claims all blocks that touch `units`, for the slab itself. Returns the units all of whose
    /// blocks it got. Until [`Slab::withhold`] or [`Slab::give_up`] they pin the slab.
    fn claim_units(&self, class: Class, units: PageSet) -> PageSet {
        let withheld = self.withheld();
        let mut missed = [0; WORDS];
        for (word, bits) in self.words(class).iter().enumerate() {
            let wanted = bits_over(class, units, word) & !bits_over(class, withheld, word);
            if wanted != 0 {
                missed[word] = wanted & !bits.fetch_and(!wanted, Ordering::AcqRel);
            }
        }
        let got = units.without(PageSet::all(|unit| {
            let mut words = words_of(blocks_over(class, &(unit..unit + 1)));
            words.any(|(word, bits)| missed[word] & bits != 0)
        }));
        let rest = units.without(got);
        self.set_bits(class, |word| {
            let kept = bits_over(class, got.with(withheld), word) | missed[word];
            bits_over(class, rest, word) & !kept
        });
        got
    }

    /// Sets these bits in every word.
    fn set_bits(&self, class: Class, bits: impl Fn(usize) -> u64) {
        for (word, held) in self.words(class).iter().enumerate() {
            match bits(word) {
                0 => {}
                bits => _ = held.fetch_or(bits, Ordering::AcqRel),
            }
        }
    }

    /// Withholds the blocks of claimed units, whose pages were purged. Under the depot's lock.
    pub(super) fn withhold(&self, class: Class, units: PageSet) {
        self.add_withheld(units);
        // Blocks that lie in purged pages alone read as zero, and no thread can claim them now.
        self.fresh
            .fetch_or(class.fresh_blocks(units.0, UNITS), Ordering::Relaxed);
    }

    /// Makes the blocks of claimed units free again, which could not be purged. Under the depot's
    /// lock.
    pub(super) fn give_up(&self, class: Class, units: PageSet) {
        let withheld = self.withheld();
        self.set_bits(class, |word| {
            bits_over(class, units, word) & !bits_over(class, withheld, word)
        });
    }

    /// Offers all blocks that are withheld. Under the depot's lock.
    pub(super) fn offer_all(&self, class: Class) {
        let units = self.take_withheld();
        self.set_bits(class, |word| bits_over(class, units, word));
        self.lowest.store(0, Ordering::Relaxed);
    }
}

impl Depots {
    /// A step of a round, bounded in time: lets go of one warm slab that has been empty since
    /// `empty_since` (ms) or longer, or purges the spare pages of one slab in use, if the round is
    /// about `pages`. Returns how many bytes it purged; `None` at the end. The caller lets no fork
    /// come between.
    pub fn decay<S: Source>(
        &self,
        empty_since: u64,
        pages: Option<Scope>,
        cursor: &mut Cursor,
        source: &S,
    ) -> Option<usize> {
        let pages = pages.filter(|scope| !source.keeps_pages(*scope));
        while let Some(id) = cursor.depot {
            let depot = self.of(id);
            // Most never do, those of metadata above all.
            if !depot.has_served.load(Relaxed) {
                cursor.go_on(id, None);
                continue;
            }
            if cursor.key == 0 && depot.cool(id, empty_since, source) {
                // Past this, before every slab.
                cursor.key = 1;
                return Some(0);
            }
            let seen = pages
                .and_then(|scope| depot.find_spare(id.class, cursor.key, scope, source.pages()));
            cursor.go_on(id, seen.as_ref().and_then(|(_, next)| *next));
            if let Some((found, _)) = seen {
                return Some(found.map_or(0, |found| depot.purge_found(id, &found, source)));
            }
        }
        None
    }
}

impl Depot {
    /// Looks at slabs from the address `key` on, until one has spare pages, which it claims, or is
    /// empty: while blocks were claimed needlessly, the thread that gave the last one back did not
    /// see that it was. Also the address to go on from; `None` at the end. No result at all
    /// if the depot has no slab there.
    fn find_spare(
        &self,
        class: Class,
        key: usize,
        scope: Scope,
        pages: usize,
    ) -> Option<(Option<Found>, Option<usize>)> {
        let open = self.open();
        let mut next = Some(open.sets.set.at_least(key)?);
        for _ in 0..MOST_LOOKED_AT {
            let Some(slab) = next else {
                return Some((None, None));
            };
            // SAFETY: slab records are type-stable.
            let record = unsafe { slab.as_ref() };
            let units = spare_units(record, class, scope, pages);
            match units.is_empty() {
                true => full_barrier_after_rmw(),
                false => record.purging.store(1, Ordering::Relaxed),
            }
            if !units.is_empty() || record.all_free(class, 0) {
                return Some((Some(Found { slab, units }), Some(record.base() + 1)));
            }
            next = open.sets.set.above(record.base());
        }
        // SAFETY: as above.
        Some((None, next.map(|slab| unsafe { slab.as_ref() }.base())))
    }

    /// Purges claimed units and withholds their blocks, then lets the slab go if it is empty.
    /// Returns how many bytes were purged.
    fn purge_found<S: Source>(&self, id: DepotId, found: &Found, source: &S) -> usize {
        // SAFETY: slab records are type-stable.
        let slab = unsafe { found.slab.as_ref() };
        let (units, mut bytes) = (found.units, 0);
        if !units.is_empty() {
            let purged = source.purge(found.slab, units);
            if purged {
                bytes = units.bytes();
                source.note_withheld(bytes as isize);
            }
            self.settle(slab, id.class, units, purged);
        }
        if slab.all_free(id.class, 0) {
            self.retire_if_empty(slab, id, source);
        }
        bytes
    }

    fn settle(&self, slab: &Slab, class: Class, units: PageSet, purged: bool) {
        let open = self.open();
        slab.purging.store(0, Ordering::Relaxed);
        if purged {
            slab.withhold(class, units);
        } else {
            slab.give_up(class, units);
        }
        // A thread that gives a block back sets its bit, then looks at what is withheld. Here the
        // order is reversed.
        full_barrier_after_rmw();
        if slab.listed.load(Ordering::Relaxed) != UNLISTED {
            return;
        }
        match slab.any_free(class) {
            true => open.sets.list(NonNull::from(slab)),
            false => open.sets.reserve_if_withheld(NonNull::from(slab)),
        }
    }
}

/// Claims the spare units of a listed slab, if it is in scope. Under the depot's lock.
fn spare_units(slab: &Slab, class: Class, scope: Scope, pages: usize) -> PageSet {
    debug_assert_eq!(slab.listed.load(Ordering::Relaxed), LISTED);
    let is_idle = slab.is_idle();
    let others = scope == Scope::Idle && !is_idle || slab.is_purging();
    if others || slab.all_free(class, 0) {
        return PageSet::NONE;
    }
    match slab.spare(class, pages) {
        PageSet::NONE => PageSet::NONE,
        units => slab.claim_units(class, units),
    }
}

impl Slab {
    /// Bytes of a range of the slab that belong to free blocks, withheld ones among them. Offsets
    /// from the slab's start. A snapshot.
    pub fn free_bytes(&self, class: Class, range: Range<usize>) -> usize {
        if self.words(class).is_empty() {
            // The slice has its tag, and is about to be carved for the first time.
            return 0;
        }
        let size = class.bytes();
        let last = range.end.min(class.blocks() * size);
        if range.start >= last {
            return 0;
        }
        let (first, end) = (range.start / size, last.div_ceil(size));
        let free = words_of(first..end).map(|(word, bits)| {
            let held = self.words(class)[word].load(Ordering::Relaxed);
            ((held | self.withheld_bits(class, word)) & bits).count_ones() as usize
        });
        let beyond = |block, bytes| bytes * usize::from(self.is_free(class, block));
        (free.sum::<usize>() * size)
            .saturating_sub(beyond(first, range.start - first * size))
            .saturating_sub(beyond(end - 1, end * size - last))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::sync::plain::AtomicBool;
    use crate::base::units::SLICE_BYTES;
    use crate::slab::depot_id::DepotId;
    use crate::slab::{FarWords, Slice};
    use crate::testing::slab_model::{Slices, give, purge_spare, take, take_all};
    use core::ptr::NonNull;
    use std::boxed::Box;
    use std::sync::Barrier;
    use std::time::Duration;
    use std::vec::Vec;

    #[test]
    fn pages_of_free_blocks_are_purged_once_they_idle() {
        let (depots, slices) = (Depots::new(), Slices::new(2));
        let class = Class::of_size(1024);
        let blocks = take_all(&depots, &slices, class, 64);
        for &block in &blocks {
            slices.touch(block, class);
        }
        // Free but for one block in page 3, and one of page 7's four.
        for &block in blocks
            .iter()
            .filter(|&block| ![12, 31].contains(&(block % 65536 / 1024)))
        {
            give(&depots, &slices, class, block).unwrap();
        }
        assert_eq!(
            purge_spare(&depots, &slices, Scope::Idle),
            0,
            "in use a moment ago"
        );
        assert_eq!(purge_spare(&depots, &slices, Scope::Idle), 14 * 4096);
        assert_eq!(slices.resident.borrow()[0], 1 << 3 | 1 << 7);
        assert_eq!(
            purge_spare(&depots, &slices, Scope::All),
            0,
            "what is withheld is not purged again"
        );
        let slab = &slices.slabs[0];
        assert_eq!((slab.free_blocks(), slab.withheld_blocks(class)), (6, 56));
        assert!(slab.is_free(class, 0) && !slab.is_free(class, 12));
        // Resident blocks first; then those withheld, before a slice that is not resident.
        let next = take_all(&depots, &slices, class, 6);
        assert!(next.iter().all(|&block| slices.touch(block, class) == 0));
        assert_eq!(take(&depots, &slices, class, 1), [1 << 16]);
        assert_eq!(slices.free().len(), 1);
    }

    #[test]
    fn a_round_takes_no_lock_of_a_depot_that_never_had_a_slab() {
        let (depots, slices) = (Depots::new(), Slices::new(1));
        let class = Class::of_size(1024);
        let blocks = take_all(&depots, &slices, class, 64);
        give(&depots, &slices, class, blocks[0]).unwrap();
        let ids = DepotId::all().zip(depots.locks());
        let unused = ids.filter(|(id, _)| *id != DepotId::blocks(class));
        let locks: Vec<_> = unused.map(|(_, lock)| lock).collect();
        let (held, done) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _guards: Vec<_> = locks.iter().map(|lock| lock.try_lock().unwrap()).collect();
                held.wait();
                // Else the round waits for them.
                (0..20_000).any(|_| {
                    std::thread::sleep(Duration::from_millis(1));
                    done.load(Relaxed)
                })
            });
            held.wait();
            let mut cursor = Cursor::start();
            while depots
                .decay(0, Some(Scope::All), &mut cursor, &slices)
                .is_some()
            {}
            done.store(true, Relaxed);
            assert!(holder.join().unwrap(), "the round waited");
        });
    }

    #[test]
    fn a_free_of_a_withheld_block_is_the_second() {
        let (depots, slices) = (Depots::new(), Slices::new(1));
        let class = Class::of_size(4096);
        let blocks = take_all(&depots, &slices, class, 16);
        give(&depots, &slices, class, blocks[2]).unwrap();
        assert_eq!(purge_spare(&depots, &slices, Scope::All), 4096);
        assert_eq!(give(&depots, &slices, class, blocks[2]), Err(1 << 2));
    }

    #[test]
    fn a_slab_of_withheld_blocks_retires_when_the_others_are_back() {
        let (depots, slices) = (Depots::new(), Slices::new(3));
        let class = Class::of_size(4096);
        let blocks = take_all(&depots, &slices, class, 48);
        blocks[1..16]
            .iter()
            .for_each(|&block| give(&depots, &slices, class, block).unwrap());
        assert_eq!(purge_spare(&depots, &slices, Scope::All), 15 * 4096);
        blocks[16..]
            .iter()
            .for_each(|&block| give(&depots, &slices, class, block).unwrap());
        give(&depots, &slices, class, blocks[0]).unwrap();
        depots.cool(u64::MAX, &slices);
        assert_eq!(slices.free().len(), 3);
    }

    #[test]
    fn pages_that_cannot_be_purged_are_free_as_before() {
        let (depots, slices) = (Depots::new(), Slices::new(1));
        let class = Class::of_size(4096);
        let blocks = take_all(&depots, &slices, class, 16);
        give(&depots, &slices, class, blocks[2]).unwrap();
        slices.refuses.set(true);
        assert_eq!(purge_spare(&depots, &slices, Scope::All), 0);
        assert_eq!(take(&depots, &slices, class, 1), [blocks[2]]);
    }

    #[test]
    fn withheld_pages_that_a_limit_does_not_admit_stay_withheld() {
        let (depots, slices) = (Depots::new(), Slices::new(1));
        let class = Class::of_size(4096);
        let blocks = take_all(&depots, &slices, class, 16);
        give(&depots, &slices, class, blocks[2]).unwrap();
        assert_eq!(purge_spare(&depots, &slices, Scope::All), 4096);
        slices.is_full.set(true);
        assert_eq!(take(&depots, &slices, class, 1), []);
        assert_eq!(slices.slabs[0].withheld_blocks(class), 1);
        slices.is_full.set(false);
        assert_eq!(take(&depots, &slices, class, 1), [blocks[2]]);
    }

    #[test]
    fn a_slice_with_one_resident_page_is_used_for_that_page_first() {
        let (depots, slices) = (Depots::new(), Slices::new(4));
        // As after four coroutines of one page each.
        slices.resident.borrow_mut().fill(1 << 15);
        for size in [4096, 1000] {
            let class = Class::of_size(size);
            let per_page = 4096 / class.bytes();
            let blocks = take_all(&depots, &slices, class, 4 * per_page);
            let faults: u32 = blocks.iter().map(|&block| slices.touch(block, class)).sum();
            assert_eq!(faults, 0, "blocks of {size} bytes");
            let more = take(&depots, &slices, class, 1);
            assert_eq!(slices.touch(more[0], class), 1, "then a page is faulted in");
            for block in blocks.into_iter().chain(more) {
                give(&depots, &slices, class, block).unwrap();
            }
            depots.cool(u64::MAX, &slices);
            assert_eq!(slices.free().len(), 4);
            slices.resident.borrow_mut().fill(1 << 15);
        }
    }

    /// A slab of `class` of which every third block is out.
    fn thinned(class: Class) -> Slab {
        let slab = Slab::blank();
        let far: &mut FarWords = Box::leak(Box::new(
            [const { crate::base::sync::AtomicU64::new(0) }; super::super::WORDS],
        ));
        let slice = Slice {
            record: NonNull::from(&slab),
            base: 1 << 16,
            zero: 0,
            far: NonNull::from(far),
        };
        // SAFETY: leaked, so it stays.
        unsafe { slab.carve(DepotId::blocks(class), &slice, 16) };
        for block in (0..class.blocks()).step_by(3) {
            slab.words(class)[block / 64].fetch_and(!(1 << (block % 64)), Ordering::Relaxed);
        }
        slab
    }

    #[test]
    fn a_slice_that_is_about_to_be_carved_has_no_free_bytes() {
        for class in [16, 64, 512, 4096].map(Class::of_size) {
            assert_eq!(Slab::blank().free_bytes(class, 0..SLICE_BYTES), 0);
        }
    }

    #[test]
    fn free_bytes_agree_with_counting_byte_by_byte() {
        for size in [8, 24, 48, 160, 1000, 3000, 5000, 32 << 10] {
            let class = Class::of_size_align8(size);
            let slab = thinned(class);
            let is_free = |byte: usize| {
                let block = byte / class.bytes();
                block < class.blocks() && slab.is_free(class, block)
            };
            for (from, to) in [
                (0, 4096),
                (4096, 8192),
                (100, 101),
                (5, 60_000),
                (61_440, 65_536),
            ] {
                let naive = (from..to).filter(|&byte| is_free(byte)).count();
                assert_eq!(
                    slab.free_bytes(class, from..to),
                    naive,
                    "{size} {from}..{to}"
                );
            }
        }
    }
}
