//! Serving observers: writes the figures, purges and switches sampling and guards when other
//! processes ask for it, within bounds on the time that this may take.

use super::state::{AWAITED, Inner, LOCK, STATUS_PAGE};
use super::words::WORDS;
use crate::peek;
use crate::{guard, profile, survey};
use neap_heap::base::policy::Reason;
use neap_heap::base::sync::Ordering;
use neap_heap::cache::heap::HEAP;
use neap_heap::hook::{REQUEST_WORDS, REQUESTS};
use neap_heap::os::Os;
use neap_heap::os::linux::Linux;
use neap_heap::os::process;
use neap_heap::os::shared;
use neap_heap::reclaim::thread as purge;
use neap_shared::status_page::{self, Refusal};

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

/// Least time between two purges, or changes of sampling or of guards, on request, in ms.
const LEAST_ACT_MS: u64 = 100;

/// An allocating thread found a pending request. It serves the request if no purge thread has done
/// so within the grace period.
#[cold]
pub(crate) fn on_the_way() {
    if purge::is_here() {
        return;
    }
    let now = Linux.now_ms();
    match STATUS_PAGE.asked_at.load(Ordering::Relaxed) {
        0 => STATUS_PAGE.asked_at.store(now, Ordering::Relaxed),
        first if now.saturating_sub(first) >= GRACE_MS => serve(),
        _ => {}
    }
}

/// Serves observers if that is due. True if there was something to do. The caller holds no lock.
pub(crate) fn serve_due() -> bool {
    due_in_ms() == Some(0) && serve_now()
}

/// Time until an observer is to be served, in ms; `None` while no observer asks or watches.
pub(crate) fn due_in_ms() -> Option<u64> {
    let asked = REQUESTS.asked()?;
    let [ask, acts @ ..]: [bool; REQUEST_WORDS] =
        core::array::from_fn(|word| asked[word] != REQUESTS.seen()[word].load(Ordering::Relaxed));
    let figures = ask.then(|| Reader::Asks.wait_ms());
    let act_at = STATUS_PAGE.act_at.load(Ordering::Relaxed);
    let acts = acts
        .contains(&true)
        .then(|| act_at.saturating_sub(HEAP.now_ms()));
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
        let next = STATUS_PAGE.next_at[self as usize].load(Ordering::Relaxed);
        next.saturating_sub(process::now_ns()).div_ceil(1_000_000)
    }

    /// Accounts for a survey that took `cost_ns`.
    fn charge(self, cost_ns: u64) {
        let (next_at, part) = match self {
            Reader::Asks => (&STATUS_PAGE.next_at[0], ASK_PART),
            Reader::Watches => (&STATUS_PAGE.next_at[1], WATCH_PART),
        };
        let least = process::now_ns().saturating_sub(CREDIT_NS);
        let from = next_at.load(Ordering::Relaxed).max(least);
        next_at.store(from + cost_ns * part, Ordering::Relaxed);
    }
}

/// Serves the requests, if that is safe here. Takes all locks of the heap, one after the other, so
/// the caller holds none.
#[cold]
fn serve() {
    if !shared::is_mine() || !purge::may_be_own_process() {
        return;
    }
    // A survey reads files, for which a sandbox may kill the process. Without room on the stack,
    // another thread will serve.
    if !process::may_query() {
        purge::tell_state();
    } else if peek::has_stack(STACK_BYTES) {
        serve_now();
    }
}

/// Serves the requests, and writes the figures if they are due. True if there was something to do.
fn serve_now() -> bool {
    let Some([ask, acts @ ..]) = REQUESTS.asked() else {
        return false;
    };
    let acted = carry_out(acts);
    let Some(_guard) = LOCK.try_lock() else {
        return acted;
    };
    // SAFETY: the lock is held.
    let inner = unsafe { &mut *STATUS_PAGE.inner.get() };
    let is_new = ask != REQUESTS.seen()[0].load(Ordering::Relaxed);
    if is_new {
        AWAITED.store(true, Ordering::Relaxed);
    }
    let is_due = rest_ms() == 0 || (is_new && Reader::Asks.wait_ms() == 0);
    if is_due {
        REQUESTS.seen()[0].store(ask, Ordering::Relaxed);
        write(inner, ask);
    }
    STATUS_PAGE.asked_at.store(0, Ordering::Relaxed);
    acted || is_due
}

/// Purges, and switches sampling and guards on request. All take long, so it acts at most once in
/// [`LEAST_ACT_MS`]. True if it acted. Runs without the status page's lock, for which a fork waits.
fn carry_out([purge, sample, guard]: [u64; REQUEST_WORDS - 1]) -> bool {
    let wanted = [(1, purge), (2, sample), (3, guard)]
        .map(|(at, word)| REQUESTS.seen()[at].load(Ordering::Relaxed) != word);
    let (now, next) = (HEAP.now_ms(), STATUS_PAGE.act_at.load(Ordering::Relaxed));
    let exchange = Ordering::Relaxed;
    let due = wanted.contains(&true)
        && now >= next
        && STATUS_PAGE
            .act_at
            .compare_exchange(next, now + LEAST_ACT_MS, exchange, exchange)
            .is_ok();
    if due && purge != REQUESTS.seen()[1].swap(purge, Ordering::Relaxed) {
        let bytes = HEAP.decay(Reason::Demand);
        WORDS.write_purged(purge, bytes as u64);
    }
    if due && sample != REQUESTS.seen()[2].swap(sample, Ordering::Relaxed) {
        let rate = WORDS.sample_rate();
        let refusal = rate.map_or(Refusal::None, profile::set_rate);
        WORDS.write_sampled(sample, refusal);
    }
    if due && guard != REQUESTS.seen()[3].swap(guard, Ordering::Relaxed) {
        let refusal = WORDS.guard_interval().map_or(Refusal::None, guard::request);
        WORDS.write_guard_request(guard, refusal);
    }
    due
}

pub(super) fn write(inner: &mut Inner, ask: u64) {
    survey::snapshot_into(&mut inner.figures);
    inner.written += 1;
    inner.cost_ns += inner.figures.cost_ns;
    WORDS.write_figures(&inner.figures);
    WORDS.write_sizes();
    WORDS.write_served(ask, inner.written, inner.cost_ns);
    for reader in [Reader::Asks, Reader::Watches] {
        reader.charge(inner.figures.cost_ns);
    }
    STATUS_PAGE
        .written_at
        .store(HEAP.now_ms(), Ordering::Relaxed);
}

/// Whether an observer awaits the last figures.
pub(crate) fn is_awaited() -> bool {
    let is_watched = || WORDS.is_set() && !shared::is_inherited() && rest_ms() != u64::MAX;
    AWAITED.load(Ordering::Relaxed) || is_watched()
}

/// Time until the figures are due, in ms; `u64::MAX` without a watching observer.
fn rest_ms() -> u64 {
    let Some((lease, interval)) = WORDS.lease() else {
        return u64::MAX;
    };
    let now = HEAP.now_ms();
    if lease <= now || lease > now + status_page::LEASE_MS {
        return u64::MAX;
    }
    let interval = interval.clamp(status_page::LEAST_INTERVAL_MS, status_page::LEASE_MS);
    let due = STATUS_PAGE.written_at.load(Ordering::Relaxed) + interval;
    due.saturating_sub(now).max(Reader::Watches.wait_ms())
}
