//! The heap: one value that holds every shared part, and the lookup from an address to its block.

use super::bounds::FastPath;
use super::budget::Budget;
use super::magazine::Tag;
use super::measures::{EARLY, Measures};
use super::registry::Registry;
use crate::base::sync::{AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use crate::os::Os;
use crate::os::linux::Linux;
use crate::pages::{self, PageHeap, Sides, SliceRef};
use crate::reclaim::state::{Pressure, Tide};
use crate::slab::class::Class;
use crate::slab::depot::Depots;
use crate::slab::{FarWords, Slab};
use crate::stacks::Pool;

/// Everything the threads share.
///
/// In this order, and aligned, the words that every process writes are on one page. A further page
/// costs a short-lived process a fault, and its parent's `fork` another.
#[repr(C, align(2048))]
pub struct Heap {
    /// Stacks for coroutines: half a page.
    pub stacks: Pool,
    /// All caches.
    pub registry: Registry,
    /// The bounds of the magazines.
    pub budget: Budget,
    /// The modes in force: [`CHECKING`] to [`GUARDING`].
    mode: AtomicU8,
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
    /// How many magazines drainers have taken blocks of; wraps.
    pub(super) drained: AtomicUsize,
    /// What drainers found that only [deep](super::budget::Depth::Deep) magazines may hold, in
    /// bytes, since the purge thread last asked.
    pub(crate) deep: AtomicUsize,
    /// Spans.
    pub pages: PageHeap<Linux>,
    /// Slabs with free blocks: the program's, its sampled ones, and those of metadata.
    pub depots: &'static Depots,
    /// Where the pool of guarded blocks starts and ends; 0 without one.
    pub(super) pool: [AtomicUsize; 2],
}

const _: () = assert!(Tag::STACK.byte() == crate::stacks::TAG);

/// The records of slabs, which lie outside their slices.
const SIDES: Sides = Sides {
    near: size_of::<Slab>(),
    far: size_of::<FarWords>(),
};

/// How calls are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the fast path.
    Plain,
    /// By the slow path, freed blocks in quarantine.
    Checking,
}

/// [`Mode::Checking`].
pub(crate) const CHECKING: u8 = 1;
/// Every call is counted.
pub(crate) const COUNTING: u8 = 2;
/// The profiler samples.
pub(super) const SAMPLING: u8 = 4;
/// The bits of a [`Guarding`], and its lowest one.
const GUARDING: u8 = 3 << GUARDING_SHIFT;
const GUARDING_SHIFT: u32 = 3;

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

/// The process's heap. In a section of its own, because in `.data` its alignment would cost the
/// library's file two gaps.
#[unsafe(link_section = "neap_heap")]
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
    /// In a slab of blocks that the profiler sampled.
    Sampled(&'static Slab, Class),
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
            drained: AtomicUsize::new(0),
            deep: AtomicUsize::new(0),
            mode: AtomicU8::new(0),
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
        match self.mode.load(Ordering::Relaxed) & CHECKING {
            0 => Mode::Plain,
            _ => Mode::Checking,
        }
    }

    /// Whether every call is counted, and so takes the slow path, in either mode.
    #[inline]
    pub fn is_counting(&self) -> bool {
        self.mode.load(Ordering::Relaxed) & COUNTING != 0
    }

    /// Whether calls are neither checked nor counted.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.mode.load(Ordering::Relaxed) & (CHECKING | COUNTING) == 0
    }

    /// Whether a call past the fast path does more than allocate: it is checked, counted, sampled
    /// or guarded. Then it is [`crate::watched`]'s.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.mode.load(Ordering::Relaxed) != 0
    }

    /// Which allocations get a guarded block.
    #[inline]
    pub fn guarding(&self) -> Guarding {
        match (self.mode.load(Ordering::Relaxed) & GUARDING) >> GUARDING_SHIFT {
            0 => Guarding::Off,
            1 => Guarding::Some,
            _ => Guarding::All,
        }
    }

    /// Changes which allocations get a guarded block, for existing and future caches.
    pub fn set_guarding(&'static self, guarding: Guarding) {
        let change = |mode| Some(mode & !GUARDING | (guarding as u8) << GUARDING_SHIFT);
        let _ = self
            .mode
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        self.set_paths();
    }

    /// Lets all caches follow what was changed.
    pub(crate) fn set_paths(&'static self) {
        let path = self.fast_path();
        self.registry.for_each(|cache| {
            if let Some(mut open) = cache.open_other() {
                open.set_path_of_other(path);
            }
        });
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
        let tag = class.map_or(Tag::NONE, Tag::of);
        self.no_bytes.store(tag.byte(), Ordering::Relaxed);
    }

    /// The class whose slabs are not accessible, if there is one.
    pub(crate) fn class_of_no_bytes(&self) -> Option<Class> {
        // SAFETY: the byte of a tag.
        unsafe { Tag::from_byte(self.no_bytes.load(Ordering::Relaxed)) }.class()
    }

    /// Whether the program's slabs of `class` are not accessible, because their blocks have no
    /// bytes.
    #[inline]
    pub fn is_no_bytes(&self, class: Class) -> bool {
        self.is_no_bytes_tag(Tag::of(class))
    }

    /// [`Heap::is_no_bytes`] of the class of a tag.
    #[inline(always)]
    pub(crate) fn is_no_bytes_tag(&self, tag: Tag) -> bool {
        tag.byte() == self.no_bytes.load(Ordering::Relaxed)
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
            _ if self.is_counting() => FastPath::Off,
            (Mode::Plain, _) if self.guarding() == Guarding::All => FastPath::Off,
            (Mode::Plain, false) => FastPath::On,
            (Mode::Plain, true) => FastPath::Sampling,
            (Mode::Checking, false) if self.has_short_calls() => FastPath::Hardened,
            (Mode::Checking, _) => FastPath::Off,
        }
    }

    /// Whether calls may be short: in hardened mode, where canaries tell which blocks of a magazine
    /// are free, and nothing looks at each call.
    fn has_short_calls(&self) -> bool {
        let has_canaries = self.measures().has(Measures::CANARY) && EARLY.is_empty();
        has_canaries && self.guarding() == Guarding::Off
    }

    /// Puts a mode into force, or ends it. Caches made from now on follow; see [`Registry`] for
    /// those that exist.
    pub(crate) fn set_mode(&self, mode: u8, is_on: bool) {
        if is_on {
            self.mode.fetch_or(mode, Ordering::Relaxed);
        } else {
            self.mode.fetch_and(!mode, Ordering::Relaxed);
        }
    }

    /// The decay time in ms.
    pub fn decay_ms(&self) -> u64 {
        self.pages.limits().decay_ms()
    }

    /// What is at `address`.
    #[inline(never)]
    pub fn find(&'static self, address: usize) -> Found {
        let Some(place) = self.pages.locate(address) else {
            return Found::Foreign;
        };
        // SAFETY: only bytes of tags are written to the table.
        let tag = unsafe { Tag::from_byte(place.tag()) };
        match (tag.class(), tag) {
            (Some(class), _) => Found::Slab(slab_of(&place), class),
            (None, Tag::LARGE | Tag::FENCED) => Found::Large(place),
            (None, Tag::STACK) => Found::Stack,
            (None, Tag::SAMPLED) => found_marked(&place, Found::Sampled),
            (None, Tag::MAPPED) => found_marked(&place, Found::Slab),
            (None, _) if self.is_in_pool(address) => Found::Guarded,
            (None, _) => Found::NoBlock,
        }
    }

    /// The slab at an address and its class, without a look at rarer slabs: `None` says nothing.
    #[inline(always)]
    pub(crate) fn find_slab(&'static self, address: usize) -> Option<(&'static Slab, Class)> {
        let place = self.pages.locate_tagged(address)?;
        // SAFETY: only bytes of tags are written to the table.
        let class = unsafe { Tag::from_byte(place.tag()) }.class()?;
        Some((slab_of(&place), class))
    }

    /// Whether an address is in the pool of guarded blocks. Out of line, because
    /// [`Heap::find`] is in many places.
    #[cold]
    #[inline(never)]
    pub fn is_in_pool(&self, address: usize) -> bool {
        let start = self.pool[0].load(Ordering::Acquire);
        start != 0 && (start..self.pool[1].load(Ordering::Relaxed)).contains(&address)
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

/// A slab whose tag tells no class: its own record has it.
#[cold]
#[inline(never)]
fn found_marked(place: &SliceRef<'static>, found: fn(&'static Slab, Class) -> Found) -> Found {
    match class_of(place) {
        Some(class) => found(slab_of(place), class),
        None => Found::NoBlock,
    }
}

/// The class of the blocks of a slab of the program's; `None` if the slice is none, or is being cut
/// into blocks or given up.
pub fn class_of(place: &SliceRef<'_>) -> Option<Class> {
    // SAFETY: only bytes of tags are written to the table.
    match unsafe { Tag::from_byte(place.tag()) } {
        Tag::MAPPED | Tag::SAMPLED => slab_of(place).depot().map(|id| id.class),
        tag => tag.class(),
    }
}

/// The slab record of a slice. Of a slice that is no slab, only the [note](Slab::note) tells
/// anything.
#[inline(always)]
pub fn slab_of<'h>(place: &SliceRef<'h>) -> &'h Slab {
    // SAFETY: the side table's entry of every slice is a slab record: its size was asked for, all
    // zero bytes are a valid record, entries are aligned to 64 and live as long as the arenas.
    unsafe { place.side_of::<Slab>().as_ref() }
}
