//! `syscall` on AArch64, AAPCS64 calling convention.

use super::{SYSCALL, seen};
use core::ffi::c_long;

/// The C library's `syscall`, after a check of the number. Ends in a jump, because a copy may
/// return on its parent's stack.
///
/// # Safety
/// - As `syscall(2)`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn syscall(number: c_long) -> c_long {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "cmp x0, #{clone}",
        "b.eq 2f",
        "cmp x0, #{clone3}",
        "b.eq 2f",
        "cmp x0, #{prctl}",
        "b.eq 2f",
        "cmp x0, #{seccomp}",
        "b.eq 2f",
        "cmp x0, #{unshare}",
        "b.eq 2f",
        "cmp x0, #{setns}",
        "b.eq 2f",
        "cmp x0, #{capset}",
        "b.eq 2f",
        "cmp x0, #{landlock}",
        "b.eq 2f",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "br x16",
        "2:",
        "b {seen}",
        ".cfi_endproc",
        clone = const libc::SYS_clone,
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
