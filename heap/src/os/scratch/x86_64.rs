//! The switch of stacks on x86-64.

use core::ffi::c_void;

/// Calls `work(argument)` with the stack pointer at `top`. Debuggers and profilers step over the
/// switch by the table that the directives make.
///
/// # Safety
/// - Below `top`, a multiple of 16, there is stack enough for `work`, which no other thread uses.
/// - `work` does not unwind, and may be called with `argument`.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn call_on(
    top: *mut u8,
    work: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}
