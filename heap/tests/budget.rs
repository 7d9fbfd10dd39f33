//! The process's bound on magazines, and threads that sleep while they hold capacity.

use neap_heap::cache::heap::HEAP;
use neap_heap::{free, malloc};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

const BOUND: usize = 512 << 10;

/// Lets the magazine of one class grow.
fn churn(size: usize) {
    let blocks: Vec<usize> = (0..2_000).map(|_| malloc::allocate(size).addr()).collect();
    // SAFETY: each block once.
    blocks
        .into_iter()
        .for_each(|block| unsafe { free::free(block as *mut u8) });
}

/// Bytes granted to the calling thread's cache.
fn own_grant() -> usize {
    let own = neap_heap::cache::machine::slot();
    let mut granted = 0;
    HEAP.registry.for_each(|cache| {
        if std::ptr::eq(cache, own) {
            granted = cache.open().granted();
        }
    });
    granted
}

#[test]
fn what_sleeping_threads_hold_goes_to_those_that_work() {
    HEAP.budget.set_process(BOUND);
    let (grown, done) = (Arc::new(Barrier::new(9)), Arc::new(Barrier::new(9)));
    let sleepers: Vec<_> = (0..8)
        .map(|_| {
            let (grown, done) = (Arc::clone(&grown), Arc::clone(&done));
            thread::spawn(move || {
                (1..40).for_each(|step| churn(step * 64));
                grown.wait();
                done.wait();
            })
        })
        .collect();
    grown.wait();
    assert!(HEAP.budget.granted() <= BOUND);
    let worker = thread::spawn(|| {
        // The first reclaim may just have happened, for one of the sleepers while it grew.
        for _ in 0..50 {
            churn(48);
            if own_grant() >= 16 << 10 {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        own_grant()
    });
    let granted = worker.join().unwrap();
    assert!(
        granted >= 16 << 10,
        "a working thread was granted {granted} bytes"
    );
    assert!(HEAP.budget.granted() <= BOUND);
    done.wait();
    sleepers
        .into_iter()
        .for_each(|sleeper| sleeper.join().unwrap());
}
