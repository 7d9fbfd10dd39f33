//! The library's start: its constructor, or a call that comes before it.
//!
//! The loader initialises this library before all others (`build.rs`), except where glibc is older
//! than 2.34 and the program has libpthread: that asks for the same, and gets it. Then the first
//! call that allocates, forks or registers handlers of `fork` starts the library. A process that
//! starts a thread has allocated. The same call starts it where the constructor comes too early
//! to ask glibc for a function (`imports.rs`).

use crate::cxx::replaced;
use crate::{alone, copies, imports, loader, options, streams, watch};
use core::ffi::{c_char, c_int};
use core::ptr::null_mut;
use neap_heap::base::sync::{AtomicBool, Ordering};
use neap_heap::init::{self, Frontend};
use neap_heap::os::loader::has_dlsym;
use neap_heap::os::{own_stack, process, thread};
use neap_heap::reclaim::start;
use neap_instruments::attach::set_frontend;

type Constructor = unsafe extern "C" fn(c_int, *const *const c_char, *mut *mut c_char);

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: Constructor = at_start;

#[unsafe(link_section = "neap_fork")]
static STARTED: AtomicBool = AtomicBool::new(false);

/// glibc hands constructors the environment, and sets its variable after this one; musl sets the
/// variable first, and hands over nothing.
unsafe extern "C" fn at_start(_argc: c_int, _argv: *const *const c_char, envp: *mut *mut c_char) {
    let is_handed = imports::is_glibc() && !imports::is_up();
    let envp = if is_handed {
        envp
    } else {
        process::environment()
    };
    if has_dlsym() || imports::is_up() {
        // SAFETY: the process's environment. This constructor runs before all others, in the
        // process's only thread, or the library is opened late, and then reads it as any library
        // would.
        unsafe { start_with(envp) };
    }
}

// The heap calls this before a thread's first block (neap_heap::os::loader).
core::arch::global_asm!(
    ".weak neap_start_on_the_way",
    ".hidden neap_start_on_the_way",
    ".type neap_start_on_the_way, %function",
    "neap_start_on_the_way:",
    #[cfg(target_arch = "x86_64")]
    "jmp {start}",
    #[cfg(target_arch = "aarch64")]
    "b {start}",
    ".size neap_start_on_the_way, . - neap_start_on_the_way",
    start = sym on_the_way,
);

/// Starts the library, if the C library is ready and nothing else has started it.
extern "C" fn on_the_way() {
    if STARTED.load(Ordering::Relaxed) || !imports::is_up() {
        return;
    }
    neap_instruments::install();
    // On a stack of its own, because the caller's may be a coroutine's.
    // SAFETY: the C library's own array. No thread was started yet: that allocates.
    own_stack::on_stack(|| unsafe { start_with(process::environment()) });
}

/// # Safety
/// - `envp` is null or the process's environment, which no other thread changes meanwhile.
unsafe fn start_with(envp: *mut *mut c_char) {
    if STARTED.swap(true, Ordering::Relaxed) {
        return;
    }
    // A program may have cleared it already.
    let mut empty = null_mut();
    let envp = if envp.is_null() { &raw mut empty } else { envp };
    set_frontend(Frontend::C);
    // First: the questions to the loader below may allocate.
    // SAFETY: the caller's promise.
    unsafe { init::begin(envp) };
    watch::begin();
    alone::begin();
    copies::begin();
    streams::begin();
    // SAFETY: the caller's promise.
    unsafe { options::read(envp) };
    init::open();
    let objects = loader::objects_of(unsafe_callers());
    replaced::begin(&objects[0]);
    // Without the C library's place, nothing tells when it is safe to start a thread.
    if thread::are_there() && !objects[1].is_empty() {
        start::enable(&objects);
        init::start_eagerly();
    }
}

/// An address in the code of this library, and of every object that may allocate with locks held
/// that starting a thread also takes: the C library (and its parts, where it has some), the loader.
fn unsafe_callers() -> [usize; 5] {
    let address_of = |name| loader::next(name).map_or(0, |found| found.as_ptr().addr());
    let starter = match address_of(c"pthread_create") {
        // libpthread, which only `dlsym` can be asked for.
        0 => (libc::pthread_create as *const ()).addr(),
        found => found,
    };
    [
        unsafe_callers as fn() -> [usize; 5] as usize,
        address_of(c"getpid"),
        starter,
        address_of(c"dlopen"),
        address_of(c"__tls_get_addr"),
    ]
}
