//! Huge pages, used where a process fills them.
//!
//! The kernel makes a huge page resident in a sixth of the time of its 512 pages, and all of them
//! at once. So Neap asks for them in *units* only: whole huge pages at the frontier that slabs are
//! carved from once the process has many slabs. Slabs fill these from the lowest address on, so at
//! most the last one is partly empty. Slices of a unit are marked one by one. Free slices that were
//! never touched go only to slabs, and merge with nothing beyond the unit. Before any page of a
//! unit is purged, Neap splits the unit and makes it an ordinary part of the arena for good.
//! Otherwise the kernel would keep the rest of the huge page as a whole, or reassemble the huge
//! page that Neap asked it to split.
//!
//! Advice splits mappings, whose number is limited. So units are opened in batches that grow with
//! the slabs. Where units were split, Neap tells the kernel to use no huge pages. Each such range
//! among intact units is a mapping of its own, and separates its neighbours. So beyond
//! [`MOST_RANGES`] Neap joins a split unit to the nearest range, with everything in between. The
//! units in between keep their huge pages until they are split themselves. Pages that are faulted
//! in there later are ordinary ones.

use super::arena::{Arena, MAX_ARENAS};
use super::span::State;
use crate::base::units::{HUGE_BYTES, HUGE_SLICES};
use crate::os::Huge;
use core::ops::Range;

/// From this size of all slabs on, new slabs come from units, so that the last, partly empty unit
/// is at most a thirtieth of them.
const LEAST_SLAB_BYTES: usize = 64 << 20;

/// A batch of units is this part of all slabs ...
const BATCH_PART: usize = 8;
/// ... and at most this many units (128 MiB): their tables are touched at once.
const MOST_UNITS: usize = 64;

/// The first slices of the free spans of a unit, as bits. No span passes its ends.
pub(super) fn free_in_unit(arena: &Arena, from: usize) -> u32 {
    let (mut index, mut free) = (from, 0);
    while index < from + HUGE_SLICES {
        let record = arena.record(index);
        if record.state() == State::Free {
            free |= 1 << (index - from);
        }
        index = record.end();
    }
    free
}

/// Sets for all slices of the unit at `from` whether they are huge.
pub(super) fn mark(arena: &Arena, from: usize, advice: Huge) {
    (from..from + HUGE_SLICES).for_each(|index| arena.record(index).set_huge(advice == Huge::Want));
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

/// The ranges, lowest first; no two of them touch.
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

    /// Adds a unit of an arena. Returns the range about which to advise the kernel; `None` if it
    /// already has this advice, or would need it for more than `most` bytes.
    pub(super) fn include(
        &mut self,
        unit: Range<usize>,
        arena: Range<usize>,
        most: usize,
    ) -> Option<Range<usize>> {
        // The first range that does not end before the unit, and so may hold it.
        let next = self.known().partition_point(|range| range.1 < unit.start);
        let holds = |range: &(usize, usize)| range.0 <= unit.start && unit.end <= range.1;
        if self.known().get(next).is_some_and(holds) {
            return None;
        }
        let told = self.reach(next, unit, &arena);
        (told.len() <= most).then(|| {
            self.insert(told.clone());
            told
        })
    }

    /// The first part of a range about which the kernel was told.
    pub(super) fn told_in(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let next = self.known().partition_point(|told| told.1 <= range.start);
        let &(from, to) = self.known().get(next)?;
        let part = from.max(range.start)..to.min(range.end);
        (!part.is_empty()).then_some(part)
    }

    fn known(&self) -> &[(usize, usize)] {
        &self.ranges[..self.count]
    }

    /// The unit, together with what lies between it and the nearest range if there are already too
    /// many ranges.
    fn reach(&self, next: usize, unit: Range<usize>, arena: &Range<usize>) -> Range<usize> {
        let before = next.checked_sub(1).map(|before| self.ranges[before].1);
        let before = before.filter(|&end| end > arena.start);
        let after = self.known().get(next).map(|range| range.0);
        let after = after.filter(|&start| start < arena.end);
        let touches = after.is_some_and(|start| start <= unit.end);
        if touches || self.count < MOST_RANGES {
            return unit;
        }
        let gap_before = before.map_or(usize::MAX, |end| unit.start - end);
        let gap_after = after.map_or(usize::MAX, |start| start - unit.end);
        match (before, after) {
            (Some(end), _) if gap_before <= gap_after => end..unit.end,
            (_, Some(start)) => unit.start..start,
            // The first of its arena.
            _ => unit,
        }
    }

    /// Adds a range, joined with those that it touches.
    fn insert(&mut self, new: Range<usize>) {
        let from = self.known().partition_point(|range| range.1 < new.start);
        let to = self.known().partition_point(|range| range.0 <= new.end);
        let joined = match self.known().get(from..to) {
            Some([first, .., last]) => (first.0.min(new.start), last.1.max(new.end)),
            Some([only]) => (only.0.min(new.start), only.1.max(new.end)),
            _ => (new.start, new.end),
        };
        if from == to {
            self.ranges.copy_within(from..self.count, from + 1);
        } else {
            self.ranges.copy_within(to..self.count, from + 1);
        }
        self.ranges[from] = joined;
        self.count = self.count + 1 - (to - from);
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
        let apart = |pair: &[(usize, usize)]| pair[0].1 < pair[1].0;
        assert!(split.known().windows(2).all(apart), "{:?}", split.known());
        told
    }

    #[test]
    fn neighbours_join() {
        let mut split = SplitUnits::new();
        include_all(&mut split, [5, 7, 6, 9, 4].into_iter());
        assert_eq!(split.known(), [(4, 8), (9, 10)]);
        assert_eq!(split.include(8..9, ARENA, usize::MAX), Some(8..9));
        assert_eq!(split.known(), [(4, 10)]);
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
