//! For tests: runs work in a forked child, under limits of its own.

use super::file::read_file;

/// A limit that the child sets on itself.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// No limit.
    None,
    /// `RLIMIT_AS`, in bytes.
    Address(u64),
    /// `RLIMIT_AS`, in bytes beyond what is mapped already.
    MoreAddresses(u64),
    /// `RLIMIT_DATA`, in bytes beyond what the child has at its start, which includes what other
    /// tests hold at that time.
    MoreData(u64),
    /// All memory locked, now and later.
    Locked,
}

/// Runs `work` in a forked child under a limit. Returns whether `work` returned true; false also if
/// the child died.
///
/// The child has one thread and may find any lock of the process taken: `work` must not allocate.
pub fn succeeds(limit: Limit, work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only runs `work`, which keeps to the rule above, and ends by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let done = apply(limit) && work();
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(!done)) }
        }
        child => {
            assert!(child > 0, "fork");
            let mut status = -1;
            // SAFETY: waits for the child made above.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status == 0
        }
    }
}

fn apply(limit: Limit) -> bool {
    let set = |resource, bytes| {
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: bytes,
        };
        // SAFETY: reads one structure of ours.
        unsafe { libc::setrlimit(resource, &limit) == 0 }
    };
    match limit {
        Limit::None => true,
        Limit::Address(bytes) => set(libc::RLIMIT_AS, bytes),
        Limit::MoreAddresses(bytes) => set(libc::RLIMIT_AS, now(Pages::Mapped) + bytes),
        Limit::MoreData(bytes) => set(libc::RLIMIT_DATA, now(Pages::Data) + bytes),
        // SAFETY: takes no pointers.
        Limit::Locked => unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) == 0 },
    }
}

/// Fields of `/proc/self/statm`, in OS pages.
#[derive(Clone, Copy)]
enum Pages {
    Mapped = 0,
    /// What may be written, and stacks.
    Data = 5,
}

/// Bytes of the process now.
fn now(pages: Pages) -> u64 {
    let mut text = [0; 128];
    let read = read_file(c"/proc/self/statm", &mut text).expect("/proc");
    let field = text[..read]
        .split(|&byte| byte == b' ')
        .nth(pages as usize)
        .expect("seven fields");
    let digits = field.iter().take_while(|byte| byte.is_ascii_digit());
    let pages = digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    // SAFETY: sysconf takes no pointers.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64
}
