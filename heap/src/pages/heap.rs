//! The page heap: what it consists of, and its lock. All of this is off the fast paths.

use super::arena::{Arena, MAX_ARENAS, SideTable, Sides, SliceRef, pointer};
use super::figures::{
    Counts, Footprint, Limits, MIRROR_PART, MIRROR_SLICES, Mirror, Totals, Zeroing,
};
use super::huge::{Policy, SplitUnits};
use super::span::{Queue, SpanRecord, Use};
use super::span_cache::SpanCache;
use super::zero_state::Predictor;
use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::{
    AtomicBool, AtomicIsize, AtomicU8, AtomicUsize, Ordering, Ordering::Relaxed,
};
use crate::base::tree::Tree;
use crate::base::units::{SLICE_BYTES, SLICE_SHIFT};
use crate::os::lock::{FutexGuard, FutexLock, Rank};
use crate::os::{Huge, Os, shared};
use core::ops::Range;
use core::ptr::null;

/// `primary_base` before the first arena: no address of a program's is some slices above it.
const NO_BASE: usize = 1 << (usize::BITS - 1);

/// Memory in slices: everything that Neap gives out comes from spans of a page heap.
///
/// The heap must not move once it has given out a span.
#[derive(Debug)]
#[repr(C)]
pub struct PageHeap<O: Os> {
    /// Address of the first arena. Set once.
    pub primary_base: AtomicUsize,
    /// How many slices of the first arena have a tag that may be read, at `primary_base` plus the
    /// slice's number; grows. While it is 0, no address passes, in whatever order the two are seen,
    /// the test `(address - primary_base) / SLICE_BYTES < primary_slices`.
    pub primary_slices: AtomicUsize,
    arenas_in_use: AtomicUsize,
    pub(super) limits: Limits,
    /// Bytes of pages of spans in use that are known not to be resident.
    pub(super) absent: AtomicIsize,
    /// A [`Policy`].
    pub(super) huge: AtomicU8,
    /// Held by the one thread that reserves and commits memory, over its system calls.
    pub(super) committing: FutexLock,
    /// Held while a piece of a free span, or a tail, is on its way to the kernel.
    pub(super) purging: FutexLock,
    /// Owners of spans that wait for the end of a tail's purge.
    pub(super) tail_waits: AtomicUsize,
    /// What `calloc` found large reused blocks to be.
    pub(super) predictor: Predictor,
    pub(super) zeroing: Zeroing<AtomicUsize>,
    /// Spans in use whose pages were moved into them; see [`super::renew`].
    pub(super) moved_spans: AtomicUsize,
    /// Whether the program ever mapped something over a stack.
    pub(super) maps_over_stacks: AtomicBool,
    /// Whether nothing is to be committed ahead.
    pub(super) thrifty: AtomicBool,
    /// Whether writable memory is too scarce for a slab of each class.
    pub(super) scant: AtomicBool,
    /// Whether an operation left free pages that pass a bound.
    pub(super) untended: AtomicBool,
    /// How many bytes of free pages may stay beside a large block that was taken since the last
    /// purge; `usize::MAX`: all.
    pub(super) may_stay: AtomicUsize,
    pub(super) os: O,
    pub(super) sides: Sides,
    /// Never held over a system call; debug builds check it, see [`crate::os::lock_order`].
    lock: FutexLock,
    /// guarded by: lock
    inner: UnsafeCell<Inner>,
    pub(super) tables: &'static Tables,
}

/// The parts of a page heap that are zero at first. The process's heap keeps them in a separate
/// static, so that they take no room in the library's file.
#[derive(Debug)]
#[repr(C)]
pub struct Tables {
    /// Freed spans of large blocks.
    pub(super) cache: SpanCache,
    /// A small process uses only the first.
    arenas: [Arena; MAX_ARENAS],
    /// Where units of huge pages were split. guarded by: lock
    split_units: UnsafeCell<SplitUnits>,
}

// SAFETY: `split_units` is reached only under the lock of the one heap that has them; arenas are
// Sync.
unsafe impl Sync for Tables {}

impl Tables {
    /// The tables of a new heap.
    pub const fn new() -> Self {
        Self {
            cache: SpanCache::new(),
            arenas: [const { Arena::new() }; MAX_ARENAS],
            split_units: UnsafeCell::new(SplitUnits::new()),
        }
    }

    /// The first arena.
    #[inline]
    pub(super) fn primary(&self) -> &Arena {
        &self.arenas[0]
    }
}

/// What the lock guards, beside the arenas' records and masks of free spans.
#[derive(Debug)]
pub(super) struct Inner {
    /// All free spans.
    pub(super) fit: Tree<SpanRecord>,
    /// Free spans with dirty pages, oldest first.
    pub(super) aging: Queue,
    /// Those that the kernel refused to purge.
    pub(super) refused: Queue,
    /// How many pieces of free spans are set aside.
    pub(super) aside: usize,
    /// Dirty pages of all [tails](super::tails).
    pub(super) tail_pages: usize,
    /// The span in use whose tail is on its way to the kernel, or null.
    pub(super) tail: *const SpanRecord,
    pub(super) counts: Counts,
    /// The most bytes that the heap held before a large block was taken.
    pub(super) most_held: usize,
    /// Where other processes see them.
    pub(super) mirror: Option<Mirror>,
    /// Slices in use when they were last copied there.
    pub(super) mirrored_slices: usize,
}

// SAFETY: `inner` is reached only under `lock`; the rest is atomics, constants, and tables (Sync).
unsafe impl<O: Os> Sync for PageHeap<O> {}
// SAFETY: nothing in it is tied to a thread.
unsafe impl<O: Os + Send> Send for PageHeap<O> {}

/// The heap while its lock is held.
pub(super) struct Locked<'h, O: Os> {
    pub(super) heap: &'h PageHeap<O>,
    pub(super) inner: &'h mut Inner,
    _guard: FutexGuard<'h>,
    // Dropped after the heap's, because giving it up may wake a sleeper by a system call.
    _before: Option<FutexGuard<'h>>,
}

impl<'h, O: Os> Locked<'h, O> {
    /// Gives up `before`, which was taken before the heap's lock, right after that lock.
    pub(super) fn given_up_after(&mut self, before: FutexGuard<'h>) {
        self._before = Some(before);
    }

    pub(super) fn arena(&self, id: usize) -> &'h Arena {
        &self.heap.arenas()[id]
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.heap.os.page_bytes().min(SLICE_BYTES)
    }

    /// Copies the figures to the mirror, if there is one and they have changed enough. Writing them
    /// costs a few ns, which a thread that allocates and frees one large block again and again
    /// should not pay each time.
    #[inline]
    pub(super) fn update_mirror(&mut self) {
        let used = self.inner.counts.used_slices;
        let moved = used.abs_diff(self.inner.mirrored_slices);
        // The first span, however small, makes the mirror say where the arena is.
        let is_first = self.inner.mirrored_slices == 0 && used != 0;
        if is_first || moved * MIRROR_PART >= used.max(MIRROR_SLICES) {
            self.write_mirror();
        }
    }

    /// Copies the figures to the mirror, if there is one.
    #[cold]
    pub(super) fn write_mirror(&mut self) {
        self.inner.mirrored_slices = self.inner.counts.used_slices;
        if let Some(mirror) = self.inner.mirror.filter(|_| shared::is_mine()) {
            mirror.write(&self.totals(), self.heap.arenas());
        }
    }

    pub(super) fn footprint(&self) -> Footprint {
        let absent = usize::try_from(self.heap.absent.load(Ordering::Relaxed)).unwrap_or(0);
        Footprint::of(&self.inner.counts, absent, self.page_bytes())
    }

    /// Most dirty pages that free spans may have now.
    pub(super) fn most_dirty_pages(&self) -> usize {
        match self.heap.limits.most_dirty(|| self.footprint().used) {
            usize::MAX => usize::MAX,
            bytes => bytes / self.page_bytes(),
        }
    }

    pub(super) fn count_returned(&mut self, bytes: usize) {
        self.inner.counts.purges += 1;
        self.inner.counts.purged_bytes += bytes;
    }

    fn totals(&self) -> Totals {
        let counts = &self.inner.counts;
        let cached = counts.most_cached(self.heap.tables.cache.totals());
        let cached_bytes = cached.slices * SLICE_BYTES;
        let mut totals = Totals {
            arenas: self.heap.arenas().len(),
            reserved: counts.reserved_bytes,
            committed: counts.committed_slices * SLICE_BYTES + counts.metadata_bytes,
            metadata: counts.metadata_bytes,
            in_use: counts.used_slices * SLICE_BYTES - cached_bytes,
            peak: counts.peak_slices * SLICE_BYTES,
            free: counts.free_slices * SLICE_BYTES + cached_bytes,
            free_dirty: counts.free_dirty_pages * self.page_bytes() + cached_bytes,
            by_use: counts.by_use,
            purges: counts.purges,
            purged_bytes: counts.purged_bytes,
            regretted_bytes: counts.regretted_bytes,
            zeroing: self.heap.zeroing.totals(),
        };
        let large = &mut totals.by_use[Use::Large as usize - 1];
        large.spans -= cached.spans;
        large.slices -= cached.slices;
        large.bytes -= cached.bytes;
        totals
    }

    /// Where units of huge pages were split.
    pub(super) fn split_units(&mut self) -> &mut SplitUnits {
        // SAFETY: the lock is held, and this is the only reference.
        unsafe { &mut *self.heap.tables.split_units.get() }
    }
}

impl<O: Os> Drop for Locked<'_, O> {
    fn drop(&mut self) {
        self.update_mirror();
    }
}

impl<O: Os> PageHeap<O> {
    /// An empty heap. Each slice of its arenas gets side entries of these sizes.
    ///
    /// # Safety
    /// - `tables` are new, and no other heap has them.
    pub const unsafe fn new(os: O, sides: Sides, tables: &'static Tables) -> Self {
        assert!(
            sides.near.is_multiple_of(64) && sides.far.is_multiple_of(64),
            "side entries are aligned to 64 bytes"
        );
        Self {
            primary_base: AtomicUsize::new(NO_BASE),
            primary_slices: AtomicUsize::new(0),
            arenas_in_use: AtomicUsize::new(0),
            limits: Limits::new(),
            absent: AtomicIsize::new(0),
            huge: AtomicU8::new(Policy::Auto as u8),
            committing: FutexLock::new(Rank::Committing),
            purging: FutexLock::new(Rank::Purging),
            tail_waits: AtomicUsize::new(0),
            predictor: Predictor::new(),
            zeroing: Zeroing::new(),
            moved_spans: AtomicUsize::new(0),
            maps_over_stacks: AtomicBool::new(false),
            thrifty: AtomicBool::new(false),
            scant: AtomicBool::new(false),
            untended: AtomicBool::new(false),
            may_stay: AtomicUsize::new(usize::MAX),
            os,
            sides,
            lock: FutexLock::new(Rank::Pages),
            inner: UnsafeCell::new(Inner {
                fit: Tree::new(),
                aging: Queue::new(),
                refused: Queue::new(),
                aside: 0,
                tail_pages: 0,
                tail: null(),
                counts: Counts::new(),
                most_held: 0,
                mirror: None,
                mirrored_slices: 0,
            }),
            tables,
        }
    }

    /// The operating system under this heap.
    pub fn os(&self) -> &O {
        &self.os
    }

    /// The slice at `address`; `None` outside the arenas. Takes no lock.
    #[inline]
    pub fn locate(&self, address: usize) -> Option<SliceRef<'_>> {
        let place = self.locate_tagged(address)?;
        match place.index >= place.arena.layout().head {
            true => Some(place),
            false => self.locate_anywhere(address),
        }
    }

    /// [`PageHeap::locate`] for the start of a span with a tag. An answer without a tag means
    /// nothing: the address may be another arena's, between the tables of the first one.
    #[inline]
    pub fn locate_tagged(&self, address: usize) -> Option<SliceRef<'_>> {
        self.locate_primary(address)
            .or_else(|| self.locate_anywhere(address))
    }

    /// [`PageHeap::locate_tagged`] in the first arena, by the bounds of the fast path: most
    /// programs have no other.
    #[inline(always)]
    pub fn locate_primary(&self, address: usize) -> Option<SliceRef<'_>> {
        let base = self.primary_base.load(Ordering::Acquire);
        let index = address.wrapping_sub(base) >> SLICE_SHIFT;
        let is_tagged = index < self.primary_slices.load(Ordering::Acquire);
        is_tagged.then(|| SliceRef {
            arena: self.tables.primary(),
            index,
        })
    }

    /// The side entries of the first arena; `None` without one. Takes no lock.
    pub fn sides(&self) -> Option<SideTable> {
        self.arenas().first().map(SideTable::of)
    }

    /// [`PageHeap::locate`] in all arenas. Where addresses are few, one arena may lie between the
    /// tables of another.
    #[inline(never)]
    fn locate_anywhere(&self, address: usize) -> Option<SliceRef<'_>> {
        self.arenas().iter().find_map(|arena| {
            let index = address.wrapping_sub(arena.layout().base) >> SLICE_SHIFT;
            let is_tagged = index < arena.tagged.get().min(arena.end.get());
            let is_here = is_tagged && arena.maps(&(address..address + 1));
            is_here.then_some(SliceRef { arena, index })
        })
    }

    /// Whether one arena has mapped all of a range.
    pub fn maps(&self, range: &Range<usize>) -> bool {
        self.arenas().iter().any(|arena| arena.maps(range))
    }

    /// Bytes of slices that ever were in a span: what the heap has grown to. Takes no lock.
    pub fn extent(&self) -> usize {
        let slices = |arena: &Arena| arena.frontier.get().saturating_sub(arena.layout().head);
        let slices = match self.arenas() {
            // Every slow path asks this, and most processes have one arena.
            [only] => slices(only),
            arenas => arenas.iter().map(slices).sum(),
        };
        slices << SLICE_SHIFT
    }

    /// The addresses of the first arena that ever were in a span; none without an arena. Takes no
    /// lock.
    pub fn primary_used(&self) -> Range<usize> {
        self.arenas().first().map_or(0..0, |arena| {
            let layout = arena.layout();
            layout.address(layout.head)..layout.address(arena.frontier.get())
        })
    }

    /// The bounds in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts `bytes` more bytes (fewer, if negative) of spans in use that are known not to be
    /// resident.
    pub fn count_absent(&self, bytes: isize) {
        if bytes != 0 {
            self.absent.fetch_add(bytes, Relaxed);
        }
    }

    /// Whether a refused request for `bytes` could be served if every slab and every stack were
    /// empty and all free memory were contiguous. If not, gathering free memory is useless.
    pub fn may_gain(&self, bytes: usize) -> bool {
        let locked = self.locked();
        let counts = &locked.inner.counts;
        let loose = [Use::Slab, Use::Stack].map(|use_| counts.by_use[use_ as usize - 1].slices);
        let loose = loose.iter().sum::<usize>() * SLICE_BYTES + self.cached_bytes();
        let fixed = locked.footprint().used.saturating_sub(loose);
        bytes <= loose + counts.free_slices * SLICE_BYTES
            && bytes <= self.limits.hard().saturating_sub(fixed)
    }

    /// Bytes that may be resident: of spans in use (see
    /// [`STACK_BYTES`](super::figures::STACK_BYTES)), and of free pages.
    pub fn footprint(&self) -> Footprint {
        self.locked().footprint()
    }

    /// The figures now.
    pub fn totals(&self) -> Totals {
        self.locked().totals()
    }

    /// From now on the figures are copied there whenever they are off by a sixty-fourth of the
    /// spans in use, or by a MiB in a small heap, and after a purge. `None`: no more.
    pub fn set_mirror(&self, mirror: Option<Mirror>) {
        let mut locked = self.locked();
        locked.inner.mirror = mirror;
        locked.write_mirror();
    }

    /// Copies the figures to the mirror, however little they changed: cached spans count as free
    /// there, and what comes and goes among them is not noticed otherwise.
    pub fn refresh_mirror(&self) {
        self.locked().write_mirror();
    }

    /// In a fork's child: ends the copying to the parent's mirror, and counts purges from 0.
    pub fn leave_parents_mirror(&self) {
        let inner = &mut self.locked().inner;
        inner.mirror = None;
        let counts = &mut inner.counts;
        (counts.purges, counts.purged_bytes, counts.regretted_bytes) = (0, 0, 0);
    }

    /// Sets when slabs come from huge pages. Arenas that exist stay as they are.
    pub fn set_huge(&self, policy: Policy) {
        self.huge.store(policy as u8, Relaxed);
    }

    /// Gives the kernel the policy's advice for a new mapping of an arena, and again what it was
    /// told about parts of it. By default there is no advice. But huge pages that the kernel uses
    /// unasked make the unused ends of blocks resident, for which a small group has no room.
    pub(super) fn advise_mapping(&self, mut range: Range<usize>) {
        let are_harmful = || self.limits.has_small_group() && self.os.has_huge_everywhere();
        match self.huge_policy() {
            Policy::Always => self.advise(range.clone(), Huge::Want),
            Policy::Auto if !are_harmful() => {}
            Policy::Auto | Policy::Never => return self.advise(range, Huge::Avoid),
        }
        let told = |range: &_| self.locked().split_units().told_in(range);
        while let Some(part) = told(&range) {
            range.start = part.end;
            self.advise(part, Huge::Avoid);
        }
    }

    pub(super) fn advise(&self, range: Range<usize>, advice: Huge) {
        // SAFETY: all callers name mapped ranges of one arena; advice changes no contents.
        unsafe {
            self.os
                .advise_huge(pointer(range.start), range.len(), advice)
        };
    }

    pub(super) fn huge_policy(&self) -> Policy {
        match self.huge.load(Relaxed) {
            0 => Policy::Auto,
            1 => Policy::Never,
            _ => Policy::Always,
        }
    }

    /// Whether writable memory is so limited that there is no room for a slab of each class.
    pub fn is_scant(&self) -> bool {
        self.scant.load(Ordering::Relaxed)
    }

    /// Whether no thread holds the lock now.
    pub fn is_quiet(&self) -> bool {
        self.lock.try_lock().is_some()
    }

    /// The locks, for a fork: that of a commit under way, that of a purge, and the heap's.
    pub fn locks(&self) -> [&FutexLock; 3] {
        [&self.committing, &self.purging, &self.lock]
    }

    pub(super) fn locked(&self) -> Locked<'_, O> {
        self.with(self.lock.lock())
    }

    fn with<'h>(&'h self, _guard: FutexGuard<'h>) -> Locked<'h, O> {
        // SAFETY: the lock is held as long as the reference lives: one value has it and the guard.
        let inner = unsafe { &mut *self.inner.get() };
        Locked {
            heap: self,
            inner,
            _guard,
            _before: None,
        }
    }

    /// The arenas that exist.
    pub(super) fn arenas(&self) -> &[Arena] {
        &self.tables.arenas[..self.arenas_in_use.load(Ordering::Acquire)]
    }

    /// The next arena to open; `None` if there are as many as possible. The caller holds
    /// `committing`.
    pub(super) fn unopened(&self) -> Option<(usize, &Arena)> {
        let id = self.arenas_in_use.load(Ordering::Relaxed);
        Some((id, self.tables.arenas.get(id)?))
    }

    /// Publishes a newly opened arena to all threads. The caller holds `committing`.
    pub(super) fn publish(&self, id: usize) {
        self.arenas_in_use.store(id + 1, Ordering::Release);
        if id == 0 {
            let base = self.tables.arenas[0].layout().base;
            self.primary_base.store(base, Ordering::Release);
            self.publish_tags();
        }
    }

    /// Tells the fast path how many tags of the first arena may be read, if there is one. What lies
    /// beyond its end may belong to another arena. The caller holds `committing`.
    pub(super) fn publish_tags(&self) {
        if let Some(first) = self.arenas().first() {
            self.primary_slices
                .store(first.tagged.get().min(first.end.get()), Ordering::Release);
        }
    }
}
