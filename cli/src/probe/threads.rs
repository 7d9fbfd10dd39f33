//! What the kernel offers for communication with other threads and for guards, and what it forbids.

use super::map::Map;
use super::write_guard::guards_writes;
use crate::table::Finding;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{
    MembarrierCommand, SecureComputingMode, membarrier as barrier, secure_computing_mode,
};
use std::io;

/// The findings.
pub fn findings() -> Vec<Finding> {
    vec![membarrier(), userfaultfd(), seccomp()]
}

/// Makes system calls in a forked child, because a filter may kill for them.
fn in_child(calls: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: the child only makes the calls, and ends.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let failed = calls().err();
            let errno = failed.map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(errno) }
        }
        child => Pid::from_raw(child),
    };
    let ended = retry_on_intr(|| waitpid(child, WaitOptions::empty()))?;
    match ended.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other("a sandbox kills for it")),
    }
}

fn membarrier() -> Finding {
    let tried = in_child(|| {
        barrier(MembarrierCommand::RegisterPrivateExpedited)?;
        Ok(barrier(MembarrierCommand::PrivateExpedited)?)
    });
    let meaning = match &tried {
        Err(killed) if killed.raw_os_error().is_none() => "use `neap run --no-kernel-queries`",
        _ => "brings other threads to a barrier, to drain their caches",
    };
    Finding::tried("membarrier", tried, meaning)
}

fn userfaultfd() -> Finding {
    let tried = in_child(|| {
        let page = Map::pages(1)?;
        // SAFETY: a page of this value's own.
        unsafe { guards_writes(page.base(), page.length()) }
    });
    let meaning = "guards stacks against writes, without a mapping for each guard";
    Finding::tried("userfaultfd", tried, meaning)
}

fn seccomp() -> Finding {
    let (state, meaning) = match secure_computing_mode() {
        Ok(SecureComputingMode::Disabled) => ("off", "system calls are not filtered"),
        Ok(SecureComputingMode::Filter) => (
            "filter",
            "a sandbox filters system calls: what is absent may be forbidden, not missing",
        ),
        _ => ("unknown", "cannot be asked"),
    };
    Finding::is("seccomp", state, meaning)
}
