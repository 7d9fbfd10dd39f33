//! The sampling heap profiler: which allocations are sampled is decided in [`crate::cache::counted`]; here they are made and noted.
//!
//! A sampled block of a slab's class gets a span of its own instead, with a tag that sends its free to the slow path; a large
//! block has one anyway. The span's note leads to a [`Sample`], which says what the block stood for, so that its free can take
//! just that away again. The totals stand in a region that other processes read ([`crate::sites`], [`region`]).

mod maps;
mod region;
mod table;

use super::allocate::entered;
use super::attach;
use super::{check, purge};
use crate::base::sync::{AtomicBool, AtomicU64, Ordering};
use crate::board::Refusal;
use crate::cache::counted::chance;
use crate::cache::heap::{HEAP, Mode};
use crate::cache::magazine::Tag;
use crate::cache::thread::Cache;
use crate::os::linux::sandbox;
use crate::page::{Place, Use};
use crate::sites::{FRAMES, PARTS};
use crate::slab::class::Class;
use crate::slab::depot::Source;
use crate::unwind;
use core::ops::RangeInclusive;
use core::ptr::{self, NonNull};
use region::REGION;

/// Rates that may be asked for, in bytes: below, next to every block would have a span of its own.
/// Above, the number of small blocks between two samples would not be one of 32 bits.
const RATES: RangeInclusive<u64> = 4 << 10..=1 << 30;

/// So many samples' worth of live bytes tell what share of them was asked for.
const LEAST_SAMPLES: u64 = 32;

/// A sandbox that nobody saw the program enter is noticed so late at the latest, in ms.
const LOOK_MS: u64 = 4;

/// What the options ask for; 0: nothing.
static WANTED: AtomicU64 = AtomicU64::new(0);
/// Whether large blocks may have samples: sampling was on.
static EVER: AtomicBool = AtomicBool::new(false);

/// What one sampled block stands for. 64 bytes, for it comes from the pool of metadata.
#[repr(C)]
#[derive(Clone, Copy)]
struct Sample {
    /// [`Sample::mark`] of its own address: a span's note that nobody wrote leads to 64 bytes of something else.
    mark: usize,
    /// The block.
    base: usize,
    weight: Weight,
}

/// What is added to a site, and taken away again.
#[derive(Clone, Copy)]
struct Weight {
    site: u32,
    /// In [`PARTS`].
    objects: u64,
    /// Bytes asked for.
    bytes: u64,
    /// Usable bytes.
    usable: u64,
}

impl Weight {
    fn amounts(&self) -> [u64; 3] {
        [self.objects, self.bytes, self.usable]
    }
}

impl Sample {
    fn mark(at: *const Sample) -> usize {
        at.addr() ^ 0x5A4D_91C3_7E62_F08B
    }
}

/// Samples from the start on, on average one every so many bytes.
pub(super) fn want(rate: u64) {
    WANTED.store(rate, Ordering::Relaxed);
}

/// The process starts.
pub(super) fn begin() {
    unwind::prepare();
    let wanted = WANTED.load(Ordering::Relaxed);
    if wanted != 0 {
        set_rate(wanted);
    }
}

/// Switches sampling on, on average one sample every `rate` bytes, or off (0). The caller holds no lock of the heap.
pub(super) fn set_rate(rate: u64) -> Refusal {
    if rate != 0 && !RATES.contains(&rate) {
        return Refusal::Rate;
    }
    if !sandbox::allows_more() {
        return Refusal::Sandbox;
    }
    if rate != 0 && !REGION.open() {
        return Refusal::Memory;
    }
    EVER.store(true, Ordering::Relaxed);
    HEAP.set_sampling(rate);
    REGION.note_rate(rate);
    attach::note_sampling(rate);
    Refusal::None
}

/// A block of `class` for `size` bytes, while sampling is on.
#[cold]
pub(super) fn take(cache: &Cache, size: usize, class: Class) -> *mut u8 {
    let mode = HEAP.mode();
    if mode == Mode::Counting {
        super::allocate::count_allocation(cache, size, Some(class));
    }
    if !purge::is_starter()
        && let Some(rate) = HEAP.samples_next(cache, class)
    {
        // Without memory for a span of its own, it is one that was not sampled.
        return sampled(class, size, rate).unwrap_or_else(|| HEAP.take_one(class));
    }
    match mode {
        Mode::Plain | Mode::Counting => HEAP.refill(cache, class),
        Mode::Checking => check::allocate(class),
    }
}

fn sampled(class: Class, size: usize, rate: u64) -> Option<*mut u8> {
    let span = HEAP.pages.alloc(1, 1, Use::Large, class.bytes())?;
    span.place.note(ptr::null_mut());
    record(&span.place, size, class.bytes(), rate);
    span.place.set_tag(Tag::SAMPLED.0);
    Some(span.base.as_ptr())
}

/// A large block was made of the span that starts at `place`; nobody has it yet.
pub(super) fn note_large(place: &Place<'_>, size: usize, usable: usize) {
    if EVER.load(Ordering::Relaxed) {
        place.note(ptr::null_mut());
        let cache = entered().filter(|_| HEAP.is_sampling());
        if let Some(rate) = cache.and_then(|cache| HEAP.samples_large(cache, usable)) {
            record(place, size, usable, rate);
        }
    }
}

/// The large block that starts at `place` has another size: as if it had been freed and made anew.
pub(super) fn note_resized(place: &Place<'_>, size: usize, usable: usize) {
    note_freed(place);
    note_large(place, size, usable);
}

/// The block that starts at `place`, in a span of its own, is being freed.
pub(super) fn note_freed(place: &Place<'_>) {
    if !EVER.load(Ordering::Relaxed) {
        return;
    }
    let Some(sample) = NonNull::new(place.noted().cast::<Sample>()) else {
        return;
    };
    // SAFETY: what was noted for a span in use, or 64 readable bytes of Neap's own tables.
    let seen = unsafe { sample.as_ptr().read_volatile() };
    if seen.mark != Sample::mark(sample.as_ptr()) || seen.base != place.slice_base() {
        return;
    }
    place.note(ptr::null_mut());
    REGION.take_away(&seen.weight);
    // SAFETY: allocated by `record` for this span, whose note led here and no longer does. The mark goes with it.
    unsafe {
        (*sample.as_ptr()).mark = 0;
        HEAP.give_meta(sample.cast(), size_of::<Sample>());
    }
}

/// Notes that the block at `place` was sampled, by a rate of `rate` bytes.
fn record(place: &Place<'_>, size: usize, usable: usize, rate: u64) {
    let room = HEAP.take_meta(size_of::<Sample>());
    let Some(sample) = room.map(NonNull::cast::<Sample>) else {
        return;
    };
    let mut frames = [0; FRAMES];
    let depth = match may_look() {
        true => unwind::capture(&mut frames),
        false => 0,
    };
    let stands_for = 1.0 / chance(usable, rate);
    let weight = REGION.add(&frames[..depth], |random| Weight {
        site: 0,
        objects: whole(stands_for * PARTS as f64, random),
        bytes: whole(stands_for * size as f64, random),
        usable: whole(stands_for * usable as f64, random),
    });
    let full = Sample {
        mark: Sample::mark(sample.as_ptr()),
        base: place.slice_base(),
        weight,
    };
    // SAFETY: 64 bytes, aligned to 64, of our own.
    unsafe { sample.as_ptr().write(full) };
    place.note(sample.as_ptr().cast());
}

/// Whether the stack may be walked, which takes system calls: asked at intervals, for asking is one, too.
fn may_look() -> bool {
    static ASKED_AT: AtomicU64 = AtomicU64::new(0);
    static MAY: AtomicBool = AtomicBool::new(false);
    let now = HEAP.now_ms();
    if now.wrapping_sub(ASKED_AT.load(Ordering::Relaxed)) >= LOOK_MS {
        ASKED_AT.store(now, Ordering::Relaxed);
        MAY.store(sandbox::allows_more(), Ordering::Relaxed);
    }
    MAY.load(Ordering::Relaxed)
}

/// A whole number whose mean is `value`: rounded up with the chance of its fraction. `random` is uniform in 0 to 1.
fn whole(value: f64, random: f64) -> u64 {
    (value + random) as u64
}

/// Usable bytes and the bytes asked for of what is live now, by the samples; `None` if they are too few to tell, or sampling is off.
pub(super) fn live() -> Option<(u64, u64)> {
    let (usable, bytes) = REGION.live();
    let enough = HEAP.sampling().saturating_mul(LEAST_SAMPLES);
    (HEAP.is_sampling() && usable >= enough && bytes <= usable).then_some((usable, bytes))
}

/// The region's lock, for a fork.
pub(super) fn lock() -> &'static crate::os::lock::Lock {
    REGION.lock()
}

/// In a fork's child: it has a region of its own, a copy.
pub(super) fn after_fork_in_child() {
    REGION.after_fork_in_child();
}

const _: () = assert!(size_of::<Sample>() <= 64);
