//! A fork of a process with one thread looks at none of the heap's locks: a child that wrote to
//! them would copy a dozen pages.

use neap_heap::base::sync::plain::{AtomicBool, Ordering};
use neap_heap::cache::heap::HEAP;
use neap_heap::fork::{StreamLock, around, set_stream_lock};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// After this long, the fork waits for a lock.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the C library says about the process.
static IS_SINGLE: AtomicBool = AtomicBool::new(false);

static STREAMS: StreamLock = StreamLock {
    is_single: || Some(IS_SINGLE.load(Ordering::Relaxed)),
    take: || {},
    give_back: || {},
    reset: || {},
};

/// The locks of the heap, and those of them that are held.
fn locks() -> (usize, usize) {
    let (mut all, mut held) = (0, 0);
    HEAP.each_lock(&mut |lock| {
        all += 1;
        held += usize::from(lock.try_lock().is_none());
    });
    (all, held)
}

/// Forks. Returns the child's status: whether it has found as many locks held as its parent.
fn fork() -> i32 {
    let before = locks();
    // SAFETY: the child only looks at locks, and ends.
    let child = around(|| unsafe { libc::fork() }.into());
    if child == 0 {
        let status = i32::from(locks() != before);
        // SAFETY: ends the child.
        unsafe { libc::_exit(status) };
    }
    let mut status = -1;
    // SAFETY: the test's own child.
    let waited = unsafe { libc::waitpid(child as i32, &mut status, 0) };
    assert_eq!(i64::from(waited), child);
    status
}

/// Forks on a thread of its own; `None` if it waits for a lock.
fn fork_or_wait() -> Option<i32> {
    let (sender, status) = mpsc::channel();
    thread::spawn(move || sender.send(fork()));
    status.recv_timeout(PATIENCE).ok()
}

#[test]
fn a_lone_fork_looks_at_no_lock() {
    set_stream_lock(&STREAMS);
    assert_eq!(fork_or_wait(), Some(0), "with all locks free");
    // What no lone process has: another thread that holds all locks. So whoever looks is seen.
    let (sender, is_held) = mpsc::channel();
    thread::spawn(move || {
        HEAP.each_lock(&mut |lock| std::mem::forget(lock.try_lock().expect("a free lock")));
        sender.send(locks()).unwrap();
        thread::park();
    });
    let (all, held) = is_held.recv().unwrap();
    assert!(all > 10 && held == all, "{held} of {all}");
    IS_SINGLE.store(true, Ordering::Relaxed);
    assert_eq!(fork_or_wait(), Some(0), "the parent or the child looked");
}
