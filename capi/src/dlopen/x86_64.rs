//! `dlopen` on x86-64, System V calling convention.

use crate::dlopen::plan;
use core::ffi::{c_char, c_int, c_void};

/// The loader's `dlopen` with `RTLD_DEEPBIND` taken out of `mode`.
///
/// The loader resolves `$ORIGIN`, `RUNPATH` and namespaces by its caller's
/// address, so this must end in a jump that leaves the return address as it found it:
///
/// ```text
///   on entry:  rdi file   esi mode   [rsp] return address
///   plan(mode) → rax target   rdx mode
///   at jmp:    rdi file   esi mode   [rsp] the same return address
/// ```
///
/// # Safety
/// - `file` is null or a C string; loading runs the object's constructors.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C-unwind" fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "mov edi, esi",
        "call {plan}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "mov esi, edx",
        "jmp rax",
        ".cfi_endproc",
        plan = sym plan,
    )
}
