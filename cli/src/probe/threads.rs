//! What the kernel offers for communication with other threads, and what it forbids.

use crate::table::Finding;
use std::io;

/// The state of a facility for whose system call a filter kills.
const KILLS: &str = "a sandbox kills for it";

/// The findings.
pub fn findings() -> Vec<Finding> {
    vec![membarrier(), rseq(), userfaultfd(), seccomp()]
}

fn call(result: libc::c_long) -> io::Result<i64> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// What became of a call that [`in_child`] made.
enum Fate {
    Answered(io::Result<()>),
    /// A seccomp filter killed the process for it.
    Killed,
}

/// Makes a system call in a forked child, because a filter may kill for it.
fn in_child(call: impl FnOnce() -> io::Result<i64>) -> Fate {
    // SAFETY: the child only makes the call, and ends.
    match unsafe { libc::fork() } {
        -1 => Fate::Answered(Err(io::Error::last_os_error())),
        0 => {
            let errno =
                call().map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |_| 0);
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(errno) }
        }
        child => fate_of(child),
    }
}

fn fate_of(child: libc::pid_t) -> Fate {
    let mut status = 0;
    // SAFETY: the status is a local variable.
    while unsafe { libc::waitpid(child, &mut status, 0) } == -1 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Fate::Answered(Err(error));
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Fate::Answered(Ok(())),
        (true, errno) => Fate::Answered(Err(io::Error::from_raw_os_error(errno))),
        (false, _) => Fate::Killed,
    }
}

fn membarrier() -> Finding {
    let command = |command: i32| {
        // SAFETY: membarrier takes no pointers.
        call(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) })
    };
    let fate = in_child(|| {
        command(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)?;
        command(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    });
    let Fate::Answered(tried) = fate else {
        return Finding::absent("membarrier", KILLS, "use `neap run --no-kernel-queries`");
    };
    Finding::tried(
        "membarrier",
        tried,
        "other threads can be brought to a barrier without signals",
        "idle threads' caches cannot be drained",
    )
}

/// `struct rseq` of `linux/rseq.h`, in its first size.
#[repr(C, align(32))]
struct Area([u32; 8]);

/// Registers an area for this thread. If the C library has registered one before, the kernel
/// refuses a second one, which also proves support.
fn rseq() -> Finding {
    const UNREGISTER: i32 = 1;
    const SIGNATURE: u32 = 0x5305_3053;
    let mut area = Area([0, u32::MAX, 0, 0, 0, 0, 0, 0]);
    let mut register = |flags: i32| {
        // SAFETY: the area lives until it is unregistered at the end of this function.
        call(unsafe {
            libc::syscall(
                libc::SYS_rseq,
                &raw mut area,
                size_of::<Area>(),
                flags,
                SIGNATURE,
            )
        })
    };
    let meaning = "a thread can learn its processor without a system call";
    match register(0) {
        Ok(_) => {
            let _ = register(UNREGISTER);
            Finding::ok("rseq", "", meaning)
        }
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EBUSY)) => {
            Finding::ok("rseq", "used by the C library", meaning)
        }
        Err(error) => Finding::absent(
            "rseq",
            error.to_string(),
            "finding the processor takes a call",
        ),
    }
}

fn userfaultfd() -> Finding {
    const USER_MODE_ONLY: i32 = 1;
    const ZERO: &str = "purged pages always read as zero";
    let fate = in_child(|| {
        // SAFETY: userfaultfd takes no pointers. The child's end closes the descriptor.
        call(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) })
    });
    match fate {
        Fate::Answered(Ok(())) => {
            let meaning = "programs may register memory, whose purged pages may not read as zero";
            Finding::is("userfaultfd", "open to programs", meaning)
        }
        Fate::Answered(Err(error)) => Finding::is("userfaultfd", error.to_string(), ZERO),
        Fate::Killed => Finding::is("userfaultfd", KILLS, ZERO),
    }
}

fn seccomp() -> Finding {
    // SAFETY: PR_GET_SECCOMP takes no pointers.
    let mode = unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) };
    let (state, meaning) = match mode {
        0 => ("off", "system calls are not filtered"),
        2 => (
            "filter",
            "a sandbox filters system calls: facilities marked absent may be forbidden, not \
             missing",
        ),
        _ => ("unknown", "cannot be asked"),
    };
    Finding::is("seccomp", state, meaning)
}
