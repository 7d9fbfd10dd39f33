//! A thread that frees past a bound purges without the lock of its cache.

use neap_heap::cache::heap::HEAP;
use neap_heap::os::lock_order::Rank;
use neap_heap::{free, malloc};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const BLOCKS: usize = 32 << 10;

/// Whether no thread's cache is locked.
fn caches_are_quiet() -> bool {
    let mut quiet = true;
    HEAP.registry.for_each(|cache| quiet &= cache.is_quiet());
    quiet
}

/// Waits until a number has not changed for 200 ms. Returns it.
fn at_rest(number: &AtomicUsize) -> usize {
    let (mut last, mut rested) = (usize::MAX, 0);
    while rested < 100 {
        let now = number.load(Ordering::Relaxed);
        rested = if now == last { rested + 1 } else { 0 };
        last = now;
        thread::sleep(Duration::from_millis(2));
    }
    last
}

#[test]
fn a_thread_that_waits_for_a_purge_does_not_hold_its_cache() {
    HEAP.pages.limits().set_dirty(0);
    let freed = AtomicUsize::new(0);
    let [begin, end] = [3, 2].map(Barrier::new);
    let quiet = thread::scope(|scope| {
        scope.spawn(|| {
            let blocks: Vec<_> = (0..BLOCKS).map(|_| malloc::allocate(1024).addr()).collect();
            begin.wait();
            for block in blocks {
                // SAFETY: each block once.
                unsafe { free::free(block as *mut u8) };
                freed.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Another thread purges, and has lost its processor.
        scope.spawn(|| {
            HEAP.each_lock(&mut |lock| {
                let _purging = (lock.rank() == Rank::Purging).then(|| {
                    let guard = lock.lock();
                    begin.wait();
                    end.wait();
                    guard
                });
            });
        });
        begin.wait();
        let freed = at_rest(&freed);
        let is_quiet = || {
            thread::sleep(Duration::from_millis(1));
            caches_are_quiet()
        };
        let quiet = (0..10_000).any(|_| is_quiet());
        end.wait();
        assert!(freed < BLOCKS, "it does not wait: {freed} freed");
        quiet
    });
    assert!(quiet, "a cache stays locked");
}
