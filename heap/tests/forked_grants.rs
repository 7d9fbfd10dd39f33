//! The budget in the child of a fork that interrupted the forking thread's slow path.

use neap_heap::cache::{heap::HEAP, machine};
use neap_heap::{free, malloc};
use std::sync::Barrier;
use std::thread;

/// Lets the magazine of one class grow.
fn churn(size: usize) {
    let blocks: Vec<usize> = (0..500).map(|_| malloc::allocate(size).addr()).collect();
    // SAFETY: each block once.
    blocks
        .into_iter()
        .for_each(|block| unsafe { free::free(block as *mut u8) });
}

#[test]
fn a_child_keeps_no_grants_of_threads_that_it_does_not_have() {
    let (grown, done) = (Barrier::new(2), Barrier::new(2));
    let (status, own, all) = thread::scope(|scope| {
        scope.spawn(|| {
            (1..20).for_each(|step| churn(step * 64));
            grown.wait();
            done.wait();
        });
        churn(48);
        grown.wait();
        // Acts like a signal handler that interrupts the slow path and forks.
        // SAFETY: the thread's own cache.
        let open = unsafe { &*machine::slot() }.open();
        let (own, all) = (open.granted(), HEAP.budget.granted());
        // SAFETY: the child compares two numbers, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = i32::from(HEAP.budget.granted() != own);
            // SAFETY: ends the child.
            unsafe { libc::_exit(status) };
        }
        drop(open);
        let mut status = -1;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &mut status, 0) };
        done.wait();
        (status, own, all)
    });
    assert!(0 < own && own < all, "{own} of {all}");
    assert_eq!(
        status, 0,
        "the child's budget counts more than its own grants"
    );
}
