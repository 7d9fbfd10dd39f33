//! Whether Neap may make system calls that other allocators do not make. A sandbox may kill the
//! process for them.
//!
//! The program says so (by an option, or by a system call that libneap.so sees), or Neap notices: a
//! process that had no system call filter at its start and has one now has entered a sandbox in a
//! way that Neap did not see. A filter from before the start means nothing, because containers have
//! one and do not kill.

use super::abort::warn;
use super::arch::call;
use crate::base::sync::plain::{AtomicBool, AtomicI8, Ordering};

#[unsafe(link_section = "neap_fork")]
static ALLOWED: AtomicBool = AtomicBool::new(true);
/// The kernel's answer at the start; less than 0 before the question, and where the kernel knows no
/// filters or an emulator hides them. Then a later filter cannot be noticed.
static AT_START: AtomicI8 = AtomicI8::new(-1);

/// `PR_GET_SECCOMP`: 0 without a filter, less if the call is refused.
fn filters() -> i8 {
    // SAFETY: no pointers.
    unsafe { call(libc::SYS_prctl, [libc::PR_GET_SECCOMP as usize, 0, 0, 0]) as i8 }
}

/// Notes the filter at the process's start.
pub fn note_start() {
    if !ALLOWED.load(Ordering::Relaxed) {
        return;
    }
    AT_START.store(filters(), Ordering::Relaxed);
}

/// Whether the process started under no filter, as far as is known. Makes no system call.
pub fn started_free() -> bool {
    AT_START.load(Ordering::Relaxed) == 0
}

/// From now on Neap queries nothing.
pub fn forbid() {
    ALLOWED.store(false, Ordering::Relaxed);
}

/// Whether [`forbid`] was called.
pub fn is_forbidden() -> bool {
    !ALLOWED.load(Ordering::Relaxed)
}

/// Says that an option has no effect.
#[cold]
pub fn warn_forbidden(option: &str) {
    warn(format_args!(
        "{option} is ignored: NEAP_KERNEL_QUERIES=0 or a sandbox forbids its system calls"
    ));
}

/// Whether Neap may do more than manage memory: read files, start threads.
pub fn allows_more() -> bool {
    if !ALLOWED.load(Ordering::Relaxed) {
        return false;
    }
    if AT_START.load(Ordering::Relaxed) == 0 && filters() != 0 {
        forbid();
    }
    ALLOWED.load(Ordering::Relaxed)
}
