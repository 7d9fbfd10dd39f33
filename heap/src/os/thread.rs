//! Threads: their slots, signals and barriers.
//!
//! Every function keeps the caller's `errno`.

use super::arch::thread_pointer;
use super::areas;
use super::loader::keep_errno;
use super::loader::{is_glibc, is_there, symbol};
use super::process::{self, process_id};
use crate::base::sync::plain::{AtomicU32, AtomicUsize, Ordering};
use core::ffi::{CStr, c_void};

/// Whether the process has the C library's functions of threads. Before glibc 2.34 they are in
/// libpthread, and a program with one thread need not have it.
pub fn are_there() -> bool {
    is_there(libc::pthread_create as *const ())
}

/// A thread-specific slot whose destructor runs at thread end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(libc::pthread_key_t);

impl Key {
    /// A new key; `None` if the process has no more. It may allocate, where another library has a
    /// function of the C library's name.
    pub fn create(at_thread_end: unsafe extern "C" fn(*mut c_void)) -> Option<Self> {
        if !are_there() {
            return None;
        }
        let mut key = 0;
        // SAFETY: `key` is ours to write, the destructor is a plain function.
        let failed =
            keep_errno(|| unsafe { libc::pthread_key_create(&mut key, Some(at_thread_end)) });
        (failed == 0).then_some(Self(key))
    }

    /// The key as a number, to keep in an atomic.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The key with a number that [`Key::number`] gave.
    pub fn numbered(number: u32) -> Self {
        Self(number)
    }

    /// Sets the calling thread's value. The destructor runs at the thread's end unless the value is
    /// null. False if the C library has no memory for it (it may allocate).
    ///
    /// # Safety
    /// - The key's destructor may be called with `value` when the thread ends.
    pub unsafe fn set(self, value: *mut c_void) -> bool {
        let kept = value.cast_const();
        // SAFETY: the key is alive, because keys are never deleted; the caller's promise.
        keep_errno(|| unsafe { libc::pthread_setspecific(self.0, kept) == 0 })
    }

    /// The calling thread's value, null if never set.
    pub fn get(self) -> *mut c_void {
        // SAFETY: the key is alive.
        unsafe { libc::pthread_getspecific(self.0) }
    }
}

/// Starts a detached thread that runs `body` with `stack_bytes` of stack for its own frames. It
/// inherits the signal mask. False if the C library or the kernel refuses. The C library allocates.
///
/// The C library needs 4 KiB of stack for it, and the caller's stack may be a coroutine's, so the
/// call runs on a stack of its own.
pub fn spawn(body: extern "C" fn(*mut c_void) -> *mut c_void, stack_bytes: usize) -> bool {
    if !are_there() {
        return false;
    }
    let bytes = stack_bytes + LEAST_STACK.load(Ordering::Relaxed);
    let mut thread = core::mem::MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: every buffer is initialised by the call before it is read; the body is a plain
    // function.
    let start = || unsafe {
        let mut attributes = core::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return false;
        }
        let mut attributes = attributes.assume_init();
        libc::pthread_attr_setstacksize(&mut attributes, bytes);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let argument = core::ptr::null_mut();
        let failed = libc::pthread_create(thread.as_mut_ptr(), &attributes, body, argument);
        libc::pthread_attr_destroy(&mut attributes);
        failed == 0
    };
    keep_errno(|| areas::on_stack(start))
}

/// Writes to the pages of the stack that lie next below the caller's frame, so that it need not
/// wait for them when memory is short. The purge thread's work took 8,760 bytes of its stack
/// (x86-64, 28 November 2026).
#[inline(never)]
pub fn touch_stack() {
    let mut room = core::mem::MaybeUninit::<[u8; 16 << 10]>::uninit();
    for at in (0..size_of_val(&room)).step_by(4 << 10) {
        // SAFETY: within the array.
        unsafe { room.as_mut_ptr().cast::<u8>().add(at).write_volatile(0) };
    }
}

/// Bytes of a thread's stack besides its frames: glibc puts thread-local variables there.
static LEAST_STACK: AtomicUsize = AtomicUsize::new(UNKNOWN_STACK);

/// Used if the C library does not tell: enough for 1 MiB of thread-local variables. Mostly address
/// space.
const UNKNOWN_STACK: usize = (1 << 20) + (64 << 10);

/// Asks glibc for the least stack size. `dlsym` takes the loader's lock and may allocate, so
/// [`spawn`] must not do it.
pub fn learn_least_stack() {
    type Least = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    // Where glibc has threads, it has the function: `dlsym` would leave its error to `dlerror`.
    if !is_glibc() || !are_there() {
        return;
    }
    // SAFETY: where glibc has the function, it has this type and reads no attribute.
    let bytes = keep_errno(|| unsafe {
        let found = symbol(libc::RTLD_DEFAULT, c"__pthread_get_minstack");
        let least = core::mem::transmute::<*mut c_void, Option<Least>>(found);
        least.map(|least| least(core::ptr::null()))
    });
    if let Some(bytes) = bytes {
        LEAST_STACK.store(bytes, Ordering::Relaxed);
    }
}

/// Runs `work` with the signals of [`SignalMask::all`] masked.
pub fn with_signals_masked<T>(work: impl FnOnce() -> T) -> T {
    let before = mask_signals(SignalMask::all());
    let done = work();
    mask_signals(before);
    done
}

/// What `SIGRTMIN` was when it was first asked for; 0 before. `__libc_allocate_rtsig` raises it,
/// and the signals that it hands out are a program's.
#[unsafe(link_section = "neap_fork")]
static LEAST_SIGNAL: AtomicUsize = AtomicUsize::new(0);

/// A thread's mask of signals, in the kernel's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct SignalMask(u64);

impl SignalMask {
    /// No signal.
    pub const NONE: SignalMask = SignalMask(0);

    /// All signals that are a program's. The C library reserves those from 32 up to `SIGRTMIN`: two
    /// in glibc, three in musl. If they were masked, `setuid` in another thread would wait for this
    /// one, and in musl hold a lock meanwhile that `fork` takes.
    pub fn all() -> SignalMask {
        let mut least = LEAST_SIGNAL.load(Ordering::Relaxed);
        if least == 0 {
            least = libc::SIGRTMIN() as usize;
            LEAST_SIGNAL.store(least, Ordering::Relaxed);
        }
        let below = |signal: usize| (1u64 << (signal - 1)) - 1;
        SignalMask(!(below(least) & !below(32)))
    }
}

/// Masks these signals and no others for the calling thread. Returns the mask before.
pub fn mask_signals(SignalMask(mask): SignalMask) -> SignalMask {
    let mut before = 0u64;
    let (how, new, old) = (libc::SIG_SETMASK, &raw const mask, &raw mut before);
    // SAFETY: two sets of the size that is said.
    unsafe { kernel!(rt_sigprocmask, how, new, old, size_of_val(&mask)) };
    SignalMask(before)
}

/// A name of the calling thread, the address of its control block: never 0, and of no other live
/// thread. `pthread_self` gives 0 before glibc 2.27 where libpthread is missing.
pub fn own_name() -> usize {
    thread_pointer()
}

/// Names the calling thread, as tools like `top` show it.
pub fn name_thread(name: &CStr) {
    // SAFETY: a C string; the kernel copies at most 16 bytes of it.
    unsafe { kernel!(prctl, libc::PR_SET_NAME, name.as_ptr(), 0, 0) };
}

/// The calling thread's TID.
pub fn thread_id() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { kernel!(gettid) as i32 }
}

/// Whether this process has a thread with this TID.
pub fn thread_exists(id: i32) -> bool {
    // Signal 0 only checks that the thread exists.
    signal_thread(id, 0) == 0
}

/// Names the calling thread for [`has_ended`]: its TID, or [`MAIN`]. 0 where `has_ended` could not
/// check it: in a sandbox, and in a process that shares the heap's memory.
pub fn lasting_id() -> i32 {
    match process::queries_are_forbidden() || !process::is_own() {
        true => 0,
        false => match thread_id() {
            id if id == process_id() => MAIN,
            id => id,
        },
    }
}

/// [`lasting_id`] of the process's first thread, also in a fork's child.
pub const MAIN: i32 = -1;

/// Stands for the [`lasting_id`] of a thread that stayed in a fork's parent.
pub const LEFT: i32 = -2;

/// Whether the thread that had this [`lasting_id`] has ended. False if that is not known, or where
/// the kernel does not answer as it should.
pub fn has_ended(id: i32) -> bool {
    let is_missing = match id {
        MAIN => owns_no_lock,
        _ => |id: i32| signal_thread(id, 0) == -(libc::ESRCH as isize),
    };
    let id = if id == MAIN { process_id() } else { id };
    id > 0 && is_missing(id) && !is_missing(thread_id())
}

/// Whether the kernel refuses a thread as the owner of a lock, because the thread has ended. A
/// signal would not tell: the process's first thread can get one until the process ends.
fn owns_no_lock(id: i32) -> bool {
    const TRY: i32 = libc::FUTEX_TRYLOCK_PI | libc::FUTEX_PRIVATE_FLAG;
    let lock = AtomicU32::new(id as u32);
    // SAFETY: the kernel reads and writes the word, which outlives the call.
    unsafe { kernel!(futex, lock.as_ptr(), TRY, 0, 0) == -(libc::ESRCH as isize) }
}

/// Sends a signal to the calling thread. In a raw copy of the process musl's `raise` would send it
/// to the parent's.
pub fn signal_self(signal: i32) {
    signal_thread(thread_id(), signal);
}

fn signal_thread(id: i32, signal: i32) -> isize {
    // SAFETY: plain numbers.
    unsafe { kernel!(tgkill, process_id(), id, signal) }
}

/// The two commands of `membarrier(2)` in use here.
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

/// Registers the process for [`heavy_barrier`]. While the process has one thread this takes under a
/// microsecond. Later the kernel first waits for an RCU grace period: for 6 to 30 ms, and for much
/// longer on an overloaded machine. A fork's child inherits the registration.
pub fn prepare_barrier() {
    membarrier(REGISTER_PRIVATE_EXPEDITED);
}

fn membarrier(command: i32) -> bool {
    // SAFETY: membarrier takes no pointers.
    unsafe { kernel!(membarrier, command, 0) == 0 }
}

/// Makes every running thread of the process pass a full memory barrier before it returns.
/// Registers the process if that has not [been done](prepare_barrier). If the kernel refuses, or
/// the process is in a sandbox, returns false and promises nothing.
pub fn heavy_barrier() -> bool {
    let passes = || membarrier(PRIVATE_EXPEDITED);
    !process::queries_are_forbidden()
        && (passes() || (membarrier(REGISTER_PRIVATE_EXPEDITED) && passes()))
}

/// Waits for a moment, for a thread that is about to be done. A real-time thread, too, lets others
/// run meanwhile. Uses `futex`, because a sandbox for a program with threads must allow that call.
pub fn give_way() {
    static MOMENT: libc::timespec = libc::timespec {
        tv_sec: 0,
        tv_nsec: 20_000,
    };
    const WAIT: i32 = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let never_woken = 0u32;
    // SAFETY: the word and the time outlive the call.
    unsafe { kernel!(futex, &raw const never_woken, WAIT, 0, &raw const MOMENT) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_env = "gnu")]
    #[test]
    fn signals_that_a_program_reserves_for_itself_are_masked() {
        unsafe extern "C" {
            fn __libc_allocate_rtsig(high: i32) -> i32;
        }
        let before = SignalMask::all();
        // SAFETY: takes a number.
        let signal = unsafe { __libc_allocate_rtsig(1) };
        assert!(signal > 0 && libc::SIGRTMIN() > signal);
        assert_eq!(SignalMask::all(), before);
        assert_ne!(before.0 & 1 << (signal - 1), 0);
    }
}
