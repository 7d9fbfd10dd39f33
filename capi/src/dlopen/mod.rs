//! `dlopen`, with `RTLD_DEEPBIND` taken out.
//!
//! An object loaded with that flag binds its own `malloc` and `free` to the C
//! library, past a preloaded allocator; blocks then cross between two heaps.
//! Debian's PHP loads its extensions so. The option `deepbind` keeps the flag.

use crate::imports::late_dlopen;
use crate::next::Next;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::{NonNull, null_mut};
use neap_heap::base::sync::{AtomicBool, Ordering};

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod machine;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod machine;

static DLOPEN: Next = Next::new(c"dlopen");

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
