//! The child of a raw copy that no handler saw: a thread that holds locks stayed in the parent.

use neap_heap::cache::heap::HEAP;
use neap_heap::malloc;
use neap_heap::os::shared;
use std::sync::Barrier;
use std::thread;

/// How long the child may take, in seconds.
const PATIENCE: u32 = 20;

/// Ends as 0 if a refused request returns null.
fn child() -> ! {
    // SAFETY: the child is on its own. If it waits for the lock, the alarm ends it.
    unsafe { libc::alarm(PATIENCE) };
    HEAP.pages.limits().set_hard(HEAP.pages.footprint().used);
    let block = malloc::allocate(1 << 20);
    // SAFETY: as above.
    unsafe { libc::_exit(i32::from(!block.is_null())) }
}

#[test]
fn a_refused_request_returns_null() {
    // As a process that has a status page.
    shared::claim();
    // What gathering might give back.
    let blocks: Vec<_> = (0..4096).map(|_| malloc::allocate(1024).addr()).collect();
    assert!(blocks.iter().all(|&block| block != 0));
    let (taken, copied) = (Barrier::new(2), Barrier::new(2));
    let status = thread::scope(|scope| {
        scope.spawn(|| {
            let _step = HEAP.tide.step.lock();
            taken.wait();
            copied.wait();
        });
        taken.wait();
        // SAFETY: a copy of the process, as by `fork`; the child only asks for a block.
        let child_id = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child_id == 0 {
            child();
        }
        assert!(child_id > 0);
        let mut status = -1;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child_id as i32, &mut status, 0) };
        copied.wait();
        status
    });
    assert_eq!(status, 0, "the child waited, or got a block");
}
