//! The constructor.

use crate::watch;
use core::ffi::{c_char, c_int};
use neap::front;

type Constructor = unsafe extern "C" fn(c_int, *const *const c_char, *mut *mut c_char);

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: Constructor = at_start;

unsafe extern "C" fn at_start(_argc: c_int, _argv: *const *const c_char, envp: *mut *mut c_char) {
    watch::begin();
    // SAFETY: the C library hands constructors the environment, and this one runs before all others, in
    // the process's only thread (unless the library is opened late, and then reads it as any library would).
    unsafe { front::begin(envp) };
}
