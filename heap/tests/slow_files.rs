//! The kernel takes long to answer: other threads do not wait for the thread that reads.

use neap_heap::cache::heap::HEAP;
use neap_heap::os::inquiry::Inquiry;
use neap_heap::{fork, malloc};
use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::Barrier;
use std::thread;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Copies the process, and returns how many descriptors the child has.
fn descriptors_of_a_child() -> i32 {
    // SAFETY: takes no pointers; both processes return.
    let copy = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    let child = fork::around(copy);
    if child == 0 {
        // SAFETY: takes no pointers.
        let is_open = |number: &i32| unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0;
        let count = (0..1024).filter(is_open).count();
        // SAFETY: ends the child.
        unsafe { libc::_exit(count as i32) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child as i32, &mut status, 0) };
    libc::WEXITSTATUS(status)
}

#[test]
fn a_thread_that_reads_a_slow_file_holds_no_step_and_leaves_no_child_a_descriptor() {
    // Whoever is at a round, however long that takes, does not keep others from asking.
    let (taken, asked) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _step = HEAP.tide.step.lock();
            taken.wait();
            asked.wait();
        });
        taken.wait();
        assert!(HEAP.pressure.is_outdated(HEAP.now_ms()));
        malloc::allocate(1 << 20);
        let is_outdated = HEAP.pressure.is_outdated(HEAP.now_ms());
        asked.wait();
        assert!(!is_outdated, "it did not ask");
    });
    // A file that answers when the test writes to it.
    let path = std::env::temp_dir().join(format!("neap-slow-{}", std::process::id()));
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let mut options = OpenOptions::new();
    let mut answer = options.read(true).write(true).open(&path).unwrap();
    let before = descriptors();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let inquiry = Inquiry::begin().expect("no other thread asks");
            let mut buffer = [0; 8];
            inquiry.read(&name, &mut buffer)
        });
        while descriptors() == before {
            thread::yield_now();
        }
        let asks = Inquiry::begin().is_some();
        let steps = HEAP.tide.step.try_lock().is_some();
        let of_a_child = descriptors_of_a_child();
        answer.write_all(b"anon 1\n").unwrap();
        assert_eq!(reader.join().unwrap(), Some(7));
        assert!(!asks && steps, "one thread asks, and holds no step");
        // The reading of the folder had a descriptor of its own.
        assert_eq!(of_a_child, before as i32 - 1, "a child inherits a file");
    });
    fs::remove_file(&path).unwrap();
    assert_eq!(descriptors(), before);
    assert!(Inquiry::begin().is_some());
}
