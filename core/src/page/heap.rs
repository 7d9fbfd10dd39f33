//! The page heap and its operations. One lock: all of this is off the fast paths.

use super::Use;
use super::arena::{Arena, Sides};
use super::fit::{Age, Density, From, Want};
use super::huge::Policy;
use super::limits::{Limits, Verdict};
use super::moves::Renewal;
use super::place::{Extension, Place, Span};
use super::span::{Queue, Queued, Record, State};
use super::totals::Counts;
use super::zero::{Dirty, Zero};
use super::zeroing::{Habits, Zeroing};
use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::{AtomicIsize, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use crate::base::tree::Tree;
use crate::base::units::{SLICE_BYTES, SLICE_SHIFT};
use crate::os::Os;
use crate::os::lock::{FutexGuard, FutexLock};
use core::ptr::NonNull;

/// Most arenas of one heap.
pub(super) const MAX_ARENAS: usize = 256;

/// How long a free page stays resident unless told otherwise, in ms.
const DEFAULT_DECAY_MS: u64 = 1000;

/// `primary_base` before the first arena: from here, no user address is within any number of slices.
const NO_BASE: usize = 1 << (usize::BITS - 1);

/// Memory by the slice: everything Neap gives out is a span of a page heap.
///
/// The heap must not move once it has given out a span.
#[derive(Debug)]
pub struct PageHeap<O: Os> {
    /// Address of the first arena. Set once.
    pub primary_base: AtomicUsize,
    /// How many slices of the first arena have a tag that may be read, at `primary_base` plus the slice's
    /// number; grows. While it is 0, and whatever of the two is seen first, no address passes the test
    /// `(address - primary_base) / SLICE_BYTES < primary_slices`.
    pub primary_slices: AtomicUsize,
    arenas_in_use: AtomicUsize,
    pub(super) decay_ms: AtomicU64,
    /// A [`super::Chores`].
    pub(super) chores: AtomicU8,
    pub(super) limits: Limits,
    /// Bytes of pages of spans in use that are known to be away.
    pub(super) absent: AtomicIsize,
    /// A [`Policy`].
    pub(super) huge: AtomicU8,
    /// Held while a piece of a free span is on its way to the kernel, so that a fork finds none. Taken before `lock`.
    pub(super) purging: FutexLock,
    /// What large reused blocks were found to be.
    pub(super) habits: Habits,
    pub(super) zeroing: Zeroing,
    /// Spans in use whose pages were moved into them; see [`super::moves`].
    pub(super) moved_spans: AtomicUsize,
    pub(super) os: O,
    pub(super) sides: Sides,
    lock: FutexLock,
    /// guarded by: lock
    inner: UnsafeCell<Inner>,
    arenas: [Arena; MAX_ARENAS],
}

/// What the lock guards, beside the arenas' records and masks of free spans.
#[derive(Debug)]
pub(super) struct Inner {
    /// All free spans.
    pub(super) fit: Tree<Record>,
    /// Free spans with dirty pages, oldest first.
    pub(super) aging: Queue,
    /// Those that the kernel refused to purge.
    pub(super) refused: Queue,
    pub(super) counts: Counts,
}

// SAFETY: `inner` is reached only under `lock`; the rest is atomics, constants, and arenas (Sync).
unsafe impl<O: Os> Sync for PageHeap<O> {}
// SAFETY: nothing in it is tied to a thread.
unsafe impl<O: Os + Send> Send for PageHeap<O> {}

/// The heap while its lock is held.
pub(super) struct Locked<'h, O: Os> {
    pub(super) heap: &'h PageHeap<O>,
    pub(super) inner: &'h mut Inner,
    _guard: FutexGuard<'h>,
}

impl<O: Os> PageHeap<O> {
    /// An empty heap. Each slice of its arenas gets side entries of these sizes.
    pub const fn new(os: O, sides: Sides) -> Self {
        assert!(
            sides.near.is_multiple_of(64) && sides.far.is_multiple_of(64),
            "side entries are aligned to 64 bytes"
        );
        Self {
            primary_base: AtomicUsize::new(NO_BASE),
            primary_slices: AtomicUsize::new(0),
            arenas_in_use: AtomicUsize::new(0),
            decay_ms: AtomicU64::new(DEFAULT_DECAY_MS),
            chores: AtomicU8::new(0),
            limits: Limits::new(),
            absent: AtomicIsize::new(0),
            huge: AtomicU8::new(Policy::Auto as u8),
            purging: FutexLock::new(),
            habits: Habits::new(),
            zeroing: Zeroing::new(),
            moved_spans: AtomicUsize::new(0),
            os,
            sides,
            lock: FutexLock::new(),
            inner: UnsafeCell::new(Inner {
                fit: Tree::new(),
                aging: Queue::new(Queued::Aging),
                refused: Queue::new(Queued::Refused),
                counts: Counts::new(),
            }),
            arenas: [const { Arena::new() }; MAX_ARENAS],
        }
    }

    /// The operating system under this heap.
    pub fn os(&self) -> &O {
        &self.os
    }

    /// A span of `slices` slices at a multiple of `align_slices` slices (a power of two), for a user who asks for
    /// `bytes` of it. `None` when the kernel or a limit refuses memory; then nothing has changed.
    pub fn alloc(
        &self,
        slices: usize,
        align_slices: usize,
        use_: Use,
        bytes: usize,
    ) -> Option<Span<'_>> {
        self.alloc_from(From::Anywhere, slices, align_slices, use_, bytes)
    }

    /// Like [`PageHeap::alloc`]; says where the span may come from.
    pub fn alloc_from(
        &self,
        from: From,
        slices: usize,
        align_slices: usize,
        use_: Use,
        bytes: usize,
    ) -> Option<Span<'_>> {
        debug_assert!(slices > 0 && align_slices.is_power_of_two());
        let mut locked = self.admitted(slices, use_)?;
        let want = Want {
            slices,
            align: align_slices,
            from,
            density: match use_ {
                Use::Slab => Density::Dense,
                Use::Large | Use::Stack | Use::Meta => Density::Unknown,
            },
        };
        let (place, zero) = locked.alloc(&want, use_, bytes)?;
        let warm = place.record().dirty.get() * locked.page_bytes();
        self.end(locked);
        Some(Span {
            base: address_of(place),
            slices,
            zero,
            cold: slices * SLICE_BYTES - warm,
            place,
        })
    }

    /// Takes a whole span back. Its tag becomes 0. A span that somebody mapped over, and that the kernel refuses to map
    /// afresh, stays in use for good.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, which nobody uses any more.
    /// - `dirty` covers all that was written to it since it was given out.
    pub unsafe fn free(&self, base: NonNull<u8>, dirty: Dirty) {
        // SAFETY: the caller's promise.
        unsafe { self.free_aged(base, dirty, Age::New) }
    }

    /// Like [`PageHeap::free`]; says how long nobody has used the span.
    ///
    /// # Safety
    /// - As [`PageHeap::free`].
    pub unsafe fn free_aged(&self, base: NonNull<u8>, dirty: Dirty, age: Age) {
        // SAFETY: the caller's promise: nobody uses the span.
        let dirty = match unsafe { self.renew_from(base, 0) } {
            Renewal::NoNeed => dirty,
            Renewal::Zero => Dirty::Zeroed,
            Renewal::Refused => return,
        };
        let mut locked = self.locked();
        if let Some(place) = locked.span_at(base) {
            locked.free(place, dirty, age);
        }
        self.end(locked);
    }

    /// Makes a span longer, to `new_slices` slices (more than it has), if what follows it is free; sets the bytes asked for. Nothing
    /// changes on `None`.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, and the caller's.
    pub unsafe fn grow_in_place(
        &self,
        base: NonNull<u8>,
        new_slices: usize,
        bytes: usize,
    ) -> Option<Extension<'_>> {
        let place = self.locate(base.as_ptr() as usize)?;
        let extra = new_slices.saturating_sub(place.slices());
        let mut locked = self.admitted(extra, place.use_()?)?;
        let place = locked.span_at(base)?;
        let grown = locked.grow(place, new_slices, bytes);
        self.end(locked);
        grown
    }

    /// Gives the end of a span back so that `new_slices` slices (at least one) remain; sets the bytes asked for.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, the caller's, of at least `new_slices` slices.
    /// - Nobody uses what is given back; `dirty` covers all that was written to the whole span.
    pub unsafe fn shrink_in_place(
        &self,
        base: NonNull<u8>,
        new_slices: usize,
        bytes: usize,
        dirty: Dirty,
    ) {
        // SAFETY: the caller's promise: nobody uses what is given back.
        let renewal = unsafe { self.renew_from(base, new_slices) };
        let mut locked = self.locked();
        if let Some(place) = locked.span_at(base) {
            let kept = match renewal {
                Renewal::Refused => place.slices(),
                Renewal::NoNeed | Renewal::Zero => new_slices,
            };
            locked.shrink(place, kept, bytes, dirty);
        }
        self.end(locked);
    }

    /// The heap, locked, when `slices` more slices keep the hard limit, else `None`.
    ///
    /// Whether purging helped is seen by judging again, not by what this thread purged: another may have done it.
    fn admitted(&self, slices: usize, use_: Use) -> Option<Locked<'_, O>> {
        loop {
            let locked = self.locked();
            let most = match locked.judge(slices, use_) {
                Verdict::Granted => return Some(locked),
                Verdict::AfterPurge(most) if locked.inner.aging.oldest().is_some() => most,
                // All that is dirty was refused by the kernel.
                Verdict::AfterPurge(_) | Verdict::Refused => return None,
            };
            drop(locked);
            self.purge_above(most);
        }
    }

    /// Does what is due: for callers that have not come by for a while.
    pub fn tend(&self) {
        self.end(self.locked());
    }

    /// Gives up the lock, then does what is due.
    pub(super) fn end(&self, locked: Locked<'_, O>) {
        let due = locked.chores();
        drop(locked);
        self.do_chores(due);
    }

    /// Sets the bytes asked for of a span whose slices stay.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, and the caller's.
    /// - `dirty` covers all that was written to it so far, unless the later free will.
    pub unsafe fn set_bytes(&self, base: NonNull<u8>, bytes: usize, dirty: Dirty) {
        let mut locked = self.locked();
        if let Some(place) = locked.span_at(base) {
            locked.note_writes(place, dirty);
            locked.set_bytes(place, bytes);
        }
    }

    /// The slice at `address`; `None` outside the arenas. Takes no lock.
    #[inline]
    pub fn locate(&self, address: usize) -> Option<Place<'_>> {
        let within = |arena: &'_ Arena| {
            let index = address.wrapping_sub(arena.layout().base) >> SLICE_SHIFT;
            (index < arena.tagged()).then_some(index)
        };
        let arenas = self.arenas();
        arenas.iter().find_map(|arena| {
            Some(Place {
                arena,
                index: within(arena)?,
            })
        })
    }

    /// Calls `visit` with the first slice of every span of one use. The lock is held: `visit` must not call
    /// back into the heap, nor allocate.
    pub fn for_each_span(&self, use_: Use, mut visit: impl FnMut(Place<'_>)) {
        let locked = self.locked();
        locked.for_each_record(|place, record| {
            if record.state() == State::Used(use_) {
                visit(place);
            }
        });
    }

    /// Whether nobody holds the lock now.
    pub fn is_quiet(&self) -> bool {
        self.lock.try_lock().is_some()
    }

    /// Takes the lock and keeps it, so that a fork finds the heap at rest.
    ///
    /// # Safety
    /// - Followed, on the same thread, by [`PageHeap::fork_unlock`], in the parent and in the child, with no
    ///   other call between.
    pub unsafe fn fork_lock(&self) {
        core::mem::forget(self.purging.lock());
        core::mem::forget(self.lock.lock());
    }

    /// Gives up what [`PageHeap::fork_lock`] took. In the child too: sleepers stayed in the parent, and waking
    /// nobody is harmless.
    ///
    /// # Safety
    /// - [`PageHeap::fork_lock`] was called before, by this thread or the one it was forked from.
    pub unsafe fn fork_unlock(&self) {
        // SAFETY: both held since `fork_lock`, by the caller's promise.
        unsafe {
            self.lock.force_unlock();
            self.purging.force_unlock();
        }
    }

    pub(super) fn locked(&self) -> Locked<'_, O> {
        let _guard = self.lock.lock();
        // SAFETY: the lock is held as long as the reference lives: guard and reference are in one value.
        let inner = unsafe { &mut *self.inner.get() };
        Locked {
            heap: self,
            inner,
            _guard,
        }
    }

    /// The arenas that exist.
    pub(super) fn arenas(&self) -> &[Arena] {
        &self.arenas[..self.arenas_in_use.load(Ordering::Acquire)]
    }

    /// The next arena to open; `None` when there are as many as can be.
    pub(super) fn unopened(&self) -> Option<(usize, &Arena)> {
        let id = self.arenas_in_use.load(Ordering::Relaxed);
        Some((id, self.arenas.get(id)?))
    }

    /// Lets everybody see a newly opened arena. Under the lock.
    pub(super) fn publish(&self, id: usize) {
        self.arenas_in_use.store(id + 1, Ordering::Release);
        if id == 0 {
            self.primary_base
                .store(self.arenas[0].layout().base, Ordering::Release);
            self.publish_tags();
        }
    }

    /// Lets the fast path see how many tags of the first arena may be read. Under the lock.
    pub(super) fn publish_tags(&self) {
        self.primary_slices
            .store(self.arenas[0].tagged(), Ordering::Release);
    }
}

/// The address of a slice, as a pointer.
pub(super) fn address_of(place: Place<'_>) -> NonNull<u8> {
    // SAFETY: an address in an arena is not null.
    unsafe { NonNull::new_unchecked(place.slice_base() as *mut u8) }
}

impl<'h, O: Os> Locked<'h, O> {
    /// The span in use that starts at `base`.
    pub(super) fn span_at(&self, base: NonNull<u8>) -> Option<Place<'h>> {
        let address = base.as_ptr() as usize;
        let place = self
            .heap
            .locate(address)
            .filter(|place| place.use_().is_some());
        debug_assert!(
            place.is_some_and(|place| place.slice_base() == address),
            "a span in use"
        );
        place
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.heap.os.page_bytes().min(SLICE_BYTES)
    }

    fn alloc(&mut self, want: &Want, use_: Use, bytes: usize) -> Option<(Place<'h>, Zero)> {
        let (free, at) = self.find(want)?;
        let arena = self.arena(free.arena());
        let record = self.carve(free, at, want.slices);
        record.set_state(State::Used(use_));
        record.swap_bytes(bytes);
        let counts = &mut self.inner.counts;
        counts.take(want.slices);
        let figure = &mut counts.by_use[use_ as usize - 1];
        figure.spans += 1;
        figure.slices += want.slices;
        figure.bytes += bytes;
        Some((Place { arena, index: at }, Zero::of(record.dirty.get())))
    }

    pub(super) fn free(&mut self, place: Place<'h>, dirty: Dirty, age: Age) {
        let (record, slices) = (place.arena.record(place.index), place.slices());
        self.note_writes(place, dirty);
        self.set_bytes(place, 0);
        place.set_tag(0);
        self.uncount(place, slices);
        if let Some(use_) = place.use_() {
            self.inner.counts.by_use[use_ as usize - 1].spans -= 1;
        }
        record.set_state(State::Blank);
        self.add_free(record, age);
    }

    fn grow(&mut self, place: Place<'h>, new_slices: usize, bytes: usize) -> Option<Extension<'h>> {
        let record = place.arena.record(place.index);
        let next = record.end();
        if record.is_huge() {
            return None;
        }
        let extra = new_slices
            .checked_sub(record.slices.get())
            .filter(|&extra| extra > 0)?;
        let free = self.claim_at(record.arena(), next, extra)?;
        let added = self.carve(free, next, extra);
        let zero = Zero::of(added.dirty.get());
        self.join(record, added);
        self.set_bytes(place, bytes);
        self.inner.counts.take(extra);
        if let Some(use_) = place.use_() {
            self.inner.counts.by_use[use_ as usize - 1].slices += extra;
        }
        let place = Place {
            index: next,
            ..place
        };
        Some(Extension {
            slices: extra,
            zero,
            place,
        })
    }

    fn shrink(&mut self, place: Place<'h>, new_slices: usize, bytes: usize, dirty: Dirty) {
        let record = place.arena.record(place.index);
        let (cut, end) = (place.index + new_slices, record.end());
        debug_assert!(new_slices > 0 && cut <= end);
        self.note_writes(place, dirty);
        self.set_bytes(place, bytes);
        if cut >= end || new_slices == 0 {
            return;
        }
        let rest = self.cut_off(record, cut);
        self.uncount(place, end - cut);
        self.add_free(rest, Age::New);
    }

    /// Slices go from a span in use to nobody.
    fn uncount(&mut self, place: Place<'h>, slices: usize) {
        self.inner.counts.used_slices -= slices;
        if let Some(use_) = place.use_() {
            self.inner.counts.by_use[use_ as usize - 1].slices -= slices;
        }
    }

    pub(super) fn set_bytes(&mut self, place: Place<'h>, bytes: usize) {
        let Some(use_) = place.use_() else { return };
        let old = place.arena.record(place.index).swap_bytes(bytes);
        let figure = &mut self.inner.counts.by_use[use_ as usize - 1];
        figure.bytes = figure.bytes + bytes - old;
    }

    /// Calls `visit` with every span, in the order of addresses within an arena.
    pub(super) fn for_each_record(&self, mut visit: impl FnMut(Place<'h>, &'h Record)) {
        for arena in self.heap.arenas() {
            let mut index = arena.layout().head;
            while index < arena.frontier() {
                let record = arena.record(index);
                let end = record.end();
                visit(Place { arena, index }, record);
                index = end.max(index + 1);
            }
        }
    }
}
