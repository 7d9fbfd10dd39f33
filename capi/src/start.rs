//! The constructor.

use crate::{alone, copies, loader, watch};
use core::ffi::{c_char, c_int};
use core::ptr::{NonNull, null_mut};
use neap_heap::front::{self, Frontend};
use neap_heap::purge;
use neap_instruments::attach::set_frontend;

type Constructor = unsafe extern "C" fn(c_int, *const *const c_char, *mut *mut c_char);

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: Constructor = at_start;

unsafe extern "C" fn at_start(_argc: c_int, _argv: *const *const c_char, envp: *mut *mut c_char) {
    watch::begin();
    alone::begin();
    copies::begin();
    set_frontend(Frontend::C);
    note_streams();
    // SAFETY: the C library hands constructors the environment, and this one runs before all
    // others, in the process's only thread (unless the library is opened late, and then reads it as
    // any library would).
    unsafe { front::begin(envp) };
    front::open();
    purge::enable(&loader::objects_of(unsafe_callers()));
    purge::start_eagerly();
}

/// Tells of glibc's lock on its list of streams, which a fork takes.
fn note_streams() {
    let names = [
        c"_IO_list_lock",
        c"_IO_list_unlock",
        c"_IO_list_resetlock",
        c"__libc_single_threaded",
    ];
    let found = names.map(|name| loader::next(name).map_or(null_mut(), NonNull::as_ptr));
    // SAFETY: functions and a byte of these names, as glibc has them; the process has one thread.
    unsafe { front::fork::note_streams(found) };
}

/// An address in the code of this library, and of every object that may allocate with locks held
/// that starting a thread takes, too: the C library (and its parts, where it has some), the loader.
fn unsafe_callers() -> [usize; 5] {
    let address_of = |name| loader::next(name).map_or(0, |found| found.as_ptr().addr());
    [
        unsafe_callers as fn() -> [usize; 5] as usize,
        address_of(c"getpid"),
        address_of(c"pthread_create"),
        address_of(c"dlopen"),
        address_of(c"__tls_get_addr"),
    ]
}
