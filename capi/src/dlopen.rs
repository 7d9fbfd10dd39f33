//! `dlopen`, with `RTLD_DEEPBIND` taken out.
//!
//! An object loaded with that flag binds its own `malloc` and `free` to the C
//! library, past a preloaded allocator; blocks then cross between two heaps.
//! Debian's PHP loads its extensions so. The option `deepbind` keeps the flag.

use crate::imports::late_dlopen;
use crate::loader::Symbol;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::{NonNull, null_mut};
use neap_heap::base::sync::{AtomicBool, Ordering};

static DLOPEN: Symbol = Symbol::new(c"dlopen");

/// Looks up the function that this wraps.
pub(crate) fn begin() {
    DLOPEN.look();
}

/// Whether the option `deepbind` leaves the flag to the C library.
static DEEPBIND_KEPT: AtomicBool = AtomicBool::new(false);

/// Leaves `RTLD_DEEPBIND` in the flags from now on.
pub fn keep_deepbind() {
    DEEPBIND_KEPT.store(true, Ordering::Relaxed);
}

/// What the assembly does next: two registers on every machine.
#[repr(C)]
struct Plan {
    target: NonNull<c_void>,
    mode: usize,
}

/// Where a `dlopen` with `mode` goes, and with which mode.
extern "C" fn plan(mode: c_int) -> Plan {
    // The new object may take addresses that belonged to an earlier one.
    neap_instruments::unwind::forget();
    let stripped = if DEEPBIND_KEPT.load(Ordering::Relaxed) {
        mode
    } else {
        mode & !libc::RTLD_DEEPBIND
    };
    Plan {
        target: real(),
        mode: stripped as usize,
    }
}

/// The C library's `dlopen`.
fn real() -> NonNull<c_void> {
    let found = NonNull::new(DLOPEN.found()).or_else(|| NonNull::new(late_dlopen()));
    found.unwrap_or(refusal())
}

/// The function that is used if the process has no other `dlopen`.
fn refusal() -> NonNull<c_void> {
    extern "C" fn refuse(_file: *const c_char, _mode: c_int) -> *mut c_void {
        null_mut()
    }
    NonNull::new(refuse as *mut c_void).expect("a function has an address")
}

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
#[cfg(target_arch = "x86_64")]
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
#[cfg(target_arch = "aarch64")]
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
