//! The heap: one value that holds every shared part, and the lookup from an address to its block.

use super::bounds::FastPath;
use super::budget::Budget;
use super::magazine::Tag;
use super::measures::{EARLY, Measures, SECRETS};
use super::misuse::{self, Call};
use super::registry::Registry;
use crate::base::sync::{AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use crate::base::units::{SLICE_BYTES, slices_for};
use crate::os::Os;
use crate::os::linux::Linux;
use crate::pages::{self, Age, Dirty, PageHeap, Sides, SliceRef, Span, SpanSource, Use, Zero};
use crate::reclaim::state::{Pressure, Tide};
use crate::slab::class::{Class, MAX_BLOCK};
use crate::slab::depot::Depots;
use crate::slab::depot_id::{DepotId, User};
use crate::slab::page_set::PageSet;
use crate::slab::{Claim, FarWords, Grain, Pages, Scope, Slab, Slice, Source, Touched};
use crate::stacks::Pool;
use core::ptr::NonNull;

/// Everything the threads share.
///
/// In this order, and aligned, the words that every process writes are on one page. A further page
/// costs a short-lived process a fault, and its parent's `fork` another.
#[repr(C, align(2048))]
pub struct Heap {
    /// All caches.
    pub registry: Registry,
    /// The bounds of the magazines.
    pub budget: Budget,
    mode: AtomicU8,
    guarding: AtomicU8,
    /// The [`Measures`] in force.
    measures: AtomicU16,
    /// The number of the class whose slabs are not accessible; 0: there is none.
    no_bytes: AtomicU8,
    /// Mean bytes between two samples of the profiler; 0: it is off.
    pub(super) sampling: AtomicU64,
    /// The state of the rounds of decay.
    pub tide: Tide,
    /// The state of memory pressure.
    pub pressure: Pressure,
    /// When other threads' magazines were last drained for one that had no capacity, in ms.
    pub(super) reclaimed_at: AtomicU64,
    /// Spans.
    pub pages: PageHeap<Linux>,
    /// Slabs with free blocks: the program's, and those of caches and magazine arrays.
    pub depots: &'static Depots,
    /// Stacks for coroutines.
    pub stacks: Pool,
    /// Where the pool of guarded blocks starts and ends; 0 without one.
    pool: [AtomicUsize; 2],
}

const _: () = assert!(Tag::STACK.byte() == crate::stacks::TAG);

/// The records of slabs, which lie outside their slices.
const SIDES: Sides = Sides {
    near: size_of::<Slab>(),
    far: size_of::<FarWords>(),
};

/// How calls are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// By the fast path.
    Plain = 0,
    /// By the slow path, every call counted.
    Counting = 1,
    /// By the slow path, freed blocks in quarantine.
    Checking = 2,
}

/// Which allocations get a guarded block. See `docs/guard.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Guarding {
    /// None.
    Off = 0,
    /// One of each thread, now and then.
    Some = 1,
    /// All for which there is room; every call takes the slow path.
    All = 2,
}

/// What is known about a block's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// They read as zero.
    Zero,
    /// They may be anything.
    Unknown,
}

/// The process's heap.
pub static HEAP: Heap = Heap::new();

/// Tables that are zero at first, so that they take no room in the library's file.
#[unsafe(link_section = ".bss.neap_tables")]
static TABLES: Tables = Tables {
    depots: Depots::new(),
    pages: pages::Tables::new(),
};

#[repr(C)]
struct Tables {
    depots: Depots,
    pages: pages::Tables,
}

/// What an address is.
pub enum Found {
    /// In no arena.
    Foreign,
    /// In an arena, in a slice where no block starts.
    NoBlock,
    /// In a slab.
    Slab(&'static Slab, Class),
    /// In the first slice of a large block, or of the guard before it.
    Large(SliceRef<'static>),
    /// In the first slice of a coroutine stack.
    Stack,
    /// In the slice of a block that is alone in it, because the profiler sampled it.
    Sampled(SliceRef<'static>),
    /// In the pool of guarded blocks.
    Guarded,
}

impl Heap {
    const fn new() -> Heap {
        Heap {
            // SAFETY: tables of its own, because this is the process's one heap.
            pages: unsafe { PageHeap::new(Linux, SIDES, &TABLES.pages) },
            depots: &TABLES.depots,
            budget: Budget::new(),
            stacks: Pool::new(),
            pool: [const { AtomicUsize::new(0) }; 2],
            registry: Registry::new(),
            mode: AtomicU8::new(Mode::Plain as u8),
            guarding: AtomicU8::new(Guarding::Off as u8),
            measures: AtomicU16::new(0),
            no_bytes: AtomicU8::new(0),
            sampling: AtomicU64::new(0),
            tide: Tide::new(),
            pressure: Pressure::new(),
            reclaimed_at: AtomicU64::new(0),
        }
    }

    /// How calls are served.
    pub fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Relaxed) {
            0 => Mode::Plain,
            1 => Mode::Counting,
            _ => Mode::Checking,
        }
    }

    /// Which allocations get a guarded block.
    #[inline]
    pub fn guarding(&self) -> Guarding {
        match self.guarding.load(Ordering::Relaxed) {
            0 => Guarding::Off,
            1 => Guarding::Some,
            _ => Guarding::All,
        }
    }

    /// Changes which allocations get a guarded block, for existing and future caches.
    pub fn set_guarding(&'static self, guarding: Guarding) {
        self.guarding.store(guarding as u8, Ordering::Relaxed);
        let path = self.fast_path();
        self.registry.for_each(|cache| cache.open().set_path(path));
    }

    /// The measures against memory errors that are in force. Only in the checking mode there are
    /// any.
    #[inline]
    pub fn measures(&self) -> Measures {
        Measures(self.measures.load(Ordering::Relaxed))
    }

    /// Puts measures into force, for good. The caller also sets the checking mode.
    pub(crate) fn add_measures(&self, measures: Measures) {
        self.measures.fetch_or(measures.0, Ordering::Relaxed);
        self.choose_no_bytes();
    }

    /// Chooses the class whose slabs are not accessible, when the measures or the classes change.
    pub(crate) fn choose_no_bytes(&self) {
        let wanted = self.measures().has(Measures::NO_BYTES);
        let class = Class::of_no_bytes().filter(|_| wanted);
        let number = class.map_or(0, |class| class.index() as u8);
        self.no_bytes.store(number, Ordering::Relaxed);
    }

    /// The class whose slabs are not accessible, if there is one.
    pub(crate) fn class_of_no_bytes(&self) -> Option<Class> {
        let number = self.no_bytes.load(Ordering::Relaxed) as usize;
        (number != 0).then(|| Class::known(number))
    }

    /// Whether the program's slabs of `class` are not accessible, because their blocks have no
    /// bytes.
    #[inline]
    pub fn is_no_bytes(&self, class: Class) -> bool {
        class.index() == self.no_bytes.load(Ordering::Relaxed) as usize
    }

    /// Whether the profiler samples.
    #[inline]
    pub fn is_sampling(&self) -> bool {
        self.sampling() != 0
    }

    /// Mean bytes between two samples; 0: it is off.
    pub fn sampling(&self) -> u64 {
        self.sampling.load(Ordering::Relaxed)
    }

    /// What caches are to let their owners do.
    pub(super) fn fast_path(&self) -> FastPath {
        match (self.mode(), self.is_sampling()) {
            (Mode::Plain, _) if self.guarding() == Guarding::All => FastPath::Off,
            (Mode::Plain, false) => FastPath::On,
            (Mode::Plain, true) => FastPath::Sampling,
            (Mode::Counting | Mode::Checking, _) => FastPath::Off,
        }
    }

    /// Changes how calls are served. Caches made from now on follow; see [`Registry`] for those
    /// that exist.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// The decay time in ms.
    pub fn decay_ms(&self) -> u64 {
        self.pages.limits().decay_ms()
    }

    /// What is at `address`.
    #[inline(never)]
    pub fn find(&'static self, address: usize) -> Found {
        self.find_quickly(address)
    }

    /// [`Heap::find`], for those that programs call often.
    #[inline(always)]
    pub(crate) fn find_quickly(&'static self, address: usize) -> Found {
        let Some(place) = self.pages.locate(address) else {
            return Found::Foreign;
        };
        // SAFETY: only bytes of tags are written to the table.
        let tag = unsafe { Tag::from_byte(place.tag()) };
        match (tag.class(), tag) {
            (Some(class), _) => Found::Slab(slab_of(&place), class),
            (None, Tag::LARGE | Tag::FENCED) => Found::Large(place),
            (None, Tag::STACK) => Found::Stack,
            (None, Tag::SAMPLED) => Found::Sampled(place),
            (None, _) if self.is_in_pool(address) => Found::Guarded,
            (None, _) => Found::NoBlock,
        }
    }

    /// A block of `class` straight from a slab, past all magazines. Null when out of memory.
    pub fn take_one(&'static self, class: Class) -> *mut u8 {
        self.take_known(class).0
    }

    /// Like [`Heap::take_one`], any of the first free blocks of the slab.
    pub(crate) fn take_any(&'static self, class: Class) -> *mut u8 {
        let origin = Origin::blocks(self, Age::New);
        let grain = Grain::Random(SECRETS.next());
        let (block, _) = self.take_from(grain, DepotId::blocks(class), &origin);
        block
    }

    /// Like [`Heap::take_one`]; tells whether the block is known to read as zero.
    pub fn take_known(&'static self, class: Class) -> (*mut u8, Known) {
        let origin = Origin::blocks(self, Age::New);
        let (block, fresh) = self.take_from(Grain::Blocks, DepotId::blocks(class), &origin);
        let known = match fresh {
            0 => Known::Unknown,
            _ => Known::Zero,
        };
        (block, known)
    }

    /// A block of a depot, and which of its bits is fresh. Null when out of memory.
    fn take_from(&'static self, grain: Grain, id: DepotId, origin: &Origin) -> (*mut u8, u64) {
        let mut taken = (0, 0);
        let mut sink = |slab: &Slab, claim: Claim| {
            taken = (slab.address_of(id.class, claim), claim.fresh);
        };
        self.depots.take_by(grain, id, 1, origin, &mut sink);
        (taken.0 as *mut u8, taken.1)
    }

    /// A span for one block of `class` alone, which is sampled. `None` when out of memory. The
    /// instruments call this, and not the page heap, whose generic code would be compiled into both
    /// crates: 27 KiB.
    #[inline(never)]
    pub fn take_apart(&self, class: Class) -> Option<Span<'_>> {
        self.pages.alloc(1, 1, Use::Large, class.bytes())
    }

    /// Memory of `bytes` bytes for the pool of guarded blocks, for good. `None` when out of memory.
    /// Not generic, as [`Heap::take_apart`].
    #[inline(never)]
    pub fn take_pool(&'static self, bytes: usize) -> Option<NonNull<u8>> {
        let span = self.pages.alloc(slices_for(bytes), 1, Use::Meta, bytes)?;
        let start = span.base.addr().get();
        self.pool[1].store(start + bytes, Ordering::Relaxed);
        self.pool[0].store(start, Ordering::Release);
        Some(span.base)
    }

    /// Whether an address is in the pool of guarded blocks. Out of line, because
    /// [`Heap::find`] is in many places.
    #[cold]
    #[inline(never)]
    pub fn is_in_pool(&self, address: usize) -> bool {
        let start = self.pool[0].load(Ordering::Acquire);
        start != 0 && (start..self.pool[1].load(Ordering::Relaxed)).contains(&address)
    }

    /// A block of `class` from a slab that has free ones. Null if none has.
    pub fn take_listed(&'static self, class: Class) -> *mut u8 {
        self.take_from(Grain::Blocks, DepotId::blocks(class), &Origin::listed(self))
            .0
    }

    /// Metadata of at least `bytes` bytes (at most 32 KiB) at a multiple of 8; contents undefined.
    /// `None` when out of memory.
    pub fn take_meta(&'static self, bytes: usize) -> Option<NonNull<u8>> {
        let origin = Origin::blocks(self, Age::New);
        NonNull::new(
            self.take_from(Grain::Blocks, DepotId::metadata(bytes), &origin)
                .0,
        )
    }

    /// Takes metadata back.
    ///
    /// # Safety
    /// - `block` came from [`Heap::take_meta`] with the same `bytes`, and nothing uses it any more.
    pub unsafe fn give_meta(&'static self, block: NonNull<u8>, bytes: usize) {
        let (address, id) = (block.addr().get(), DepotId::metadata(bytes));
        let slab = self.slab_at(address);
        let number = id.class.block_at(address % SLICE_BYTES);
        let (Some(slab), Some(number)) = (slab, number) else {
            misuse::no_block(Call::Free, address);
        };
        let (word, bits) = (number / 64, 1 << (number % 64));
        let origin = Origin::blocks(self, Age::New);
        // SAFETY: the caller's promise.
        if unsafe { self.depots.give(slab, id, word, bits, &origin) }.is_err() {
            misuse::double_free(address, bytes);
        }
    }

    /// Monotonic time in ms.
    pub fn now_ms(&self) -> u64 {
        Linux.now_ms()
    }

    /// The slab record of the slice at an address; `None` outside the arenas.
    pub(super) fn slab_at(&'static self, address: usize) -> Option<&'static Slab> {
        self.pages.locate(address).map(|place| slab_of(&place))
    }
}

/// The class of a sampled block, whose span was asked for with its bytes; `None` if it was freed
/// meanwhile.
pub fn sampled_class(place: &SliceRef<'_>) -> Option<Class> {
    match place.bytes() {
        bytes @ 1..=MAX_BLOCK => Some(Class::of_block(bytes)),
        _ => None,
    }
}

/// The slab record of a slice. Of a slice that is no slab, only the [note](Slab::note) tells
/// anything.
pub fn slab_of<'h>(place: &SliceRef<'h>) -> &'h Slab {
    // SAFETY: the side table's entry of every slice is a slab record: its size was asked for, all
    // zero bytes are a valid record, entries are aligned to 64 and live as long as the arenas.
    unsafe { place.side().cast::<Slab>().as_ref() }
}

/// The source of slabs, to which they return. Its users may hold a cache's lock, so it purges
/// nothing: what passes a bound then is left to the [end](PageHeap::tend_left) of the call.
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
    /// Of slabs of either user.
    pub(crate) fn blocks(heap: &'static Heap, age: Age) -> Origin {
        Origin {
            heap,
            age,
            supply: Supply::Fresh,
        }
    }

    /// The same, without fresh ones.
    fn listed(heap: &'static Heap) -> Origin {
        Origin {
            supply: Supply::Listed,
            ..Origin::blocks(heap, Age::New)
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
        let (use_, tag) = match id.user {
            User::Program => (Use::Slab, Tag::of(id.class)),
            User::Heap => (Use::Meta, Tag::NONE),
        };
        let pages = &self.heap.pages;
        let span = pages.alloc_untended(from, 1, 1, use_, SLICE_BYTES)?;
        // SAFETY: the span is this thread's until the slice is carved.
        unsafe { span.place.set_tag(tag.byte()) };
        if self.heap.mode() == Mode::Checking && id.user == User::Program {
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
        unsafe { self.heap.pages.free_untended(base, dirty, self.age) }
    }

    fn note_withheld(&self, bytes: isize) {
        self.heap.pages.count_absent(bytes);
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
