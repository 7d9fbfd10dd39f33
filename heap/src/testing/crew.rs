//! Threads that are there at the same time.

use std::sync::{Mutex, mpsc};
use std::thread::{self, Builder};
use std::vec::Vec;

/// Calls `work` on `count` threads, then `meanwhile` with what they returned, while all of them are
/// still there.
///
/// A thread that cannot be started, or that panics, fails the test. At a barrier the others would
/// wait for it without end.
pub(crate) fn with_threads<R: Send, T>(
    count: usize,
    work: impl Fn() -> R + Sync,
    meanwhile: impl FnOnce(Vec<R>) -> T,
) -> T {
    let over = Mutex::new(());
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        // Its drop lets the threads end, in a panic of this one, too.
        let _not_over = over.lock().expect("no thread holds it");
        for number in 0..count {
            let (sender, work, over) = (sender.clone(), &work, &over);
            let body = move || {
                let is_sent = sender.send(work()).is_ok();
                drop(sender);
                drop(over.lock());
                is_sent
            };
            if let Err(error) = Builder::new().spawn_scoped(scope, body) {
                panic!("thread {number} of {count} cannot be started: {error}");
            }
        }
        drop(sender);
        let results: Vec<R> = results.iter().collect();
        assert_eq!(results.len(), count, "threads panicked");
        meanwhile(results)
    })
}

mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_thread_that_panics_leaves_no_others_waiting() {
        let begun = AtomicUsize::new(0);
        let work = || assert_ne!(begun.fetch_add(1, Ordering::Relaxed), 1, "on purpose");
        let crew = || with_threads(4, work, |_| ());
        assert!(catch_unwind(AssertUnwindSafe(crew)).is_err());
        assert_eq!(begun.into_inner(), 4);
    }
}
