//! The constructor.

use crate::cxx::replaced;
use crate::{alone, copies, loader, options, streams, watch};
use core::ffi::{c_char, c_int};
use core::ops::Range;
use neap_heap::init;
use neap_heap::init::Frontend;
use neap_heap::os::process;
use neap_heap::reclaim::start;
use neap_heap::reclaim::thread as purge;
use neap_instruments::attach::set_frontend;

type Constructor = unsafe extern "C" fn(c_int, *const *const c_char, *mut *mut c_char);

// In a static program it runs before all constructors without a priority; in libneap.so the linker's
// flags see to more (`build.rs`).
#[used]
#[unsafe(link_section = ".init_array.00002")]
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
    let objects = unsafe_callers();
    replaced::begin(&objects[0]);
    // If the C library was not found, because only libdl.so has `dlsym`, nothing tells when it is
    // safe to start a thread. In a static program it is the program: the thread starts here or not
    // at all.
    if !objects[1].is_empty() && (!is_static() || purge::is_wanted_from_start()) {
        start::enable(&objects);
        init::start_eagerly();
    }
}

/// The code of this library, and the objects that may allocate with locks held that starting a
/// thread also takes: the C library (and its parts, where it has some), the loader.
fn unsafe_callers() -> [Range<usize>; 5] {
    let address_of = |name| loader::next(name).map_or(0, |found| found.as_ptr().addr());
    let mut objects = loader::objects_of([
        unsafe_callers as fn() -> [Range<usize>; 5] as usize,
        address_of(c"getpid"),
        address_of(c"pthread_create"),
        address_of(c"dlopen"),
        address_of(c"__tls_get_addr"),
    ]);
    objects[0] = own_code(&objects[0]);
    objects
}

#[cfg(all(panic = "abort", feature = "archive"))]
use crate::archive::{is_static, own_code};

/// The library is an object of its own, in a process with a loader.
#[cfg(not(all(panic = "abort", feature = "archive")))]
fn own_code(object: &Range<usize>) -> Range<usize> {
    object.clone()
}

#[cfg(not(all(panic = "abort", feature = "archive")))]
fn is_static() -> bool {
    false
}
