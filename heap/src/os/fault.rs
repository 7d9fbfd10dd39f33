//! A handler of SIGSEGV in front of the program's own, and the alternate stacks that it needs.
//!
//! What runs in the handler is safe there: it takes no lock and allocates nothing.

use super::errno::keep_errno;
use super::thread;
use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::{AtomicBool, AtomicU8, Ordering};
use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr::{NonNull, null_mut};

/// Returns whether it recognised a fault at an address and reported it. It runs in the handler, so
/// it must be async-signal-safe.
pub type Report = fn(address: usize) -> bool;

/// The handler that was in force before, and the reporter. Written once, by the thread that changes
/// the state from [`NONE`] to [`BEGUN`], before our handler is in force.
struct Watch {
    state: AtomicU8,
    before: UnsafeCell<MaybeUninit<libc::sigaction>>,
    report: UnsafeCell<Option<Report>>,
    /// The program's handler asked to be called once only, and was.
    spent: AtomicBool,
}

const NONE: u8 = 0;
const BEGUN: u8 = 1;

// SAFETY: the cells are written before the handler that reads them is in force, and never again.
unsafe impl Sync for Watch {}

static WATCH: Watch = Watch {
    state: AtomicU8::new(NONE),
    before: UnsafeCell::new(MaybeUninit::uninit()),
    report: UnsafeCell::new(None),
    spent: AtomicBool::new(false),
};

/// Puts a handler of SIGSEGV in front of the program's own. It calls `report` first. If that
/// recognises the fault, the default action follows; otherwise the program's handler is called, or
/// the action that it set takes place. Later calls change nothing, and do not wait for the first.
/// False if the kernel refuses.
pub fn watch(report: Report) -> bool {
    let (state, order) = (&WATCH.state, Ordering::Relaxed);
    if state.compare_exchange(NONE, BEGUN, order, order).is_err() {
        return true;
    }
    let before = WATCH.before.get();
    // SAFETY: no other call gets here, no handler reads the cells yet; the buffer is as large as
    // the kernel's answer.
    let known = keep_errno(|| unsafe {
        *WATCH.report.get() = Some(report);
        libc::sigaction(libc::SIGSEGV, core::ptr::null(), before.cast()) == 0
    });
    // SAFETY: filled just above if `known`.
    let done = known && install(unsafe { &*before.cast() });
    if !done {
        state.store(NONE, order);
    }
    done
}

/// Installs our handler with the settings of the program's: its mask, and whether it blocks
/// SIGSEGV.
fn install(before: &libc::sigaction) -> bool {
    let mut ours = *before;
    ours.sa_sigaction = on_fault as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO
        | libc::SA_ONSTACK
        | (before.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART));
    // SAFETY: a valid structure; the handler keeps to what handlers may do.
    keep_errno(|| unsafe { libc::sigaction(libc::SIGSEGV, &ours, null_mut()) == 0 })
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands over a filled structure; a fault's has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // SAFETY: written before this handler was in force.
    let report = unsafe { *WATCH.report.get() };
    // Codes of 0 and below are not the kernel's: a program sent the signal.
    let is_fault = code > 0;
    if is_fault && report.is_some_and(|report| report(address)) {
        return set_default(signal);
    }
    // SAFETY: what the kernel handed over.
    unsafe { pass_on(signal, info, context, is_fault) };
}

/// The default action takes place when the handler returns and the access faults again, so the core
/// file has the right registers and the exit status the right signal.
fn set_default(signal: c_int) {
    let mut default = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeros are a valid structure, and SIG_DFL is 0 (said again for who reads).
    keep_errno(|| unsafe {
        (*default.as_mut_ptr()).sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, default.as_ptr(), null_mut());
    });
}

/// Does what the program's own handler would do.
///
/// # Safety
/// - The arguments are those of the handler.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
    // SAFETY: written before this handler was in force.
    let before = unsafe { (*WATCH.before.get()).assume_init_ref() };
    let once = before.sa_flags & libc::SA_RESETHAND != 0;
    let spent = once && WATCH.spent.swap(true, Ordering::Relaxed);
    match before.sa_sigaction {
        // The kernel does not let faults be ignored.
        libc::SIG_IGN if !is_fault && !spent => {}
        libc::SIG_DFL | libc::SIG_IGN => die(signal, is_fault),
        _ if spent => die(signal, is_fault),
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: a handler of this type, as its flag says.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: a handler of this type, without the flag.
            let handler: extern "C" fn(c_int) = unsafe { transmute(handler) };
            handler(signal);
        }
    }
}

/// The default action, when the handler has returned.
fn die(signal: c_int, is_fault: bool) {
    set_default(signal);
    if !is_fault {
        // Nothing will fault again: the signal is sent again. It waits until the handler has
        // returned.
        thread::signal_self(signal);
    }
}

/// The calling thread's alternate stack for handlers: its lowest byte, if it has one.
pub fn alternate_stack() -> Option<NonNull<u8>> {
    let mut now = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: the buffer is as large as the kernel's answer; zeros are also valid.
    let now = unsafe {
        keep_errno(|| libc::sigaltstack(core::ptr::null(), now.as_mut_ptr()));
        now.assume_init()
    };
    NonNull::new(now.ss_sp.cast()).filter(|_| now.ss_flags & libc::SS_DISABLE == 0)
}

/// Lets handlers of the calling thread run on these bytes. False if the kernel refuses.
///
/// # Safety
/// - They are the caller's, until the thread has ended or [`drop_alternate_stack`] was called.
pub unsafe fn set_alternate_stack(lowest: NonNull<u8>, bytes: usize) -> bool {
    let stack = libc::stack_t {
        ss_sp: lowest.as_ptr().cast(),
        ss_flags: 0,
        ss_size: bytes,
    };
    // SAFETY: a valid structure; the caller's promise.
    keep_errno(|| unsafe { libc::sigaltstack(&stack, null_mut()) == 0 })
}

/// Takes the calling thread's alternate stack away if it is the one that begins at `lowest`.
pub fn drop_alternate_stack(lowest: NonNull<u8>) {
    if alternate_stack() != Some(lowest) {
        return;
    }
    let none = libc::stack_t {
        ss_sp: null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    // SAFETY: a valid structure.
    keep_errno(|| unsafe { libc::sigaltstack(&none, null_mut()) });
}
