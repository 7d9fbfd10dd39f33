//! The process's side of the board ([`neap_shared::board`]): it writes the figures that other processes
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

mod serve;
mod words;

use crate::profile;
use neap_heap::base::sync::{AtomicBool, AtomicU8, AtomicU64, Ordering, UnsafeCell};
use neap_heap::cache::heap::{HEAP, Mode};
use neap_heap::hook::REQUESTS;
use neap_heap::init::{self, Frontend};
use neap_heap::os::Os;
use neap_heap::os::linux::{Linux, sandbox};
use neap_heap::os::lock::{Lock, Rank};
use neap_heap::os::shared::{self, Shared};
use neap_heap::os::thread;
use neap_heap::reclaim::thread as purge;
use neap_shared::board::{self, Head, ThreadState};
use neap_shared::stats::Snapshot;
pub(super) use serve::{due_in_ms, on_the_way, rest_ms, serve_due};
use words::WORDS;

#[unsafe(link_section = "neap_fork")]
static WHEN: AtomicU8 = AtomicU8::new(When::Worthwhile as u8);
/// An observer asked at least once, or a monitor was told of the board: write the last figures.
#[unsafe(link_section = "neap_fork")]
static AWAITED: AtomicBool = AtomicBool::new(false);

/// When a process gets a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum When {
    /// Never.
    Never,
    /// When its heap has grown, or when it has taken many slow paths (`neap_heap::reclaim::start`). Most
    /// processes of a shell script end before that.
    Worthwhile,
    /// At the start.
    AtStart,
}

/// The process's private state of the board.
struct Private {
    /// Held by the thread that serves.
    lock: Lock,
    /// guarded by: lock
    inner: UnsafeCell<Inner>,
    /// Path of the socket to tell of the board; empty: none. Written while the process has one
    /// thread.
    monitor: UnsafeCell<Name>,
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
    asked_at: AtomicU64::new(0),
    next_at: [const { AtomicU64::new(0) }; 2],
    written_at: AtomicU64::new(0),
    act_at: AtomicU64::new(0),
};

/// Sets when the process gets a board.
pub(crate) fn choose(when: When) {
    WHEN.store(when as u8, Ordering::Relaxed);
}

fn is(when: When) -> bool {
    WHEN.load(Ordering::Relaxed) == when as u8
}

/// Sets the frontend, on the board as well.
pub fn set_frontend(frontend: Frontend) {
    init::set_frontend(frontend);
    WORDS.write_frontend(frontend as u64);
}

/// Keeps the name of the monitor's socket.
///
/// # Safety
/// - The process has one thread.
pub(crate) unsafe fn keep_monitor(name: &[u8]) {
    // SAFETY: the caller's promise.
    let monitor = unsafe { &mut *BOARD.monitor.get() };
    if let Some(room) = monitor.bytes.get_mut(..name.len()) {
        room.copy_from_slice(name);
        monitor.len = name.len();
        AWAITED.store(true, Ordering::Relaxed);
    }
}

/// Creates the board, unless it was forbidden: now if it is wanted or awaited, else when it is
/// [worthwhile](When::Worthwhile).
pub(super) fn begin() {
    if is(When::Never) || thread::is_secure() || !sandbox::allows_more() {
        return;
    }
    let is_wanted =
        HEAP.mode() != Mode::Plain || profile::is_wanted() || purge::is_wanted_from_start();
    if !(is_wanted || is(When::AtStart) || AWAITED.load(Ordering::Relaxed)) {
        REQUESTS.set_absent(true);
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
        frontend: init::frontend() as u64,
        made_ms: Linux.now_ms(),
    });
    REQUESTS
        .seen()
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
pub(crate) fn note_thread(state: ThreadState) {
    if shared::is_mine() {
        WORDS.write_thread(state);
    }
}

/// Says on the board at which rate the profiler samples.
pub(crate) fn note_sampling(rate: u64) {
    WORDS.write_rate(rate);
}

/// Tells the monitor, if there is one, of the profile's region.
pub(crate) fn tell_of_profile(shared: &Shared) {
    tell(shared, board::KIND_PROFILE);
}

fn tell(shared: &Shared, kind: u64) {
    let monitor = monitor();
    if monitor.len > 0 {
        let words = [board::GREETING, kind, thread::process_id() as u64];
        shared.hand_to(&monitor.bytes[..monitor.len], words);
    }
}

/// Whether an observer awaits the last figures.
pub(crate) fn is_awaited() -> bool {
    AWAITED.load(Ordering::Relaxed) || (is_up() && !is_inherited() && rest_ms() != u64::MAX)
}

/// Writes the last figures at the process's end, for the observer or monitor.
pub(crate) fn finish() {
    // In this order: a fork's child has not touched the page of `shared::is_mine` yet.
    if !is_awaited() || !shared::is_mine() || !sandbox::allows_more() {
        return;
    }
    let Some(_guard) = BOARD.lock.try_lock() else {
        return;
    };
    // SAFETY: the lock is held.
    let inner = unsafe { &mut *BOARD.inner.get() };
    if let Some([ask, ..]) = REQUESTS.asked() {
        serve::write(inner, ask);
    }
}

/// The board's lock, for a fork.
pub(super) static LOCK: &Lock = &BOARD.lock;

/// In a fork's child: replaces the parent's board. Does so at once if an observer awaits figures or
/// the profiler samples, else on the first slow path, because most children soon `exec` or end.
pub(crate) fn after_fork_in_child() {
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

/// Whether a process without a board gets it on its next slow path.
pub(crate) fn is_wanted_soon() -> bool {
    is(When::AtStart) || is_awaited() || HEAP.is_sampling()
}

/// Replaces the parent's board by the process's own, or creates the first. The caller holds no lock
/// of the heap, and the process is [its own](purge::is_own_process): a child of vfork leaves its
/// parent's memory alone.
#[cold]
pub(crate) fn renew() {
    // Its holder does this, or was interrupted by the signal handler that this call comes from.
    let Some(guard) = BOARD.lock.try_lock() else {
        return;
    };
    if !REQUESTS.is_board_missing() {
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
    REQUESTS.set_absent(false);
    drop(guard);
    purge::tell_state();
}
