//! The record of one stack, the sizes of stacks, the store of records, lists of them, and figures.
//! Records are cut from metadata spans and kept in a free list. Their memory is never used for
//! anything else.

use crate::base::sync::plain::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::base::sync::plain::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize};
use crate::base::units::{SLICE_BYTES, round_up};
use core::ffi::c_char;
use core::ptr::{NonNull, null_mut};

/// The tag of a slice where a span of stacks starts.
pub const TAG: u8 = 252;

/// Why there is no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackError {
    /// The size is below 8 KiB or above 8 MiB.
    Size,
    /// The kernel or a limit refused memory.
    OutOfMemory,
    /// The kernel allows no guards but those that need mappings, and these have used up their share
    /// of `vm.max_map_count`.
    OutOfMappings,
}

impl core::fmt::Display for StackError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            Self::Size => "a stack has 8 KiB to 8 MiB",
            Self::OutOfMemory => "out of memory",
            Self::OutOfMappings => {
                "the guards of stacks have used up their share of vm.max_map_count"
            }
        })
    }
}

impl core::error::Error for StackError {}

/// The stack given back was not in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotInUse;

/// The stack whose guard a fault hit.
#[derive(Clone, Copy, Debug)]
pub struct Overflow {
    /// Usable bytes of the stack.
    pub bytes: usize,
    /// The owner's name for it: null, or a C string.
    pub owner: *const c_char,
    /// Whether the stack was in use or idle.
    pub state: State,
}

/// The owner of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// None: the record has no memory.
    Blank = 0,
    /// The program.
    Used = 1,
    /// The pool: an ended stack, still warm. In its size's list of idle stacks.
    Idle = 2,
    /// One thread, which is giving it back.
    Leaving = 3,
}

/// How a stack is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Guard {
    /// Not at all.
    None = 0,
    /// By advice to the kernel.
    Advice = 1,
    /// By a mapping of its own.
    Mapping = 2,
    /// Against writes only, as long as its generation holds. Changes under the pool's lock.
    Write = 3,
    /// No longer: a guard against writes was lost, and the kernel refused another.
    Lost = 4,
}

/// How many kinds of guards there are.
const GUARDS: usize = 5;

/// The record of one stack. Zeroed memory is a blank record. All fields are separate words, because
/// a fault handler reads them without the lock.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct StackRecord {
    /// The guard's first byte. Set before any other thread sees the record; constant as long as the
    /// span is the stack's.
    base: AtomicUsize,
    /// The user's name for the stack: null, or a C string that outlives its use.
    owner: AtomicPtr<c_char>,
    /// The next one in a list. Written by the thread that alone has the record, or under the pool's
    /// lock.
    older: AtomicPtr<StackRecord>,
    /// When the stack ended, in ms. Written while [`State::Leaving`].
    ended_at: AtomicU64,
    /// Bytes of address space given back since the last trim. Written while [`State::Leaving`].
    untrimmed: AtomicUsize,
    state: AtomicU8,
    guard: AtomicU8,
    size: AtomicU8,
}

const _: () = assert!(size_of::<StackRecord>() == 64);

impl StackRecord {
    /// Initialises the record of a new stack at `base`.
    pub(super) fn begin(&self, base: usize, size: Size) {
        self.base.store(base, Relaxed);
        self.size.store(size.number() as u8, Relaxed);
        self.owner.store(null_mut(), Relaxed);
        self.untrimmed.store(0, Relaxed);
    }

    /// Address of the guard's first byte.
    pub fn base(&self) -> usize {
        self.base.load(Relaxed)
    }

    /// The stack's size.
    pub fn size(&self) -> Size {
        Size::numbered(usize::from(self.size.load(Relaxed)))
    }

    /// One past the highest byte.
    pub fn top(&self) -> usize {
        self.base() + self.size().span_bytes()
    }

    /// The lowest byte that may be used, just above the guard, with OS pages of `page` bytes.
    pub fn limit(&self, page: usize) -> usize {
        self.top() - self.size().usable(page)
    }

    /// The stack's owner.
    pub fn state(&self) -> State {
        use State::{Blank, Idle, Leaving, Used};
        [Blank, Used, Idle, Leaving][usize::from(self.state.load(Acquire)) % 4]
    }

    pub(super) fn set_state(&self, state: State) {
        self.state.store(state as u8, Release);
    }

    /// Takes a stack out of use. Of several concurrent callers, one gets true.
    pub(super) fn leave_use(&self) -> bool {
        let (used, leaving) = (State::Used as u8, State::Leaving as u8);
        self.state
            .compare_exchange(used, leaving, AcqRel, Relaxed)
            .is_ok()
    }

    pub(super) fn guard(&self) -> Guard {
        use Guard::{Advice, Lost, Mapping, None, Write};
        [None, Advice, Mapping, Write, Lost][usize::from(self.guard.load(Relaxed)) % GUARDS]
    }

    pub(super) fn set_guard(&self, guard: Guard) {
        self.guard.store(guard as u8, Relaxed);
    }

    /// The user's name for the stack: null, or a C string.
    pub fn owner(&self) -> *const c_char {
        self.owner.load(Relaxed)
    }

    /// Names the stack.
    ///
    /// # Safety
    /// - `name` is null, or a C string that stays valid as long as the stack is in use: the handler
    ///   of faults reads it.
    pub unsafe fn set_owner(&self, name: *const c_char) {
        self.owner.store(name.cast_mut(), Relaxed);
    }

    /// The next one in its list.
    pub(super) fn older<'h>(&self) -> Option<&'h StackRecord> {
        // SAFETY: null, or a record.
        unsafe { record(self.older.load(Relaxed)) }
    }

    pub(super) fn ended_at(&self) -> u64 {
        self.ended_at.load(Relaxed)
    }

    pub(super) fn set_ended_at(&self, ms: u64) {
        self.ended_at.store(ms, Relaxed);
    }

    /// Notes that the stack ended once more without a trim. True if a trim is due: after `most`
    /// bytes of address space.
    pub(super) fn is_due(&self, most: usize) -> bool {
        let bytes = self.untrimmed.load(Relaxed) + self.size().bytes();
        let due = bytes >= most;
        self.untrimmed.store(if due { 0 } else { bytes }, Relaxed);
        due
    }
}

/// A record's address.
pub(super) fn pointer(record: &StackRecord) -> *mut StackRecord {
    core::ptr::from_ref(record).cast_mut()
}

/// # Safety
/// - `at` is null or the address of a record. Records stay records as long as the heap.
pub(super) unsafe fn record<'h>(at: *mut StackRecord) -> Option<&'h StackRecord> {
    // SAFETY: the caller's promise.
    NonNull::new(at).map(|at| unsafe { at.as_ref() })
}

/// Bytes of the smallest stack.
pub const LEAST_BYTES: usize = 8 << 10;
/// Bytes of the largest stack.
pub const MOST_BYTES: usize = 8 << 20;

/// A guard has at least this many bytes and an OS page: more than any frame of the C libraries'
/// functions without stack probes (`docs/stacks.md` lists them).
const GUARD_BYTES: usize = 32 << 10;

/// Sizes below a slice: 8, 16 and 32 KiB.
const SMALL: usize = 3;
/// How many sizes there are.
pub(super) const SIZES: usize = SMALL + MOST_BYTES / SLICE_BYTES;
/// Slices of the largest span.
pub(super) const MOST_SLICES: usize = (MOST_BYTES + GUARD_BYTES).div_ceil(SLICE_BYTES);

/// The size of a stack: 8, 16 or 32 KiB, or a multiple of 64 KiB. It includes one OS page of the
/// guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(u8);

const _: () = assert!(SIZES <= u8::MAX as usize);

impl Size {
    /// The size for a stack of at least `bytes`, with a guard and at least one usable page of
    /// `page` bytes. `None` below [`LEAST_BYTES`] and above [`MOST_BYTES`].
    pub fn of(bytes: usize, page: usize) -> Option<Self> {
        if !(LEAST_BYTES..=MOST_BYTES).contains(&bytes) {
            return None;
        }
        let bytes = bytes.max(2 * page);
        if bytes <= SLICE_BYTES / 2 {
            let shift = bytes.next_power_of_two().trailing_zeros() - LEAST_BYTES.trailing_zeros();
            return Some(Self(shift as u8));
        }
        let slices = round_up(bytes, SLICE_BYTES)? / SLICE_BYTES;
        Some(Self((SMALL + slices - 1) as u8))
    }

    /// The size with this number, below [`SIZES`].
    pub(super) fn numbered(number: usize) -> Self {
        Self(number as u8)
    }

    pub(super) fn number(self) -> usize {
        usize::from(self.0)
    }

    /// Bytes of the stack, with one OS page of its guard.
    pub fn bytes(self) -> usize {
        match self.number() {
            small @ 0..SMALL => LEAST_BYTES << small,
            large => (large - SMALL + 1) * SLICE_BYTES,
        }
    }

    /// Bytes that may be used, with OS pages of `page` bytes.
    pub fn usable(self, page: usize) -> usize {
        self.bytes() - page
    }

    /// Slices of the stack's span. All of it below the usable bytes is the guard.
    pub(super) fn slices(self) -> usize {
        (self.bytes() + GUARD_BYTES).div_ceil(SLICE_BYTES)
    }

    /// Bytes of the stack's span: the stack's address space with all of the guard.
    pub fn span_bytes(self) -> usize {
        self.slices() * SLICE_BYTES
    }
}

/// The records of stacks.
#[derive(Debug)]
pub(super) struct Store {
    /// Free records.
    pub(super) free: List,
    /// The newest span. The first record of each is no stack's: it leads to the span before it,
    /// and has the span's slices.
    newest: *mut StackRecord,
    /// The unused rest of the newest span.
    next: *mut StackRecord,
    left: usize,
    /// Slices of all spans.
    slices: usize,
}

/// Records per slice.
const PER_SLICE: usize = SLICE_BYTES / size_of::<StackRecord>();
/// Records at the start of a span that are no stack's.
const HEAD: usize = 1;
/// Most slices in one span of records.
const MOST_AT_ONCE: usize = 256;

impl Store {
    pub(super) const fn new() -> Self {
        Self {
            free: List::new(),
            newest: null_mut(),
            next: null_mut(),
            left: 0,
            slices: 0,
        }
    }

    /// A blank record. `span` allocates a given number of fresh, zeroed slices.
    pub(super) fn take<'h>(
        &mut self,
        span: impl Fn(usize) -> Option<NonNull<u8>>,
    ) -> Option<&'h StackRecord> {
        if let Some(free) = self.free.pop() {
            return Some(free);
        }
        if self.left == 0 {
            self.open(span)?;
        }
        // SAFETY: a record is left of a zeroed, aligned span that is never given back.
        let cut = unsafe { record(self.next) };
        // SAFETY: within the span or one past its end.
        self.next = unsafe { self.next.add(1) };
        self.left -= 1;
        cut
    }

    /// Begins a new span, as long as all earlier ones together. Such spans are permanent and
    /// fragment the heap, so they should be few.
    fn open(&mut self, span: impl Fn(usize) -> Option<NonNull<u8>>) -> Option<()> {
        let slices = self.slices.clamp(1, MOST_AT_ONCE);
        let (base, slices) = span(slices)
            .map(|base| (base, slices))
            .or_else(|| Some((span(1)?, 1)))?;
        let first = base.as_ptr().cast();
        // SAFETY: a zeroed span for records.
        let head = unsafe { record(first) }?;
        head.older.store(self.newest, Relaxed);
        head.untrimmed.store(slices, Relaxed);
        self.newest = first;
        // SAFETY: within the span.
        self.next = unsafe { first.add(HEAD) };
        self.left = slices * PER_SLICE - HEAD;
        self.slices += slices;
        Some(())
    }

    /// All records that were ever handed out.
    pub(super) fn all<'h>(&self) -> impl Iterator<Item = &'h StackRecord> + use<'h> {
        let (newest, next) = (self.newest, self.next);
        // SAFETY: null, or the first record of a span.
        let spans = from(unsafe { record(newest) });
        spans.flat_map(move |head| {
            let (first, slices) = (pointer(head), head.untrimmed.load(Relaxed));
            let (mut at, end) = (HEAD, slices * PER_SLICE);
            core::iter::from_fn(move || {
                // SAFETY: within the span.
                let place = unsafe { first.add(at) };
                let is_record = at < end && (first != newest || place < next);
                at += 1;
                // SAFETY: below what is still unused of the newest span.
                is_record.then(|| unsafe { record(place) }).flatten()
            })
        })
    }
}

/// A list of records, linked through the records, newest first.
#[derive(Debug)]
pub(super) struct List {
    newest: *mut StackRecord,
    count: usize,
}

impl List {
    pub(super) const fn new() -> Self {
        Self {
            newest: null_mut(),
            count: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn push(&mut self, entry: &StackRecord) {
        entry.older.store(self.newest, Relaxed);
        self.newest = pointer(entry);
        self.count += 1;
    }

    pub(super) fn pop<'h>(&mut self) -> Option<&'h StackRecord> {
        // SAFETY: null, or a record.
        let entry = unsafe { record(self.newest) }?;
        self.newest = entry.older.swap(null_mut(), Relaxed);
        self.count -= 1;
        Some(entry)
    }

    /// Takes out the first entry that does not stay, and all that are older. `stays` gets how many
    /// are newer.
    pub(super) fn cut<'h>(
        &mut self,
        stays: impl Fn(usize, &StackRecord) -> bool,
    ) -> Option<&'h StackRecord> {
        let (mut last, mut count) = (None::<&StackRecord>, 0);
        // SAFETY: null, or a record.
        let mut at = unsafe { record(self.newest) };
        while let Some(entry) = at.filter(|entry| stays(count, entry)) {
            (last, at, count) = (at, entry.older(), count + 1);
        }
        match last {
            Some(last) => last.older.store(null_mut(), Relaxed),
            None => self.newest = null_mut(),
        }
        self.count = count;
        at
    }
}

/// A record, and those that follow it in its list.
pub(super) fn from<'h>(
    first: Option<&'h StackRecord>,
) -> impl Iterator<Item = &'h StackRecord> + use<'h> {
    core::iter::successors(first, |entry| entry.older())
}

/// Total address space of some stacks, in bytes.
pub(super) fn bytes_of<'h>(stacks: impl Iterator<Item = &'h StackRecord>) -> usize {
    stacks.map(|stack| stack.size().span_bytes()).sum()
}

/// The figures of stacks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackTotals {
    /// Stacks in the program's hands.
    pub used: usize,
    /// Ended stacks that are kept warm.
    pub idle: usize,
    /// Bytes of address space of all of these, guards included.
    pub address: usize,
    /// Guards that cost no mapping.
    pub guards: usize,
    /// Guards that cost two mappings each.
    pub mapped_guards: usize,
    /// Guards against writes, which cost no mapping.
    pub write_guards: usize,
    /// Stacks that have lost a guard against writes, because the kernel refused another.
    pub unguarded: usize,
    /// Stacks taken from the page heap so far.
    pub created: usize,
    /// How often a stack was handed out again.
    pub recycled: usize,
    /// Stacks never used again, because the kernel would not remove their guards.
    pub lost: usize,
    /// Estimated bytes of page tables for these stacks. A table of one OS page describes as many
    /// pages as it has entries of 8 bytes (2 MiB of address space on x86-64). A stack needs its
    /// share of a table for its address space, and at most two tables: one for its guard, one for
    /// the pages in use.
    pub page_tables: usize,
}

/// The running counts behind [`StackTotals`].
#[derive(Debug)]
pub(super) struct Counts {
    /// Stacks with a guard of each kind; of [`Guard::None`], the count means nothing.
    guards: [AtomicUsize; GUARDS],
    pub(super) created: AtomicUsize,
    pub(super) lost: AtomicUsize,
    pub(super) address: AtomicUsize,
    pub(super) page_tables: AtomicUsize,
}

impl Counts {
    pub(super) const fn new() -> Self {
        Self {
            guards: [const { AtomicUsize::new(0) }; GUARDS],
            created: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            address: AtomicUsize::new(0),
            page_tables: AtomicUsize::new(0),
        }
    }

    /// How many stacks have such a guard.
    pub(super) fn of(&self, guard: Guard) -> &AtomicUsize {
        &self.guards[guard as usize]
    }

    /// Notes which guard a stack has from now on.
    pub(super) fn note(&self, stack: &StackRecord, guard: Guard) {
        self.of(guard).fetch_add(1, Relaxed);
        self.of(stack.guard()).fetch_sub(1, Relaxed);
        stack.set_guard(guard);
    }

    /// Counts a stack that came from the page heap.
    pub(super) fn add(&self, size: Size, page: usize) {
        self.created.fetch_add(1, Relaxed);
        self.address.fetch_add(size.span_bytes(), Relaxed);
        self.page_tables.fetch_add(tables(size, page), Relaxed);
    }

    /// Counts a stack that went back or was lost.
    pub(super) fn remove(&self, size: Size, page: usize) {
        self.address.fetch_sub(size.span_bytes(), Relaxed);
        self.page_tables.fetch_sub(tables(size, page), Relaxed);
    }
}

/// Bytes of page tables that one stack accounts for.
fn tables(size: Size, page: usize) -> usize {
    let entries = page / size_of::<u64>();
    (size.span_bytes() / entries).min(2 * page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn sizes_are_rounded_up() {
        let bytes = |bytes, page| Size::of(bytes, page).map(Size::bytes);
        assert_eq!(bytes(LEAST_BYTES - 1, 4096), None);
        assert_eq!(bytes(MOST_BYTES + 1, 4096), None);
        assert_eq!(bytes(8 << 10, 4096), Some(8 << 10));
        assert_eq!(bytes((8 << 10) + 1, 4096), Some(16 << 10));
        assert_eq!(bytes(20 << 10, 4096), Some(32 << 10));
        assert_eq!(bytes(33 << 10, 4096), Some(64 << 10));
        assert_eq!(bytes(65 << 10, 4096), Some(128 << 10));
        assert_eq!(bytes(MOST_BYTES, 4096), Some(MOST_BYTES));
        assert_eq!(bytes(8 << 10, 16 << 10), Some(32 << 10));
        assert_eq!(bytes(8 << 10, 64 << 10), Some(128 << 10));
    }

    #[test]
    fn numbers_are_sizes_in_order() {
        let all: Vec<_> = (0..SIZES)
            .map(|number| Size::numbered(number).bytes())
            .collect();
        assert!(all.is_sorted() && all[SIZES - 1] == MOST_BYTES);
        for (number, &bytes) in all.iter().enumerate() {
            let size = Size::of(bytes, 4096).unwrap();
            assert_eq!(size.number(), number);
            assert!(size.slices() <= MOST_SLICES);
        }
    }

    /// The largest frame without stack probes that `ci/frames.sh` finds.
    #[test]
    fn no_frame_of_the_c_libraries_reaches_past_a_guard() {
        const LARGEST_FRAME: usize = 33_312;
        for page in [4096, 16 << 10, 64 << 10] {
            for asked in (LEAST_BYTES..=MOST_BYTES).step_by(LEAST_BYTES) {
                let size = Size::of(asked, page).unwrap();
                assert!(size.usable(page) >= asked.saturating_sub(page).max(page));
                assert!(size.span_bytes() - size.usable(page) > LARGEST_FRAME);
            }
        }
    }
}
