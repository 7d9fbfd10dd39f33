//! The purge thread: gives back what nobody uses, in a process that does nothing, too.
//!
//! It exists only while there is something to look after. A free that finds more than a floor of freed bytes unattended
//! starts it; it goes round every quarter of the decay time, and ends when two rounds found nothing (unless `NEAP_ANSWER` has it stay). It holds no lock
//! while the kernel works but those that only a fork and other purgers wait for, allocates nothing, handles no signal of the program's, and keeps no process alive.
//!
//! A thread is started by `pthread_create`, which takes locks of the C library. So never from a `free` that the C library or
//! the loader called (they may hold these locks), never around a fork, never while one is being started, and never where the
//! program has said that it enters a sandbox. Where no thread can be had, callers do the same on their way.
//!
//! State: [`AWAY`] → [`STARTING`] → [`HERE`] → `AWAY`, the first change by a compare-exchange, so that one of several callers wins. `HOLDS` counts who wants no thread.

mod watch;

use super::allocate::{current, entered};
use super::attach;
use super::fork::Copier;
use crate::base::sync::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering,
};
use crate::cache::decay::GO_ON;
use crate::cache::heap::HEAP;
use crate::cache::thread::Cache;
use crate::os::gate::FORK;
use crate::os::linux::sandbox;
use crate::os::thread;
use crate::page::Chores;
use crate::slab::depot::Source;
use core::ffi::c_void;
use core::ops::Range;
use core::ptr::null_mut;

const AWAY: u8 = 0;
const STARTING: u8 = 1;
const HERE: u8 = 2;

#[unsafe(link_section = "neap_fork")]
static STATE: AtomicU8 = AtomicU8::new(AWAY);
/// The last thread's number; 0 before the first, and until a new one has said its own.
#[unsafe(link_section = "neap_fork")]
static THREAD: AtomicI32 = AtomicI32::new(0);
/// When the last thread was about to end, in ms.
static ENDED: AtomicU64 = AtomicU64::new(0);
/// The kernel has ended it by so many ms later: whoever has its number then is another thread.
const EXIT_MS: u64 = 1000;
/// The cache of who is starting a thread; null while nobody is.
static SPAWNER: AtomicPtr<Cache> = AtomicPtr::new(null_mut());
/// How many want no thread to be started now.
#[unsafe(link_section = "neap_fork")]
static HOLDS: AtomicUsize = AtomicUsize::new(0);
/// Whether a thread may be started at all.
static ENABLED: AtomicBool = AtomicBool::new(false);
/// The process that the library was started in, or that was forked from one.
#[unsafe(link_section = "neap_fork")]
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Code from which a free may come with locks of the C library held: from, to. Written once, before `ENABLED`.
static FORBIDDEN: [[AtomicUsize; 2]; MOST_RANGES] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; MOST_RANGES];

/// How many ranges of code [`enable`] takes.
pub const MOST_RANGES: usize = 8;

/// Bytes of the thread's stack: its deepest frame is a gather of some KiB. The C library keeps its own data there, too.
const STACK_BYTES: usize = 128 << 10;

/// What the option `NEAP_PURGE_THREAD` says.
static CHOSEN: AtomicU8 = AtomicU8::new(UNSAID);
const UNSAID: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// The option was given.
pub(super) fn choose(word: &str) {
    CHOSEN.store(if word == "1" { ON } else { OFF }, Ordering::Relaxed);
    if word == "1" {
        ENABLED.store(true, Ordering::Release);
    }
}

/// Whether the thread stays when there is nothing to do, to answer those who ask.
static STAYS: AtomicBool = AtomicBool::new(false);

fn is_staying() -> bool {
    STAYS.load(Ordering::Relaxed)
}

/// The thread is started [at once](start_to_stay) or by the first free on a slow path that can, and stays; where one may be started at all.
pub(super) fn stay() {
    STAYS.store(true, Ordering::Relaxed);
    want_if_staying();
}

/// The thread is started now, if it is to stay. The program has one thread, and none of its calls is under way.
pub fn start_to_stay() {
    if is_staying() && entered().is_some() {
        start(0);
    }
}

/// There is no thread: where one is to stay, the next free that can starts it.
fn want_if_staying() {
    if is_staying() {
        HEAP.tide.want();
    }
}

/// In a Rust program with [`crate::Neap`] as its allocator: from now on a thread gives back what nobody uses, in a process
/// that does nothing, too. Without it callers do that on their way. `NEAP_PURGE_THREAD` decides, if it is set.
///
/// Not for programs whose C library calls this heap's `free`, too: there libneap.so knows what to do.
pub fn enable_thread() {
    enable(&[]);
}

/// From now on a thread is started when there is something to purge, unless the free that finds it comes from code in
/// `forbidden`, at most [`MOST_RANGES`] ranges of addresses.
///
/// For the C frontend these are the C library's, the loader's and its own. A Rust program whose C library has another heap
/// than its Rust code has none.
pub fn enable(forbidden: &[Range<usize>]) {
    debug_assert!(forbidden.len() <= MOST_RANGES);
    for (range, [from, to]) in forbidden.iter().zip(&FORBIDDEN) {
        from.store(range.start, Ordering::Relaxed);
        to.store(range.end, Ordering::Relaxed);
    }
    // Who was told to ask no more, or to start none, stays so.
    if CHOSEN.load(Ordering::Relaxed) != OFF && sandbox::allows_more() {
        ENABLED.store(true, Ordering::Release);
        want_if_staying();
    }
}

/// Says which process this is: before the first free of it, and in a fork's child.
pub(super) fn note_process() {
    PROCESS.store(thread::process_id(), Ordering::Relaxed);
}

/// No thread is started any more, and one that is here is gone when this returns.
pub fn disable() {
    ENABLED.store(false, Ordering::Relaxed);
    core::mem::forget(hold());
}

/// Keeps the thread away until it is dropped.
#[derive(Debug)]
pub struct Hold(());

/// Waits until there is no thread, and keeps it away: some system calls ask that the process has but one.
#[must_use]
pub fn hold() -> Hold {
    HOLDS.fetch_add(1, Ordering::SeqCst);
    // A child that no handler of ours heard of finds the state of its parent, whose thread it does not have.
    if is_own_process() {
        await_end();
    }
    Hold(())
}

fn await_end() {
    while STATE.load(Ordering::SeqCst) != AWAY {
        HEAP.tide.end_soon();
        thread::give_way();
    }
    let (last, until) = (
        THREAD.load(Ordering::SeqCst),
        ENDED.load(Ordering::SeqCst) + EXIT_MS,
    );
    while last != 0 && HEAP.now_ms() < until && thread::thread_exists(last) {
        thread::give_way();
    }
}

/// Whether the thread is there, or about to be.
pub(super) fn is_here() -> bool {
    STATE.load(Ordering::Relaxed) != AWAY
}

/// False in a child of vfork, or of a clone that the C library does not know of. In a sandbox, which may kill for the question,
/// the process is taken for the one that entered it.
pub(super) fn is_own_process() -> bool {
    sandbox::is_forbidden() || PROCESS.load(Ordering::Relaxed) == thread::process_id()
}

impl Drop for Hold {
    fn drop(&mut self) {
        HOLDS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How many threads are within [`fork_whole`].
#[unsafe(link_section = "neap_fork")]
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// Calls `fork`, which runs the program's own handlers before and after it: no thread is started by these.
pub fn fork_whole(fork: impl FnOnce() -> i32) -> i32 {
    FORKS.fetch_add(1, Ordering::SeqCst);
    HOLDS.fetch_add(1, Ordering::SeqCst);
    let child = fork();
    if child == 0 {
        // The only thread of its process.
        FORKS.store(0, Ordering::SeqCst);
        HOLDS.store(0, Ordering::SeqCst);
    } else {
        FORKS.fetch_sub(1, Ordering::SeqCst);
        HOLDS.fetch_sub(1, Ordering::SeqCst);
    }
    child
}

/// Before a fork: no thread is started until one of the two below.
pub(super) fn before_fork() {
    HOLDS.fetch_add(1, Ordering::SeqCst);
}

/// After a fork, in the parent.
pub(super) fn after_fork_in_parent() {
    HOLDS.fetch_sub(1, Ordering::SeqCst);
}

/// After a fork, in the child, which has one thread. It may start a thread if the C library knows of the fork.
pub(super) fn after_fork_in_child(copier: Copier) {
    HOLDS.store(FORKS.load(Ordering::SeqCst).min(1), Ordering::SeqCst);
    if copier == Copier::CLibrary {
        note_process();
    }
    want_if_staying();
    // A child writes no page that it need not.
    if STATE.load(Ordering::SeqCst) == AWAY && HEAP.pages.chores() == Chores::Callers {
        return;
    }
    THREAD.store(0, Ordering::SeqCst);
    STATE.store(AWAY, Ordering::SeqCst);
    HEAP.tide.word.store(GO_ON, Ordering::Relaxed);
    HEAP.tide.attend();
    want_if_staying();
    HEAP.pages.set_chores(Chores::Callers);
}

/// Starts the thread, if one may be started from here: `caller` is an address in the code that called `free`.
#[cold]
pub(super) fn start(caller: usize) {
    if !is_own_process() {
        // Not ours to give threads, and who looked after the parent's memory does not after this. In a child of vfork,
        // whose memory is the parent's, the parent's thread takes this back.
        HEAP.pages.set_chores(Chores::Callers);
        return HEAP.tide.attend();
    }
    let may = ENABLED.load(Ordering::Acquire) && STATE.load(Ordering::Relaxed) == AWAY;
    if !may {
        if attach::is_asked() {
            attach::on_the_way();
        }
        HEAP.tide.attend();
        // The thread may have ended since, and have said that another is wanted.
        if !is_here() && ENABLED.load(Ordering::Relaxed) {
            want_if_staying();
        }
        return;
    }
    if is_forbidden(caller) || HOLDS.load(Ordering::SeqCst) > 0 {
        return;
    }
    let exchange = STATE.compare_exchange(AWAY, STARTING, Ordering::SeqCst, Ordering::SeqCst);
    if exchange.is_ok() {
        start_now();
    }
}

fn start_now() {
    HEAP.tide.attend();
    if !sandbox::allows_more() {
        ENABLED.store(false, Ordering::Relaxed);
        return STATE.store(AWAY, Ordering::SeqCst);
    }
    // Whoever holds it off counts first, then looks at the state; here it is the other way round.
    if HOLDS.load(Ordering::SeqCst) > 0 {
        return STATE.store(AWAY, Ordering::SeqCst);
    }
    HEAP.tide.word.store(GO_ON, Ordering::Relaxed);
    // No thread is left that allocates: one of ours would keep the process alive. Who leaves last tells the thread, by the
    // word, or is seen here.
    if HEAP.registry.is_empty() {
        return STATE.store(AWAY, Ordering::SeqCst);
    }
    THREAD.store(0, Ordering::SeqCst);
    SPAWNER.store(own_cache(), Ordering::Relaxed);
    let spawned = thread::spawn(body, STACK_BYTES);
    SPAWNER.store(null_mut(), Ordering::Relaxed);
    if !spawned {
        STATE.store(AWAY, Ordering::SeqCst);
    }
}

fn own_cache() -> *mut Cache {
    core::ptr::from_ref(current()).cast_mut()
}

/// Whether the C library allocates for the thread that the owner of this cache starts: not the program's doing.
pub(super) fn is_spawning(cache: &Cache) -> bool {
    core::ptr::eq(SPAWNER.load(Ordering::Relaxed), cache)
}

fn is_forbidden(caller: usize) -> bool {
    FORBIDDEN.iter().any(|range| {
        let [from, to] = range.each_ref().map(|end| end.load(Ordering::Relaxed));
        (from..to).contains(&caller)
    })
}

extern "C" fn body(_: *mut c_void) -> *mut c_void {
    THREAD.store(thread::thread_id(), Ordering::SeqCst);
    STATE.store(HERE, Ordering::SeqCst);
    thread::name_thread(c"neap-purge");
    FORK.note_purger();
    watch::go_round();
    FORK.forget_purger();
    HEAP.pages.set_chores(Chores::Callers);
    ENDED.store(HEAP.now_ms(), Ordering::SeqCst);
    STATE.store(AWAY, Ordering::SeqCst);
    if !HEAP.registry.is_empty() {
        want_if_staying();
    }
    null_mut()
}
