//! Where everything stands in an arena: [`super::arena`] has the picture.

use super::span::RECORD_BYTES;
use crate::base::units::{HUGE_SLICES, SLICE_BYTES, SLICE_SHIFT};
use core::ops::Range;

/// Slices whose metadata is committed together (fewer in an arena that has fewer).
const GROUP_SLICES: usize = 1024;
/// A claimed arena maps the addresses of at least this many groups (of 256 MiB of slices), and of
/// twice as many as it uses, because groups cannot grow once the process has as many mappings as it
/// may.
const GROUPS_MAPPED: usize = 4;
/// In an arena of this many slices (1 GiB) or more, the slices begin in the middle of a 2 MiB
/// range. The slices and the end of the arena's tables then share a page of the kernel's page
/// tables, and a fork copies one less.
const AMPLE: usize = (1 << 30) / SLICE_BYTES;
/// Smallest group: one word of commit bits needs no care for its end.
const GROUP_MIN: usize = 64;

/// The layout of an arena. It never changes once the arena is published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Address of slice 0.
    pub(super) base: usize,
    /// Slices in the range.
    pub(super) slices: usize,
    /// Whether the range is only mapped as far as it is used.
    pub(super) claimed: bool,
    /// Leading slices that hold the tables.
    pub(super) head: usize,
    /// OS pages in a slice.
    pub(super) pages_per_slice: usize,
    pub(super) group_shift: u32,
    pub(super) group_bytes: usize,
    pub(super) far_at: usize,
    pub(super) sides: Sides,
    /// Where the record of the first slice is: its address, once the base is known.
    records_at: usize,
    /// How far below the end of one group's records those of the next begin.
    record_gap: usize,
    /// Where the near side entry of the first slice is: its address, once the base is known.
    pub(super) side_at: usize,
    /// How far below the end of one group's near side entries those of the next begin.
    pub(super) side_gap: usize,
}

/// Bytes of the entries that a slice has beside the page heap's own, for its user; multiples of 64.
#[derive(Clone, Copy, Debug)]
pub struct Sides {
    /// Of the one that is close to its neighbours'.
    pub near: usize,
    /// Of the one that is apart, for data that few slices need.
    pub far: usize,
}

impl Layout {
    pub(super) const EMPTY: Self = Self {
        base: 0,
        slices: 0,
        claimed: false,
        head: 0,
        pages_per_slice: 0,
        group_shift: 0,
        group_bytes: 0,
        far_at: 0,
        sides: Sides { near: 0, far: 0 },
        records_at: 0,
        record_gap: 0,
        side_at: 0,
        side_gap: 0,
    };

    /// How `slices` slices would be laid out, base still 0.
    pub(super) fn plan(slices: usize, sides: Sides, page_bytes: usize) -> Self {
        let group = slices.next_power_of_two().clamp(GROUP_MIN, GROUP_SLICES);
        let masks_at = group / 8;
        let records_at = (masks_at + 2 * group).next_multiple_of(RECORD_BYTES);
        let side_at = records_at + RECORD_BYTES * group;
        let far_at = side_at + sides.near * group;
        let group_bytes = (far_at + sides.far * group).next_multiple_of(page_bytes);
        let tags = slices.next_multiple_of(page_bytes);
        let tables = tags + slices.div_ceil(group) * group_bytes;
        let head = tables.div_ceil(SLICE_BYTES);
        Self {
            base: 0,
            slices,
            claimed: false,
            head: match slices >= AMPLE {
                true => head.next_multiple_of(HUGE_SLICES) + HUGE_SLICES / 2,
                false => head,
            },
            pages_per_slice: (SLICE_BYTES / page_bytes).max(1),
            group_shift: group.trailing_zeros(),
            group_bytes,
            far_at,
            sides,
            records_at,
            record_gap: group_bytes + RECORD_BYTES * group,
            side_at,
            side_gap: group_bytes + sides.near * group,
        }
    }

    /// The smallest plan with at least `usable` slices beside the tables; `None` beyond the address
    /// space.
    pub(super) fn plan_for(usable: usize, sides: Sides, page_bytes: usize) -> Option<Self> {
        let mut plan = Self::plan(usable, sides, page_bytes);
        while plan.slices - plan.head.min(plan.slices) < usable {
            let slices = usable.checked_add(plan.head.max(plan.slices - usable + 1))?;
            slices.checked_mul(SLICE_BYTES)?;
            plan = Self::plan(slices, sides, page_bytes);
        }
        Some(plan)
    }

    /// The plan, laid out at `base`.
    pub(super) fn at(self, base: usize, claimed: bool) -> Self {
        let first_group = base + (self.head << SLICE_SHIFT) - self.group_bytes;
        Self {
            base,
            claimed,
            records_at: first_group + self.records_at,
            side_at: first_group + self.side_at,
            ..self
        }
    }

    /// The addresses of the arena.
    pub(super) fn range(&self) -> Range<usize> {
        self.base..self.base + (self.slices << SLICE_SHIFT)
    }

    /// Bytes in an OS page, as far as masks are concerned.
    pub(super) fn page_bytes(&self) -> usize {
        SLICE_BYTES / self.pages_per_slice
    }

    /// The mask of a slice all of whose pages may be dirty.
    pub(super) fn full_mask(&self) -> u16 {
        u16::MAX >> (16 - self.pages_per_slice)
    }

    /// Address of a slice.
    pub(super) fn address(&self, index: usize) -> usize {
        self.base + (index << SLICE_SHIFT)
    }

    /// First slice at or after `index` whose address is a multiple of `align_slices` slices.
    pub(super) fn align_up(&self, index: usize, align_slices: usize) -> usize {
        let first = self.base >> SLICE_SHIFT;
        (first + index).next_multiple_of(align_slices) - first
    }

    /// Address of a slice's record.
    #[inline]
    pub(super) fn record_of(&self, index: usize) -> usize {
        let slot = index - self.head;
        self.records_at + slot * RECORD_BYTES - (slot >> self.group_shift) * self.record_gap
    }

    /// Address of a slice's near side entry. The caller states how many `bytes` an entry has: for
    /// most it is a constant.
    #[inline(always)]
    pub(super) fn side_of(&self, index: usize, bytes: usize) -> usize {
        debug_assert_eq!(bytes, self.sides.near);
        let slot = index - self.head;
        (self.side_at + slot * bytes) - (slot >> self.group_shift) * self.side_gap
    }

    /// The group of a slice (its start address), and the slice's place in it.
    pub(super) fn group_of(&self, index: usize) -> (usize, usize) {
        let slot = index - self.head;
        (
            self.address(self.head) - ((slot >> self.group_shift) + 1) * self.group_bytes,
            slot & ((1 << self.group_shift) - 1),
        )
    }

    /// The groups that slices below `index` need: how many, and the address of the last.
    pub(super) fn groups_below(&self, index: usize) -> (usize, usize) {
        let count = (index - self.head).div_ceil(1 << self.group_shift);
        (count, self.address(self.head) - count * self.group_bytes)
    }

    /// Address of the last group that a claimed arena should have mapped once slices below `index`
    /// have groups.
    pub(super) fn groups_ahead(&self, index: usize) -> usize {
        let (count, _) = self.groups_below(index);
        let most = self.slices.div_ceil(1 << self.group_shift);
        let count = (2 * count).next_multiple_of(GROUPS_MAPPED).min(most);
        self.address(self.head) - count * self.group_bytes
    }

    /// How many slices `count` groups serve, the head included.
    pub(super) fn served_by(&self, count: usize) -> usize {
        (self.head + (count << self.group_shift)).min(self.slices)
    }
}
