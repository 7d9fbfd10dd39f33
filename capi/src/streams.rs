//! glibc's lock on its list of streams, which its `fork` takes after all handlers: see
//! [`StreamLock`].

use crate::optional::optional;
use core::ffi::{c_char, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use neap_heap::base::sync::{AtomicPtr, AtomicUsize, Ordering};
use neap_heap::fork::{StreamLock, set_stream_lock};

/// A function without arguments.
type Call = unsafe extern "C" fn();

struct Streams {
    lock: AtomicPtr<c_void>,
    unlock: AtomicPtr<c_void>,
    reset: AtomicPtr<c_void>,
    /// Not 0 while the process has one thread: then `fork` takes no lock. Null before glibc 2.32.
    single: AtomicPtr<c_char>,
}

#[unsafe(link_section = "neap_fork")]
static STREAMS: Streams = Streams {
    lock: AtomicPtr::new(null_mut()),
    unlock: AtomicPtr::new(null_mut()),
    reset: AtomicPtr::new(null_mut()),
    single: AtomicPtr::new(null_mut()),
};

/// How often the fork in progress took it: twice if a signal handler forked before the first fork
/// closed the gate. guarded by: the lock itself
#[unsafe(link_section = "neap_fork")]
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Registers the lock with the heap. With another C library there is none.
pub fn begin() {
    let [lock, unlock, reset, single] = [
        optional!("_IO_list_lock"),
        optional!("_IO_list_unlock"),
        optional!("_IO_list_resetlock"),
        optional!("__libc_single_threaded"),
    ]
    .map(<*const c_void>::cast_mut);
    if [lock, unlock, reset].contains(&null_mut()) {
        return;
    }
    STREAMS.lock.store(lock, Ordering::Relaxed);
    STREAMS.unlock.store(unlock, Ordering::Relaxed);
    STREAMS.reset.store(reset, Ordering::Relaxed);
    STREAMS.single.store(single.cast(), Ordering::Relaxed);
    set_stream_lock(&StreamLock {
        is_single,
        take,
        give_back,
        reset: free,
    });
}

fn call(function: &AtomicPtr<c_void>) {
    let function = function.load(Ordering::Relaxed);
    // SAFETY: null, or glibc's function of this name, which has no arguments and no result.
    let function = unsafe { transmute::<*mut c_void, Option<Call>>(function) };
    if let Some(function) = function {
        // SAFETY: as above.
        unsafe { function() };
    }
}

fn is_single() -> Option<bool> {
    let single = STREAMS.single.load(Ordering::Relaxed);
    // SAFETY: null, or glibc's byte of this name; other threads may change it, but none does while
    // there is one.
    (!single.is_null()).then(|| unsafe { single.read_volatile() } != 0)
}

fn take() {
    call(&STREAMS.lock);
    TAKEN.store(TAKEN.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn give_back() {
    let taken = TAKEN.load(Ordering::Relaxed);
    if taken > 0 {
        TAKEN.store(taken - 1, Ordering::Relaxed);
        call(&STREAMS.unlock);
    }
}

/// The C library has already freed it, if it knew of other threads.
fn free() {
    if TAKEN.load(Ordering::Relaxed) > 0 {
        TAKEN.store(0, Ordering::Relaxed);
        call(&STREAMS.reset);
    }
}
