//! The failing path of `operator new`, and the way of `new[]` to another definition, on AArch64,
//! AAPCS64 calling convention.

use crate::cxx::replaced::Derived;
use crate::cxx::{new, runtime};
use core::ffi::c_void;

/// Finds memory for `operator new` after a first failure, or throws.
///
/// Exceptions pass through this frame: it has unwind information and nothing to clean up.
///
/// ```text
///   on entry           after the prologue
///   sp → the caller's  sp+32 → the caller's   x0  size   kept in x19
///   x30  return        sp+24 → x20            x1  align  kept in x20
///                      sp+16 → x19
///                      sp+8  → x30
///                      sp    → x29
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
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "stp x19, x20, [sp, #16]",
        ".cfi_offset x19, -16",
        ".cfi_offset x20, -8",
        "mov x29, sp",
        "mov x19, x0",
        "mov x20, x1",
        // Call the handler, then try again.
        "2:",
        "mov x0, x20",
        "bl {handler}",
        "cbz x0, 3f",
        "blr x0",
        "mov x0, x19",
        "mov x1, x20",
        "bl {retry}",
        "cbz x0, 2b",
        ".cfi_remember_state",
        "ldp x19, x20, [sp, #16]",
        ".cfi_restore x19",
        ".cfi_restore x20",
        "ldp x29, x30, [sp], #32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "ret",
        // No handler: throw as if the operator's caller had called the thrower.
        ".cfi_restore_state",
        "3:",
        "mov x0, x19",
        "bl {thrower}",
        "mov x16, x0",
        "ldp x19, x20, [sp, #16]",
        ".cfi_restore x19",
        ".cfi_restore x20",
        "ldp x29, x30, [sp], #32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "br x16",
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
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "stp x0, x1, [sp, #16]",
        "mov x29, sp",
        "mov x0, x2",
        "bl {form}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "br x16",
        ".cfi_endproc",
        form = sym new::array_form,
    )
}
