//! What AArch64 needs in assembly; see `x86_64.rs`.

use core::ffi::{CStr, c_void};
use syscalls::Sysno;

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
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        "ret",
        ".cfi_endproc",
    )
}

/// The address of a name, as the linker or the loader found it; null for a weak name that nothing
/// defines.
#[macro_export]
macro_rules! address_of {
    ($name:literal $(, $directive:expr)*) => {{
        let address: *const core::ffi::c_void;
        // SAFETY: reads the word that the linker or the loader filled.
        unsafe {
            core::arch::asm!(
                $($directive,)*
                concat!("adrp {0}, :got:", $name),
                concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}
pub(super) use address_of;

/// The address of the calling thread's control block: unique among living threads.
#[inline(always)]
pub(super) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!(
            "mrs {0}, tpidr_el0",
            out(reg) pointer,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    pointer
}

/// The call that tells of the file that a path names.
pub(super) const STATUS_OF_PATH: Sysno = Sysno::fstatat;

/// The kernel's name for its function that tells the time.
pub(super) const CLOCK: &CStr = c"__kernel_clock_gettime";

/// Fills `bytes` bytes with zeros. The C library's `memset` is tuned for this architecture.
///
/// # Safety
/// - The bytes are writable, and no other thread uses them.
pub unsafe fn clear_streaming(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { start.write_bytes(0, bytes) };
}

/// Reads the tag of memory: the pointer with it.
///
/// # Safety
/// - Memory is tagged, and the address is of a page that may be read.
#[inline(always)]
pub(super) unsafe fn load_tag(mut pointer: usize) -> usize {
    // SAFETY: reads no bytes.
    unsafe {
        core::arch::asm!(
            ".arch_extension memtag",
            "ldg {0}, [{0}]",
            inout(reg) pointer,
            options(nostack, preserves_flags, readonly),
        );
    }
    pointer
}

/// A pointer with a random tag.
///
/// # Safety
/// - Memory is tagged.
#[inline(always)]
pub(super) unsafe fn random_tag(address: usize, excluded: u64) -> usize {
    let pointer;
    // SAFETY: the processor has the instruction.
    unsafe {
        core::arch::asm!(
            ".arch_extension memtag",
            "irg {0}, {1}, {2}",
            out(reg) pointer,
            in(reg) address,
            in(reg) excluded,
            options(nostack, preserves_flags, nomem),
        );
    }
    pointer
}

/// Gives 16 bytes the tag of the pointer to them.
///
/// # Safety
/// - Memory is tagged, and the 16 bytes at the pointer are the caller's.
#[inline(always)]
pub(super) unsafe fn store_tag(pointer: usize) {
    // SAFETY: changes no bytes.
    unsafe {
        core::arch::asm!(".arch_extension memtag", "stg {0}, [{0}]", in(reg) pointer, options(nostack));
    }
}

/// Sets the register TCO, and returns what it was.
///
/// # Safety
/// - The processor has the register.
#[inline(always)]
pub(super) unsafe fn set_unchecked(new: u64) -> u64 {
    let before;
    // By number, for assemblers without tags. SAFETY: changes only the register.
    unsafe {
        core::arch::asm!(
            "mrs {0}, s3_3_c4_c2_7",
            "msr s3_3_c4_c2_7, {1}",
            out(reg) before,
            in(reg) new,
            options(nostack, preserves_flags),
        );
    }
    before
}
