//! The purge thread: gives back what no thread uses, even in an idle process, and answers observers
//! in other processes.
//!
//! It is started once, when the heap has grown past
//! [`START_BYTES`](crate::base::policy::START_BYTES), at the first [safe moment](super::start), and
//! then stays: parked, while there is nothing to do, where [`super::wakeup`] wakes it. So a small
//! program never has it, and nothing wakes in a process that sleeps. It allocates nothing, handles
//! no signal of the program's, and keeps no process alive. It ends where a process must have one
//! thread (`unshare`, `setns`), before a sandbox, and with the last thread that allocates; it is
//! started again when it may be. Where there can be no thread, callers do its work on their way.
//!
//! State: [`AWAY`] → [`STARTING`] → [`HERE`] → `AWAY`. A compare-exchange makes the first change,
//! so that one of several callers wins. The thread makes the others; if it cannot be created, its
//! starter goes back to `AWAY`. The starter masks every signal meanwhile. `HOLDS` counts who wants
//! no thread.
//!
//! # Locks
//!
//! A fork waits for the locks of the heap. For its sake the thread
//!
//! - takes locks in [their order](crate::os::lock_order), and none while it sleeps;
//! - begins a hold of `Tide::step`, the registry or the status page anew for every step: one slab,
//!   one survey;
//! - never holds two of these three at once.

use super::wakeup::{Ear, Rest, Urgency, Words as _};
use crate::base::policy::{
    Driver, IDLE_ROUNDS, LEAST_MS, Reason, SHORT_DECAY_MS, Scope, WAKE_BYTES, is_vain, pause_ms,
};
use crate::base::sync::plain::AtomicU32;
use crate::base::sync::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use crate::cache::heap::HEAP;
use crate::hook::instruments;
use crate::os::futex::Woken;
use crate::os::linux::Linux;
use crate::os::{Os, futex, pagemap, process, shared, thread};
use core::ffi::c_void;
use core::ptr::null_mut;
use neap_shared::status_page::ThreadState;

pub(super) const AWAY: u32 = 0;
const STARTING: u32 = 1;
pub(super) const HERE: u32 = 2;

/// Waited on by who wants no thread.
#[unsafe(link_section = "neap_fork")]
pub(super) static STATE: AtomicU32 = AtomicU32::new(AWAY);
/// The last thread's number; 0 before the first, and until a new one has said its own.
#[unsafe(link_section = "neap_fork")]
static THREAD: AtomicI32 = AtomicI32::new(0);
/// When the last thread was about to end, in ms.
static ENDED: AtomicU64 = AtomicU64::new(0);
/// After this long, a live thread with this number is a different one, in ms. Long, for the thread
/// may be kept from its processor before the kernel ends it.
const EXIT_MS: u64 = 10_000;
/// How long one waits for the thread's answer before one rings again, in ms.
const RING_MS: u64 = 1000;
/// Who is starting a thread, as the C library names it; 0 while no thread is.
#[unsafe(link_section = "neap_fork")]
static STARTER: AtomicUsize = AtomicUsize::new(0);
/// How many want no thread to be started now.
#[unsafe(link_section = "neap_fork")]
pub(super) static HOLDS: AtomicUsize = AtomicUsize::new(0);
/// Whether a thread may be started at all.
#[unsafe(link_section = "neap_fork")]
pub(super) static ENABLED: AtomicBool = AtomicBool::new(false);
/// Whether it is started from the beginning on, however small the heap is.
#[unsafe(link_section = "neap_fork")]
pub(super) static EAGER: AtomicBool = AtomicBool::new(false);
/// No thread is started before this time, in ms: the last attempt was refused.
#[unsafe(link_section = "neap_fork")]
pub(super) static RETRY_AT: AtomicU64 = AtomicU64::new(0);
pub(super) const RETRY_MS: u64 = 1000;

/// How long a fork waits for the thread's end, and how long after a fork none is started, or after
/// a hold that came within [`RETRY_MS`] of the last end, in ms. Python reads its number of threads
/// at once.
const END_MS: u64 = 100;
const APART_MS: u64 = 20;

/// Bytes of the thread's stack that are its own: its deepest frame is a gather of some KiB.
const STACK_BYTES: usize = 128 << 10;

/// How long one sleeps before looking again whether the kernel has ended the thread, in ms.
const LOOK_MS: u64 = 1;

/// How long it is deaf after it was woken in vain, in ms; twice as long after each further time, up
/// to 64 times.
const DEAF_MS: u64 = 1;
const MOST_DOUBLINGS: u32 = 6;

/// When it looks whether it is the last thread, in ms, once the first one has ended; twice as long
/// after each further look, up to 1024 times.
const SWEEP_MS: u64 = 16;
const MOST_SWEEP_MS: u64 = 1024 * SWEEP_MS;

/// Whether `NEAP_PURGE_THREAD=never` keeps the thread off for good.
#[unsafe(link_section = "neap_fork")]
static CHOSEN_OFF: AtomicBool = AtomicBool::new(false);

/// The option was given.
pub(crate) fn choose(word: &str) {
    match word {
        "always" => {
            CHOSEN_OFF.store(false, Ordering::Relaxed);
            want_from_start();
            allow();
        }
        "never" => CHOSEN_OFF.store(true, Ordering::Relaxed),
        _ => {}
    }
}

/// `NEAP_ANSWER`: the thread is started [at once](crate::init::start_eagerly), or by the first slow
/// path that can where that is too early.
pub(crate) fn want_from_start() {
    EAGER.store(true, Ordering::Relaxed);
}

/// Whether the thread is wanted from the start on.
pub fn is_wanted_from_start() -> bool {
    EAGER.load(Ordering::Relaxed)
}

pub(super) fn allow() {
    thread::learn_least_stack();
    ENABLED.store(true, Ordering::Release);
}

/// Whether the thread may be started.
pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Acquire)
}

/// Whether `NEAP_PURGE_THREAD=never` keeps the thread off for good.
pub(super) fn is_chosen_off() -> bool {
    CHOSEN_OFF.load(Ordering::Relaxed)
}

/// Says on the status page whether there is a thread to answer, and why not.
pub fn tell_state() {
    instruments().note_thread(match STATE.load(Ordering::Relaxed) {
        HERE => ThreadState::Here,
        _ if process::queries_are_forbidden() => ThreadState::Sandboxed,
        _ if is_chosen_off() => ThreadState::Off,
        _ if ENABLED.load(Ordering::Relaxed) => ThreadState::NotYet,
        _ => ThreadState::NotAsked,
    });
}

/// No thread is started any more, and one that is here is gone when this returns.
pub fn disable() {
    ENABLED.store(false, Ordering::SeqCst);
    core::mem::forget(hold());
    tell_state();
}

/// The calling thread is about to end without the C library's knowledge. If it is the process's
/// first one, the purge thread may be the last from now on.
pub fn note_exit() {
    if thread::lasting_id() == thread::MAIN {
        HEAP.registry.note_main_left();
        HEAP.tide.bell.ring(Urgency::Now);
    }
}

/// Keeps the thread away until it is dropped.
#[derive(Debug)]
pub struct Hold(());

/// Waits until there is no thread, and keeps it away: some system calls ask that the process has
/// but one. In a handler of signals that interrupted the heap it only keeps it away.
#[must_use]
#[inline(never)]
pub fn hold() -> Hold {
    HOLDS.fetch_add(1, Ordering::SeqCst);
    // A child that no handler of ours heard of finds the state of its parent, whose thread it does
    // not have.
    if may_be_own_process() {
        let (was_here, last) = (is_here(), ENDED.load(Ordering::SeqCst));
        let is_early = HEAP.now_ms() < last + RETRY_MS;
        if !is_early {
            // The program may sleep after its call, and then no other is started.
            HEAP.tide.leaves_clean.store(true, Ordering::SeqCst);
        }
        await_end(u64::MAX);
        if was_here && is_early {
            RETRY_AT.fetch_max(HEAP.now_ms() + APART_MS, Ordering::Relaxed);
        }
    }
    Hold(())
}

impl Drop for Hold {
    fn drop(&mut self) {
        give_up_hold();
    }
}

/// One hold fewer. A handler of signals may have forked since it began: in the child there is none.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn give_up_hold() {
    let less = |holds: usize| holds.checked_sub(1);
    let _ = HOLDS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
}

/// Waits for the thread's end, at most until `until` (ms), and not in a handler of signals that
/// interrupted a change, which the thread may wait for. Sleeps, so that the thread runs even where
/// its waiter's priority is higher.
#[inline(never)]
fn await_end(until: u64) {
    while HEAP.now_ms() < until {
        match STATE.load(Ordering::SeqCst) {
            AWAY => break,
            // The start is below this call on the same stack. The thread finds the hold, and ends.
            STARTING if is_starter() => return,
            state => {
                HEAP.tide.end_soon();
                // This may be a handler of signals that interrupted a ring between its two steps:
                // the bell says awake, and the thread sleeps.
                HEAP.tide.bell.words.ring(Ear::Shared);
                if HEAP.interrupts_a_change() {
                    return;
                }
                let left = until.saturating_sub(HEAP.now_ms());
                futex::wait(&STATE, state, Some(left.min(RING_MS)));
            }
        }
    }
    let (last, until) = (
        THREAD.load(Ordering::SeqCst),
        until.min(ENDED.load(Ordering::SeqCst) + EXIT_MS),
    );
    // The thread itself may come here, where it was the last one and so runs the exit handlers.
    let is_another = last != 0 && last != thread::thread_id();
    while is_another && HEAP.now_ms() < until {
        if !thread::thread_exists(last) {
            // Not to be asked for again in a sandbox, which may kill for it.
            let _ = THREAD.compare_exchange(last, 0, Ordering::SeqCst, Ordering::SeqCst);
            return;
        }
        futex::wait(&STATE, AWAY, Some(LOOK_MS));
    }
}

/// Whether the thread is there, or about to be.
pub fn is_here() -> bool {
    STATE.load(Ordering::Relaxed) != AWAY
}

/// Waits until the thread is at its work. False if it ended before, because another thread of the
/// program forks or holds it off.
pub(super) fn await_work() -> bool {
    while HEAP.pages.limits().driver() == Driver::Callers {
        match STATE.load(Ordering::SeqCst) {
            AWAY => return false,
            state => futex::wait(&STATE, state, Some(LOOK_MS)),
        };
    }
    true
}

/// False in a child of vfork, or of a clone that the C library does not know of. In a sandbox,
/// which may kill for the question, the process is taken for the one that entered it, unless the
/// thread has no control block (on x86-64), as Chromium makes one there that changes the root.
pub fn may_be_own_process() -> bool {
    process::queries_are_forbidden() && thread::own_name() != 0 || process::is_own()
}

/// Calls `fork`, within [`start_none_during`], for a program that counts its threads right
/// afterwards, as Python does, or in a handler before. So the thread ends, unless the program has
/// other threads, and starts again [`APART_MS`] later at the earliest. A fork in a signal handler
/// may have interrupted the holder of a lock that the thread needs, so this waits [`END_MS`] at
/// most.
pub fn fork_alone(fork: &mut dyn FnMut() -> i32) -> i32 {
    let ends =
        HEAP.registry.count() <= 1 && STATE.load(Ordering::SeqCst) != AWAY && may_be_own_process();
    if ends {
        HEAP.tide.leaves_clean.store(true, Ordering::SeqCst);
        await_end(HEAP.now_ms() + END_MS);
    }
    let result = fork();
    if ends && result > 0 {
        RETRY_AT.fetch_max(HEAP.now_ms() + APART_MS, Ordering::Relaxed);
    }
    result
}

/// Does `work`, during which no call starts the thread, except in a fork's child.
pub fn start_none_during<T>(work: impl FnOnce() -> T) -> T {
    HOLDS.fetch_add(1, Ordering::SeqCst);
    let result = work();
    give_up_hold();
    result
}

/// Before a fork: no thread is started until one of the two below.
pub(crate) fn before_fork() {
    HOLDS.fetch_add(1, Ordering::SeqCst);
}

/// After a fork, in the parent.
pub(crate) fn after_fork_in_parent() {
    give_up_hold();
}

/// After a fork, in the child, which has one thread: those that held it off stayed in the parent.
pub(crate) fn after_fork_in_child() {
    HOLDS.store(0, Ordering::SeqCst);
    // A child writes no page that it need not.
    if STATE.load(Ordering::SeqCst) == AWAY && HEAP.pages.limits().driver() == Driver::Callers {
        return;
    }
    THREAD.store(0, Ordering::SeqCst);
    STARTER.store(0, Ordering::SeqCst);
    STATE.store(AWAY, Ordering::SeqCst);
    HEAP.tide.bell.silence();
    HEAP.tide.freed.attend();
    HEAP.pages.limits().set_driver(Driver::Callers);
}

/// Starts the thread. False if another caller does, a hold keeps it off, or the C library or the
/// kernel refuses.
pub(crate) fn start_thread() -> bool {
    // A handler of signals that waits for the thread's end would wait for the start below it on the
    // stack.
    thread::with_signals_masked(|| {
        let exchange = STATE.compare_exchange(AWAY, STARTING, Ordering::SeqCst, Ordering::SeqCst);
        if exchange.is_err() {
            return false;
        }
        let own_name = thread::own_name();
        STARTER.store(own_name, Ordering::SeqCst);
        let started = start_masked();
        // Once the thread is there, the state is its own: it may have ended, and another caller
        // start the next.
        let _ = STARTER.compare_exchange(own_name, 0, Ordering::SeqCst, Ordering::SeqCst);
        if !started {
            STATE.store(AWAY, Ordering::SeqCst);
            futex::wake(&STATE);
        }
        started
    })
}

fn start_masked() -> bool {
    HEAP.tide.begin();
    // Whoever holds it off counts first, then looks at the state; here it is the other way round.
    // And where no thread is left that allocates, one of ours would keep the process alive: who
    // leaves last tells the thread, or is seen here.
    if HOLDS.load(Ordering::SeqCst) > 0 || HEAP.registry.is_empty() {
        return false;
    }
    shared::claim();
    if HEAP.pages.limits().has_group() {
        // In a group at its limit, the purge thread would wait for memory to open the file.
        pagemap::prepare();
    }
    // The thread opens no file.
    Linux.has_huge_everywhere();
    THREAD.store(0, Ordering::SeqCst);
    let started = thread::spawn(body, STACK_BYTES);
    if !started {
        RETRY_AT.store(HEAP.now_ms() + RETRY_MS, Ordering::Relaxed);
    }
    started
}

/// Whether the calling thread is starting ours: what the C library allocates then is not the
/// program's doing.
pub fn is_starter() -> bool {
    let starter = STARTER.load(Ordering::Relaxed);
    starter != 0 && starter == thread::own_name()
}

extern "C" fn body(_: *mut c_void) -> *mut c_void {
    THREAD.store(thread::thread_id(), Ordering::SeqCst);
    STATE.store(HERE, Ordering::SeqCst);
    if HOLDS.load(Ordering::SeqCst) == 0 {
        thread::name_thread(c"neap-purge");
        thread::touch_stack();
        tell_state();
        go_round();
    }
    HEAP.pages.limits().set_driver(Driver::Callers);
    ENDED.store(HEAP.now_ms(), Ordering::SeqCst);
    STATE.store(AWAY, Ordering::SeqCst);
    futex::wake(&STATE);
    tell_state();
    null_mut()
}

/// Until it is told to end, or the process has entered a sandbox.
fn go_round() {
    HEAP.pages.limits().set_driver(Driver::Thread);
    let mut watch = Watch::new();
    while process::may_query() {
        if HEAP.tide.is_to_end() {
            // A long decay time or `M_TRIM_THRESHOLD` keeps free memory.
            let keeps = HEAP.decay_ms() > SHORT_DECAY_MS || HEAP.pages.limits().kept() > 0;
            if HEAP.tide.leaves_clean.load(Ordering::SeqCst) && !keeps {
                HEAP.decay(Reason::Demand);
            } else if watch.rounds.left > 0 {
                // The next thread, or a caller, finds that rounds are still to come.
                HEAP.tide.want();
            }
            return;
        }
        let mut busy = instruments().answer_due();
        busy |= watch.look();
        watch.rest(busy);
    }
}

/// What the thread remembers.
struct Watch {
    rounds: Calendar,
    /// The last sleep, and how it ended.
    slept: Option<(Rest, Woken)>,
    /// When it last swept the caches of threads that are gone, in ms.
    swept: u64,
    /// How long after that it looks again, in ms.
    sweep_ms: u64,
    /// Times that it was woken in vain, one after the other.
    false_alarms: u32,
}

impl Watch {
    fn new() -> Watch {
        let mut watch = Watch {
            rounds: Calendar::after(HEAP.tide.freed.bytes()),
            slept: None,
            swept: 0,
            sweep_ms: SWEEP_MS,
            false_alarms: 0,
        };
        watch.await_cached();
        watch
    }

    /// Does what is due. False if nothing was.
    fn look(&mut self) -> bool {
        if HEAP.tide.freed.is_wanted() {
            HEAP.tide.freed.attend();
            self.rounds.resume();
        }
        let now = HEAP.now_ms() + self.early_ms();
        if self.sweep_at().is_some_and(|at| at <= now) {
            self.swept = now;
            self.sweep_ms = (self.sweep_ms * 2).min(MOST_SWEEP_MS);
            HEAP.sweep();
        }
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if is_due(self.round_at()) {
            self.round();
            return true;
        }
        let purges = is_due(HEAP.pages.next_purge());
        if purges {
            HEAP.purge_spans(Reason::Age);
            self.heed_tails();
        }
        purges
    }

    /// Tails that no block's owner used need two rounds.
    fn heed_tails(&mut self) {
        if HEAP.pages.has_tails(Scope::Idle) {
            self.rounds.resume();
        }
    }

    /// The clock is coarse: what is due within this many ms is due now for a thread that slept
    /// until then.
    fn early_ms(&self) -> u64 {
        match self.slept {
            Some((Rest::Doze(_) | Rest::Park(_), Woken::ByTime)) => LEAST_MS,
            _ => 0,
        }
    }

    /// Once the program's first thread has ended, this one may be the last, and nothing tells it
    /// so.
    fn sweep_at(&self) -> Option<u64> {
        let is_due = HEAP.registry.has_main_left();
        is_due.then_some(self.swept + self.sweep_ms)
    }

    fn round(&mut self) {
        let pressed = HEAP.is_pressed();
        let purged = HEAP.decay(if pressed { Reason::Demand } else { Reason::Age });
        let freed = HEAP.tide.freed.attend();
        self.rounds
            .note_round(HEAP.now_ms(), pressed, purged, freed);
        self.await_cached();
        self.heed_tails();
    }

    /// Rounds go on while cached spans and deep magazines have [`WAKE_BYTES`], because calls that
    /// these serve wake no thread. The third round of an idle process takes all of them.
    fn await_cached(&mut self) {
        let deep = HEAP.deep.swap(0, Ordering::Relaxed);
        if HEAP.pages.cached_bytes() + deep >= WAKE_BYTES {
            self.rounds.resume();
        }
    }

    fn round_at(&self) -> Option<u64> {
        self.rounds.next(HEAP.decay_ms(), HEAP.is_pressed())
    }

    fn rest(&mut self, busy: bool) {
        let in_vain = match self.slept {
            _ if busy => 0,
            Some((Rest::Doze(_) | Rest::Park(_), Woken::Early)) => self.false_alarms + 1,
            Some((Rest::Deaf(_), _)) => self.false_alarms,
            _ => 0,
        };
        let is_new = in_vain > self.false_alarms;
        self.false_alarms = in_vain;
        // Read before the times below: a first thread that leaves later may still find this one
        // awake, and not ring.
        let had_left = HEAP.registry.has_main_left();
        let rest = match (is_new, self.round_at()) {
            (true, _) => Rest::Deaf(DEAF_MS << (in_vain - 1).min(MOST_DOUBLINGS)),
            (false, Some(_)) => Rest::Doze(self.next_ms().unwrap_or(LEAST_MS)),
            (false, None) => Rest::Park(self.next_ms()),
        };
        let has_work = || has_work(rest) || HEAP.registry.has_main_left() != had_left;
        let woken = HEAP.tide.bell.rest(rest, has_work);
        self.slept = Some((rest, woken));
    }

    /// Time until something is due, in ms.
    fn next_ms(&self) -> Option<u64> {
        let at = |time: Option<u64>| time.unwrap_or(u64::MAX);
        let own = at(HEAP.pages.next_purge()).min(at(self.round_at()));
        let ms = match own.min(at(self.sweep_at())) {
            u64::MAX => u64::MAX,
            own => own.saturating_sub(HEAP.now_ms()).max(LEAST_MS),
        };
        Some(ms.min(at(instruments().due_in_ms()))).filter(|&ms| ms != u64::MAX)
    }
}

/// Whether there is something to do that the thread would sleep over. An observer may have asked
/// since the time to sleep was computed, and its answer may be due later than now, but before the
/// sleep ends.
fn has_work(rest: Rest) -> bool {
    let told = HEAP.tide.is_to_end() || HEAP.pages.makes_way();
    match rest {
        Rest::Deaf(_) => told,
        Rest::Doze(ms) => told || is_due_before(Some(ms)),
        Rest::Park(ms) => told || is_due_before(ms) || HEAP.tide.freed.is_wanted(),
    }
}

/// Whether an observer is to be answered now, or clearly before `ms` from now; `None`: ever.
fn is_due_before(ms: Option<u64>) -> bool {
    let is_before = |due: u64| ms.is_none_or(|ms| due + LEAST_MS < ms);
    instruments()
        .due_in_ms()
        .is_some_and(|due| due == 0 || is_before(due))
}

/// When the thread's next round is due.
#[derive(Debug, Default)]
struct Calendar {
    /// When the last round ended, in ms.
    last: u64,
    /// Bytes freed past magazines by then.
    freed: usize,
    /// Rounds that are still to come, unless one finds something to do.
    left: u32,
    /// Rounds under pressure that gained little, one after the other.
    vain: u32,
}

impl Calendar {
    /// Nothing is due; so far `freed` bytes went past magazines.
    fn after(freed: usize) -> Calendar {
        Calendar {
            freed,
            ..Calendar::default()
        }
    }

    /// Enough was freed: rounds come until they find nothing.
    fn resume(&mut self) {
        self.left = IDLE_ROUNDS;
    }

    /// When the next round is due, in ms; `None` while nothing is freed.
    fn next(&self, decay_ms: u64, pressed: bool) -> Option<u64> {
        let vain = pressed.then_some(self.vain);
        (self.left > 0).then(|| self.last + pause_ms(Driver::Thread, decay_ms, vain))
    }

    /// A round ended at `now` (ms), which gave back `purged` bytes; so far `freed` bytes went past
    /// magazines.
    fn note_round(&mut self, now: u64, pressed: bool, purged: usize, freed: usize) {
        let is_vain = pressed && is_vain(Driver::Thread, purged);
        self.vain = if is_vain { self.vain + 1 } else { 0 };
        let is_quiet = purged == 0 && freed == self.freed;
        self.left = if is_quiet {
            self.left.saturating_sub(1)
        } else {
            IDLE_ROUNDS
        };
        (self.last, self.freed) = (now, freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECAY_MS: u64 = 1000;

    #[test]
    fn rounds_come_half_a_decay_time_apart_until_two_found_nothing() {
        let mut calendar = Calendar::default();
        assert_eq!(calendar.next(DECAY_MS, false), None, "nothing was freed");
        calendar.resume();
        calendar.note_round(10_000, false, 4096, 1);
        assert_eq!(calendar.next(DECAY_MS, false), Some(10_500));
        calendar.note_round(10_500, false, 0, 1);
        assert_eq!(calendar.next(DECAY_MS, false), Some(11_000));
        calendar.note_round(11_000, false, 0, 1);
        assert_eq!(calendar.next(DECAY_MS, false), None);
        // Something went past a magazine meanwhile.
        calendar.resume();
        calendar.note_round(12_000, false, 0, 1);
        calendar.note_round(12_500, false, 0, 2);
        assert_eq!(calendar.next(DECAY_MS, false), Some(13_000));
    }

    #[test]
    fn rounds_under_pressure_come_less_often_while_they_gain_little() {
        let mut calendar = Calendar::default();
        for (last, pause) in [
            (1000, 50),
            (2000, 100),
            (3000, 200),
            (4000, 400),
            (5000, 500),
        ] {
            calendar.resume();
            calendar.note_round(last, true, 4096, 0);
            assert_eq!(calendar.next(DECAY_MS, true), Some(last + pause));
        }
        calendar.note_round(6000, true, 2 << 20, 0);
        assert_eq!(calendar.next(DECAY_MS, true), Some(6025));
        assert_eq!(
            calendar.next(DECAY_MS, false),
            Some(6500),
            "no longer short"
        );
    }
}
