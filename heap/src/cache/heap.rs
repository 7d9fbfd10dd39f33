//! The heap: one value that holds every shared part, and the lookup from an address to its block.

use super::budget::Budget;
use super::decay::Tide;
use super::door::Door;
use super::magazine::Tag;
use super::meta::Meta;
use super::pace::Pace;
use super::pressure::Pressure;
use super::registry::Registry;
use super::slot;
use crate::base::sync::{AtomicU8, AtomicU64, Ordering};
use crate::base::units::SLICE_BYTES;
use crate::os::Os;
use crate::os::linux::Linux;
use crate::pages::{Age, Dirty, PageHeap, Sides, SliceRef, SpanSource, Use};
use crate::slab::class::{Class, MAX_BLOCK};
use crate::slab::depot::{Depots, Pages, Round, Source, Touched};
use crate::slab::withheld::Units;
use crate::slab::{FarWords, Slab};
use crate::stacks::Pool;
use core::ptr::NonNull;

/// Everything the threads share.
///
/// In this order, and aligned, the words that every process writes stand on one page. A further
/// page costs a short-lived process a fault, and its parent's `fork` another.
#[repr(C, align(2048))]
pub struct Heap {
    /// All caches.
    pub registry: Registry,
    /// The bounds of the magazines.
    pub budget: Budget,
    mode: AtomicU8,
    decay_ms: AtomicU64,
    /// How often samples are taken, which is not as often as was asked for in a process that
    /// allocates very fast.
    pub(super) pace: Pace,
    /// What the rounds of decay need to know.
    pub tide: Tide,
    /// What presses for memory.
    pub pressure: Pressure,
    /// When other threads' magazines were last drained for one that had no capacity, in ms.
    pub(super) reclaimed_at: AtomicU64,
    /// Spans.
    pub pages: PageHeap<Linux>,
    /// Slabs with free blocks, by class.
    pub depots: Depots,
    /// Memory for caches and magazine arrays.
    pub meta: Meta,
    /// Stacks for coroutines.
    pub stacks: Pool,
}

const _: () = assert!(Tag::STACK.0 == crate::stacks::TAG);

/// What slabs keep beside their slices.
const SIDES: Sides = Sides {
    near: size_of::<Slab>(),
    far: size_of::<FarWords>(),
};

/// How often [`Heap::is_quiet`] looks.
const QUIET_TRIES: usize = 10_000;

/// How calls are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// By the fast path.
    Plain = 0,
    /// By the slow path, every call counted.
    Counting = 1,
    /// Without magazines, freed blocks in quarantine.
    Checking = 2,
}

/// What is known of a block's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// They read as zero.
    Zero,
    /// They may be anything.
    Nothing,
}

/// The process's heap.
pub static HEAP: Heap = Heap::new();

/// What an address is.
pub enum Found {
    /// In no arena.
    Foreign,
    /// In an arena, in a slice where no block starts.
    Nothing,
    /// In a slab.
    Slab(&'static Slab, Class),
    /// In the first slice of a large block.
    Large(SliceRef<'static>),
    /// In the first slice of a coroutine stack.
    Stack,
    /// In a slice that a block stands in alone, which the profiler sampled.
    Sampled(SliceRef<'static>),
}

impl Heap {
    pub(super) const fn new() -> Heap {
        Heap {
            pages: PageHeap::new(Linux, SIDES),
            depots: Depots::new(),
            meta: Meta::new(),
            budget: Budget::new(),
            stacks: Pool::new(),
            registry: Registry::new(),
            mode: AtomicU8::new(Mode::Plain as u8),
            decay_ms: AtomicU64::new(1000),
            pace: Pace::off(),
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

    /// What caches are to let their owners do.
    pub(super) fn door(&self) -> Door {
        match (self.mode(), self.is_sampling()) {
            (Mode::Plain, false) => Door::Open,
            (Mode::Plain, true) => Door::Sampling,
            (Mode::Counting | Mode::Checking, _) => Door::Closed,
        }
    }

    /// Changes how calls are served. Caches made from now on follow; see [`Registry`] for those
    /// that exist.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Whether the locks that a report takes can be had: not so, for good, in a signal handler that
    /// interrupted their holder. Others hold them for moments, so it looks more than once.
    pub fn is_quiet(&self) -> bool {
        // SAFETY: the slot holds a sentinel or the thread's own cache.
        let own = unsafe { &*slot::get() };
        let quiet = || {
            self.registry.lock.try_lock().is_some()
                && own.is_quiet()
                && self.stacks.is_quiet()
                && self.pages.is_quiet()
        };
        (0..QUIET_TRIES).any(|_| quiet())
    }

    /// The decay time in ms.
    pub fn decay_ms(&self) -> u64 {
        self.decay_ms.load(Ordering::Relaxed)
    }

    /// Sets the decay time in ms.
    pub fn set_decay_ms(&self, ms: u64) {
        self.decay_ms.store(ms, Ordering::Relaxed);
        self.pages.set_decay_ms(ms);
    }

    /// What stands at `address`.
    pub fn find(&'static self, address: usize) -> Found {
        let Some(place) = self.pages.locate(address) else {
            return Found::Foreign;
        };
        match Tag(place.tag()) {
            Tag::LARGE => Found::Large(place),
            Tag::STACK => Found::Stack,
            Tag::SAMPLED => Found::Sampled(place),
            tag => match tag.class() {
                Some(class) => Found::Slab(slab_of(&place), class),
                None => Found::Nothing,
            },
        }
    }

    /// A block of `class` straight from a slab, past all magazines. Null when out of memory.
    pub fn take_one(&self, class: Class) -> *mut u8 {
        self.take_known(class).0
    }

    /// Like [`Heap::take_one`]; tells whether the block is known to read as zero.
    pub fn take_known(&self, class: Class) -> (*mut u8, Known) {
        let mut taken = (0, Known::Nothing);
        self.depots.take(class, 1, self, &mut |slab, claim| {
            let number = claim.word * 64 + claim.bits.trailing_zeros() as usize;
            let known = if claim.fresh == 0 {
                Known::Nothing
            } else {
                Known::Zero
            };
            taken = (slab.base() + number * class.bytes(), known);
        });
        (taken.0 as *mut u8, taken.1)
    }

    /// A block of `class` from a slab that has free ones. Null if none has.
    pub fn take_listed(&self, class: Class) -> *mut u8 {
        let mut taken = 0;
        self.depots
            .take(class, 1, &Listed(self), &mut |slab, claim| {
                let number = claim.word * 64 + claim.bits.trailing_zeros() as usize;
                taken = slab.base() + number * class.bytes();
            });
        taken as *mut u8
    }

    /// A slab of `class` in a fresh span for `use_`, not listed and without a tag.
    pub(super) fn carve(
        &self,
        class: Class,
        pages: Pages,
        use_: Use,
    ) -> Option<(NonNull<Slab>, SliceRef<'_>)> {
        let from = match pages {
            Pages::Resident => SpanSource::Resident,
            Pages::Any => SpanSource::Any,
        };
        let span = self.pages.alloc_from(from, 1, 1, use_, SLICE_BYTES)?;
        let base = span.base.as_ptr().addr();
        let place = self.pages.locate(base)?;
        // SAFETY: as in `slab_of`.
        let slab = unsafe { place.side().cast::<Slab>().as_ref() };
        let far = place.far_side().cast::<FarWords>();
        // SAFETY: side entries live as long as the arenas, and this one is of the right size,
        // aligned to 64, zero at first.
        unsafe {
            slab.carve(
                class,
                base,
                !span.place.dirty_mask(),
                Source::pages(self),
                far,
            )
        };
        Some((NonNull::from(slab), place))
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

/// The slab record of a slice.
fn slab_of(place: &SliceRef<'static>) -> &'static Slab {
    // SAFETY: the side table's entry of every slice is a slab record: its size was asked for, all
    // zero bytes are a valid record, entries are aligned to 64 and live as long as the arenas.
    unsafe { place.side().cast::<Slab>().as_ref() }
}

/// The heap as a source that makes no slabs.
struct Listed<'a>(&'a Heap);

impl Source for Listed<'_> {
    fn fresh(&self, _: Class, _: Pages) -> Option<NonNull<Slab>> {
        None
    }

    fn retire(&self, slab: NonNull<Slab>, touched: Touched) {
        self.0.retire(slab, touched);
    }

    fn note_withheld(&self, bytes: isize) {
        self.0.note_withheld(bytes);
    }

    fn keeps_pages(&self, round: Round) -> bool {
        self.0.keeps_pages(round)
    }

    fn pages(&self) -> usize {
        Source::pages(self.0)
    }

    fn purge(&self, slab: NonNull<Slab>, units: Units) -> bool {
        Source::purge(self.0, slab, units)
    }

    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }
}

impl Source for Heap {
    fn fresh(&self, class: Class, pages: Pages) -> Option<NonNull<Slab>> {
        let (slab, place) = self.carve(class, pages, Use::Slab)?;
        // SAFETY: just carved for blocks of the class.
        unsafe { place.set_tag(Tag::of(class).0) };
        Some(slab)
    }

    fn retire(&self, slab: NonNull<Slab>, touched: Touched) {
        self.retire_aged(slab, touched, Age::New);
    }

    fn note_withheld(&self, bytes: isize) {
        self.pages.count_absent(bytes);
    }

    fn keeps_pages(&self, round: Round) -> bool {
        let keeps = || self.pages.footprint().dirty <= self.pages.limits().kept();
        let by_threshold = round == Round::Idle && self.pages.limits().kept() > 0;
        Linux.is_locked() || by_threshold && keeps()
    }

    fn pages(&self) -> usize {
        SLICE_BYTES / Linux.page_bytes().min(SLICE_BYTES)
    }

    fn purge(&self, slab: NonNull<Slab>, units: Units) -> bool {
        // SAFETY: slab records are type-stable.
        let base = unsafe { slab.as_ref() }.base();
        units.byte_runs().all(|run| {
            NonNull::new((base + run.start) as *mut u8)
                // SAFETY: the caller's promise: no thread uses these pages of a span in use.
                .is_some_and(|start| unsafe { self.pages.purge_in_use(start, run.len()) })
        })
    }

    fn now_ms(&self) -> u64 {
        Linux.now_ms()
    }
}

impl Heap {
    /// Gives the slice of a slab that retired to the page heap.
    pub(super) fn retire_aged(&self, slab: NonNull<Slab>, touched: Touched, age: Age) {
        // SAFETY: slab records are type-stable.
        let base = unsafe { slab.as_ref() }.base();
        let Some(base) = NonNull::new(base as *mut u8) else {
            return;
        };
        let dirty = Dirty::PrefixBut {
            bytes: touched.bytes,
            clean: touched.clean.whole_pages(self.pages()),
        };
        // SAFETY: the span was allocated by `fresh`, all its blocks have been claimed for good, and
        // only the first bytes were ever handed out, of which the clean pages were purged since.
        unsafe { self.pages.free_aged(base, dirty, age) };
    }
}
