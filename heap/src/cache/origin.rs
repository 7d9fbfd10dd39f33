//! Blocks, metadata and spans straight from the depots and the page heap, past all magazines.

use super::heap::{Found, Heap, Known, Mode};
use super::magazine::Tag;
use super::measures::{EARLY, Measures, SECRETS};
use super::misuse::{self, Call};
use crate::base::sync::Ordering;
use crate::base::units::{SLICE_BYTES, slices_for};
use crate::os::Os;
use crate::os::linux::Linux;
use crate::pages::{Age, Dirty, Span, SpanSource, Use, Zero};
use crate::slab::class::Class;
use crate::slab::depot_id::{DepotId, User};
use crate::slab::page_set::PageSet;
use crate::slab::{Claim, Grain, Pages, Scope, Slab, Slice, Source, Touched};
use core::ptr::NonNull;

impl Heap {
    /// A block of `class` straight from a slab, past all magazines. Null when out of memory.
    pub fn take_one(&'static self, class: Class) -> *mut u8 {
        self.take_known(class).0
    }

    /// Like [`Heap::take_one`], any of the first free blocks of the slab.
    pub(crate) fn take_any(&'static self, class: Class) -> *mut u8 {
        let grain = Grain::Random(SECRETS.next());
        self.take_from(grain, DepotId::near(class), Supply::Fresh).0
    }

    /// Like [`Heap::take_one`]; tells whether the block is known to read as zero.
    pub fn take_known(&'static self, class: Class) -> (*mut u8, Known) {
        let (id, supply) = (DepotId::near(class), Supply::Fresh);
        let (block, fresh) = self.take_from(Grain::Blocks, id, supply);
        let known = match fresh {
            0 => Known::Unknown,
            _ => Known::Zero,
        };
        (block, known)
    }

    /// A block of a depot, and which of its bits is fresh. Null when out of memory.
    fn take_from(&'static self, grain: Grain, id: DepotId, supply: Supply) -> (*mut u8, u64) {
        let origin = Origin {
            supply,
            ..Origin::blocks(self, Age::New)
        };
        let mut taken = (0, 0);
        let mut sink = |slab: &Slab, claim: Claim| {
            taken = (slab.address_of(id.class, claim), claim.fresh);
        };
        self.depots.take_by(grain, id, 1, &origin, &mut sink);
        (taken.0 as *mut u8, taken.1)
    }

    /// A block of `class` that is sampled, from a slab of such blocks. Null when out of memory.
    #[inline(never)]
    pub fn take_sampled(&'static self, class: Class) -> *mut u8 {
        self.take_from(Grain::Blocks, DepotId::sampled(class), Supply::Fresh)
            .0
    }

    /// Takes a sampled block back. Aborts if it is free.
    ///
    /// # Safety
    /// - `address` is in a slab of sampled blocks of `class`; the program frees the block, and
    ///   nothing uses it any more.
    pub(crate) unsafe fn give_sampled(&'static self, address: usize, class: Class) {
        self.tide.note_freed(class.bytes());
        // SAFETY: the caller's promise.
        unsafe { self.give_to(DepotId::sampled(class), address) };
    }

    /// Memory of `bytes` bytes for the pool of guarded blocks, for good. `None` when out of memory.
    /// The instruments call this, and not the page heap, whose generic code would be compiled into
    /// both crates: 27 KiB.
    #[inline(never)]
    pub fn take_pool(&'static self, bytes: usize) -> Option<NonNull<u8>> {
        let span = self.pages.alloc(slices_for(bytes), 1, Use::Meta, bytes)?;
        let start = span.base.addr().get();
        self.pool[1].store(start + bytes, Ordering::Relaxed);
        self.pool[0].store(start, Ordering::Release);
        Some(span.base)
    }

    /// A block of `class` from a slab that has free ones. Null if none has.
    pub fn take_listed(&'static self, class: Class) -> *mut u8 {
        self.take_from(Grain::Blocks, DepotId::near(class), Supply::Listed)
            .0
    }

    /// Metadata of at least `bytes` bytes (at most 32 KiB) at a multiple of 8; contents undefined.
    /// `None` when out of memory.
    pub fn take_meta(&'static self, bytes: usize) -> Option<NonNull<u8>> {
        let id = DepotId::metadata(bytes);
        NonNull::new(self.take_from(Grain::Blocks, id, Supply::Fresh).0)
    }

    /// Takes metadata back.
    ///
    /// # Safety
    /// - `block` came from [`Heap::take_meta`] with the same `bytes`, and nothing uses it any more.
    pub unsafe fn give_meta(&'static self, block: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.give_to(DepotId::metadata(bytes), block.addr().get()) };
    }

    /// Gives a block back to the depot `id`, past all magazines. Aborts if none starts at
    /// `address`, or if it is free.
    ///
    /// # Safety
    /// - The block came from the depot, and nothing uses it any more.
    unsafe fn give_to(&'static self, id: DepotId, address: usize) {
        let slab = self.slab_at(address);
        let number = id.class.block_at(address % SLICE_BYTES);
        let (Some(slab), Some(number)) = (slab, number) else {
            misuse::no_block(Call::Free, address);
        };
        let (word, bits) = (number / 64, 1 << (number % 64));
        let origin = Origin::blocks(self, Age::New);
        // SAFETY: the caller's promise.
        if unsafe { self.depots.give(slab, id, word, bits, &origin) }.is_err() {
            misuse::double_free(address, id.class.bytes());
        }
    }
}

/// The source of slabs, to which they return. Its users may hold a cache's lock, so it purges
/// nothing: what passes a bound then is left to the
/// [end](crate::pages::PageHeap::tend_left) of the call.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) heap: &'static Heap,
    /// How long a slab that it takes back has been unused.
    age: Age,
    supply: Supply,
}

impl Origin {
    /// Does what the measures in force ask for a fresh slab of the program's: its blocks read as
    /// zero, or are not accessible.
    #[cold]
    fn prepare(&self, class: Class, span: &Span<'_>) {
        let pages = &self.heap.pages;
        if span.zero == Zero::MaybeDirty && self.heap.measures().has(Measures::ZERO) {
            // SAFETY: the span is this thread's until the slice is carved.
            unsafe { pages.zero_dirty(span.base, SLICE_BYTES) };
        }
        let is_early = EARLY.has(span.base.addr().get());
        if self.heap.is_no_bytes(class) && !is_early {
            // Where the kernel has no such guards, blocks of no bytes stay accessible.
            // SAFETY: as above.
            let _ = unsafe { Linux.install_guard(span.base, SLICE_BYTES) };
        }
    }

    /// Takes back what [`Origin::prepare`] did to a slab's slice.
    fn open_up(&self, base: NonNull<u8>) {
        if self.heap.measures().has(Measures::NO_BYTES)
            && let Found::Slab(_, class) = self.heap.find(base.as_ptr().addr())
            && self.heap.is_no_bytes(class)
        {
            // SAFETY: a span in use, of which no block is out.
            let _ = unsafe { Linux.remove_guard(base, SLICE_BYTES) };
        }
    }
}

/// Whether an [`Origin`] makes slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supply {
    Fresh,
    /// Only slabs that exist serve.
    Listed,
}

impl Origin {
    /// Of slabs of every user.
    pub(crate) fn blocks(heap: &'static Heap, age: Age) -> Origin {
        Origin {
            heap,
            age,
            supply: Supply::Fresh,
        }
    }
}

// SAFETY: records and far words stand in side tables, which are never freed; each slice is a span
// that `pages` has just given out, and is purged where the caller says that nothing is used.
unsafe impl Source for Origin {
    fn fresh(&self, id: DepotId, pages: Pages) -> Option<Slice> {
        if self.supply == Supply::Listed {
            return None;
        }
        let from = match pages {
            Pages::Resident => SpanSource::Resident,
            Pages::Any => SpanSource::Any,
        };
        let (use_, tag) = match id.user() {
            User::Program => (Use::Slab, Tag::of(id.class)),
            User::Sampled => (Use::Slab, Tag::SAMPLED),
            User::Heap => (Use::Meta, Tag::NONE),
        };
        let pages = &self.heap.pages;
        let span = pages.alloc_untended(from, 1, 1, use_, SLICE_BYTES, 0)?;
        // SAFETY: the span is this thread's until the slice is carved.
        unsafe { span.place.set_tag(tag.byte()) };
        if self.heap.mode() == Mode::Checking && id.user() == User::Program {
            self.prepare(id.class, &span);
        }
        Some(Slice {
            record: span.place.side().cast(),
            base: span.base.as_ptr().addr(),
            zero: !span.place.dirty_mask(),
            far: span.place.far_side().cast(),
        })
    }

    fn retire(&self, slab: NonNull<Slab>, touched: Touched) {
        // SAFETY: slab records are type-stable.
        let base = unsafe { slab.as_ref() }.base();
        let Some(base) = NonNull::new(base as *mut u8) else {
            return;
        };
        self.open_up(base);
        let dirty = Dirty::PrefixBut {
            bytes: touched.bytes,
            clean: touched.clean.whole_pages(self.pages()),
        };
        // SAFETY: the span was allocated by `fresh`, all its blocks have been claimed for good, and
        // only the first bytes were ever handed out, of which the clean pages were purged since.
        unsafe { self.heap.pages.free_untended(base, dirty, self.age, 0) }
    }

    fn note_withheld(&self, bytes: isize) {
        self.heap.pages.count_absent(bytes);
    }

    fn readmit(&self, bytes: usize) -> bool {
        self.heap.pages.readmit(bytes)
    }

    fn keeps_pages(&self, scope: Scope) -> bool {
        let pages = &self.heap.pages;
        let keeps = || pages.footprint().dirty <= pages.limits().kept();
        let by_threshold = scope == Scope::Idle && pages.limits().kept() > 0;
        Linux.is_locked() || by_threshold && keeps()
    }

    fn pages(&self) -> usize {
        SLICE_BYTES / Linux.page_bytes().min(SLICE_BYTES)
    }

    fn purge(&self, slab: NonNull<Slab>, units: PageSet) -> bool {
        // SAFETY: slab records are type-stable.
        let base = unsafe { slab.as_ref() }.base();
        units.byte_runs().all(|run| {
            NonNull::new((base + run.start) as *mut u8)
                // SAFETY: the caller's promise: no thread uses these pages of a span in use.
                .is_some_and(|start| unsafe { self.heap.pages.purge_in_use(start, run.len()) })
        })
    }

    fn now_ms(&self) -> u64 {
        self.heap.now_ms()
    }
}
