//! A caller that interrupted a holder of locks waits for no other thread's.

use neap_heap::cache::heap::HEAP;
use neap_heap::{free, malloc};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const MIB: usize = 1 << 20;

/// The holder of `step` waits for `draining`. The thread that holds that is interrupted, and the
/// handler allocates beyond the soft limit.
#[test]
fn who_holds_a_lock_outgrows_the_soft_limit_without_waiting() {
    HEAP.pages.limits().set_soft(16 * MIB);
    let (taken, done) = (Barrier::new(2), AtomicBool::new(false));
    let held = || HEAP.pages.footprint().total();
    let mut blocks = Vec::new();
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _step = HEAP.tide.step.lock();
            taken.wait();
            (0..20_000).any(|_| {
                thread::sleep(Duration::from_millis(1));
                done.load(Ordering::Relaxed)
            })
        });
        taken.wait();
        let draining = HEAP.registry.draining.lock();
        while held() < 24 * MIB {
            blocks.push(malloc::allocate(1024).addr());
        }
        done.store(true, Ordering::Relaxed);
        drop(draining);
        assert!(holder.join().unwrap(), "it waited");
    });
    // SAFETY: each block once.
    let release = |block| unsafe { free::free(block as *mut u8) };
    blocks.into_iter().for_each(release);
}
