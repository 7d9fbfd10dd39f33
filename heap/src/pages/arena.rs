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

use super::layout::Layout;
use super::span::{SpanRecord, State, Use, ZeroState};
use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::sync::plain::{AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use crate::base::units::{SLICE_BYTES, SLICE_SHIFT};
use core::ops::Range;
use core::ptr::NonNull;

/// Most arenas of one heap.
pub(super) const MAX_ARENAS: usize = 256;

/// A step of metadata to commit: the range, and the slices that are usable after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) address: usize,
    pub(super) bytes: usize,
    pub(super) slices: usize,
}

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
    tagged: AtomicUsize,
    /// Slices whose group data may be used. Written by the holder of `committing`.
    ready: AtomicUsize,
    /// The lowest slice that never was in a span. Written by the holder of `committing`, under the
    /// heap's lock.
    frontier: AtomicUsize,
    /// The slice up to which addresses are mapped: of a reserved arena, all. Written by the holder
    /// of `committing`.
    end: AtomicUsize,
    /// The slice up to which the arena may grow. Written by the holder of `committing`.
    reach: AtomicUsize,
    /// The address from which on groups are mapped. Written by the holder of `committing`.
    groups_from: AtomicUsize,
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
            tagged: AtomicUsize::new(0),
            ready: AtomicUsize::new(0),
            frontier: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            reach: AtomicUsize::new(0),
            groups_from: AtomicUsize::new(0),
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
        self.tagged.store(0, Ordering::Relaxed);
        self.ready.store(layout.head, Ordering::Relaxed);
        self.frontier.store(layout.head, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.reach.store(layout.slices, Ordering::Relaxed);
        self.groups_from.store(groups, Ordering::Relaxed);
    }

    pub(super) fn tagged(&self) -> usize {
        self.tagged.load(Ordering::Acquire)
    }

    pub(super) fn ready(&self) -> usize {
        self.ready.load(Ordering::Relaxed)
    }

    pub(super) fn frontier(&self) -> usize {
        self.frontier.load(Ordering::Acquire)
    }

    /// The slice after the last one that is mapped.
    pub(super) fn end(&self) -> usize {
        self.end.load(Ordering::Relaxed)
    }

    pub(super) fn set_end(&self, index: usize) {
        self.end.store(index, Ordering::Relaxed);
    }

    /// The slice up to which spans may reach.
    pub(super) fn reach(&self) -> usize {
        self.reach.load(Ordering::Relaxed)
    }

    pub(super) fn groups_from(&self) -> usize {
        self.groups_from.load(Ordering::Relaxed)
    }

    pub(super) fn set_groups_from(&self, address: usize) {
        self.groups_from.store(address, Ordering::Relaxed);
    }

    /// From now on the arena ends where its mapped slices or its tables do.
    pub(super) fn stop_growing(&self) {
        let tables = self.ready().min(self.tagged.load(Ordering::Relaxed));
        self.reach.store(self.end().min(tables), Ordering::Relaxed);
    }

    /// The committed tables: the end address of the tags, and the address of the last group.
    pub(super) fn tables(&self) -> (usize, usize) {
        let layout = self.layout();
        let (_, groups) = layout.groups_below(self.ready());
        let tags_end = layout.base + self.tagged().next_multiple_of(layout.page_bytes());
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
            self.groups_from()..layout.address(self.end()),
        ]
    }

    /// Whether the arena has mapped all of a range.
    pub(super) fn maps(&self, range: &Range<usize>) -> bool {
        let holds = |mapped: &Range<_>| mapped.start <= range.start && range.end <= mapped.end;
        self.mapped().iter().any(holds)
    }

    pub(super) fn set_tagged(&self, slices: usize) {
        self.tagged.store(slices, Ordering::Release);
    }

    pub(super) fn set_ready(&self, slices: usize) {
        self.ready.store(slices, Ordering::Relaxed);
    }

    pub(super) fn set_frontier(&self, index: usize) {
        self.frontier.store(index, Ordering::Release);
    }

    /// What to commit so that tags of slices below `index` can be read; `None` when they can.
    pub(super) fn tags_step(&self, index: usize) -> Option<Step> {
        let layout = self.layout();
        let tagged = self.tagged.load(Ordering::Relaxed);
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
        Some(Step {
            address: layout.base + from,
            bytes: to - from,
            slices: to.min(layout.slices),
        })
    }

    /// What to commit so that the group data of slices below `index` can be used; `None` when it
    /// can.
    pub(super) fn groups_step(&self, index: usize) -> Option<Step> {
        let layout = self.layout();
        if index <= self.ready() {
            return None;
        }
        let (count, address) = layout.groups_below(index);
        let (_, end) = layout.groups_below(self.ready());
        Some(Step {
            address,
            bytes: end - address,
            slices: layout.served_by(count),
        })
    }

    /// The tag of a slice below `tagged`.
    pub(super) fn tag(&self, index: usize) -> &AtomicU8 {
        debug_assert!(index < self.tagged.load(Ordering::Relaxed));
        // SAFETY: tags below `tagged` are committed for good; a byte of zeros is a valid atomic.
        unsafe { &*((self.layout().base + index) as *const AtomicU8) }
    }

    /// The record of a slice in `head..ready`.
    pub(super) fn record(&self, index: usize) -> &SpanRecord {
        debug_assert!(index >= self.layout().head && index < self.ready());
        // SAFETY: group data below `ready` is committed for good; zeroed memory is a blank record.
        unsafe { &*(self.layout().record_of(index) as *const SpanRecord) }
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
        debug_assert!(index >= self.layout().head && index < self.ready());
        // SAFETY: an address within the arena is not null.
        unsafe { NonNull::new_unchecked(self.layout().side_of(index, bytes) as *mut u8) }
    }

    /// The far side entry of a slice in `head..ready`.
    pub(super) fn far_side(&self, index: usize) -> NonNull<u8> {
        let (group, place) = self.group(index);
        let address = group + self.layout().far_at + place * self.layout().sides.far;
        // SAFETY: an address within the arena is not null.
        unsafe { NonNull::new_unchecked(address as *mut u8) }
    }

    fn group(&self, index: usize) -> (usize, usize) {
        debug_assert!(index >= self.layout().head && index < self.ready());
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
            slices: arena.ready() - head,
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

impl SliceRef<'_> {
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
            .is_some_and(|(record, _)| record.is_overmapped())
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
        if self.has_record() && self.record().zero_state() == ZeroState::PerPage {
            self.arena.mask(self.index).load(Relaxed)
        } else {
            u16::MAX
        }
    }

    /// The record of a slice that a span has or had.
    pub(super) fn record(&self) -> &SpanRecord {
        self.arena.record(self.index)
    }

    fn has_record(&self) -> bool {
        self.index >= self.arena.layout().head && self.index < self.arena.frontier()
    }

    fn used(&self) -> Option<(&SpanRecord, Use)> {
        if !self.has_record() {
            return None;
        }
        let record = self.arena.record(self.index);
        match record.state() {
            State::Used(use_) => Some((record, use_)),
            State::Free | State::Aside | State::Blank => None,
        }
    }
}
