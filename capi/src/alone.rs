//! Calls of the C library that require a process with one thread, that change the calling thread
//! alone, or around which no thread may start. The purge thread ends, or waits, and later has what
//! its starter has. Meanwhile the program's own calls do its work.

#[cfg(not(all(panic = "abort", feature = "archive")))]
use crate::at_fork;
use crate::copies::{self, hold_for};
use crate::errno::ask;
use crate::loader;
use crate::next::Next;
use core::ffi::{c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::NonNull;
use neap_heap::base::sync::plain::{AtomicBool, Ordering};
use neap_heap::init;
use neap_heap::os::loader::set_errno;
use neap_heap::reclaim::thread::{self as purge, After};

static UNSHARE: Next = Next::new(c"unshare");
static SETNS: Next = Next::new(c"setns");
static CAPSET: Next = Next::new(c"capset");
static FORK: Next = Next::new(c"fork");
static FORKPTY: Next = Next::new(c"forkpty");

/// Whether the program counts its threads after each fork, and warns if there is another than its
/// own: CPython from 3.12 on does.
static COUNTS_THREADS: AtomicBool = AtomicBool::new(false);

type Unshare = unsafe extern "C" fn(c_int) -> c_int;
type Capset = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
type Setns = unsafe extern "C" fn(c_int, c_int) -> c_int;
type Fork = unsafe extern "C" fn() -> c_int;
type Forkpty = unsafe extern "C" fn(*mut c_int, *mut c_char, *const c_void, *const c_void) -> c_int;

/// Looks up the functions that these wrap. Before that they call the kernel directly.
pub(crate) fn begin() {
    for next in [&UNSHARE, &SETNS, &CAPSET, &FORK, &FORKPTY] {
        next.look();
    }
    // New in 3.12.
    let python = loader::listed(c"PyErr_GetRaisedException");
    COUNTS_THREADS.store(python.is_some(), Ordering::Relaxed);
}

/// Leaves what the process shares with others. Only a process with one thread may leave some of it.
///
/// # Safety
/// - As `unshare(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    let _alone = hold_for(flags);
    // SAFETY: null, or the C library's function of this name and so of this type; the caller's
    // promise.
    unsafe {
        match transmute::<*mut c_void, Option<Unshare>>(UNSHARE.get()) {
            Some(next) => next(flags),
            None => ask(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0]) as c_int,
        }
    }
}

/// Enters a namespace. Only a process with one thread may enter some of them.
///
/// # Safety
/// - As `setns(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn setns(file: c_int, kind: c_int) -> c_int {
    let _alone = hold_for(kind);
    // SAFETY: as in `unshare`.
    unsafe {
        match transmute::<*mut c_void, Option<Setns>>(SETNS.get()) {
            Some(next) => next(file, kind),
            None => ask(libc::SYS_setns, [file as usize, kind as usize, 0, 0, 0, 0]) as c_int,
        }
    }
}

/// Sets the capabilities of the calling thread. A purge thread from before would keep its own.
///
/// # Safety
/// - As `capset(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn capset(header: *mut c_void, data: *const c_void) -> c_int {
    let _alone = purge::hold();
    // SAFETY: as in `unshare`.
    unsafe {
        match transmute::<*mut c_void, Option<Capset>>(CAPSET.get()) {
            Some(next) => next(header, data),
            None => ask(libc::SYS_capset, [header.addr(), data.addr(), 0, 0, 0, 0]) as c_int,
        }
    }
}

/// Forks. The program's own handlers run within it, and may free much.
///
/// # Safety
/// - As `fork(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn fork() -> c_int {
    // SAFETY: as in `unshare`; without the C library's own there is none that runs handlers.
    around(&mut || unsafe {
        match transmute::<*mut c_void, Option<Fork>>(FORK.found()) {
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
    // SAFETY: as in `unshare`.
    around(&mut || unsafe {
        match transmute::<*mut c_void, Option<Forkpty>>(FORKPTY.found()) {
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

/// Calls `fork`, which runs the program's handlers of forks. Not generic: its parts are large.
#[inline(never)]
fn around(fork: &mut dyn FnMut() -> c_int) -> c_int {
    // The library's own handlers, where it has not started because no call needed it.
    if loader::serves() {
        init::begin_on_the_way();
    }
    #[cfg(not(all(panic = "abort", feature = "archive")))]
    let fork = || at_fork::around(fork);
    let after = match COUNTS_THREADS.load(Ordering::Relaxed) {
        true => After::Counts,
        false => After::Unknown,
    };
    purge::fork_whole(after, fork)
}
