//! The constructor.

use crate::cxx::replaced;
use crate::{alone, copies, loader, options, streams, watch};
use core::ffi::{c_char, c_int};
use neap_heap::init;
use neap_heap::init::Frontend;
use neap_heap::os::process;
use neap_heap::reclaim::start;
use neap_instruments::attach::set_frontend;

type Constructor = unsafe extern "C" fn(c_int, *const *const c_char, *mut *mut c_char);

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: Constructor = at_start;

/// glibc hands constructors the environment, and sets `environ` after this one; musl sets `environ`
/// first, and hands over nothing.
unsafe extern "C" fn at_start(_argc: c_int, _argv: *const *const c_char, envp: *mut *mut c_char) {
    let set = process::environment();
    let envp = if set.is_null() { envp } else { set };
    watch::begin();
    alone::begin();
    copies::begin();
    set_frontend(Frontend::C);
    // SAFETY: the process's environment, and this constructor runs before all others, in the
    // process's only thread (unless the library is opened late, and then reads it as
    // any library would).
    unsafe { init::begin(envp) };
    // After the options: for a name that is not there, musl's loader keeps a message in a block.
    streams::begin();
    // SAFETY: as above.
    unsafe { options::read(envp) };
    init::open();
    let objects = loader::objects_of(unsafe_callers());
    replaced::begin(&objects[0]);
    // If the C library was not found, because only libdl.so has `dlsym`, nothing tells when it is
    // safe to start a thread.
    if !objects[1].is_empty() {
        start::enable(&objects);
        init::start_eagerly();
    }
}

/// An address in the code of this library, and of every object that may allocate with locks held
/// that starting a thread also takes: the C library (and its parts, where it has some), the loader.
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
