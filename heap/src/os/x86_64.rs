//! What x86-64 needs in assembly: the switch of stacks, and memory past the caches.

use core::arch::x86_64::{__m128i, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};
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

/// Bytes of a cache line.
const LINE: usize = 64;

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
                concat!("mov {0}, qword ptr [rip + ", $name, "@GOTPCREL]"),
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
    // SAFETY: the ABI has the block's address in its first word.
    unsafe {
        core::arch::asm!(
            "mov {0}, fs:[0]",
            out(reg) pointer,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    pointer
}

/// The call that tells of the file that a path names.
pub(super) const STATUS_OF_PATH: Sysno = Sysno::newfstatat;

/// The kernel's name for its function that tells the time.
pub(super) const CLOCK: &CStr = c"__vdso_clock_gettime";

/// Fills `bytes` bytes with zeros by stores that bypass the caches.
///
/// # Safety
/// - The bytes are writable, and no other thread uses them.
pub unsafe fn clear_streaming(start: *mut u8, bytes: usize) {
    let head = start.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    // SAFETY: head, lines and tail together are the caller's range, and the lines are aligned.
    unsafe {
        start.write_bytes(0, head);
        let (zero, mut at) = (_mm_setzero_si128(), start.add(head).cast::<__m128i>());
        for _ in 0..lines {
            _mm_stream_si128(at, zero);
            _mm_stream_si128(at.add(1), zero);
            _mm_stream_si128(at.add(2), zero);
            _mm_stream_si128(at.add(3), zero);
            at = at.add(4);
        }
        // The block may go to another thread: order these stores before all that follow.
        _mm_sfence();
        at.cast::<u8>().write_bytes(0, bytes - head - lines * LINE);
    }
}

/// Memory has no tags: stands for AArch64's instruction. Never called, as are the next three.
///
/// # Safety
/// - None.
pub(super) unsafe fn load_tag(pointer: usize) -> usize {
    pointer
}

/// # Safety
/// - None.
pub(super) unsafe fn random_tag(address: usize, _excluded: u64) -> usize {
    address
}

/// # Safety
/// - None.
pub(super) unsafe fn store_tag(_pointer: usize) {}

/// # Safety
/// - None.
pub(super) unsafe fn set_unchecked(_new: u64) -> u64 {
    0
}
