//! When the process makes its status page: at the start, later, or never; and again in a fork's
//! child.

use super::monitor;
use super::serve::{is_awaited, write};
use super::state::{AWAITED, Inner, LOCK, STATUS_PAGE};
use super::words::WORDS;
use crate::{guard, profile};
use neap_heap::base::sync::{AtomicU8, Ordering};
use neap_heap::cache::heap::HEAP;
use neap_heap::hook::REQUESTS;
use neap_heap::init::{self, Frontend};
use neap_heap::os::Os;
use neap_heap::os::linux::Linux;
use neap_heap::os::process;
use neap_heap::os::shared::{self, Shared};
use neap_heap::reclaim::thread as purge;
use neap_shared::status_page::{self, Head, ThreadState};

#[unsafe(link_section = "neap_fork")]
static WHEN: AtomicU8 = AtomicU8::new(When::Worthwhile as u8);
/// When a process gets a status page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum When {
    /// Never.
    Never,
    /// When its heap has grown, or when it has taken many slow paths (`neap_heap::purge`). Most
    /// processes of a shell script end before that.
    Worthwhile,
    /// At the start.
    AtStart,
}

/// Sets when the process gets a status page.
pub(crate) fn choose(when: When) {
    WHEN.store(when as u8, Ordering::Relaxed);
}

fn is(when: When) -> bool {
    WHEN.load(Ordering::Relaxed) == when as u8
}

/// Sets the frontend, on the status page as well.
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
    if unsafe { monitor::keep(name) } {
        AWAITED.store(true, Ordering::Relaxed);
    }
}

/// Creates the status page, unless it was forbidden: now if it was requested or is awaited,
/// otherwise when it is [worthwhile](When::Worthwhile).
pub(crate) fn begin() {
    if is(When::Never) || process::is_secure() || !process::may_query() {
        return;
    }
    let is_wanted = !HEAP.is_plain() || profile::is_wanted() || purge::is_wanted_from_start();
    if !(is_wanted || is(When::AtStart) || AWAITED.load(Ordering::Relaxed)) {
        REQUESTS.set_absent(true);
        return;
    }
    let _guard = LOCK.lock();
    // SAFETY: the lock is held.
    put_up(unsafe { &mut *STATUS_PAGE.inner.get() });
    purge::tell_state();
}

fn put_up(inner: &mut Inner) {
    let page = Linux.page_bytes();
    let Some(shared) = Shared::create(status_page::NAME, status_page::BYTES.next_multiple_of(page))
    else {
        return;
    };
    WORDS.set(Some(&shared));
    WORDS.write_head(&Head {
        magic: status_page::MAGIC,
        version: status_page::VERSION,
        bytes: status_page::BYTES as u64,
        pid: process::process_id() as u64,
        page_bytes: page as u64,
        frontend: init::frontend() as u64,
        made_ms: Linux.now_ms(),
    });
    REQUESTS
        .seen()
        .iter()
        .for_each(|seen| seen.store(0, Ordering::Relaxed));
    WORDS.write_rate(HEAP.sampling());
    guard::write_state();
    HEAP.tide.bell.words.share(WORDS.bell());
    HEAP.pages.set_mirror(WORDS.mirror());
    monitor::tell(&shared, status_page::KIND_STATUS_PAGE);
    inner.shared = Some(shared);
}

/// Writes to the status page whether a thread answers.
pub(crate) fn note_thread(state: ThreadState) {
    if shared::is_mine() {
        WORDS.write_thread(state);
    }
}

/// Writes the last figures at the process's end, for the observer or monitor.
pub(crate) fn finish() {
    // In this order: a fork's child has not touched the page of `shared::is_mine` yet.
    if !is_awaited() || !shared::is_mine() || !process::may_query() {
        return;
    }
    let Some(_guard) = LOCK.try_lock() else {
        return;
    };
    // SAFETY: the lock is held.
    let inner = unsafe { &mut *STATUS_PAGE.inner.get() };
    if let Some([ask, ..]) = REQUESTS.asked() {
        write(inner, ask);
    }
}

/// In a fork's child: replaces the parent's status page. Does so at once if an observer awaits
/// figures or the profiler samples, else on the first slow path, because most children soon `exec`
/// or end.
pub(crate) fn after_fork_in_child() {
    if WORDS.is_set() {
        shared::set_inherited(true);
        if (is_awaited() || HEAP.is_sampling()) && !LOCK.is_mine() && HEAP.pages.is_quiet() {
            renew();
        }
    }
}

/// Whether a process without a status page gets it on its next slow path.
pub(crate) fn is_wanted_soon() -> bool {
    is(When::AtStart) || is_awaited() || HEAP.is_sampling()
}

/// Replaces the parent's status page by the process's own, or creates the first. The caller holds
/// no lock of the heap, and the process is [its own](purge::may_be_own_process): a child of vfork
/// leaves its parent's memory alone.
#[cold]
pub(crate) fn renew() {
    // Its holder does this, or was interrupted by the signal handler that this call comes from.
    let Some(guard) = LOCK.try_lock() else {
        return;
    };
    if !REQUESTS.is_status_page_missing() {
        return;
    }
    // SAFETY: the lock is held.
    let inner = unsafe { &mut *STATUS_PAGE.inner.get() };
    if let Some(parents) = inner.shared.take() {
        HEAP.pages.leave_parents_mirror();
        HEAP.pressure.refused.store(0, Ordering::Relaxed);
        HEAP.tide.bell.words.share(None);
        WORDS.set(None);
        parents.close();
        // SAFETY: no word or list holds its address any longer.
        unsafe { parents.unmap() };
        (inner.written, inner.cost_ns) = (0, 0);
        AWAITED.store(monitor::is_known(), Ordering::Relaxed);
        shared::set_inherited(false);
    }
    if process::may_query() {
        put_up(inner);
    }
    // Last: a thread that started before would sleep on a word that no observer sees.
    REQUESTS.set_absent(false);
    drop(guard);
    purge::tell_state();
}
