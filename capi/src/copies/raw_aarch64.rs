//! The kernel's call on AArch64, AAPCS64 calling convention.

use crate::errno::fail_raw;

/// The kernel's call, as the C library makes it.
///
/// # Safety
/// - As `syscall(2)`.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn raw() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc #0",
        "cmn x0, #4095",
        "b.cs 2f",
        "ret",
        "2:",
        "b {fail}",
        ".cfi_endproc",
        fail = sym fail_raw,
    )
}
