//! The board, seen from inside: the pages of figures that other processes read ([`crate::board`]), and what they ask by them.
//!
//! It costs next to nothing until somebody looks: the page heap copies its figures there when they change, and slow paths look at
//! three words. Who asks is served by the purge thread, if there is one, or one can be started; else by a caller on its way.
//! What is read from the board is what strangers wrote: it is compared with what was there before, bounded, and nothing else; what
//! is written there is never read back.
//!
//! A child of fork has a board of its own; one of vfork has its parent's memory, and leaves the board alone, as does a raw
//! clone's, which only shares the file.

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

/// Surveys for who watches take at most this part of one core's time,
const WATCH_PART: u64 = 200;
/// and those for single questions at most this one,
const ASK_PART: u64 = 20;
/// in the long run: after a pause as long as this, some come at once.
const CREDIT_NS: u64 = 1_000_000_000;

/// How long a caller on its way leaves the work to a thread that may yet be started, in ms.
const GRACE_MS: u64 = 50;

/// Bytes of stack that a survey may take.
const STACK_BYTES: usize = 32 << 10;

/// Least time between two purges, or changes of sampling, that others ask for, in ms.
const LEAST_ACT_MS: u64 = 100;

/// Whose memory this heap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Frontend {
    /// libneap.so.
    C = 1,
    /// A Rust program's own allocator.
    Rust = 2,
}

static FRONTEND: AtomicU8 = AtomicU8::new(Frontend::Rust as u8);
static ALLOWED: AtomicBool = AtomicBool::new(true);
/// Somebody asked at least once, or is told of the board: the last figures are wanted.
#[unsafe(link_section = "neap_fork")]
static AWAITED: AtomicBool = AtomicBool::new(false);

/// Everything about the board that is not in it.
struct Private {
    /// Held by who serves.
    lock: Lock,
    /// guarded by: lock
    inner: UnsafeCell<Inner>,
    /// The socket that is told of the board; empty: none. Written while the process has one thread.
    monitor: UnsafeCell<Name>,
    words: Words,
    /// The last words that were looked at: ask, purge, sample.
    seen: [AtomicU64; 3],
    /// When a caller first found somebody asking whom nobody served, in ms; 0: none did.
    asked_at: AtomicU64,
    /// When the figures may next be written for who asks, and for who watches, in ns.
    next_at: [AtomicU64; 2],
    /// When they were last written, in ms.
    written_at: AtomicU64,
    /// When the next purge, or change of sampling, may be carried out for others, in ms.
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

// SAFETY: `inner` is reached only under `lock`; `monitor` is written while the process has one thread.
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
    words: Words::none(),
    seen: [const { AtomicU64::new(0) }; 3],
    asked_at: AtomicU64::new(0),
    next_at: [const { AtomicU64::new(0) }; 2],
    written_at: AtomicU64::new(0),
    act_at: AtomicU64::new(0),
};

/// There is to be no board.
pub(super) fn forbid() {
    ALLOWED.store(false, Ordering::Relaxed);
}

/// Says which frontend this is; a Rust program's own allocator, if nobody does before the process [begins](super::begin).
pub fn set_frontend(frontend: Frontend) {
    FRONTEND.store(frontend as u8, Ordering::Relaxed);
    BOARD.words.write_frontend(frontend as u64);
}

/// Whether this is libneap.so.
pub(super) fn is_library() -> bool {
    FRONTEND.load(Ordering::Relaxed) == Frontend::C as u8
}

/// Keeps the name of the socket that is to be told.
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

/// Puts the board up, where nobody forbade it.
pub(super) fn begin() {
    if !ALLOWED.load(Ordering::Relaxed) || thread::is_secure() || !sandbox::allows_more() {
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
    BOARD.words.set(Some(&shared));
    BOARD.words.write_head(&Head {
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
    HEAP.tide.bell.words.share(BOARD.words.bell());
    HEAP.pages.set_mirror(BOARD.words.mirror());
    tell(&shared, board::KIND_BOARD);
    inner.shared = Some(shared);
}

fn monitor() -> &'static Name {
    // SAFETY: written while the process had one thread, and never since.
    unsafe { &*BOARD.monitor.get() }
}

/// Says on the board whether a thread answers.
pub(super) fn note_thread(state: ThreadState) {
    if shared::is_mine() {
        BOARD.words.write_thread(state);
    }
}

/// Says on the board at which rate the profiler samples.
pub(super) fn note_sampling(rate: u64) {
    BOARD.words.write_rate(rate);
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

/// Whether somebody asks for something that was not looked at yet.
#[inline]
pub(super) fn is_asked() -> bool {
    match BOARD.words.asked() {
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

/// A caller that allocates found somebody asking: serves, if no thread of ours does it within the grace.
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

/// A caller comes by while the thread is there: an observer who could not wake it is not to wait for long. One ring a question.
pub(super) fn ring_for_observers() {
    static RUNG_FOR: AtomicU64 = AtomicU64::new(0);
    let Some(asked) = BOARD.words.asked().filter(|&asked| differs(asked)) else {
        return;
    };
    let sum = asked.into_iter().fold(0, u64::wrapping_add);
    if RUNG_FOR.swap(sum, Ordering::Relaxed) != sum {
        HEAP.tide.bell.ring(Urgency::Now);
    }
}

/// What the purge thread does for observers, if it is due. Whether it did something. The caller holds no lock.
pub(super) fn serve_due() -> bool {
    due_in_ms() == Some(0) && serve_now()
}

/// Time until something is to be done for observers, in ms; `None` while no observer asks or watches.
pub(super) fn due_in_ms() -> Option<u64> {
    let asked = BOARD.words.asked()?;
    let [ask, purge, sample] =
        core::array::from_fn(|word| asked[word] != BOARD.seen[word].load(Ordering::Relaxed));
    let figures = ask.then(|| Reader::Asks.wait_ms());
    let act_at = BOARD.act_at.load(Ordering::Relaxed);
    let acts = (purge || sample).then(|| act_at.saturating_sub(HEAP.now_ms()));
    let lease = Some(rest_ms()).filter(|&ms| ms != u64::MAX);
    [figures, acts, lease].into_iter().flatten().min()
}

/// For whom the figures are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Asks = 0,
    Watches = 1,
}

impl Reader {
    /// Time until another survey takes no more than its part of a core, in ms.
    fn wait_ms(self) -> u64 {
        let next = BOARD.next_at[self as usize].load(Ordering::Relaxed);
        next.saturating_sub(thread::now_ns()).div_ceil(1_000_000)
    }

    /// A survey took so long.
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

/// Does what was asked, where that is safe. Takes all locks of the heap, one after the other: the caller holds none.
#[cold]
fn serve() {
    // A survey reads files, and a sandbox may kill for that.
    if shared::is_mine() && purge::is_own_process() && sandbox::allows_more() && has_stack() {
        serve_now();
    }
}

/// Does what was asked, and writes the figures if it is time. Whether there was something to do.
fn serve_now() -> bool {
    let Some([ask, purge, sample]) = BOARD.words.asked() else {
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

/// Purges and switches sampling, as somebody asked; not again and again, for both take long. Whether it did. Without the board's lock,
/// for which a fork waits.
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
        BOARD.words.write_purged(purge, bytes as u64);
    }
    if due && sample != BOARD.seen[2].swap(sample, Ordering::Relaxed) {
        let rate = BOARD.words.sample_rate();
        let refusal = rate.map_or(Refusal::None, profile::set_rate);
        BOARD.words.write_sampled(sample, refusal);
    }
    due
}

/// Whether there is stack enough for a survey below this call: a thread may have little, a coroutine next to none. If not, somebody else
/// will come by.
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
    BOARD.words.write_figures(&inner.figures);
    BOARD.words.write_sizes();
    BOARD.words.write_served(ask, inner.written, inner.cost_ns);
    for reader in [Reader::Asks, Reader::Watches] {
        reader.charge(inner.figures.cost_ns);
    }
    BOARD.written_at.store(HEAP.now_ms(), Ordering::Relaxed);
}

/// Time until the figures are due, in ms; `u64::MAX` while nobody watches.
pub(super) fn rest_ms() -> u64 {
    let Some((lease, interval)) = BOARD.words.lease() else {
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

/// Whether somebody awaits the last figures.
pub(super) fn is_awaited() -> bool {
    AWAITED.load(Ordering::Relaxed) || (!is_inherited() && rest_ms() != u64::MAX)
}

/// The process ends: who watched or monitored it gets the last figures.
pub(super) fn finish() {
    if !shared::is_mine() || !is_awaited() || !sandbox::allows_more() {
        return;
    }
    let Some(_guard) = BOARD.lock.try_lock() else {
        return;
    };
    // SAFETY: the lock is held.
    let inner = unsafe { &mut *BOARD.inner.get() };
    if let Some([ask, ..]) = BOARD.words.asked() {
        write(inner, ask);
    }
}

/// The board's lock, for a fork.
pub(super) fn lock() -> &'static Lock {
    &BOARD.lock
}

/// In a fork's child: its parent's board goes, its own comes. At once if an observer waits for it, or the profiler samples, else on
/// the first slow path:
/// most children soon `exec` or end.
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
    BOARD.words.is_set()
}

/// Whether the board is the parent's.
#[inline]
pub(super) fn is_inherited() -> bool {
    shared::is_inherited()
}

/// Takes the parent's board down and puts an own one up. The caller holds no lock of the heap.
#[cold]
pub(super) fn renew() {
    // A child of vfork leaves its parent's memory as it is.
    if !purge::is_own_process() {
        return;
    }
    let guard = BOARD.lock.lock();
    if !is_inherited() {
        return;
    }
    // SAFETY: the lock is held.
    let inner = unsafe { &mut *BOARD.inner.get() };
    if let Some(parents) = inner.shared.take() {
        HEAP.pages.set_mirror(None);
        HEAP.tide.bell.words.share(None);
        BOARD.words.set(None);
        parents.close();
        // SAFETY: nobody has its address any more.
        unsafe { parents.unmap() };
        (inner.written, inner.cost_ns) = (0, 0);
        AWAITED.store(monitor().len > 0, Ordering::Relaxed);
        shared::set_inherited(false);
        if sandbox::allows_more() {
            put_up(inner);
        }
    }
    drop(guard);
    purge::tell_state();
}
