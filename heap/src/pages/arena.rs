//! One address range, its tables and its bits.
//!
//! ```text
//! base                                             head                frontier
//! | tags: 1 byte a slice | … | group 1 | group 0 | spans, without a gap | never used … |
//!                                     |
//!                                     GROUP_SLICES slices:
//!                       commit bits | dirty masks | records | side entries | far side entries
//! ```
//!
//! Groups run downwards from `head`, so that in a reserved arena the first group and the first
//! slices are neighbours, and one system call commits both. Everything is committed as the frontier
//! moves up.
//!
//! A claimed arena reserves nothing: of it, only tags, groups and slices below its end are mapped,
//! and each of the three grows into addresses that, as a rule, nothing else takes. Where something
//! does, the arena ends.

use super::span::{RECORD_BYTES, SpanRecord, State, Use};
use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::sync::plain::{AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use crate::base::units::{HUGE_SLICES, SLICE_BYTES, SLICE_SHIFT};
use core::ops::Range;
use core::ptr::NonNull;

/// Most arenas of one heap.
pub(super) const MAX_ARENAS: usize = 256;

/// One address range.
///
/// Invariant: `head <= frontier <= ready <= slices`, `frontier <= tagged`,
/// `frontier <= end <= slices`, `frontier <= reach <= slices`; tags below `tagged` and group data
/// of slices in `head..ready` are committed and never given back.
#[derive(Debug)]
pub struct Arena {
    /// Written once, before `tagged` first becomes non-zero.
    layout: UnsafeCell<Layout>,
    /// Slices whose tag may be read; 0 before the arena is published. Written by the holder of
    /// `committing`.
    pub(super) tagged: Mark,
    /// Slices whose group data may be used. Written by the holder of `committing`.
    pub(super) ready: Mark,
    /// The lowest slice that never was in a span. Written by the holder of `committing`, under the
    /// heap's lock.
    pub(super) frontier: Mark,
    /// The slice up to which addresses are mapped: of a reserved arena, all. Written by the holder
    /// of `committing`.
    pub(super) end: Mark,
    /// The slice up to which spans may reach. Written by the holder of `committing`.
    pub(super) reach: Mark,
    /// The address from which on groups are mapped. Written by the holder of `committing`.
    pub(super) groups_from: Mark,
}

/// A slice or an address of an arena that moves now and then. A thread that reads it also sees what
/// was written before.
#[derive(Debug)]
pub(super) struct Mark(AtomicUsize);

impl Mark {
    const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, at: usize) {
        self.0.store(at, Ordering::Release);
    }
}

// SAFETY: `layout` is written once, by the holder of `committing`, before `tagged` is stored with
// release order, and read only after `tagged` (or the heap's count of arenas) was seen non-zero
// with acquire order.
unsafe impl Sync for Arena {}
// SAFETY: plain numbers and addresses, tied to no thread.
unsafe impl Send for Arena {}

impl Arena {
    pub(super) const fn new() -> Self {
        Self {
            layout: UnsafeCell::new(Layout::EMPTY),
            tagged: Mark::new(),
            ready: Mark::new(),
            frontier: Mark::new(),
            end: Mark::new(),
            reach: Mark::new(),
            groups_from: Mark::new(),
        }
    }

    /// Where everything stands.
    pub(super) fn layout(&self) -> &Layout {
        // SAFETY: written only by `prepare`, before any other thread can see this arena.
        unsafe { &*self.layout.get() }
    }

    /// Fills in the layout of an arena that is not published yet.
    ///
    /// # Safety
    /// - The caller holds `committing`, and the arena is not published.
    pub(super) unsafe fn prepare(&self, layout: Layout) {
        // SAFETY: no other thread can see this arena: the caller's promise.
        unsafe { *self.layout.get() = layout };
        let (end, groups) = match layout.claimed {
            true => (layout.head, layout.address(layout.head)),
            false => (layout.slices, layout.base),
        };
        self.tagged.set(0);
        self.ready.set(layout.head);
        self.frontier.set(layout.head);
        self.end.set(end);
        self.reach.set(layout.slices);
        self.groups_from.set(groups);
    }

    /// The slice beyond which slices and their tables are committed together.
    pub(super) fn grown(&self) -> usize {
        if self.layout().claimed {
            self.end.get()
        } else {
            self.ready.get()
        }
    }

    /// From now on the arena ends where its mapped slices or its tables do.
    pub(super) fn stop_growing(&self) {
        let tables = self.ready.get().min(self.tagged.get());
        self.reach.set(self.end.get().min(tables));
    }

    /// The committed tables: the end address of the tags, and the address of the last group.
    pub(super) fn tables(&self) -> (usize, usize) {
        let layout = self.layout();
        let (_, groups) = layout.groups_below(self.ready.get());
        let tags_end = layout.base + self.tagged.get().next_multiple_of(layout.page_bytes());
        (tags_end.min(groups), groups)
    }

    /// The addresses that the arena has mapped.
    pub(super) fn mapped(&self) -> [Range<usize>; 2] {
        let layout = self.layout();
        if !layout.claimed {
            return [layout.range(), 0..0];
        }
        let (tags_end, _) = self.tables();
        [
            layout.base..tags_end,
            self.groups_from.get()..layout.address(self.end.get()),
        ]
    }

    /// Whether the arena has mapped all of a range.
    pub(super) fn maps(&self, range: &Range<usize>) -> bool {
        let holds = |mapped: &Range<_>| mapped.start <= range.start && range.end <= mapped.end;
        self.mapped().iter().any(holds)
    }

    /// The addresses to commit so that tags of slices below `index` can be read, and how many
    /// slices then have tags; `None` when they can.
    pub(super) fn tags_step(&self, index: usize) -> Option<(Range<usize>, usize)> {
        let layout = self.layout();
        let tagged = self.tagged.get();
        if index <= tagged {
            return None;
        }
        let page = layout.page_bytes();
        // The table is bytes, so slices and bytes are one number; generous, because it costs
        // nothing untouched.
        let generous = index
            .max(2 * tagged)
            .max(layout.head + SLICE_BYTES)
            .min(layout.slices);
        let (from, to) = (
            tagged.next_multiple_of(page),
            generous.next_multiple_of(page),
        );
        let range = layout.base + from..layout.base + to;
        Some((range, to.min(layout.slices)))
    }

    /// The same for the groups' data.
    pub(super) fn groups_step(&self, index: usize) -> Option<(Range<usize>, usize)> {
        let layout = self.layout();
        if index <= self.ready.get() {
            return None;
        }
        let (count, address) = layout.groups_below(index);
        let (_, end) = layout.groups_below(self.ready.get());
        Some((address..end, layout.served_by(count)))
    }

    /// The tag of a slice below `tagged`.
    pub(super) fn tag(&self, index: usize) -> &AtomicU8 {
        debug_assert!(index < self.tagged.get());
        // SAFETY: tags below `tagged` are committed for good; a byte of zeros is a valid atomic.
        unsafe { &*((self.layout().base + index) as *const AtomicU8) }
    }

    /// The record of a slice in `head..ready`.
    pub(super) fn record(&self, index: usize) -> &SpanRecord {
        debug_assert!(index >= self.layout().head && index < self.ready.get());
        // SAFETY: group data below `ready` is committed for good; zeroed memory is a blank record.
        unsafe { &*(self.layout().record_of(index) as *const SpanRecord) }
    }

    /// The first slices of the spans that begin in `from..to`, where one begins at `from`. What
    /// changes meanwhile is seen as it was or as it is.
    pub(super) fn spans(&self, from: usize, to: usize) -> impl Iterator<Item = SliceRef<'_>> {
        let mut next = from;
        core::iter::from_fn(move || {
            let index = (next < to).then_some(next)?;
            next += self.record(index).length();
            Some(SliceRef { arena: self, index })
        })
    }

    /// Sets a span's length, in its first record and its last.
    pub(super) fn set_length(&self, first: &SpanRecord, slices: usize) {
        first.slices.set(slices);
        first.back.set(0);
        self.record(first.index.get() + slices - 1)
            .back
            .set(slices - 1);
    }

    /// The mask of OS pages that may be dirty, of a slice in `head..ready`.
    pub(super) fn mask(&self, index: usize) -> &AtomicU16 {
        let (group, place) = self.group(index);
        let masks = group + (1 << self.layout().group_shift) / 8;
        // SAFETY: group data below `ready` is committed for good; zeros are a valid atomic.
        unsafe { &*((masks + 2 * place) as *const AtomicU16) }
    }

    /// The masks of the slices `from..to`, all in `head..ready`, in pieces as they lie in memory.
    pub(super) fn masks(&self, from: usize, to: usize) -> impl Iterator<Item = &[AtomicU16]> {
        let group_slices = 1 << self.layout().group_shift;
        let mut at = from;
        core::iter::from_fn(move || {
            let (_, place) = (at < to).then(|| self.group(at))?;
            let count = (group_slices - place).min(to - at);
            let first: *const AtomicU16 = self.mask(at);
            at += count;
            // SAFETY: masks of one group are contiguous, and all are of slices below `ready`.
            Some(unsafe { core::slice::from_raw_parts(first, count) })
        })
    }

    /// The side entry of a slice in `head..ready`, of `bytes` bytes.
    #[inline(always)]
    pub(super) fn side(&self, index: usize, bytes: usize) -> NonNull<u8> {
        debug_assert!(index >= self.layout().head && index < self.ready.get());
        // SAFETY: an address within the arena is not null.
        unsafe { NonNull::new_unchecked(self.layout().side_of(index, bytes) as *mut u8) }
    }

    /// The far side entry of a slice in `head..ready`.
    pub(super) fn far_side(&self, index: usize) -> NonNull<u8> {
        let (group, place) = self.group(index);
        pointer(group + self.layout().far_at + place * self.layout().sides.far)
    }

    fn group(&self, index: usize) -> (usize, usize) {
        debug_assert!(index >= self.layout().head && index < self.ready.get());
        self.layout().group_of(index)
    }

    /// The word of commit bits with the bit of slice `index`, and the bit's number.
    fn commit_word(&self, index: usize) -> (&AtomicU64, u32) {
        let (group, place) = self.group(index);
        // SAFETY: group data below `ready` is committed for good; zeros are a valid atomic.
        let word = unsafe { &*((group + place / 64 * 8) as *const AtomicU64) };
        (word, (place % 64) as u32)
    }

    /// The first slice in `from..to` that is in this state; `to` when there is none.
    pub(super) fn find(&self, from: usize, to: usize, state: Commit) -> usize {
        let mut index = from;
        while index < to {
            let (word, bit) = self.commit_word(index);
            let word = word.load(Ordering::Relaxed);
            let wanted = if state == Commit::Yes { word } else { !word } >> bit;
            if wanted != 0 {
                return (index + wanted.trailing_zeros() as usize).min(to);
            }
            index += 64 - bit as usize;
        }
        to
    }

    /// Sets whether the slices `from..to` are committed. Returns how many changed.
    pub(super) fn set_commit(&self, from: usize, to: usize, state: Commit) -> usize {
        let (mut index, mut changed) = (from, 0);
        while index < to {
            let (word, bit) = self.commit_word(index);
            let span = (64 - bit as usize).min(to - index);
            let bits = (u64::MAX >> (64 - span)) << bit;
            let old = word.load(Ordering::Relaxed);
            let new = if state == Commit::Yes {
                old | bits
            } else {
                old & !bits
            };
            word.store(new, Ordering::Relaxed);
            changed += (old ^ new).count_ones() as usize;
            index += span;
        }
        changed
    }
}

/// An address of an arena as a pointer. No arena begins at address 0.
pub(super) fn pointer(address: usize) -> NonNull<u8> {
    debug_assert!(address != 0);
    NonNull::new(address as *mut u8).unwrap_or(NonNull::dangling())
}

/// Whether a slice is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commit {
    /// Readable and writable.
    Yes,
    /// Only reserved.
    No,
}

/// Where the side entries of an arena's slices are: loaded once for many addresses.
#[derive(Clone, Copy, Debug)]
pub struct SideTable {
    /// Address of the first slice, and how many have an entry.
    start: usize,
    slices: usize,
    /// The entry of the first slice.
    first: usize,
    bytes: usize,
    group_shift: u32,
    /// How far below the end of one group's entries those of the next begin.
    gap: usize,
}

impl SideTable {
    pub(super) fn of(arena: &Arena) -> SideTable {
        let (layout, head) = (arena.layout(), arena.layout().head);
        SideTable {
            start: layout.address(head),
            slices: arena.ready.get() - head,
            first: layout.side_at,
            bytes: layout.sides.near,
            group_shift: layout.group_shift,
            gap: layout.side_gap,
        }
    }

    /// [`SliceRef::side`] of the slice at `address`, a `T`; `None` if it is not in the table.
    #[inline(always)]
    pub fn entry<T>(&self, address: usize) -> Option<NonNull<T>> {
        debug_assert_eq!(self.bytes, size_of::<T>());
        let slot = address.wrapping_sub(self.start) >> SLICE_SHIFT;
        if slot >= self.slices {
            return None;
        }
        let below = (slot >> self.group_shift) * self.gap;
        let entry = (self.first + slot * size_of::<T>()).wrapping_sub(below);
        // SAFETY: an address within the arena is not null.
        Some(unsafe { NonNull::new_unchecked(entry as *mut T) })
    }
}

/// One slice of an arena, found by an address in it.
///
/// Every method may be called for any slice. Its answer about a span is certain only while the
/// caller holds that span; otherwise it may be stale.
#[derive(Clone, Copy, Debug)]
pub struct SliceRef<'h> {
    pub(super) arena: &'h Arena,
    pub(super) index: usize,
}

impl<'h> SliceRef<'h> {
    /// The tag that a user gave the span that starts here; 0 for every other slice.
    #[inline]
    pub fn tag(&self) -> u8 {
        self.arena.tag(self.index).load(Relaxed)
    }

    /// Tags the span that starts here. Taken away again when the span is freed.
    ///
    /// # Safety
    /// - The span is in use and the caller's, and what `tag` says of its blocks is true.
    #[inline]
    pub unsafe fn set_tag(&self, tag: u8) {
        debug_assert!(tag == 0 || self.use_().is_some());
        self.arena.tag(self.index).store(tag, Relaxed);
    }

    /// Changes the tag, if it still is `old`. For a caller who knows that a span in use with this
    /// tag may have the other one, but not whether this is still that span.
    ///
    /// # Safety
    /// - What `new` says is true of every span in use with the tag `old`.
    #[inline]
    pub unsafe fn change_tag(&self, old: u8, new: u8) {
        let tag = self.arena.tag(self.index);
        let _ = tag.compare_exchange(old, new, Relaxed, Relaxed);
    }

    /// Takes the tag away. Of several callers at once, one gets it and the others 0.
    #[inline]
    pub fn take_tag(&self) -> u8 {
        self.arena.tag(self.index).swap(0, Relaxed)
    }

    /// The slice's entry in the side table, [`super::Sides::near`] bytes long. All zero until its
    /// user writes to it; the page heap never does, not even between two spans. Only for slices of
    /// a span, of today or before.
    pub fn side(&self) -> NonNull<u8> {
        self.arena.side(self.index, self.arena.layout().sides.near)
    }

    /// [`SliceRef::side`] for a user whose entries are each a `T`.
    #[inline(always)]
    pub fn side_of<T>(&self) -> NonNull<T> {
        self.arena.side(self.index, size_of::<T>()).cast()
    }

    /// The entry that is apart, [`super::Sides::far`] bytes long.
    pub fn far_side(&self) -> NonNull<u8> {
        self.arena.far_side(self.index)
    }

    /// The user's pointer for the span in use that starts here. Of other spans, and before it is
    /// set, null or a pointer to 64 bytes of Neap's own tables. Only for slices of a span, of today
    /// or before.
    #[inline]
    pub fn user_data(&self) -> *mut u8 {
        self.record().user_data()
    }

    /// Sets the user's pointer for the span in use that starts here. Unlike the side table it costs
    /// no memory.
    ///
    /// # Safety
    /// - The span is in use and the caller's: the word is a link of a queue in a free span.
    /// - `pointer` is null, or points to what every reader of such a span expects.
    #[inline]
    pub unsafe fn set_user_data(&self, pointer: *mut u8) {
        debug_assert!(self.use_().is_some());
        // SAFETY: the caller's promise.
        unsafe { self.record().set_user_data(pointer) };
    }

    /// Address of the slice.
    #[inline]
    pub fn slice_base(&self) -> usize {
        self.arena.layout().address(self.index)
    }

    /// [`SliceRef::slice_base`] as a pointer.
    pub fn pointer(&self) -> NonNull<u8> {
        // SAFETY: an address in an arena is not null.
        unsafe { NonNull::new_unchecked(self.slice_base() as *mut u8) }
    }

    /// What the span that starts here is used for; `None` if none in use does.
    pub fn use_(&self) -> Option<Use> {
        self.used().map(|(_, use_)| use_)
    }

    /// Slices of the span in use that starts here, else 0.
    pub fn slices(&self) -> usize {
        self.used().map_or(0, |(record, _)| record.slices.get())
    }

    /// Requested bytes of the span in use that starts here, otherwise 0.
    pub fn bytes(&self) -> usize {
        self.used().map_or(0, |(record, _)| record.bytes())
    }

    /// Whether the program mapped something over the span in use that starts here, or fills its
    /// pages from another process.
    pub fn is_overmapped(&self) -> bool {
        self.used()
            .is_some_and(|(record, _)| record.is_overmapped.get())
    }

    /// Whether the kernel moved pages into the span in use that starts here.
    pub fn is_moved(&self) -> bool {
        self.used()
            .is_some_and(|(record, _)| record.moved_slices() > 0)
    }

    /// Which OS pages of the slice that starts this span may hold old data, the lowest page in the
    /// lowest bit. While the span is in use: as it was when the span was given out. All ones
    /// outside of spans.
    pub fn dirty_mask(&self) -> u16 {
        if self.has_record() && !self.record().all_dirty.get() {
            self.arena.mask(self.index).load(Relaxed)
        } else {
            u16::MAX
        }
    }

    /// The record of a slice that a span has or had.
    pub(super) fn record(&self) -> &'h SpanRecord {
        self.arena.record(self.index)
    }

    fn has_record(&self) -> bool {
        self.index >= self.arena.layout().head && self.index < self.arena.frontier.get()
    }

    fn used(&self) -> Option<(&'h SpanRecord, Use)> {
        let record = self.has_record().then(|| self.record())?;
        match record.state() {
            State::Used(use_) => Some((record, use_)),
            State::Free | State::Aside | State::Blank => None,
        }
    }
}

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
/// Slices of the smallest group: its commit bits fill one word.
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
