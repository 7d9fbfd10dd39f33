//! Guarded samples (`NEAP_GUARD`): now and then an allocation gets a page between two that no
//! access may touch, which finds overflows and uses after free where they happen. The idea is that
//! of GWP-ASan (Serebryany et al., "GWP-ASan: Sampling-Based Detection of Memory-Safety Bugs in
//! Production", 2023). `docs/guard.md` says how to use it.
//!
//! [`pool`] has the pages. This file decides which allocations get one: about every interval, each
//! thread's cache is [armed](neap_heap::cache::heap::Heap::arm_all), by the purge thread, or by the
//! thread's own slow path if it comes by first.

mod kernel;
mod pool;
mod report;
mod slots;
mod trace;

use crate::attach::words::WORDS;
use kernel::POOL;
use neap_heap::base::sync::{AtomicBool, AtomicU64, Ordering};
use neap_heap::cache::heap::{Guarding, HEAP};
use neap_heap::cache::measures::Measures;
use neap_heap::cache::misuse::Call;
use neap_heap::cache::thread_cache::Cache;
use neap_heap::os::Os;
use neap_heap::os::fault;
use neap_heap::os::linux::Linux;
use neap_heap::os::lock::Lock;
use neap_heap::os::{process, shared};
use neap_heap::reclaim::thread as purge;
use neap_heap::reclaim::wakeup::Urgency;
use neap_heap::slab::class::Class;
use neap_shared::status_page::{Guards, Refusal};
pub(crate) use report::keep_path;
use slots::SLOTS;
use trace::Trace;

/// The interval that stands for every allocation, in ms.
const EVERY: u64 = 0;
/// No interval.
const OFF: u64 = u64::MAX;

/// The mean time between two guarded samples of a thread, in ms, [`EVERY`] or [`OFF`].
#[unsafe(link_section = "neap_fork")]
static INTERVAL: AtomicU64 = AtomicU64::new(OFF);

/// When caches are armed next, in ms, or one of the two below.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// No cache got its block in a whole interval: the caches stay armed, and the purge thread sleeps.
const IDLE: u64 = u64::MAX;
/// One of them got its block since.
const ROUSED: u64 = u64::MAX - 1;

/// Some cache got its block since they were last armed.
static TAKEN: AtomicBool = AtomicBool::new(true);

/// The kernel's coarse clock may be this late: what is due within this time is due now, so the
/// purge thread wakes once for it.
const LATE_MS: u64 = 4;

/// State of the random numbers, which need not be good.
static RANDOM: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);

/// Guarded blocks handed out, for observers.
#[unsafe(link_section = "neap_fork")]
static BLOCKS: AtomicU64 = AtomicU64::new(0);

/// The pool's lock, for a fork.
pub(super) static LOCK: &Lock = &POOL.lock;

/// Guards samples from the start on.
pub(crate) fn want(interval_ms: u64) {
    INTERVAL.store(interval_ms, Ordering::Relaxed);
}

/// Starts with the process.
pub(crate) fn begin() {
    match INTERVAL.load(Ordering::Relaxed) {
        OFF => {}
        _ if process::queries_are_forbidden() => {
            process::warn_forbidden("NEAP_GUARD");
        }
        interval => {
            set_interval(Some(interval));
        }
    }
}

/// Guards one allocation of each thread in `interval_ms` on average. 0: all for which there is
/// room; `None`: no more. False if there is no memory for the pool, or if Neap must not make the
/// system calls of guarded blocks.
pub fn set_interval(interval_ms: Option<u64>) -> bool {
    let guarding = match interval_ms {
        None => Guarding::Off,
        Some(_)
            if process::queries_are_forbidden() || !POOL.make(|bytes| HEAP.take_pool(bytes)) =>
        {
            return false;
        }
        Some(EVERY) => Guarding::All,
        Some(_) => Guarding::Some,
    };
    INTERVAL.store(interval_ms.unwrap_or(OFF), Ordering::Relaxed);
    if guarding != Guarding::Off {
        // If the kernel refuses the handler, a fault ends the process without a report.
        fault::watch(report::on_fault);
    }
    TAKEN.store(true, Ordering::Relaxed);
    NEXT.store(0, Ordering::Relaxed);
    HEAP.set_guarding(guarding);
    write_state();
    HEAP.tide.bell.ring(Urgency::Now);
    true
}

/// Does what an observer requests by the word of a [`Guards`]. The caller holds no lock.
pub(crate) fn request(word: u64) -> Refusal {
    let interval_ms = match Guards::from_word(word) {
        None => return Refusal::Rate,
        Some(Guards::Off) => None,
        // To open a page takes a system call, for which a sandbox may kill the process.
        Some(_) if !process::may_query() => return Refusal::Sandbox,
        Some(Guards::Every(ms)) => Some(ms),
        Some(Guards::All) => Some(EVERY),
    };
    match set_interval(interval_ms) {
        true => Refusal::None,
        false => Refusal::Memory,
    }
}

/// Which allocations are guarded.
fn guards() -> Guards {
    match HEAP.guarding() {
        Guarding::Off => Guards::Off,
        Guarding::Some => Guards::Every(INTERVAL.load(Ordering::Relaxed)),
        Guarding::All => Guards::All,
    }
}

/// Writes to the status page what is in force, and the counts.
pub(crate) fn write_state() {
    if shared::is_mine() {
        WORDS.write_guards(guards());
        WORDS.write_guarded_blocks(BLOCKS.load(Ordering::Relaxed));
        WORDS.write_memory_errors(report::ERRORS.load(Ordering::Relaxed));
    }
}

/// Counts a guarded block, on the status page as well.
fn note_block() {
    let now = BLOCKS.fetch_add(1, Ordering::Relaxed) + 1;
    if shared::is_mine() {
        WORDS.write_guarded_blocks(now);
    }
}

/// A guarded block for a request that a slab of `class` would serve, if one is due.
pub(crate) fn take(cache: &Cache, [size, align]: [usize; 2], class: Class) -> Option<*mut u8> {
    let page = Linux.page_bytes();
    // `nullpage` makes such a block inaccessible, where the kernel has guard advice.
    if size == 0 && align <= 16 && HEAP.measures().has(Measures::NO_BYTES) {
        return None;
    }
    if class.bytes() > page || align > page || !is_due(cache, class) || !POOL.has_room() {
        return None;
    }
    // A sandbox may kill the process for the system calls of a guarded block.
    if process::queries_are_forbidden() {
        return None;
    }
    let block = POOL.take([size, align], class.bytes() as u32, random(), Trace::here())?;
    note_block();
    // Not in a child of `vfork`, whose parent's record it would change.
    if fault::is_replaced() && purge::may_be_own_process() {
        fault::come_back();
    }
    Some(block.as_ptr())
}

/// Whether the next block of `class` is to be guarded.
fn is_due(cache: &Cache, class: Class) -> bool {
    if purge::is_starter() {
        return false;
    }
    if HEAP.guarding() == Guarding::All {
        return POOL.spares(random());
    }
    // A thread may make a single block, so the one at hand counts.
    if HEAP.fires(cache, class) || (HEAP.inherit(cache) && HEAP.fires(cache, class)) {
        note_taken();
        return true;
    }
    let next = NEXT.load(Ordering::Relaxed);
    // A cache that is newer than the last arming: its block rouses the purge thread.
    let is_new = next == IDLE && !cache.is_armed();
    if !is_new {
        if HEAP.now_ms() < next {
            return false;
        }
        plan();
    }
    // One that cannot be armed comes by here with every block, or with those that the profiler
    // counts.
    !HEAP.arm(cache)
}

/// An armed cache got its block. A wake-up here would cost the thread its processor, so the purge
/// thread sleeps by the clock while the program allocates.
fn note_taken() {
    TAKEN.store(true, Ordering::Relaxed);
    if NEXT.load(Ordering::Relaxed) != IDLE {
        return;
    }
    if purge::is_here() && HEAP.can_arm() {
        NEXT.store(ROUSED, Ordering::Relaxed);
        HEAP.tide.bell.ring(Urgency::Now);
    } else {
        plan();
    }
}

/// Sets when caches are armed next: half to one and a half intervals from now. The fuller the pool,
/// the longer, so that blocks which are never freed do not fill it at once.
fn plan() {
    let crowding = POOL.live() * 8 / SLOTS;
    let interval = INTERVAL.load(Ordering::Relaxed).min(1 << 32) << crowding;
    let wait = interval / 2 + random() % interval.max(1);
    NEXT.store(HEAP.now_ms() + wait.max(1), Ordering::Relaxed);
}

fn random() -> u64 {
    let mut state = RANDOM.load(Ordering::Relaxed) ^ HEAP.now_ms();
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    RANDOM.store(state | 1 << 63, Ordering::Relaxed);
    state >> 8
}

/// Time until caches are to be armed, in ms; `None` if no one waits for that.
pub(crate) fn due_in_ms() -> Option<u64> {
    if !HEAP.can_arm() {
        return None;
    }
    match NEXT.load(Ordering::Relaxed) {
        IDLE => None,
        ROUSED => Some(0),
        next => match next.saturating_sub(HEAP.now_ms()) {
            0..=LATE_MS => Some(0),
            rest => Some(rest),
        },
    }
}

/// Arms all caches if that is due. True if there was something to do. For the purge thread.
pub(crate) fn arm_due() -> bool {
    if due_in_ms() != Some(0) {
        return false;
    }
    if NEXT.load(Ordering::Relaxed) != ROUSED {
        if !TAKEN.swap(false, Ordering::Relaxed) {
            NEXT.store(IDLE, Ordering::Relaxed);
            return true;
        }
        HEAP.arm_all();
    }
    plan();
    true
}

/// In a fork's child, which has no purge thread yet.
pub(crate) fn after_fork_in_child() {
    report::after_fork_in_child();
    // What its parent counted is on its parent's status page.
    for count in [&BLOCKS, &report::ERRORS] {
        if count.load(Ordering::Relaxed) != 0 {
            count.store(0, Ordering::Relaxed);
        }
    }
    if HEAP.guarding() != Guarding::Off {
        TAKEN.store(true, Ordering::Relaxed);
        NEXT.store(0, Ordering::Relaxed);
    }
}

/// The requested bytes of the block at `address`.
pub(crate) fn bytes(call: Call, address: usize) -> usize {
    match POOL.bytes(address) {
        Ok(bytes) => bytes,
        Err(mistake) => report::refuse(call, address, &mistake),
    }
}

/// Takes the block at `address` back.
pub(crate) fn give(address: usize) {
    if let Err(mistake) = POOL.give(address, Trace::here()) {
        report::refuse(Call::Free, address, &mistake);
    }
}

/// Calls `visit` with the page and the class of each live block.
pub(crate) fn for_each_live(mut visit: impl FnMut(usize, Class)) {
    if POOL.live() > 0 {
        POOL.for_each_live(|page, class| visit(page, Class::of_block(class as usize)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_half_to_one_and_a_half() {
        want(10);
        for _ in 0..1000 {
            let now = HEAP.now_ms();
            plan();
            let wait = NEXT.load(Ordering::Relaxed) - now;
            assert!((5..=16 + 8).contains(&wait), "{wait}");
        }
        want(OFF);
    }

    #[test]
    fn words_that_are_no_guards_are_refused() {
        for word in [3_600_001, 1 << 40, u64::MAX - 1] {
            assert_eq!(request(word), Refusal::Rate, "{word}");
        }
    }
}
