//! The library's start: its constructor, or a call that comes before it; its version, and what a
//! panic does.
//!
//! The loader initialises this library before all others (`build.rs`), except where glibc is older
//! than 2.34 and the program has libpthread: that asks for the same, and gets it. Then the first
//! call that allocates, forks or registers handlers of `fork` starts the library. A process that
//! starts a thread has allocated.
//!
//! The start asks the loader for no name that may be missing: `dlsym` would leave its error, whose
//! text it allocates, to the program's `dlerror`.

use crate::cxx;
use crate::imports::{self, IN_ARCHIVE, is_static};
use crate::{copies, loader, options, watch};
use core::ffi::{CStr, c_char, c_int};
use core::ops::Range;
use core::ptr::null_mut;
use neap_heap::base::sync::{AtomicBool, Ordering};
use neap_heap::init::{self, Frontend};
use neap_heap::os::loader::note_static;
use neap_heap::os::loader::set_errno;
use neap_heap::os::{areas, process, thread};
use neap_heap::reclaim::start::{self, Forbidden};
use neap_heap::reclaim::thread as purge;
use neap_instruments::attach::set_frontend;

type Constructor = unsafe extern "C" fn(c_int, *const *const c_char, *mut *mut c_char);

// In a static program it runs before all constructors without a priority; in libneap.so the
// linker's flags see to more (`build.rs`).
#[used]
#[unsafe(link_section = ".init_array.00002")]
static AT_START: Constructor = at_start;

#[unsafe(link_section = "neap_fork")]
static STARTED: AtomicBool = AtomicBool::new(false);

/// glibc hands constructors the environment, and sets its variable after this one; musl sets the
/// variable first, and hands over nothing.
unsafe extern "C" fn at_start(_argc: c_int, argv: *const *const c_char, envp: *mut *mut c_char) {
    look();
    // A program with a `malloc` of its own may not be ready for calls before `main`. A program
    // that opens the library later is.
    let is_opened = imports::is_glibc() && imports::is_up();
    if !loader::serves() && !is_opened {
        return;
    }
    match IN_ARCHIVE {
        true => cxx::refuse_another(),
        // SAFETY: what the loader hands to a constructor, which runs before all others.
        false => unsafe { options::leave_to_sanitizer(argv, envp) },
    }
    let is_handed = imports::is_glibc() && !imports::is_up();
    let envp = if is_handed {
        envp
    } else {
        process::environment()
    };
    // SAFETY: the process's environment. This constructor runs before all others, in the
    // process's only thread, or the library is opened late, and then reads it as any library
    // would.
    unsafe { start_with(envp) };
}

/// Looks up the functions that this library's functions wrap, once: other threads may close
/// libraries later. Until then these call the kernel.
fn look() {
    if LOOKS.swap(true, Ordering::Relaxed) {
        return;
    }
    #[cfg(not(all(panic = "abort", feature = "archive")))]
    crate::signals::begin();
    watch::wrapped::look();
    crate::process::begin();
    copies::begin();
    loader::DLOPEN.look();
    #[cfg(not(all(panic = "abort", feature = "archive")))]
    crate::at_fork::begin();
    loader::note_looked();
}

/// Whether [`look`] has begun.
static LOOKS: AtomicBool = AtomicBool::new(false);

/// Whether this call comes from within [`look`]: another library has a function of the C library's
/// name, which allocates.
fn is_looking() -> bool {
    LOOKS.load(Ordering::Relaxed) && !loader::has_looked()
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

/// Starts the library, if the C library is ready and nothing else has started it. In a static
/// program glibc allocates while it is not ready, and no other library can come first: the
/// constructor starts this one.
extern "C" fn on_the_way() {
    if STARTED.load(Ordering::Relaxed) || is_static() || !imports::is_up() || is_looking() {
        return;
    }
    neap_instruments::install();
    // On a stack of its own, because the caller's may be a coroutine's.
    // SAFETY: the C library's own array. No thread was started yet: that allocates.
    areas::on_stack(|| unsafe { start_with(process::environment()) });
}

/// # Safety
/// - `envp` is null or the process's environment, which no other thread changes meanwhile.
unsafe fn start_with(envp: *mut *mut c_char) {
    if STARTED.swap(true, Ordering::Relaxed) {
        return;
    }
    if is_static() {
        note_static();
    }
    // First: an option may put a handler of signals in front of the program's.
    look();
    // A program may have cleared it already.
    let mut empty = null_mut();
    let envp = if envp.is_null() { &raw mut empty } else { envp };
    set_frontend(Frontend::C);
    // SAFETY: the caller's promise.
    unsafe { init::begin(envp) };
    crate::process::begin_streams();
    // SAFETY: the caller's promise.
    unsafe { options::read(envp) };
    init::open();
    let objects = unsafe_callers();
    cxx::begin(&objects[0]);
    // Without the C library's place, nothing tells when it is safe to start a thread. In a static
    // program its place is the program's: the thread starts here or not at all.
    let may_start = !is_static() || purge::is_wanted_from_start();
    if thread::are_there() && !objects[1].is_empty() && may_start {
        start::enable(&objects);
        init::start_eagerly();
    }
}

/// Starts the purge thread. Returns 0, or -1 with `errno`. A static program has the thread only
/// after this call or by an option.
#[unsafe(no_mangle)]
extern "C" fn neap_start_purge_thread() -> c_int {
    init::initialize();
    if is_static() {
        start::enable(&unsafe_callers());
    }
    // Only a thread that may allocate here starts another one.
    let started = init::entered().map(|_| start::start_now());
    let why = match started.unwrap_or(Ok(false)) {
        Ok(true) => return 0,
        Ok(false) => libc::EAGAIN,
        Err(Forbidden) => libc::EPERM,
    };
    set_errno(why);
    -1
}

/// The code of this library, and the objects that may allocate with locks held that starting a
/// thread also takes: the C library (and its parts, where it has some), the loader.
fn unsafe_callers() -> [Range<usize>; 5] {
    let address_of = |name| loader::next_at_start(name).map_or(0, |found| found.as_ptr().addr());
    let starter = match address_of(c"pthread_create") {
        // libpthread, which only `dlsym` can be asked for.
        0 => (libc::pthread_create as *const ()).addr(),
        found => found,
    };
    let mut objects = loader::objects_of([
        unsafe_callers as fn() -> [Range<usize>; 5] as usize,
        address_of(c"getpid"),
        starter,
        address_of(c"dlopen"),
        address_of(c"__tls_get_addr"),
    ]);
    if IN_ARCHIVE {
        // Which ci/archive.sh collects in one section. The object that contains it is the program.
        objects[0] = neap_instruments::unwind::own_code();
    }
    objects
}

/// The version, from the crate's manifest, as a C string.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version holds no NUL"),
    };

/// The version of the library, such as `0.1.0`; never null, never freed.
#[unsafe(no_mangle)]
extern "C" fn neap_version() -> *const c_char {
    VERSION.as_ptr()
}

/// A panic ends the process like any other fatal error.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    neap_heap::os::process::fatal(format_args!("bug in Neap: {info}"))
}

// The unwind tables of compiler_builtins name it. No unwinding passes through this library.
#[cfg(all(panic = "abort", target_arch = "aarch64"))]
core::arch::global_asm!(
    ".pushsection .text.rust_eh_personality,\"ax\",%progbits",
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    ".type rust_eh_personality,%function",
    "rust_eh_personality:",
    "brk #1",
    ".size rust_eh_personality,4",
    ".popsection",
);
