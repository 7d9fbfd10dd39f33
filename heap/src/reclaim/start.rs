//! When a thread may be started: the one place that decides it.
//!
//! `pthread_create` takes locks of the C library. So a safe moment is the end of a slow path of a
//! call that the program's own code made, outside of every lock of the heap: not the C library or
//! the loader, which may hold these locks; not a handler of signals, for what it interrupted may
//! hold them; not around a fork, nor in a child that shares or copied another process's memory; not
//! in a sandbox, which may kill for it; and not on a stack that has no room for the C library's
//! part.
//!
//! The stack tells. The first return address outside of this library is the caller's; a handler
//! shows by the code that it returns to. A stack that cannot be followed as far as the caller is
//! taken for the C library's. The other safe moment is the program's own request ([`start_now`]).

use super::thread::{self, AWAY, EAGER, ENABLED, HERE, HOLDS, RETRY_AT, RETRY_MS, STATE};
use super::thread::{may_be_own_process, start_thread};
use super::wakeup::Urgency;
use crate::base::policy::{Driver, START_BYTES};
use crate::base::sync::plain::AtomicU32;
use crate::base::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::cache::heap::HEAP;
use crate::hook::{self, REQUESTS};
use crate::os::process;
use crate::os::shared;
use core::ops::Range;

/// Code from which a call may come with locks of the C library held: from, to. The first is this
/// library's own. Written before `ENABLED`; in a static program also at each request, with the same
/// values.
#[unsafe(link_section = "neap_fork")]
static FORBIDDEN: [[AtomicUsize; 2]; MOST_RANGES] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; MOST_RANGES];

/// How many ranges of code [`enable`] takes.
pub const MOST_RANGES: usize = 8;

/// How far the heap had grown when the process began, in bytes: a fork's child has its parent's.
#[unsafe(link_section = "neap_fork")]
static GROWN_BEFORE: AtomicUsize = AtomicUsize::new(0);

/// How many slow paths the process has taken without a status page.
#[unsafe(link_section = "neap_fork")]
static PASSED: AtomicU32 = AtomicU32::new(0);

/// A process gets a status page when its heap has grown by this many bytes, or when it has taken
/// this many slow paths. A status page takes 50 to 100 µs, a tenth of what the smallest processes
/// take.
const STATUS_PAGE_BYTES: usize = 1 << 20;
const STATUS_PAGE_PASSES: u32 = 256;

/// Bytes of stack that a start may take.
const ROOM_BYTES: usize = 16 << 10;

/// Frames that are looked at: a handler of signals is not deeper than that above what it allocates
/// by.
const FRAMES: usize = 48;

/// In a Rust program with the crate `neap` as its allocator: from now on a thread gives back what
/// no thread uses, in a process that does nothing, too, and answers `neap stat`. Without it callers
/// do that on their way. `NEAP_PURGE_THREAD` decides, if it is set.
///
/// Not for programs whose C library calls this heap's `free`, too: there libneap.so knows what to
/// do.
pub fn enable_thread() {
    enable(&[]);
}

/// From now on a thread is started once the heap has grown, unless the call that finds it comes
/// from code in `forbidden`, at most [`MOST_RANGES`] ranges of addresses.
///
/// For the C frontend these are its own, the C library's and the loader's. A Rust program whose C
/// library has another heap than its Rust code has none.
pub fn enable(forbidden: &[Range<usize>]) {
    debug_assert!(forbidden.len() <= MOST_RANGES);
    for (range, [from, to]) in forbidden.iter().zip(&FORBIDDEN) {
        from.store(range.start, Ordering::Relaxed);
        to.store(range.end, Ordering::Relaxed);
    }
    // Who was told to ask no more, or to start none, stays so.
    if !thread::is_chosen_off() && process::may_query() {
        thread::allow();
    }
    thread::tell_state();
}

/// Starts the thread at the program's request, which comes from no handler of a signal or of
/// `fork`. True once the thread is at its work. `Err` if an option or a sandbox forbids it.
pub fn start_now() -> Result<bool, Forbidden> {
    if !thread::is_enabled() || !process::may_query() {
        return Err(Forbidden);
    }
    // In a raw copy that has its original's process number, the state is the original's.
    let is_copy = STATE.load(Ordering::Relaxed) == HERE && !shared::is_mine();
    if is_copy || !is_own() {
        return Ok(false);
    }
    // Before the thread: one that sleeps before the status page exists would miss its requests.
    if REQUESTS.is_status_page_missing() {
        hook::instruments().make_status_page();
    }
    if REQUESTS.is_status_page_missing() {
        return Ok(false);
    }
    // Of two threads that ask at once, one starts it. Both wait: a fork before the thread is at
    // work would end it, and in a static program nothing restarts it.
    start_thread();
    Ok(thread::await_work())
}

/// An option or a sandbox forbids the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forbidden;

/// In a fork's child: what its parent had grown to is no reason to start a thread.
pub(crate) fn after_fork_in_child() {
    GROWN_BEFORE.store(HEAP.pages.extent(), Ordering::Relaxed);
    PASSED.store(0, Ordering::Relaxed);
}

/// Ends every slow path, which holds no lock by then. Purges what the path left and what the group
/// has no room for. Starts the purge thread if it is missed and this is a safe moment. `caller` is
/// an address in the code that made the call; 0: unknown.
#[inline]
pub(crate) fn end_slow_path(caller: usize) {
    HEAP.pages.tend_left();
    if HEAP.pages.limits().is_outdated() {
        HEAP.heed_group();
    }
    if REQUESTS.is_status_page_missing() && is_worth_a_status_page() && is_own() {
        hook::instruments().make_status_page();
    }
    match STATE.load(Ordering::Relaxed) {
        HERE if shared::is_mine() => ring_for_observers(),
        HERE => disown(),
        AWAY if !ENABLED.load(Ordering::Acquire) => answer_without(),
        AWAY if is_missed() && !REQUESTS.is_status_page_missing() => start_here(caller),
        _ => {}
    }
}

/// By how many bytes the heap, of `extent` bytes now, has grown since the process began.
fn grown(extent: usize) -> usize {
    extent.saturating_sub(GROWN_BEFORE.load(Ordering::Relaxed))
}

/// Whether the process, which has no status page, is to get one now. Counts the calls.
#[cold]
fn is_worth_a_status_page() -> bool {
    let passed = PASSED.load(Ordering::Relaxed).saturating_add(1);
    PASSED.store(passed, Ordering::Relaxed);
    let worth = passed >= STATUS_PAGE_PASSES
        || grown(HEAP.pages.extent()) >= STATUS_PAGE_BYTES
        || hook::instruments().wants_status_page()
        || is_missed();
    worth && HEAP.now_ms() >= RETRY_AT.load(Ordering::Relaxed)
}

/// Whether the process is [its own](may_be_own_process). To ask is a system call: a no counts for a
/// second.
fn is_own() -> bool {
    let own = may_be_own_process();
    if !own {
        RETRY_AT.store(HEAP.now_ms() + RETRY_MS, Ordering::Relaxed);
    }
    own
}

/// Whether there is work for a thread. A few loads.
fn is_missed() -> bool {
    let extent = HEAP.pages.extent();
    grown(extent) >= START_BYTES
        || (extent >= START_BYTES && HEAP.tide.freed.is_wanted())
        || EAGER.load(Ordering::Relaxed)
        || REQUESTS.pending().is_some()
}

/// Rings the purge thread for an observer that could not wake it. At most one ring per request.
fn ring_for_observers() {
    static RUNG_FOR: AtomicU64 = AtomicU64::new(0);
    let Some(asked) = REQUESTS.pending() else {
        return;
    };
    let sum = asked.into_iter().fold(0, u64::wrapping_add);
    if RUNG_FOR.swap(sum, Ordering::Relaxed) != sum {
        HEAP.tide.bell.ring(Urgency::Now);
    }
}

/// There is no thread: this caller answers who asks.
fn answer_without() {
    if REQUESTS.pending().is_some() {
        hook::instruments().answer_on_the_way();
    }
}

/// A copy of another process: the thread was left behind there, and callers do its work here.
#[cold]
fn disown() {
    HEAP.pages.limits().set_driver(Driver::Callers);
    answer_without();
}

#[cold]
#[inline(never)]
fn start_here(caller: usize) {
    if may_look(caller) && HOLDS.load(Ordering::SeqCst) == 0 && is_safe(caller) && start_thread() {
        return;
    }
    answer_without();
}

/// Whether it is worth to look closer, which takes some microseconds. A known caller tells at once.
/// Others are looked at once in a tick of the coarse clock: all of them may be the C library.
fn may_look(caller: usize) -> bool {
    static LOOKED_AT: AtomicU64 = AtomicU64::new(0);
    let now = HEAP.now_ms();
    if now < RETRY_AT.load(Ordering::Relaxed) {
        return false;
    }
    match range_of(caller) {
        None if caller != 0 => true,
        None | Some(0) => LOOKED_AT.swap(now, Ordering::Relaxed) != now,
        Some(_) => false,
    }
}

fn is_safe(caller: usize) -> bool {
    if !process::may_query() {
        ENABLED.store(false, Ordering::SeqCst);
        thread::tell_state();
        return false;
    }
    is_own() && is_programs_own(caller)
}

/// Whether the program's own code made the call, outside of a handler of signals and on a stack
/// that has room. Without ranges the C library calls another heap.
fn is_programs_own(caller: usize) -> bool {
    let mut frames = [0; FRAMES];
    let Some(frames) = hook::instruments().callers(&mut frames, ROOM_BYTES) else {
        return false;
    };
    let mut frames = frames.iter().map(|&pc| pc as usize);
    let is_outside = |pc: &usize| range_of(*pc) != Some(0);
    let known = Some(caller).filter(|&caller| caller != 0 && is_outside(&caller));
    match known.or_else(|| frames.find(is_outside)) {
        Some(caller) => range_of(caller).is_none(),
        None => FORBIDDEN[0][1].load(Ordering::Relaxed) == 0,
    }
}

/// The number of the forbidden range that `address` lies in; 0 is this library's own.
fn range_of(address: usize) -> Option<usize> {
    FORBIDDEN.iter().position(|range| {
        let [from, to] = range.each_ref().map(|end| end.load(Ordering::Relaxed));
        (from..to).contains(&address)
    })
}
