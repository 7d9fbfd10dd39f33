//! Huge pages, used where a process fills them.
//!
//! The kernel makes a huge page resident in a sixth of the time of its 512 pages, and all of them
//! at once. So Neap asks for them in *units* only: whole huge pages at the frontier that slabs are
//! carved from once the process has many slabs. Slabs fill these from the lowest address on, so at
//! most the last one is partly empty. Slices of a unit are marked one by one. Free slices that were
//! never touched go only to slabs, and merge with nothing beyond the unit. A unit that is all free
//! is purged whole, and stays one. Before pages of another are purged, Neap splits the unit and
//! makes it an ordinary part of the arena. Otherwise the kernel would keep the rest of the huge
//! page as a whole, or reassemble the huge page that Neap asked it to split. Ordinary free memory
//! becomes units when slabs would otherwise be carved from it.
//!
//! Advice splits mappings, whose number is limited. So units are opened in batches that grow with
//! the slabs. Where units were split, Neap tells the kernel to use no huge pages. Each such range
//! among intact units is a mapping of its own, and separates its neighbours. So beyond
//! [`MOST_RANGES`] Neap joins a split unit to the nearest range, with everything in between. The
//! units in between keep their huge pages until they are split themselves. Pages that are faulted
//! in there later are ordinary ones.

use super::arena::{Arena, MAX_ARENAS};
use crate::base::units::{HUGE_BYTES, HUGE_SLICES, SLICE_BYTES};
use crate::os::Huge;
use core::ops::Range;

/// From this size of all slabs on, new slabs come from units, so that the last, partly empty unit
/// is at most a quarter of them. Decision 9 compares this bound with 32 MiB.
const LEAST_SLAB_BYTES: usize = 8 << 20;

/// A batch of units is this part of all slabs ...
const BATCH_PART: usize = 8;
/// ... and at most this many units (128 MiB): their tables are touched at once.
const MOST_UNITS: usize = 64;

/// A large block may have huge pages if they make at most one part in this many of its span
/// resident beyond the requested bytes.
const WASTE_PART: usize = 8;

/// Whether a huge page would waste memory at the end of a span of which `bytes` bytes were
/// requested. Only a span of less than a huge page can have so much there.
pub(super) fn wastes(slices: usize, bytes: usize) -> bool {
    let all = slices * SLICE_BYTES;
    all.saturating_sub(bytes) > all / WASTE_PART
}

/// Sets for all slices of the unit at `from` whether they are huge.
pub(super) fn mark(arena: &Arena, from: usize, advice: Huge) {
    (from..from + HUGE_SLICES).for_each(|index| arena.record(index).set_huge(advice));
}
/// When slabs come from huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Policy {
    /// In processes with many slabs.
    Auto = 0,
    /// Never.
    Never = 1,
    /// From the first slab on; and arenas as a whole may have huge pages.
    Always = 2,
}

/// The most ranges, except that every arena may have one.
const MOST_RANGES: usize = 48;
const ROOM: usize = MOST_RANGES + MAX_ARENAS;

/// The ranges, in no order; no two of them touch.
#[derive(Debug)]
pub(super) struct SplitUnits {
    ranges: [(usize, usize); ROOM],
    count: usize,
}

impl SplitUnits {
    pub(super) const fn new() -> Self {
        Self {
            ranges: [(0, 0); ROOM],
            count: 0,
        }
    }

    /// Adds a unit of an arena. Returns the range about which to advise the kernel: the unit, and
    /// if there are already too many ranges, what lies between it and the nearest. `None` if it
    /// already has this advice, or would need it for more than `most` bytes.
    pub(super) fn include(
        &mut self,
        unit: Range<usize>,
        arena: Range<usize>,
        most: usize,
    ) -> Option<Range<usize>> {
        let mut told = usize::MAX;
        let mut reach = unit.clone();
        for &(from, to) in self.known() {
            if from <= unit.start && unit.end <= to {
                return None;
            }
            let joined = match to <= unit.start {
                true => to..unit.end,
                false => unit.start..from,
            };
            if arena.start < to && from < arena.end && joined.len() < told {
                told = joined.len();
                reach = joined;
            }
        }
        if self.count < MOST_RANGES {
            reach = unit;
        }
        (reach.len() <= most).then(|| {
            self.insert(reach.clone());
            reach
        })
    }

    /// Forgets units that are about to have huge pages again. False if they are to have none,
    /// because they would leave too many ranges.
    pub(super) fn exclude(&mut self, units: &Range<usize>) -> bool {
        let inside = |&(from, to): &(usize, usize)| from < units.start && units.end < to;
        if self.count >= MOST_RANGES && self.known().iter().any(inside) {
            return false;
        }
        let overlaps = |&(from, to): &(usize, usize)| from < units.end && units.start < to;
        while let Some(at) = self.known().iter().position(overlaps) {
            let (from, to) = self.take(at);
            let rests = [from..units.start, units.end..to].into_iter();
            rests
                .filter(|rest| !rest.is_empty())
                .for_each(|rest| self.insert(rest));
        }
        true
    }

    /// The first part of a range about which the kernel was told.
    pub(super) fn told_in(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let parts = self.known().iter();
        let parts = parts.map(|&(from, to)| from.max(range.start)..to.min(range.end));
        let parts = parts.filter(|part| !part.is_empty());
        parts.min_by_key(|part| part.start)
    }

    fn known(&self) -> &[(usize, usize)] {
        &self.ranges[..self.count]
    }

    /// Adds a range, joined with those that it touches.
    fn insert(&mut self, mut new: Range<usize>) {
        let touches =
            |new: &Range<usize>, known: &(usize, usize)| known.0 <= new.end && new.start <= known.1;
        while let Some(at) = self.known().iter().position(|known| touches(&new, known)) {
            let (from, to) = self.take(at);
            new = from.min(new.start)..to.max(new.end);
        }
        self.ranges[self.count] = (new.start, new.end);
        self.count += 1;
    }

    fn take(&mut self, at: usize) -> (usize, usize) {
        self.count -= 1;
        self.ranges.swap(at, self.count);
        self.ranges[self.count]
    }
}

impl Policy {
    /// How many units to open at once for another slab, given `slabs` bytes of slabs; 0: none.
    pub(super) fn batch(self, slabs: usize) -> usize {
        let wanted = match self {
            Self::Auto => slabs >= LEAST_SLAB_BYTES,
            Self::Never => false,
            Self::Always => true,
        };
        match wanted {
            true => (slabs / BATCH_PART / HUGE_BYTES).clamp(1, MOST_UNITS),
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    const ARENA: Range<usize> = 0..1 << 20;

    /// Adds units of length 1, and checks that the advice given covers them and equals what is
    /// noted.
    fn include_all(split: &mut SplitUnits, units: impl Iterator<Item = usize>) -> BTreeSet<usize> {
        let mut told = BTreeSet::new();
        for unit in units {
            told.extend(
                split
                    .include(unit..unit + 1, ARENA, usize::MAX)
                    .into_iter()
                    .flatten(),
            );
            assert!(told.contains(&unit));
            assert_eq!(split.include(unit..unit + 1, ARENA, usize::MAX), None);
        }
        let noted: BTreeSet<_> = split.known().iter().flat_map(|r| r.0..r.1).collect();
        assert_eq!(told, noted);
        let mut known = split.known().to_vec();
        known.sort_unstable();
        let apart = |pair: &[(usize, usize)]| pair[0].1 < pair[1].0;
        assert!(known.windows(2).all(apart), "{known:?}");
        told
    }

    #[test]
    fn neighbours_join() {
        let mut split = SplitUnits::new();
        include_all(&mut split, [5, 7, 6, 9, 4].into_iter());
        assert_eq!(split.count, 2);
        assert_eq!(split.include(8..9, ARENA, usize::MAX), Some(8..9));
        assert_eq!(split.known(), [(4, 10)]);
        assert!(split.exclude(&(6..8)) && split.exclude(&(0..5)));
        assert_eq!(split.known(), [(8, 10), (5, 6)]);
    }

    #[test]
    fn ranges_are_few_whatever_is_split() {
        for step in [2, 3, 7, 101] {
            let mut split = SplitUnits::new();
            let units: Vec<_> = (0..3000).map(|unit| unit * step % 3001).collect();
            include_all(&mut split, units.into_iter().filter(|unit| unit % 2 == 0));
            assert!(split.count <= MOST_RANGES);
        }
    }

    #[test]
    fn too_many_join_the_nearest() {
        let mut split = SplitUnits::new();
        include_all(&mut split, (0..MOST_RANGES).map(|unit| unit * 100));
        assert_eq!(split.include(130..131, ARENA, 29), None);
        assert_eq!(split.include(130..131, ARENA, 30), Some(101..131));
        assert_eq!(split.include(270..271, ARENA, usize::MAX), Some(270..300));
        assert_eq!(split.count, MOST_RANGES);
        assert!(!split.exclude(&(110..120)), "it would part one");
        // An arena without a range gets one.
        let other = 2 << 20..3 << 20;
        let unit = other.start + 4..other.start + 5;
        assert_eq!(
            split.include(unit.clone(), other.clone(), usize::MAX),
            Some(unit)
        );
        let second = other.start + 8..other.start + 9;
        assert_eq!(
            split.include(second, other.clone(), usize::MAX),
            Some(other.start + 5..other.start + 9)
        );
    }
}
