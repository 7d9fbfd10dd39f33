//! `dlopen` on AArch64, AAPCS64 calling convention.

use crate::dlopen::plan;
use core::ffi::{c_char, c_int, c_void};

/// The loader's `dlopen` with `RTLD_DEEPBIND` taken out of `mode`.
///
/// The loader resolves `$ORIGIN`, `RUNPATH` and namespaces by its caller's
/// address, so this must end in a jump that leaves the return address as it found it:
///
/// ```text
///   on entry:  x0 file   w1 mode   x30 return address
///   plan(mode) → x0 target   x1 mode
///   at br:     x0 file   w1 mode   x30 the same return address
/// ```
///
/// # Safety
/// - `file` is null or a C string; loading runs the object's constructors.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C-unwind" fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x30, x0, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x30, -16",
        "mov w0, w1",
        "bl {plan}",
        "mov x16, x0",
        "ldp x30, x0, [sp], #16",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "br x16",
        ".cfi_endproc",
        plan = sym plan,
    )
}
