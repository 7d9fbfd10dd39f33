//! The process's side of the board ([`crate::board`]): it writes the figures that other processes
//! read, and serves their requests.
//!
//! The board costs next to nothing without an observer: the page heap copies its figures there when
//! they change, and slow paths compare three words. The purge thread serves an observer's requests.
//! In a process without one, a thread that allocates does. Requests come from other processes, so
//! the process only compares them with their last values and bounds them. It never reads back what
//! it wrote to the board.
//!
//! A child of fork gets a board of its own. A child of vfork shares its parent's memory and leaves
//! the board alone. So does the child of a raw clone, which shares only the file.

mod words;

use super::profile;
use super::purge;
use super::survey;
use crate::base::sync::{AtomicBool, AtomicU8, AtomicU64, Ordering, UnsafeCell};
use crate::board::{self, Head, Refusal, ThreadState};
use crate::cache::bell::Urgency;
use crate::cache::heap::HEAP;
use crate::os::Os;
use crate::os::linux::{Linux, sandbox};
use crate::os::lock::{Lock, Rank};
use crate::os::peek;
use crate::os::shared::{self, Shared};
use crate::os::thread;
use crate::slab::depot::{Round, Source};
use crate::stats::Snapshot;
use words::Words;

/// Periodic surveys for a watching observer take at most one part in this many of a core's time.
const WATCH_PART: u64 = 200;
/// Surveys for single requests take at most one part in this many of a core's time.
const ASK_PART: u64 = 20;
/// Unused time that surveys may catch up on, in ns: after a pause this long, several may run at
/// once.
const CREDIT_NS: u64 = 1_000_000_000;

/// How long an allocating thread waits for a purge thread that may yet be started, in ms.
const GRACE_MS: u64 = 50;

/// Bytes of stack that a survey may use.
const STACK_BYTES: usize = 32 << 10;

/// Least time between two purges, or changes of sampling, on request, in ms.
const LEAST_ACT_MS: u64 = 100;

/// The frontend that owns this heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Frontend {
    /// libneap.so.
    C = 1,
    /// A Rust program's own allocator.
    Rust = 2,
}

#[unsafe(link_section = "neap_fork")]
static FRONTEND: AtomicU8 = AtomicU8::new(Frontend::Rust as u8);
#[unsafe(link_section = "neap_fork")]
static WHEN: AtomicU8 = AtomicU8::new(When::Worthwhile as u8);
/// The process has no board yet, and gets one later.
#[unsafe(link_section = "neap_fork")]
static ABSENT: AtomicBool = AtomicBool::new(false);
/// An observer asked at least once, or a monitor was told of the board: write the last figures.
#[unsafe(link_section = "neap_fork")]
static AWAITED: AtomicBool = AtomicBool::new(false);

/// When a process gets a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum When {
    /// Never.
    Never,
    /// When its heap has grown, or when it has taken many slow paths (`super::purge::moment`). Most
    /// processes of a shell script end before that.
    Worthwhile,
    /// At the start.
    AtStart,
}

/// The board's words.
#[unsafe(link_section = "neap_fork")]
static WORDS: Words = Words::none();

/// The process's private state of the board.
struct Private {
    /// Held by the thread that serves.
    lock: Lock,
    /// guarded by: lock
    inner: UnsafeCell<Inner>,
    /// Path of the socket to tell of the board; empty: none. Written while the process has one
    /// thread.
    monitor: UnsafeCell<Name>,
    /// The last requests considered: ask, purge, sample.
    seen: [AtomicU64; 3],
    /// When an allocating thread first saw a pending request, in ms; 0: none.
    asked_at: AtomicU64,
    /// When the figures may next be written for single requests, and for a watching observer, in
    /// ns.
    next_at: [AtomicU64; 2],
    /// When the figures were last written, in ms.
    written_at: AtomicU64,
    /// When the next purge, or change of sampling, may be carried out on request, in ms.
    act_at: AtomicU64,
}

struct Inner {
    shared: Option<Shared>,
    figures: Snapshot,
    written: u64,
    cost_ns: u64,
}

/// The path of a socket.
#[derive(Clone, Copy)]
struct Name {
    bytes: [u8; NAME_BYTES],
    len: usize,
}

const NAME_BYTES: usize = 107;

// SAFETY: `inner` is reached only under `lock`; `monitor` is written while the process has one
// thread.
unsafe impl Sync for Private {}

static BOARD: Private = Private {
    lock: Lock::new(Rank::Board),
    inner: UnsafeCell::new(Inner {
        shared: None,
        // SAFETY: 64-bit words only, for which zeros are a value.
        figures: unsafe { core::mem::zeroed() },
        written: 0,
        cost_ns: 0,
    }),
    monitor: UnsafeCell::new(Name {
        bytes: [0; NAME_BYTES],
        len: 0,
    }),
    seen: [const { AtomicU64::new(0) }; 3],
    asked_at: AtomicU64::new(0),
    next_at: [const { AtomicU64::new(0) }; 2],
    written_at: AtomicU64::new(0),
    act_at: AtomicU64::new(0),
};

/// Sets when the process gets a board.
pub(super) fn choose(when: When) {
    WHEN.store(when as u8, Ordering::Relaxed);
}

fn is(when: When) -> bool {
    WHEN.load(Ordering::Relaxed) == when as u8
}

/// Sets the frontend. Without this call before the process [begins](super::begin), it is a Rust
/// program's own allocator.
pub fn set_frontend(frontend: Frontend) {
    FRONTEND.store(frontend as u8, Ordering::Relaxed);
    WORDS.write_frontend(frontend as u64);
}

/// Whether this is libneap.so.
pub(super) fn is_library() -> bool {
    FRONTEND.load(Ordering::Relaxed) == Frontend::C as u8
}

/// Keeps the name of the monitor's socket.
///
/// # Safety
/// - The process has one thread.
pub(super) unsafe fn keep_monitor(name: &[u8]) {
    // SAFETY: the caller's promise.
    let monitor = unsafe { &mut *BOARD.monitor.get() };
    if let Some(room) = monitor.bytes.get_mut(..name.len()) {
        room.copy_from_slice(name);
        monitor.len = name.len();
        AWAITED.store(true, Ordering::Relaxed);
    }
}

/// Creates the board, unless it was forbidden: now if `wanted`, chosen or awaited, else when it is
/// [worthwhile](When::Worthwhile).
pub(super) fn begin(wanted: bool) {
    if is(When::Never) || thread::is_secure() || !sandbox::allows_more() {
        return;
    }
    if !(wanted || is(When::AtStart) || AWAITED.load(Ordering::Relaxed)) {
        ABSENT.store(true, Ordering::Relaxed);
        return;
    }
    let _guard = BOARD.lock.lock();
    // SAFETY: the lock is held.
    put_up(unsafe { &mut *BOARD.inner.get() });
}

fn put_up(inner: &mut Inner) {
    let page = Linux.page_bytes();
    let Some(shared) = Shared::create(board::NAME, board::BYTES.next_multiple_of(page)) else {
        return;
    };
    WORDS.set(Some(&shared));
    WORDS.write_head(&Head {
        magic: board::MAGIC,
        version: board::VERSION,
        bytes: board::BYTES as u64,
        pid: thread::process_id() as u64,
        page_bytes: page as u64,
        frontend: u64::from(FRONTEND.load(Ordering::Relaxed)),
        made_ms: Linux.now_ms(),
    });
    BOARD
        .seen
        .iter()
        .for_each(|seen| seen.store(0, Ordering::Relaxed));
    note_sampling(HEAP.sampling());
    HEAP.tide.bell.words.share(WORDS.bell());
    HEAP.pages.set_mirror(WORDS.mirror());
    tell(&shared, board::KIND_BOARD);
    inner.shared = Some(shared);
}

fn monitor() -> &'static Name {
    // SAFETY: written while the process had one thread, and never since.
    unsafe { &*BOARD.monitor.get() }
}

/// Writes to the board whether a thread answers.
pub(super) fn note_thread(state: ThreadState) {
    if shared::is_mine() {
        WORDS.write_thread(state);
    }
}

/// Says on the board at which rate the profiler samples.
pub(super) fn note_sampling(rate: u64) {
    WORDS.write_rate(rate);
}

/// Tells the monitor, if there is one, of the profile's region.
pub(super) fn tell_of_profile(shared: &Shared) {
    tell(shared, board::KIND_PROFILE);
}

fn tell(shared: &Shared, kind: u64) {
    let monitor = monitor();
    if monitor.len > 0 {
        let words = [board::GREETING, kind, thread::process_id() as u64];
        shared.hand_to(&monitor.bytes[..monitor.len], words);
    }
}

/// Whether a request is pending that this process has not considered.
#[inline]
pub(super) fn is_asked() -> bool {
    match WORDS.asked() {
        Some(asked) => differs(asked),
        None => false,
    }
}

fn differs(asked: [u64; 3]) -> bool {
    let seen = BOARD
        .seen
        .each_ref()
        .map(|seen| seen.load(Ordering::Relaxed));
    asked != seen
}

/// An allocating thread found a pending request. It serves the request if no purge thread has done
/// so within the grace period.
#[cold]
pub(super) fn on_the_way() {
    if purge::is_here() {
        return;
    }
    let now = Linux.now_ms();
    match BOARD.asked_at.load(Ordering::Relaxed) {
        0 => BOARD.asked_at.store(now, Ordering::Relaxed),
        first if now.saturating_sub(first) >= GRACE_MS => serve(),
        _ => {}
    }
}

/// Rings the purge thread for an observer that could not wake it. At most one ring per request.
pub(super) fn ring_for_observers() {
    static RUNG_FOR: AtomicU64 = AtomicU64::new(0);
    let Some(asked) = WORDS.asked().filter(|&asked| differs(asked)) else {
        return;
    };
    let sum = asked.into_iter().fold(0, u64::wrapping_add);
    if RUNG_FOR.swap(sum, Ordering::Relaxed) != sum {
        HEAP.tide.bell.ring(Urgency::Now);
    }
}

/// Serves observers if that is due. True if there was something to do. The caller holds no lock.
pub(super) fn serve_due() -> bool {
    due_in_ms() == Some(0) && serve_now()
}

/// Time until an observer is to be served, in ms; `None` while no observer asks or watches.
pub(super) fn due_in_ms() -> Option<u64> {
    let asked = WORDS.asked()?;
    let [ask, purge, sample] =
        core::array::from_fn(|word| asked[word] != BOARD.seen[word].load(Ordering::Relaxed));
    let figures = ask.then(|| Reader::Asks.wait_ms());
    let act_at = BOARD.act_at.load(Ordering::Relaxed);
    let acts = (purge || sample).then(|| act_at.saturating_sub(HEAP.now_ms()));
    let lease = Some(rest_ms()).filter(|&ms| ms != u64::MAX);
    [figures, acts, lease].into_iter().flatten().min()
}

/// The reader that the figures are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Asks = 0,
    Watches = 1,
}

impl Reader {
    /// Time until another survey stays within its share of a core, in ms.
    fn wait_ms(self) -> u64 {
        let next = BOARD.next_at[self as usize].load(Ordering::Relaxed);
        next.saturating_sub(thread::now_ns()).div_ceil(1_000_000)
    }

    /// Accounts for a survey that took `cost_ns`.
    fn charge(self, cost_ns: u64) {
        let (next_at, part) = match self {
            Reader::Asks => (&BOARD.next_at[0], ASK_PART),
            Reader::Watches => (&BOARD.next_at[1], WATCH_PART),
        };
        let least = thread::now_ns().saturating_sub(CREDIT_NS);
        let from = next_at.load(Ordering::Relaxed).max(least);
        next_at.store(from + cost_ns * part, Ordering::Relaxed);
    }
}

/// Serves the requests, if that is safe here. Takes all locks of the heap, one after the other, so
/// the caller holds none.
#[cold]
fn serve() {
    // A survey reads files, for which a sandbox may kill the process.
    if shared::is_mine() && purge::is_own_process() && sandbox::allows_more() && has_stack() {
        serve_now();
    }
}

/// Serves the requests, and writes the figures if they are due. True if there was something to do.
fn serve_now() -> bool {
    let Some([ask, purge, sample]) = WORDS.asked() else {
        return false;
    };
    let acted = carry_out(purge, sample);
    let Some(_guard) = BOARD.lock.try_lock() else {
        return acted;
    };
    // SAFETY: the lock is held.
    let inner = unsafe { &mut *BOARD.inner.get() };
    let is_new = ask != BOARD.seen[0].load(Ordering::Relaxed);
    if is_new {
        AWAITED.store(true, Ordering::Relaxed);
    }
    let is_due = rest_ms() == 0 || (is_new && Reader::Asks.wait_ms() == 0);
    if is_due {
        BOARD.seen[0].store(ask, Ordering::Relaxed);
        write(inner, ask);
    }
    BOARD.asked_at.store(0, Ordering::Relaxed);
    acted || is_due
}

/// Purges and switches sampling on request. Both take long, so it acts at most once in
/// [`LEAST_ACT_MS`]. True if it acted. Runs without the board's lock, for which a fork waits.
fn carry_out(purge: u64, sample: u64) -> bool {
    let wanted =
        [(1, purge), (2, sample)].map(|(at, word)| BOARD.seen[at].load(Ordering::Relaxed) != word);
    let (now, next) = (HEAP.now_ms(), BOARD.act_at.load(Ordering::Relaxed));
    let exchange = Ordering::Relaxed;
    let due = wanted != [false; 2]
        && now >= next
        && BOARD
            .act_at
            .compare_exchange(next, now + LEAST_ACT_MS, exchange, exchange)
            .is_ok();
    if due && purge != BOARD.seen[1].swap(purge, Ordering::Relaxed) {
        let bytes = HEAP.decay_round(Round::All);
        WORDS.write_purged(purge, bytes as u64);
    }
    if due && sample != BOARD.seen[2].swap(sample, Ordering::Relaxed) {
        let rate = WORDS.sample_rate();
        let refusal = rate.map_or(Refusal::None, profile::set_rate);
        WORDS.write_sampled(sample, refusal);
    }
    due
}

/// Whether the stack below this call has room for a survey: a thread may have little, and a
/// coroutine almost none. If not, another thread will serve.
fn has_stack() -> bool {
    let here = 0u8;
    let at = |below: usize| (&raw const here).addr().saturating_sub(below);
    (0..=STACK_BYTES)
        .step_by(4096)
        .all(|below| peek::is_readable(at(below)))
}

fn write(inner: &mut Inner, ask: u64) {
    survey::survey(&mut inner.figures);
    inner.written += 1;
    inner.cost_ns += inner.figures.cost_ns;
    WORDS.write_figures(&inner.figures);
    WORDS.write_sizes();
    WORDS.write_served(ask, inner.written, inner.cost_ns);
    for reader in [Reader::Asks, Reader::Watches] {
        reader.charge(inner.figures.cost_ns);
    }
    BOARD.written_at.store(HEAP.now_ms(), Ordering::Relaxed);
}

/// Time until the figures are due, in ms; `u64::MAX` without a watching observer.
pub(super) fn rest_ms() -> u64 {
    let Some((lease, interval)) = WORDS.lease() else {
        return u64::MAX;
    };
    let now = HEAP.now_ms();
    if lease <= now || lease > now + board::LEASE_MS {
        return u64::MAX;
    }
    let interval = interval.clamp(board::LEAST_INTERVAL_MS, board::LEASE_MS);
    let due = BOARD.written_at.load(Ordering::Relaxed) + interval;
    due.saturating_sub(now).max(Reader::Watches.wait_ms())
}

/// Whether an observer awaits the last figures.
pub(super) fn is_awaited() -> bool {
    AWAITED.load(Ordering::Relaxed) || (is_up() && !is_inherited() && rest_ms() != u64::MAX)
}

/// Writes the last figures at the process's end, for the observer or monitor.
pub(super) fn finish() {
    // In this order: a fork's child has not touched the page of `shared::is_mine` yet.
    if !is_awaited() || !shared::is_mine() || !sandbox::allows_more() {
        return;
    }
    let Some(_guard) = BOARD.lock.try_lock() else {
        return;
    };
    // SAFETY: the lock is held.
    let inner = unsafe { &mut *BOARD.inner.get() };
    if let Some([ask, ..]) = WORDS.asked() {
        write(inner, ask);
    }
}

/// The board's lock, for a fork.
pub(super) fn lock() -> &'static Lock {
    &BOARD.lock
}

/// In a fork's child: replaces the parent's board. Does so at once if an observer awaits figures or
/// the profiler samples, else on the first slow path, because most children soon `exec` or end.
pub(super) fn after_fork_in_child() {
    if is_up() {
        shared::set_inherited(true);
        if (is_awaited() || HEAP.is_sampling()) && !BOARD.lock.is_mine() && HEAP.pages.is_quiet() {
            renew();
        }
    }
}

/// Whether the process has a board, its own or its parent's.
fn is_up() -> bool {
    WORDS.is_set()
}

/// Whether the board is the parent's.
fn is_inherited() -> bool {
    shared::is_inherited()
}

/// Whether the process has no board of its own yet, and gets one later.
#[inline]
pub(super) fn is_missing() -> bool {
    is_inherited() || ABSENT.load(Ordering::Relaxed)
}

/// Whether a process without a board gets it on its next slow path.
pub(super) fn is_wanted_soon() -> bool {
    is(When::AtStart) || is_awaited() || HEAP.is_sampling()
}

/// Replaces the parent's board by the process's own, or creates the first. The caller holds no lock
/// of the heap, and the process is [its own](purge::is_own_process): a child of vfork leaves its
/// parent's memory alone.
#[cold]
pub(super) fn renew() {
    // Its holder does this, or was interrupted by the signal handler that this call comes from.
    let Some(guard) = BOARD.lock.try_lock() else {
        return;
    };
    if !is_missing() {
        return;
    }
    // SAFETY: the lock is held.
    let inner = unsafe { &mut *BOARD.inner.get() };
    if let Some(parents) = inner.shared.take() {
        HEAP.pages.set_mirror(None);
        HEAP.tide.bell.words.share(None);
        WORDS.set(None);
        parents.close();
        // SAFETY: no word or list holds its address any longer.
        unsafe { parents.unmap() };
        (inner.written, inner.cost_ns) = (0, 0);
        AWAITED.store(monitor().len > 0, Ordering::Relaxed);
        shared::set_inherited(false);
    }
    if sandbox::allows_more() {
        put_up(inner);
    }
    // Last: a thread that started before would sleep on a word that no observer sees.
    ABSENT.store(false, Ordering::Relaxed);
    drop(guard);
    purge::tell_state();
}
