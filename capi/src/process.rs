//! Calls of the C library that copy, change or end the process.
//!
//! Some require a process with one thread, change the calling thread alone, or are calls around
//! which no thread may start. The purge thread ends, or waits, and later has what its starter has.
//! Meanwhile the program's own calls do its work. Shells and forking servers end by `_exit`, and
//! `NEAP_STATS` must cover that as well. glibc's `fork` takes the lock on its list of streams after
//! all handlers: see [`StreamLock`].

#[cfg(not(all(panic = "abort", feature = "archive")))]
use crate::at_fork;
use crate::copies::{self, hold_for};
use crate::imports::optional;
use crate::loader::{self, wrappers, wraps};
use core::ffi::{c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::{NonNull, null};
use neap_heap::base::sync::plain::{AtomicUsize, Ordering};
use neap_heap::fork::{StreamLock, set_stream_lock};
use neap_heap::init;
use neap_heap::os::loader::set_errno;
use neap_heap::os::process;
use neap_heap::reclaim::thread as purge;
use neap_instruments::profile::python_release;
use neap_instruments::statistics;

wraps! {
    FORK: c"fork", unsafe extern "C" fn() -> c_int;
    FORKPTY: c"forkpty", Forkpty;
}

type Forkpty = unsafe extern "C" fn(*mut c_int, *mut c_char, *const c_void, *const c_void) -> c_int;

/// Looks up the functions that these wrap. Before that they call the kernel directly.
pub(crate) fn begin() {
    look();
    wrapped::look();
}

wrappers! {
    /// Leaves what the process shares with others. Only a process with one thread may leave some of
    /// it.
    ///
    /// # Safety
    /// - As `unshare(2)`.
    fn unshare(flags: c_int) -> c_int = |next| {
        let _alone = hold_for(flags);
        next()
    }

    /// Enters a namespace. Only a process with one thread may enter some of them.
    ///
    /// # Safety
    /// - As `setns(2)`.
    fn setns(file: c_int, kind: c_int) -> c_int = |next| {
        let _alone = hold_for(kind);
        next()
    }

    /// Sets the capabilities of the calling thread. A purge thread from before would keep its own.
    ///
    /// # Safety
    /// - As `capset(2)`.
    fn capset(header: *mut c_void, data: *const c_void) -> c_int = |next| {
        let _alone = purge::hold();
        next()
    }
}

/// Forks. The program's own handlers run within it, and may free much.
///
/// # Safety
/// - As `fork(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn fork() -> c_int {
    // SAFETY: as C declares the function. Without it, no C library runs handlers of forks.
    around(&mut || unsafe {
        match FORK.found() {
            Some(next) => next(),
            None => copies::raw_fork() as c_int,
        }
    })
}

/// Forks, with a new terminal for the child. The C library calls its own `fork` for that.
///
/// # Safety
/// - As `forkpty(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkpty(
    file: *mut c_int,
    name: *mut c_char,
    settings: *const c_void,
    window: *const c_void,
) -> c_int {
    // SAFETY: as C declares the function.
    around(&mut || unsafe {
        match FORKPTY.found() {
            Some(next) => next(file, name, settings, window),
            // glibc before 2.34 has it in a library of its own, which may have been opened later.
            None => match loader::inside(b"libutil.so", c"forkpty") {
                Some(next) => {
                    transmute::<NonNull<c_void>, Forkpty>(next)(file, name, settings, window)
                }
                None => {
                    set_errno(libc::ENOSYS);
                    -1
                }
            },
        }
    })
}

/// Calls `fork`, which runs the program's handlers of forks. These start no purge thread in the
/// parent. Not generic, because the parts are large.
#[inline(never)]
fn around(fork: &mut dyn FnMut() -> c_int) -> c_int {
    // The library's own handlers, where it has not started because no call needed it.
    if loader::serves() {
        init::begin_on_the_way();
    }
    #[cfg(not(all(panic = "abort", feature = "archive")))]
    let fork = &mut || at_fork::around(&mut *fork);
    // From 3.12 on, CPython counts its threads after each fork, and warns if there is another than
    // its own.
    purge::start_none_during(|| match python_release() {
        0x30C.. => purge::fork_alone(fork),
        _ => fork(),
    })
}

/// Ends the process at once, after writing the requested statistics.
#[unsafe(no_mangle)]
#[unsafe(link_section = "neap_text")]
extern "C" fn _exit(status: c_int) -> ! {
    statistics::ends_at_once();
    process::exit_at_once(status)
}

/// C99's name for [`_exit`].
#[unsafe(no_mangle)]
extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}

/// How often the fork in progress took it: twice if a signal handler forked before the first fork
/// closed the gate. guarded by: the lock itself
#[unsafe(link_section = "neap_fork")]
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Registers the lock with the heap. With another C library there is none.
pub(crate) fn begin_streams() {
    let functions = [
        optional!("_IO_list_lock"),
        optional!("_IO_list_unlock"),
        optional!("_IO_list_resetlock"),
    ];
    if functions.contains(&null()) {
        return;
    }
    set_stream_lock(&StreamLock {
        is_single,
        take,
        give_back,
        reset: free,
    });
}

/// Calls one of glibc's functions on its lock.
fn call(function: *const c_void) {
    // SAFETY: null, or a function without arguments and result, which may be called here.
    unsafe {
        if let Some(function) = transmute::<*const c_void, Option<unsafe extern "C" fn()>>(function)
        {
            function();
        }
    }
}

/// Whether the process has one thread: then `fork` takes no lock. `None` before glibc 2.32.
fn is_single() -> Option<bool> {
    let single = optional!("__libc_single_threaded").cast::<u8>();
    // SAFETY: null, or glibc's byte of this name; other threads may change it, but none does while
    // there is one.
    (!single.is_null()).then(|| unsafe { single.read_volatile() } != 0)
}

fn take() {
    call(optional!("_IO_list_lock"));
    TAKEN.store(TAKEN.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn give_back() {
    let taken = TAKEN.load(Ordering::Relaxed);
    if taken > 0 {
        TAKEN.store(taken - 1, Ordering::Relaxed);
        call(optional!("_IO_list_unlock"));
    }
}

/// The C library has already freed it, if it knew of other threads.
fn free() {
    if TAKEN.load(Ordering::Relaxed) > 0 {
        TAKEN.store(0, Ordering::Relaxed);
        call(optional!("_IO_list_resetlock"));
    }
}
