//! The kernel takes long to answer: other threads do not wait for the thread that reads.

use neap_heap::cache::heap::HEAP;
use neap_heap::os::cgroup::Inquiry;
use neap_heap::{fork, malloc};
use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any machine takes for a step of these tests.
const PATIENCE: Duration = Duration::from_secs(60);

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Copies the process, and returns whether the child can ask.
fn child_asks() -> bool {
    // SAFETY: takes no pointers; both processes return.
    let copy = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    let child = fork::around(copy);
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(Inquiry::begin().is_some())) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child as i32, &mut status, 0) };
    libc::WEXITSTATUS(status) == 1
}

#[test]
fn a_thread_that_reads_a_slow_file_holds_no_step_and_keeps_no_child_from_asking() {
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
        let begun = Instant::now();
        while descriptors() == before && !reader.is_finished() {
            assert!(begun.elapsed() < PATIENCE, "the reader opens no file");
            thread::yield_now();
        }
        let asks = Inquiry::begin().is_some();
        let steps = HEAP.tide.step.try_lock().is_some();
        let child = child_asks();
        answer.write_all(b"anon 1\n").unwrap();
        assert_eq!(reader.join().unwrap(), Some(7));
        assert!(!asks && steps, "one thread asks, and holds no step");
        assert!(child, "a child asks for itself");
    });
    assert_eq!(descriptors(), before);
    assert!(Inquiry::begin().is_some());
    a_number_that_the_program_reuses_stays_open(&path, &name, &mut answer);
    fs::remove_file(&path).unwrap();
}

/// The program closes all descriptors and opens a file, which gets the reader's number.
fn a_number_that_the_program_reuses_stays_open(path: &Path, name: &CStr, answer: &mut File) {
    // In the folder of descriptors, the test's own stands before the reader's.
    let numbers = || {
        let entries = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = entries.filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == path));
        let numbers = open.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap());
        numbers.collect::<Vec<i32>>()
    };
    let own = answer.as_raw_fd();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut buffer = [0; 8];
            Inquiry::begin().unwrap().read(name, &mut buffer)
        });
        let begun = Instant::now();
        let number = loop {
            if let Some(number) = numbers().into_iter().find(|&number| number != own) {
                break number;
            }
            assert!(begun.elapsed() < PATIENCE && !reader.is_finished());
        };
        let other = File::open("/dev/null").unwrap();
        // SAFETY: plain numbers. The reader's file stays open while it reads.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        answer.write_all(b"anon 1\n").unwrap();
        assert_eq!(reader.join().unwrap(), Some(7));
        // SAFETY: plain numbers.
        let is_open = unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
        assert!(is_open, "it closed the program's file");
        // SAFETY: the number is the test's.
        unsafe { libc::close(number) };
    });
}
