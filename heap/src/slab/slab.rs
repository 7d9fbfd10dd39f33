//! A slab: the record beside a slice, with the bitmap of its free blocks. How the life of a word of
//! the bitmap begins, how a thread claims blocks of it, and slabs on their way back into their
//! depot's set.

use super::class::{Class, MAX_BLOCKS};
use super::depot_id::{CODE_BITS, DepotId};
use super::page_set::{PageSet, bits_over, to_withhold};
use crate::base::sync::{
    AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, full_barrier_after_rmw, plain,
};
use crate::base::tree::{Node, Side};
use crate::base::units::SLICE_BYTES;
use core::ptr::NonNull;

/// Words of the longest bitmap; two under the model checker.
pub const WORDS: usize = if cfg!(loom) { 2 } else { MAX_BLOCKS / 64 };

/// Words of a bitmap that are in the record itself: enough for blocks of 512 bytes and more.
const NEAR_WORDS: usize = 2;
/// Slabs of blocks of this many bytes or more have no more words.
const NEAR_BYTES: usize = SLICE_BYTES / (64 * NEAR_WORDS);

/// A bitmap that is too long for the record: one per slice, at a place of its own, so that a page
/// of records serves 64 slices. So a slab of which only one page is used (see [`super::page_set`])
/// costs almost nothing else.
pub type FarWords = [AtomicU64; WORDS];

/// A slab's state: in no set of its depot, because it has no free block.
pub(super) const UNLISTED: u8 = 0;
/// Among those with free blocks.
pub(crate) const LISTED: u8 = 1;
/// Among those that have none, but withhold some.
pub(super) const RESERVED: u8 = 2;
/// Carved by a thread that is about to list it, which alone may do so. A claimer that remembers the
/// slab's former life may find its blocks before that, and give them back.
pub(super) const FETCHED: u8 = 3;

/// A slab's record, one per slice of an arena, zero but for `base` and `far` while the slice is no
/// slab.
#[repr(C, align(64))]
pub struct Slab {
    /// The links of the depot's sets; guarded by the depot's lock.
    links: [plain::AtomicPtr<Slab>; 2],
    /// Address of the first block: the slice's, so the same in every life of the record.
    base: plain::AtomicUsize,
    /// The [`State`].
    state: AtomicU32,
    /// [`UNLISTED`], [`LISTED`], [`RESERVED`] or [`FETCHED`]; changes under the depot's lock, but
    /// for the last.
    pub(crate) listed: AtomicU8,
    /// A hint: no word below this one has free blocks, most likely.
    pub(super) lowest: AtomicU16,
    /// Words from this one up were never claimed from since carving, so their blocks were never
    /// touched. While the slice is no slab: a [note](Slab::note).
    pub(super) high_water: AtomicU16,
    /// Blocks that read as zero and were never claimed since carving. Only in classes that have
    /// [`Class::tells_fresh`]; else 0. Bits of free blocks change only from 1 to 0, by the thread
    /// that claims the block.
    pub(super) fresh: AtomicU16,
    /// [`PageSet`] that the program mapped something over.
    mapped_over: plain::AtomicU16,
    /// 1 while spare pages of it are on their way to the kernel: it neither retires nor offers what
    /// it withholds, because a block may lie in such a page and in one that was withheld before.
    /// Changes under the depot's lock.
    pub(super) purging: AtomicU8,
    /// The slice's far words, the same in every life of the record; null before the first.
    far: plain::AtomicPtr<FarWords>,
    /// Free blocks, lowest address first, of classes with few. Otherwise these are in the far
    /// words.
    near: [AtomicU64; NEAR_WORDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slab>() == 64);

// SAFETY: two words of the record itself; its base does not change while it is a slab, is its own,
// and only slabs are in a set.
unsafe impl Node for Slab {
    type Key = usize;

    fn key(&self) -> usize {
        self.base()
    }

    fn link(&self, side: Side) -> &plain::AtomicPtr<Slab> {
        &self.links[side as usize]
    }
}

/// What one load tells of a slab: its depot's [code](DepotId::code), 0 while the slice is no slab,
/// and above it:
///
/// - [`State::IDLE`]: nothing was claimed or given since it was set. A hint.
/// - The [`PageSet`] whose blocks are withheld: claimed by no thread, their bits 0. Changes under
///   the depot's lock.
///
/// The depot changes only while no block is out and no bit is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(u32);

impl State {
    const IDLE: u32 = 1 << CODE_BITS;

    /// Of a slab of this depot that is not idle and withholds nothing.
    pub fn plain(id: DepotId) -> State {
        State(u32::from(id.code()))
    }

    /// The plain state of the same depot.
    #[inline]
    fn as_plain(self) -> State {
        State(self.0 & (State::IDLE - 1))
    }

    /// The depot of `class` in the row of the slab's.
    #[inline]
    pub fn id_of(self, class: Class) -> DepotId {
        let [_, row] = (self.as_plain().0 as u16).to_le_bytes();
        DepotId { class, row }
    }

    fn of_withheld(units: PageSet) -> u32 {
        u32::from(units.0) << 16
    }

    pub(super) fn withheld(self) -> PageSet {
        PageSet((self.0 >> 16) as u16)
    }
}

/// A slab and a word of it, as they were before blocks were given back.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Before the give-back, because from then on others may claim and withhold the blocks.
    pub state: State,
    /// Just before it.
    pub word: u64,
}

/// A slice to be carved.
pub struct Slice {
    /// Its record.
    pub record: NonNull<Slab>,
    /// Its address.
    pub base: usize,
    /// A set bit is an OS page that reads as zero and is not resident.
    pub zero: u16,
    /// Its far words, always the same.
    pub far: NonNull<FarWords>,
}

/// The part of a retiring slab that may have been written since it was carved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// At most this many bytes from its start,
    pub bytes: usize,
    /// but for these units, which read as zero.
    pub clean: PageSet,
}

impl Slab {
    /// A record as the page heap hands it out: all zero.
    #[cfg(test)]
    pub(crate) fn blank() -> Slab {
        Slab {
            links: [const { plain::AtomicPtr::new(core::ptr::null_mut()) }; 2],
            base: plain::AtomicUsize::new(0),
            state: AtomicU32::new(0),
            listed: AtomicU8::new(UNLISTED),
            lowest: AtomicU16::new(0),
            high_water: AtomicU16::new(0),
            fresh: AtomicU16::new(0),
            mapped_over: plain::AtomicU16::new(0),
            purging: AtomicU8::new(0),
            far: plain::AtomicPtr::new(core::ptr::null_mut()),
            near: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Turns the record of a fresh slice into a slab with all blocks free, or all in resident
    /// pages. Not yet listed. The slice has `pages` OS pages.
    ///
    /// # Safety
    /// - The slice is as [`Source`](super::depot::Source) promises, and this is its record.
    pub(super) unsafe fn carve(&self, id: DepotId, slice: &Slice, pages: usize) {
        let Slice {
            base, zero, far, ..
        } = *slice;
        let class = id.class;
        debug_assert_eq!(self.depot(), None);
        self.far.store(far.as_ptr(), plain::Ordering::Relaxed);
        self.base.store(base, Ordering::Relaxed);
        self.lowest.store(0, Ordering::Relaxed);
        self.high_water.store(0, Ordering::Relaxed);
        self.fresh
            .store(class.fresh_blocks(zero, pages), Ordering::Relaxed);
        let withheld = to_withhold(class, PageSet::of_pages(!zero, pages));
        self.mapped_over.store(0, plain::Ordering::Relaxed);
        self.listed.store(FETCHED, Ordering::Relaxed);
        // Release, for the load in `is_of`, so that the depot's threads see FETCHED or a later
        // value.
        let state = State::plain(id).0 | State::of_withheld(withheld);
        self.set_state(state);
        for (word, bits) in self.words(class).iter().enumerate() {
            put_first(bits, self.offered_word(class, word));
        }
    }

    /// Address of the first block.
    #[inline]
    pub fn base(&self) -> usize {
        self.base.load(Ordering::Relaxed)
    }

    /// What [`Slab::set_note`] noted of a slice that is no slab.
    pub fn note(&self) -> u16 {
        self.high_water.load(Ordering::Relaxed)
    }

    /// Notes something of a slice that is no slab, until it is used in another way. The user of the
    /// slice's span calls this.
    pub fn set_note(&self, note: u16) {
        debug_assert!(self.depot().is_none());
        self.high_water.store(note, Ordering::Relaxed);
    }

    /// What one load tells. A thread that holds a block of the slab finds its depot and its words.
    #[inline(always)]
    pub fn state(&self) -> State {
        State(self.state.load(Ordering::Relaxed))
    }

    /// Begins or ends a life. By a swap, because loom 0.7 may read past a thread's own plain store.
    fn set_state(&self, state: u32) {
        self.state.swap(state, Ordering::Release);
    }

    /// The depot, or `None` while the slice is no slab. Certain only while the caller holds a block
    /// of the slab.
    #[inline]
    pub fn depot(&self) -> Option<DepotId> {
        DepotId::from_code(self.state().as_plain().0 as u16)
    }

    /// Whether it is a slab of this depot. Certain as [`Slab::depot`] is, and under the lock of the
    /// depot if it is listed there: a load of `listed` that follows reads a mark of this life.
    #[inline]
    pub(super) fn is_of(&self, id: DepotId) -> bool {
        // Acquire, for the store in `carve`, which is made without the depot's lock. The end of a
        // life in this depot is under its lock, so the state that the holder reads is no older.
        State(self.state.load(Ordering::Acquire)).as_plain() == State::plain(id)
    }

    /// Bytes from the slab's start that may have been written since it was carved.
    pub fn touched_bytes(&self, class: Class) -> usize {
        if class.tells_fresh() {
            let all = class.full_word(0) as u16;
            let claimed = all & !self.fresh.load(Ordering::Relaxed);
            return (u16::BITS - claimed.leading_zeros()) as usize * class.bytes();
        }
        let blocks = self.high_water.load(Ordering::Relaxed) as usize * 64;
        blocks.min(class.blocks()) * class.bytes()
    }

    /// Whether the next block to be claimed is known to read as zero, or there is none. A hint.
    pub fn next_is_fresh(&self) -> bool {
        // Blocks of classes that tell have their bits in the first near word; others have none
        // fresh.
        let free = self.near[0].load(Ordering::Relaxed);
        let next = free & free.wrapping_neg();
        free == 0 || u64::from(self.fresh.load(Ordering::Relaxed)) & next != 0
    }

    /// How many blocks the bitmap holds as free, beside those withheld. A snapshot.
    pub fn free_blocks(&self) -> usize {
        let Some(DepotId { class, .. }) = self.depot() else {
            return 0;
        };
        self.words(class)
            .iter()
            .map(|bits| bits.load(Ordering::Relaxed).count_ones() as usize)
            .sum()
    }

    /// The words of the bitmap; none while the slice is about to be carved for the first time.
    pub fn words(&self, class: Class) -> &[AtomicU64] {
        let count = class.words();
        if count <= NEAR_WORDS {
            return &self.near[..count];
        }
        self.far().map_or(&[], |far| &far[..count])
    }

    /// Whether the words of this class are in the record.
    pub fn has_near_words(class: Class) -> bool {
        class.words() <= NEAR_WORDS
    }

    /// A word of the bitmap of a class that [has](Slab::has_near_words) near words.
    #[inline(always)]
    pub fn near_word(&self, word: usize) -> &AtomicU64 {
        &self.near[word % NEAR_WORDS]
    }

    /// A word of the bitmap of another class.
    ///
    /// # Safety
    /// - The slice was carved before.
    #[inline(always)]
    pub unsafe fn far_word(&self, word: usize) -> &AtomicU64 {
        debug_assert!(self.far().is_some());
        // SAFETY: the caller's promise.
        unsafe { &self.far().unwrap_unchecked()[word % WORDS] }
    }

    /// Whether block `block` of this slab of `class` is free: held by the bitmap, or withheld.
    /// True of every block while the slice is about to be carved for the first time.
    #[inline(always)]
    pub fn is_free(&self, class: Class, block: usize) -> bool {
        self.is_offered(Slab::has_near_words(class), block)
            || (!self.withheld().is_empty() && self.withholds(class, block))
    }

    /// Whether block `block` of this slab of blocks of `bytes` bytes is free, or may be.
    #[inline(always)]
    pub fn may_be_free(&self, bytes: u32, block: usize) -> bool {
        !self.withheld().is_empty() || self.is_offered(bytes as usize >= NEAR_BYTES, block)
    }

    /// Whether the bit of block `block` is set.
    #[inline(always)]
    fn is_offered(&self, is_near: bool, block: usize) -> bool {
        let word = if is_near {
            self.near_word(block / 64)
        } else {
            let Some(far) = self.far() else { return true };
            &far[block / 64 % WORDS]
        };
        let bit = 1 << (block % 64);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Whether block `block` is withheld.
    #[cold]
    #[inline(never)]
    fn withholds(&self, class: Class, block: usize) -> bool {
        self.withheld_bits(class, block / 64) & (1 << (block % 64)) != 0
    }

    /// The slice's far words; `None` before the first carving.
    #[inline(always)]
    fn far(&self) -> Option<&FarWords> {
        // SAFETY: set by the first carving, and valid forever by the source's promise.
        unsafe { self.far.load(plain::Ordering::Relaxed).as_ref() }
    }

    /// Gives the blocks `bits` of a word back: one atomic operation. Returns the word as it was
    /// before, for [`super::depot::Depots::settle`]; `None` if nothing is left to do.
    ///
    /// # Safety
    /// - The caller has claimed them, and nothing uses them any more. If one was already given
    ///   back, that call reports it, or a later claim of the same block detects it.
    /// - `word` is one of the slab's, and `plain` the [plain state](State::plain) of its depot.
    #[inline(always)]
    pub unsafe fn give(&self, plain: State, word: &AtomicU64, bits: u64) -> Option<u64> {
        debug_assert_eq!(self.state().as_plain(), plain);
        let before = word.fetch_or(bits, Ordering::AcqRel);
        full_barrier_after_rmw();
        // What was free, without the run of free blocks that begins with the first block now: 0 if
        // the word was empty, and if it is whole.
        let others = before & before.wrapping_add(bits).wrapping_add(1);
        let is_done = before & bits == 0 && others != 0 && self.state() == plain;
        (!is_done).then_some(before)
    }

    /// Notes that blocks of `word` were given back. Returns whether the slab is listed.
    pub(super) fn note_given(&self, word: usize) -> bool {
        self.note_use();
        if (self.lowest.load(Ordering::Relaxed) as usize) > word {
            self.lowest.store(word as u16, Ordering::Relaxed);
        }
        self.listed.load(Ordering::Relaxed) == LISTED
    }

    /// Notes that blocks are claimed or given.
    pub(super) fn note_use(&self) {
        if self.state().0 & State::IDLE != 0 {
            self.state.fetch_and(!State::IDLE, Ordering::Relaxed);
        }
    }

    /// Whether nothing was claimed or given since the last call. A hint.
    pub(super) fn is_idle(&self) -> bool {
        self.state.fetch_or(State::IDLE, Ordering::Relaxed) & State::IDLE != 0
    }

    /// Whether every block seems free; looks first at the word after `word`, where blocks freed in
    /// address order are still out.
    pub(super) fn all_free(&self, class: Class, word: usize) -> bool {
        let words = self.words(class);
        if !self.withheld().is_empty() {
            let is_whole =
                |word: usize| words[word].load(Ordering::Acquire) == self.offered_word(class, word);
            return (word + 1..words.len()).all(is_whole) && (0..=word).all(is_whole);
        }
        // A slab that withholds nothing is the common case: every word but the last has 64 blocks.
        let last = words.len() - 1;
        let next = last.min(word + 1);
        let are_whole = |words: &[AtomicU64]| {
            let is_whole = |bits: &AtomicU64| bits.load(Ordering::Acquire) == u64::MAX;
            words.iter().all(is_whole)
        };
        are_whole(&words[next..last])
            && words[last].load(Ordering::Acquire) == class.full_word(last)
            && are_whole(&words[..next])
    }

    /// Whether spare pages of it are on their way to the kernel.
    pub(super) fn is_purging(&self) -> bool {
        self.purging.load(Ordering::Relaxed) != 0
    }

    pub(super) fn any_free(&self, class: Class) -> bool {
        self.words(class)
            .iter()
            .any(|bits| bits.load(Ordering::Acquire) != 0)
    }

    /// Notes that the program mapped something over these units, in which it has a block.
    pub fn note_mapped_over(&self, units: PageSet) {
        self.mapped_over.fetch_or(units.0, plain::Ordering::Relaxed);
    }

    /// Of these units, those that the program mapped something over. From now on none of them is
    /// noted. For the owner of all blocks in them.
    pub fn take_mapped_over(&self, units: PageSet) -> PageSet {
        let before = self
            .mapped_over
            .fetch_and(!units.0, plain::Ordering::Relaxed);
        PageSet(before & units.0)
    }

    /// The units whose blocks are withheld. Changes under the depot's lock.
    pub fn withheld(&self) -> PageSet {
        self.state().withheld()
    }

    /// Withholds the blocks of these units as well.
    pub(super) fn add_withheld(&self, units: PageSet) {
        let bits = State::of_withheld(units);
        self.state.fetch_or(bits, Ordering::Relaxed);
    }

    /// Withholds none from now on. Returns the units whose blocks were withheld.
    pub(super) fn take_withheld(&self) -> PageSet {
        let all = State::of_withheld(PageSet(u16::MAX));
        State(self.state.fetch_and(!all, Ordering::Relaxed)).withheld()
    }

    /// The bits of `word` whose blocks are withheld.
    #[inline]
    pub(super) fn withheld_bits(&self, class: Class, word: usize) -> u64 {
        match self.withheld() {
            PageSet::NONE => 0,
            units => bits_over(class, units, word),
        }
    }

    /// How many blocks are withheld.
    pub fn withheld_blocks(&self, class: Class) -> usize {
        let count = |word| self.withheld_bits(class, word).count_ones() as usize;
        (0..class.words()).map(count).sum()
    }

    /// The bits of `word` that are set when no block is out.
    #[inline]
    pub(super) fn offered_word(&self, class: Class, word: usize) -> u64 {
        class.full_word(word) & !self.withheld_bits(class, word)
    }

    /// The slice stops being a slab; the caller has claimed all blocks.
    pub(super) fn uncarve(&self) {
        self.set_state(0);
    }
}

/// A run of this many blocks from a multiple of their number begins and ends with a cache line.
pub const LINE_BLOCKS: usize = 8;

/// Where a claim may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// After any block.
    Blocks,
    /// Before a multiple of [`LINE_BLOCKS`], so that no two claims share a cache line. Takes up to
    /// that many more, less one.
    Lines,
    /// After one block, which this random number chooses.
    Random(u64),
}

/// Sets a word's bits at the beginning of a slab's life.
fn put_first(word: &AtomicU64, bits: u64) {
    // Release: a thread that claims a bit sees the depot, the base and the slice's tag. A store is
    // enough: the words have been 0 since the last life's end, and a thread that still claims from
    // that life does so by an atomic read-modify-write. Before the store it leaves 0; after it, it
    // takes bits, which pin the slab, and gives them back to the slab's new depot.
    if cfg!(any(loom, debug_assertions)) {
        // A swap shows that no bit was set. Loom 0.7 may read past a thread's own plain store.
        let stray = word.swap(bits, Ordering::AcqRel);
        debug_assert_eq!(stray, 0, "a bit was set while the slice was no slab");
    } else {
        word.store(bits, Ordering::Release);
    }
}

/// Claims up to `want` of the lowest set bits of one word, and those that `grain` adds.
pub(super) fn claim_bits(word: &AtomicU64, want: usize, grain: Grain) -> u64 {
    let seen = word.load(Ordering::Relaxed);
    if seen == 0 {
        return 0;
    }
    if want >= 64 {
        return word.swap(0, Ordering::AcqRel);
    }
    let lowest = lowest_bits(seen, want);
    let mask = match grain {
        Grain::Blocks => lowest,
        Grain::Lines => seen & up_to_line(lowest),
        Grain::Random(draw) => any_bit(seen, draw),
    };
    word.fetch_and(!mask, Ordering::AcqRel) & mask
}

/// One of the bits that are set in `bits`, which are not 0.
fn any_bit(bits: u64, draw: u64) -> u64 {
    let turn = (draw >> 32) as u32 % u64::BITS;
    let turned = bits.rotate_right(turn);
    (turned & turned.wrapping_neg()).rotate_left(turn)
}

/// All bits up to the end of the lines in which the blocks of `bits` end. Blocks are multiples of 8
/// bytes, so 8 of them are whole cache lines.
fn up_to_line(bits: u64) -> u64 {
    let last = (u64::BITS - 1 - bits.leading_zeros()) | (LINE_BLOCKS as u32 - 1);
    u64::MAX >> (u64::BITS - 1 - last)
}

/// The `count` lowest set bits of `bits` (all of them if there are fewer).
fn lowest_bits(bits: u64, count: usize) -> u64 {
    let mut rest = bits;
    for _ in 0..count {
        rest &= rest.wrapping_sub(1);
    }
    bits & !rest
}

/// The most slabs in one batch.
const MOST: usize = 16;

/// Slabs of one depot that have free blocks again while they are in no set. They are listed
/// together, because frees in random order bring back one slab per block.
pub struct Returned {
    id: Option<DepotId>,
    count: usize,
    slabs: [NonNull<Slab>; MOST],
}

impl Returned {
    /// No slabs.
    pub fn none() -> Returned {
        Returned {
            id: None,
            count: 0,
            slabs: [NonNull::dangling(); MOST],
        }
    }

    pub(super) fn has_room(&self, id: DepotId) -> bool {
        self.count == 0 || self.id == Some(id) && self.count < MOST
    }

    /// The caller has made room.
    pub(super) fn add(&mut self, slab: &Slab, id: DepotId) {
        self.id = Some(id);
        self.slabs[self.count] = NonNull::from(slab);
        self.count += 1;
    }

    /// The slabs and their depot, if there are any. None are left.
    pub(super) fn take(&mut self) -> Option<(DepotId, &[NonNull<Slab>])> {
        let count = core::mem::take(&mut self.count);
        Some((self.id.take()?, &self.slabs[..count]))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::slab::depot::Depots;
    use crate::testing::slab_model::{Slices, give, take};

    #[test]
    fn one_block_that_is_out_keeps_a_slab_from_being_empty() {
        for class in Class::all() {
            let (depots, slices) = (Depots::new(), Slices::new(1));
            let first = take(&depots, &slices, class, 1)[0];
            let slab = slices.slab(first);
            let last = class.words() - 1;
            let is_empty = || (0..=last).map(|word| slab.all_free(class, word));
            assert!(is_empty().all(|is_empty| !is_empty), "{class:?}");
            give(&depots, &slices, class, first).unwrap();
            assert!(is_empty().all(|is_empty| is_empty), "{class:?}");
            let block = class.blocks() - 1;
            slab.words(class)[last].fetch_and(!(1 << (block % 64)), Ordering::Relaxed);
            assert!(is_empty().all(|is_empty| !is_empty), "{class:?}");
        }
    }

    #[test]
    fn a_second_free_is_seen() {
        let (depots, slices) = (Depots::new(), Slices::new(1));
        let class = Class::of_size(64);
        let blocks = take(&depots, &slices, class, 10);
        give(&depots, &slices, class, blocks[4]).unwrap();
        assert_eq!(give(&depots, &slices, class, blocks[4]), Err(1 << 4));
        let never_claimed = blocks[9] + 64;
        assert_eq!(give(&depots, &slices, class, never_claimed), Err(1 << 10));
    }

    #[test]
    fn any_bit_is_one_of_those_set() {
        let bits = 1 << 63 | 1 << 40 | 0b101;
        let drawn = (0..64).map(|turn| any_bit(bits, turn << 32));
        let mut seen = 0;
        for bit in drawn {
            assert!(bit.is_power_of_two() && bits & bit == bit);
            seen |= bit;
        }
        assert_eq!(seen, bits);
    }

    #[test]
    fn lowest_bits_are_the_lowest() {
        assert_eq!(lowest_bits(0b1011_0100, 2), 0b0001_0100);
        assert_eq!(lowest_bits(0b11, 5), 0b11);
        assert_eq!(lowest_bits(0, 3), 0);
    }
}
