//! The sampling heap profiler. [`draws`] decides which allocations are sampled;
//! this module makes and records them.
//!
//! A sampled block of a size class comes from a slab of such blocks, whose tag sends their free to
//! the slow path. [`samples`] holds what each sampled block represents, so that its free can
//! subtract exactly that. The totals are in a region that other processes read
//! ([`neap_shared::sites`], [`region`]).

mod draws;
mod maps;
mod pace;
mod python;
mod region;
mod samples;
mod table;

use crate::attach::words::WORDS;
use crate::unwind;
use core::ops::RangeInclusive;
use draws::{SAMPLER, chance};
use neap_heap::base::sync::{AtomicBool, AtomicU64, Ordering};
use neap_heap::cache::heap::HEAP;
use neap_heap::cache::thread_cache::Cache;
use neap_heap::hook::begin_sampling;
use neap_heap::init::entered;
use neap_heap::os::lock::Lock;
use neap_heap::os::process;
use neap_heap::pages::SliceRef;
use neap_heap::reclaim::thread as purge;
use neap_heap::slab::class::Class;
use neap_heap::watched::harden;
use neap_shared::sites::{FRAMES, PARTS};
use neap_shared::status_page::Refusal;
pub(crate) use python::find_python;
pub use python::python_release;
use region::REGION;
use samples::Weight;

/// Allowed rates, in bytes. At a lower rate, almost every block would be sampled. At a higher one,
/// the number of small blocks between two samples would overflow 32 bits.
const RATES: RangeInclusive<u64> = 4 << 10..=1 << 30;

/// From this many samples' worth of live bytes on, the samples estimate the requested share.
const LEAST_SAMPLES: u64 = 32;

/// Longest time until the profiler notices a sandbox that the library did not see the program
/// enter, in ms.
const LOOK_MS: u64 = 4;

/// The rate that the options ask for; 0: none.
#[unsafe(link_section = "neap_fork")]
static WANTED: AtomicU64 = AtomicU64::new(0);

/// Samples from the start on, on average once every `rate` bytes.
pub(crate) fn want(rate: u64) {
    WANTED.store(rate, Ordering::Relaxed);
}

/// Whether the profiler samples from the start.
pub(crate) fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed) != 0
}

/// Starts with the process.
pub(crate) fn begin() {
    unwind::prepare();
    let wanted = WANTED.load(Ordering::Relaxed);
    if wanted != 0 && matches!(set_rate(wanted), Refusal::Sandbox) {
        process::warn_forbidden("NEAP_SAMPLE");
    }
}

/// Switches sampling on, with one sample every `rate` bytes on average, or off (0). The caller
/// holds no lock of the heap.
pub fn set_rate(rate: u64) -> Refusal {
    if rate != 0 && !RATES.contains(&rate) {
        return Refusal::Rate;
    }
    if !process::may_query() {
        return Refusal::Sandbox;
    }
    if rate != 0 && !REGION.open() {
        return Refusal::Memory;
    }
    begin_sampling();
    SAMPLER.set_rate(rate);
    REGION.note_rate(rate);
    WORDS.write_rate(rate);
    Refusal::None
}

/// Copies words of the [region](neap_shared::sites) from `offset` on, in bytes. False if there is
/// no region: the profiler was never on, or this is a raw copy of the process that has it. False if
/// the region does not contain the words, or if `offset` is not a multiple of 8. Other processes
/// may have written the words, so none may be trusted.
pub fn read_region(offset: usize, into: &mut [u64]) -> bool {
    REGION.read(offset, into)
}

/// Allocates `size` bytes of `class` while sampling is on, if the block is to be sampled.
#[cold]
pub(super) fn take(cache: &Cache, size: usize, class: Class) -> Option<*mut u8> {
    if purge::is_starter() {
        return None;
    }
    let rate = SAMPLER.samples_next(cache, class)?;
    let block = HEAP.take_sampled(class);
    if !block.is_null() {
        record(block.addr(), [size, class.bytes()], rate);
        return Some(block);
    }
    // Without memory for a slab of sampled blocks, the block is not sampled. One of the hardened
    // mode has a class and a canary of its own.
    (!harden::is_on()).then(|| HEAP.take_one(class))
}

/// Records a new large block, whose span starts at `place`. No other thread has it yet.
pub(super) fn note_large(place: &SliceRef<'_>, size: usize, usable: usize) {
    let cache = entered().filter(|_| HEAP.is_sampling());
    if let Some(rate) = cache.and_then(|cache| SAMPLER.samples_large(cache, usable)) {
        record(place.slice_base(), [size, usable], rate);
    }
}

/// Records the free of the block at `address`, if it has a sample.
pub(super) fn note_freed(address: usize) {
    REGION.take_away(address);
}

/// Records that the block at `address` was sampled at `rate` bytes. A call of its own: the frames
/// are not on the stack while the block is made, which is the deepest that an allocation goes.
#[inline(never)]
fn record(address: usize, [size, usable]: [usize; 2], rate: u64) {
    let mut frames = [0; FRAMES];
    let depth = match may_look() {
        true => capture(&mut frames),
        false => 0,
    };
    let stands_for = 1.0 / chance(usable, rate);
    REGION.add(address, &frames[..depth], |random| Weight {
        site: 0,
        objects: whole(stands_for * PARTS as f64, random),
        bytes: whole(stands_for * size as f64, random),
        usable: whole(stands_for * usable as f64, random),
    });
}

/// Fills `frames` with the Python functions that the thread executes, then with its return
/// addresses. Returns how many these are.
#[inline]
fn capture(frames: &mut [u64; FRAMES]) -> usize {
    let functions = python::capture(frames);
    let room = frames.get_mut(functions..).unwrap_or_default();
    functions + unwind::capture(room)
}

/// Whether the stack may be walked, which takes system calls. Asking is a system call as well, so
/// the answer is cached for [`LOOK_MS`].
pub(crate) fn may_look() -> bool {
    static ASKED_AT: AtomicU64 = AtomicU64::new(0);
    static MAY: AtomicBool = AtomicBool::new(false);
    let now = HEAP.now_ms();
    if now.wrapping_sub(ASKED_AT.load(Ordering::Relaxed)) >= LOOK_MS {
        ASKED_AT.store(now, Ordering::Relaxed);
        MAY.store(process::may_query(), Ordering::Relaxed);
    }
    MAY.load(Ordering::Relaxed)
}

/// A whole number with mean `value`: rounds up with the probability of the fraction. `random` is
/// uniform in 0 to 1.
fn whole(value: f64, random: f64) -> u64 {
    (value + random) as u64
}

/// Usable and requested bytes of all live blocks, estimated from the samples; `None` if the samples
/// are too few or sampling is off.
pub(crate) fn live() -> Option<(u64, u64)> {
    let (usable, bytes) = REGION.live();
    let enough = HEAP.sampling().saturating_mul(LEAST_SAMPLES);
    (HEAP.is_sampling() && usable >= enough && bytes <= usable).then_some((usable, bytes))
}

/// The region's lock, for a fork.
pub(super) static LOCK: &Lock = &region::LOCK;
/// The pace's lock, for a fork.
pub(super) static PACE_LOCK: &Lock = SAMPLER.lock();

/// In a fork's child: replaces the parent's region by a copy.
pub(crate) fn after_fork_in_child() {
    REGION.after_fork_in_child();
}
