//! The kernel's call on x86-64, System V calling convention.

use crate::errno::fail_raw;

/// The kernel's call, as the C library makes it.
///
/// # Safety
/// - As `syscall(2)`.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn raw() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "mov rdi, rax",
        "jmp {fail}",
        ".cfi_endproc",
        fail = sym fail_raw,
    )
}
