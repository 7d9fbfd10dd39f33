//! The failing path of `operator new`, and the way of `new[]` to another definition, on x86-64,
//! System V calling convention.

use crate::cxx::replaced::Derived;
use crate::cxx::{new, runtime};
use core::ffi::c_void;

/// Finds memory for `operator new` after a first failure, or throws.
///
/// Exceptions pass through this frame: it has unwind information and nothing to clean up.
///
/// ```text
///   on entry        after the prologue
///   rsp → return    rsp+24 → return      rdi  size   kept in rbx
///                   rsp+16 → rbx         rsi  align  kept in r12
///                   rsp+8  → r12
///                   rsp    → padding (16-byte alignment at calls)
///
///        ┌──────────────► handler? ── none ──► leave the frame, jump to the thrower
///        │                   │ call it (may throw)
///        └── null ─────── allocate ── block ──► return it
/// ```
///
/// # Safety
/// - `align` is what the operator was given, or 1.
#[unsafe(naked)]
pub(super) unsafe extern "C-unwind" fn exhausted(size: usize, align: usize) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r12, 0",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rbx, rdi",
        "mov r12, rsi",
        // Call the handler, then try again.
        "2:",
        "mov rdi, r12",
        "call {handler}",
        "test rax, rax",
        "jz 3f",
        "call rax",
        "mov rdi, rbx",
        "mov rsi, r12",
        "call {retry}",
        "test rax, rax",
        "jz 2b",
        ".cfi_remember_state",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r12",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "ret",
        // No handler: throw as if the operator's caller had called the thrower.
        ".cfi_restore_state",
        "3:",
        "mov rdi, rbx",
        "call {thrower}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r12",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "jmp rax",
        ".cfi_endproc",
        handler = sym runtime::handler,
        retry = sym runtime::retry,
        thrower = sym runtime::thrower,
    )
}

/// Goes on in the form of `new[]` that `new::array_form` chooses, as if the operator's caller had
/// called it. So no frame of Rust is between the caller and what that form throws.
///
/// # Safety
/// - `behind` is the operator's. `align` is what it was given, or 0 for the form without.
#[unsafe(naked)]
pub(super) unsafe extern "C-unwind" fn array_elsewhere(
    size: usize,
    align: usize,
    behind: &Derived,
) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, rdx",
        "call {form}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        form = sym new::array_form,
    )
}
