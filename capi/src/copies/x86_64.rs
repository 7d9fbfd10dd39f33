//! `syscall` on x86-64, System V calling convention.

use super::{SYSCALL, seen};
use core::ffi::c_long;

/// The C library's `syscall`, after a check of the number. Ends in a jump, because a child of
/// `vfork` returns on its parent's stack.
///
/// # Safety
/// - As `syscall(2)`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn syscall(number: c_long) -> c_long {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "cmp rdi, {clone}",
        "je 2f",
        "cmp rdi, {fork}",
        "je 2f",
        "cmp rdi, {clone3}",
        "je 2f",
        "cmp rdi, {prctl}",
        "je 2f",
        "cmp rdi, {seccomp}",
        "je 2f",
        "cmp rdi, {unshare}",
        "je 2f",
        "cmp rdi, {setns}",
        "je 2f",
        "cmp rdi, {capset}",
        "je 2f",
        "cmp rdi, {landlock}",
        "je 2f",
        "jmp qword ptr [rip + {next}]",
        "2:",
        "jmp {seen}",
        ".cfi_endproc",
        clone = const libc::SYS_clone,
        fork = const libc::SYS_fork,
        clone3 = const libc::SYS_clone3,
        prctl = const libc::SYS_prctl,
        seccomp = const libc::SYS_seccomp,
        unshare = const libc::SYS_unshare,
        setns = const libc::SYS_setns,
        capset = const libc::SYS_capset,
        landlock = const libc::SYS_landlock_restrict_self,
        next = sym SYSCALL,
        seen = sym seen,
    )
}
