//! The soft limit, while the thread that holds the round of decay is kept from its processor.

use neap_heap::cache::heap::HEAP;
use neap_heap::{free, malloc};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const MIB: usize = 1 << 20;

fn held() -> usize {
    HEAP.pages.footprint().total()
}

fn take(bytes: usize) -> Vec<usize> {
    let blocks = 0..bytes / 1024;
    blocks.map(|_| malloc::allocate(1024).addr()).collect()
}

#[test]
fn who_outgrows_the_soft_limit_waits_for_the_round() {
    HEAP.pages.limits().set_soft(16 * MIB);
    // Near the limit: callers help from here on.
    let mut blocks = take(15 * MIB);
    let (taken, given_up) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let step = HEAP.tide.step.lock();
            taken.wait();
            thread::sleep(Duration::from_millis(300));
            given_up.store(true, Ordering::Relaxed);
            drop(step);
        });
        taken.wait();
        // Live memory may pass the limit: it is not refused, but waits.
        while held() < 24 * MIB {
            blocks.append(&mut take(64 << 10));
            let waited = given_up.load(Ordering::Relaxed);
            assert!(waited || held() < 20 * MIB, "{} bytes are held", held());
        }
    });
    // SAFETY: each block once.
    let release = |block| unsafe { free::free(block as *mut u8) };
    blocks.into_iter().for_each(release);
}
