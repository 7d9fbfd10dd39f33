//! A handler of SIGSEGV in front of the program's own. Where guards against writes raise SIGBUS,
//! there is one of that signal as well.
//!
//! What runs in the handler is safe there: it allocates nothing, and takes no lock but that of a
//! [`Watch`], which is never held while signals are let in.
//!
//! Our handler runs on the stack that the program chose for its own. Without a handler of the
//! program's it runs on the thread's alternate stack, if there is one.

use super::loader::keep_errno;
use super::lock::{FutexLock, Rank};
use super::thread::{self, with_signals_masked};
use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr::{NonNull, null, null_mut};

/// A fault that the kernel reported.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The address that could not be accessed.
    pub address: usize,
    /// The instruction; 0 if unknown.
    pub pc: usize,
    /// What it did.
    pub access: Access,
}

/// What an instruction did that faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It read.
    Read,
    /// It wrote.
    Write,
    /// The kernel does not tell.
    Unknown,
}

/// What a reporter says of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does not know the address.
    Foreign,
    /// It reported the fault, and the default action is to follow.
    Final,
    /// It reported the fault, and the program's handler is to follow.
    Reported,
}

/// Looks at a fault. It runs in the handler, so it must be async-signal-safe.
pub type Report = fn(&Fault) -> Verdict;

type Action = libc::sigaction;
type SetAction = unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int;

/// What our handler of one signal needs to know.
struct Watch {
    signal: c_int,
    /// Whether our handler is in front of the program's, or about to be. Changes under `lock`.
    in_force: AtomicBool,
    /// Our handler was replaced, and has [come back](come_back).
    is_back: AtomicBool,
    /// The action that the program set is in one of them; the other one is written when it sets a
    /// new one, so that a child whose parent's other thread was writing finds the last. Guarded by
    /// `lock`.
    before: UnsafeCell<[MaybeUninit<Action>; 2]>,
    /// Which of the two.
    current: AtomicUsize,
    /// Held with all signals masked, so no handler of the same thread finds it taken. A child of
    /// `fork` [frees](after_fork_in_child) it.
    lock: FutexLock,
}

/// Each is a [`Report`].
static REPORTS: [AtomicPtr<()>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];
/// The C library's `sigaction`, if the frontend replaces that name: a [`SetAction`].
#[unsafe(link_section = "neap_fork")]
static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Whether a reported address may raise SIGBUS.
static EXPECTS_BUS: AtomicBool = AtomicBool::new(false);

// SAFETY: the cell is reached under `lock`.
unsafe impl Sync for Watch {}

static WATCHES: [Watch; 2] = [Watch::new(libc::SIGSEGV), Watch::new(libc::SIGBUS)];

/// The watch of a signal that may have one.
fn watch_of(signal: c_int) -> &'static Watch {
    &WATCHES[usize::from(signal == libc::SIGBUS)]
}

/// Puts a handler of SIGSEGV in front of the program's own. It calls `report` first, and what that
/// says follows. Later calls add a second reporter. False if the kernel refuses.
pub fn watch(report: Report) -> bool {
    let report = report as *mut ();
    let is_ours = |place: &AtomicPtr<()>| {
        let set = place.compare_exchange(null_mut(), report, Ordering::AcqRel, Ordering::Acquire);
        set.is_ok() || set == Err(report)
    };
    if !REPORTS.iter().any(is_ours) || !WATCHES[0].begin() {
        return false;
    }
    !EXPECTS_BUS.load(Ordering::Acquire) || WATCHES[1].begin()
}

/// From now on a reported address may raise SIGBUS as well, so the same is done for that signal.
pub fn expect_bus_errors() {
    if !EXPECTS_BUS.swap(true, Ordering::AcqRel) && WATCHES[0].is_watching() {
        WATCHES[1].begin();
    }
}

impl Watch {
    const fn new(signal: c_int) -> Self {
        Self {
            signal,
            in_force: AtomicBool::new(false),
            is_back: AtomicBool::new(false),
            before: UnsafeCell::new([const { MaybeUninit::uninit() }; 2]),
            current: AtomicUsize::new(0),
            lock: FutexLock::new(Rank::Fault),
        }
    }

    fn begin(&'static self) -> bool {
        // A frontend that replaces `sigaction` may look the C library's up in its first call,
        // which comes to itself: before our handler is there, and without the lock.
        if self.action_now().is_none() {
            return false;
        }
        self.locked(|before| {
            if !self.is_watching() {
                // From here on, a `sigaction` of another thread waits for the lock, or settles
                // afterwards.
                self.in_force.store(true, Ordering::Release);
                self.in_force.store(before.take_over(), Ordering::Release);
            }
        });
        self.is_watching()
    }

    fn is_watching(&self) -> bool {
        self.in_force.load(Ordering::Acquire)
    }

    /// Whether another handler has replaced ours.
    fn is_replaced(&self) -> bool {
        let is_set = self.lock.holder().is_none();
        let may_be = is_set && self.is_watching() && !self.is_back.load(Ordering::Relaxed);
        may_be && self.action_now().is_some_and(|now| !is_ours(&now))
    }

    /// Calls `work` with [`Watch::lock`] held and all signals masked.
    #[inline(never)]
    fn locked<R>(&'static self, work: impl FnOnce(&mut Before) -> R) -> R {
        with_signals_masked(|| {
            let _guard = self.lock.lock();
            work(&mut Before { watch: self })
        })
    }

    /// The action that the kernel has.
    fn action_now(&self) -> Option<Action> {
        let mut now = MaybeUninit::uninit();
        // SAFETY: the buffer is as large as the kernel's answer, which fills it if there is one.
        unsafe { set_action(self.signal, null(), now.as_mut_ptr()).then(|| now.assume_init()) }
    }
}

/// After a `sigaction` of a watched signal that began before [`watch`] did in another thread, and
/// set the handler `new`, if any: ours stays in front of it, and is not what was told.
///
/// # Safety
/// - `old` is null or points to a structure, which may be written.
pub unsafe fn settle(signal: c_int, new: Option<usize>, old: *mut Action) {
    watch_of(signal).locked(|before| {
        // SAFETY: the caller's promise.
        if let Some(old) = unsafe { old.as_mut() }.filter(|old| is_ours(old)) {
            // The other thread may have found the new one already.
            *old = match Some(before.get().sa_sigaction) == new {
                true => before.previous(),
                false => before.get(),
            };
        }
        before.take_over();
    });
}

/// Whether another handler has replaced ours, in a program whose `sigaction` is the C library's.
/// Takes a system call until [`come_back`] was called. False while a thread sets an action: it may
/// be this one, by a function of another library that allocates.
pub fn is_replaced() -> bool {
    REAL.load(Ordering::Acquire).is_null() && WATCHES.iter().any(Watch::is_replaced)
}

/// Puts our handler in front of the one that [replaced](is_replaced) it, once in a process. The
/// runtime of Rust looks at the action, allocates, and then installs a handler of its own before
/// `main`: if the allocation is the process's first one, that replaces ours.
pub fn come_back() {
    for watch in WATCHES.iter().filter(|watch| watch.is_watching()) {
        if !watch.is_back.swap(true, Ordering::Relaxed) {
            watch.locked(Before::take_over);
        }
    }
}

/// Whether Neap may handle a signal.
pub fn may_be_watched(signal: c_int) -> bool {
    [libc::SIGSEGV, libc::SIGBUS].contains(&signal)
}

/// Whether our handler of a signal is in front of the program's.
pub fn is_watching(signal: c_int) -> bool {
    may_be_watched(signal) && watch_of(signal).is_watching()
}

/// Says where the C library's own `sigaction` is, for a frontend that replaces it.
///
/// # Safety
/// - `real` is that function, or null.
pub unsafe fn set_real_sigaction(real: *mut c_void) {
    REAL.store(real, Ordering::Release);
}

/// `sigaction(2)` of a watched signal for the program: our handler stays in front of its own, and
/// passes on what it does not know.
///
/// # Safety
/// - Each is null or points to a structure, of which `old` may be written.
pub unsafe fn program_action(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // Both may be the same structure.
    // SAFETY: the caller's promise.
    let new = unsafe { new.as_ref() }.copied();
    let (last, done) = watch_of(signal).locked(|before| {
        // A handler that was set in another way than by this function has replaced ours.
        if let Some(other) = before.watch.action_now().filter(|now| !is_ours(now)) {
            before.set(other);
        }
        let last = before.get();
        let done = new.is_none_or(|new| {
            before.set(new);
            install(signal, &new).is_some()
        });
        (last, done)
    });
    // SAFETY: the caller's promise.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = last;
    }
    if done { 0 } else { -1 }
}

/// The program's action, while [`Watch::lock`] is held.
struct Before {
    watch: &'static Watch,
}

impl Before {
    /// Puts our handler in front of what the kernel has, and of what other threads set meanwhile.
    fn take_over(&mut self) -> bool {
        let mut replaced = self.watch.action_now();
        while let Some(other) = replaced.filter(|replaced| !is_ours(replaced)) {
            self.set(other);
            replaced = install(self.watch.signal, &other);
        }
        replaced.is_some()
    }

    /// Once it was set.
    fn get(&self) -> Action {
        self.numbered(self.watch.current.load(Ordering::Relaxed))
    }

    /// The action that the last one replaced. `take_over` sets one before it installs ours, and
    /// what it replaced after that, so both are written once ours was in front.
    fn previous(&self) -> Action {
        self.numbered(1 - self.watch.current.load(Ordering::Relaxed))
    }

    fn numbered(&self, which: usize) -> Action {
        // SAFETY: the lock is held. `set` wrote the current one before it named it, and `begin`
        // sets one before all else; `previous` says why the other one is written.
        unsafe { (*self.watch.before.get())[which].assume_init() }
    }

    fn set(&mut self, action: Action) {
        let other = 1 - self.watch.current.load(Ordering::Relaxed);
        // SAFETY: the lock is held, and no reference to the actions is kept.
        unsafe { (*self.watch.before.get())[other].write(action) };
        // A fork copies either all of this or nothing.
        self.watch.current.store(other, Ordering::Release);
    }
}

/// In a child of `fork`: a thread that held the lock is not there.
pub fn after_fork_in_child() {
    for watch in &WATCHES {
        watch.lock.free_if_left();
    }
}

fn is_ours(action: &Action) -> bool {
    action.sa_sigaction == on_fault as *const () as usize
}

/// The C library's `sigaction`. False if the kernel refuses.
///
/// # Safety
/// - As `sigaction(2)`.
unsafe fn set_action(signal: c_int, new: *const Action, old: *mut Action) -> bool {
    let real = REAL.load(Ordering::Acquire);
    // SAFETY: null, or a function of this type; the caller's promise.
    keep_errno(|| unsafe {
        match transmute::<*mut c_void, Option<SetAction>>(real) {
            Some(real) => real(signal, new, old) == 0,
            None => libc::sigaction(signal, new, old) == 0,
        }
    })
}

/// Whether the program has a handler that is to run on the stack of the thread.
fn is_on_the_threads_stack(action: &Action) -> bool {
    let is_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
    is_handler && action.sa_flags & libc::SA_ONSTACK == 0
}

/// Installs our handler with the settings of the program's: its mask, whether it blocks the signal,
/// and its stack. Returns the action that it replaced; `None` if the kernel refuses.
fn install(signal: c_int, before: &Action) -> Option<Action> {
    let stack = match is_on_the_threads_stack(before) {
        true => 0,
        false => libc::SA_ONSTACK,
    };
    let kept = libc::SA_NODEFER | libc::SA_RESTART;
    let mut ours = *before;
    ours.sa_sigaction = on_fault as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | stack | (before.sa_flags & kept);
    let mut replaced = MaybeUninit::uninit();
    // SAFETY: valid structures; the handler keeps to what handlers may do.
    unsafe { set_action(signal, &ours, replaced.as_mut_ptr()).then(|| replaced.assume_init()) }
}

/// Our handler: looks at the signal, and then calls the program's. In an optimised build that call
/// is a jump, so the program's handler returns to the kernel, and a walk through the stack comes
/// from it to what was interrupted.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel hands over; null, or the program's handler, which gets the same.
    unsafe {
        if let Some(next) = transmute::<usize, Option<Handler>>(judge(signal, info, context)) {
            next(signal, info, context);
        }
    }
}

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Looks at a signal. Returns the handler that follows, or 0. Out of line, so that [`on_fault`]
/// needs no frame.
///
/// # Safety
/// - The structures are what the kernel handed to a handler.
#[inline(never)]
unsafe fn judge(signal: c_int, info: *const libc::siginfo_t, context: *const c_void) -> usize {
    // SAFETY: the caller's promise; a fault's information has an address.
    let (code, fault) = unsafe { ((*info).si_code, fault_of((*info).si_addr(), context.cast())) };
    // Codes of 0 and below are not the kernel's: a program sent the signal.
    let is_fault = code > 0;
    if is_fault && keep_errno(|| verdict_on(&fault)) == Verdict::Final {
        set_default(signal);
        return 0;
    }
    next_of(signal, is_fault).map_or(0, |next| next.sa_sigaction)
}

fn verdict_on(fault: &Fault) -> Verdict {
    let verdicts = REPORTS.iter().filter_map(|report| {
        let report = report.load(Ordering::Acquire);
        // SAFETY: null, or a function of this type.
        let report = unsafe { transmute::<*mut (), Option<Report>>(report) }?;
        Some(report(fault))
    });
    let mut known = verdicts.filter(|verdict| *verdict != Verdict::Foreign);
    known.next().unwrap_or(Verdict::Foreign)
}

/// The default action takes place when the handler returns and the access faults again, so the core
/// file has the right registers and the exit status the right signal.
fn set_default(signal: c_int) {
    let mut default = MaybeUninit::<Action>::zeroed();
    // SAFETY: zeros are a valid structure, and SIG_DFL is 0 (said again for who reads).
    unsafe {
        (*default.as_mut_ptr()).sa_sigaction = libc::SIG_DFL;
        set_action(signal, default.as_ptr(), null_mut());
    }
}

/// The program's action, if that is a handler. Otherwise does what the kernel would do.
fn next_of(signal: c_int, is_fault: bool) -> Option<Action> {
    let now = watch_of(signal).locked(|before| {
        let now = before.get();
        if now.sa_flags & libc::SA_RESETHAND != 0 {
            // The program asked for one call only.
            let mut default = now;
            default.sa_sigaction = libc::SIG_DFL;
            before.set(default);
        }
        now
    });
    match now.sa_sigaction {
        // The kernel does not let faults be ignored.
        libc::SIG_IGN if !is_fault => None,
        libc::SIG_DFL | libc::SIG_IGN => {
            die(signal, is_fault);
            None
        }
        _ => Some(now),
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

/// # Safety
/// - The context is the kernel's.
#[cfg(target_arch = "x86_64")]
unsafe fn fault_of(address: *const c_void, context: *const libc::ucontext_t) -> Fault {
    // SAFETY: the caller's promise.
    let registers = unsafe { &(*context).uc_mcontext.gregs };
    Fault {
        address: address.addr(),
        pc: registers[libc::REG_RIP as usize] as usize,
        // The second bit of the processor's error code.
        access: match registers[libc::REG_ERR as usize] & 2 {
            0 => Access::Read,
            _ => Access::Write,
        },
    }
}

/// # Safety
/// - The context is the kernel's.
#[cfg(target_arch = "aarch64")]
unsafe fn fault_of(address: *const c_void, context: *const libc::ucontext_t) -> Fault {
    Fault {
        address: address.addr(),
        // SAFETY: the caller's promise.
        pc: unsafe { (*context).uc_mcontext.pc } as usize,
        access: Access::Unknown,
    }
}

/// The calling thread's alternate stack for handlers: its lowest byte, if it has one.
pub fn alternate_stack() -> Option<NonNull<u8>> {
    let mut now = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: the buffer is as large as the kernel's answer; zeros are also valid.
    let now = unsafe {
        switch_stack(null(), now.as_mut_ptr());
        now.assume_init()
    };
    NonNull::new(now.ss_sp.cast()).filter(|_| now.ss_flags & libc::SS_DISABLE == 0)
}

/// Lets handlers of the calling thread run on these bytes. False if the kernel refuses.
///
/// # Safety
/// - They are the caller's, until the thread has ended or [`remove_alternate_stack`] was called.
pub unsafe fn set_alternate_stack(lowest: NonNull<u8>, bytes: usize) -> bool {
    let stack = libc::stack_t {
        ss_sp: lowest.as_ptr().cast(),
        ss_flags: 0,
        ss_size: bytes,
    };
    // SAFETY: a valid structure; the caller's promise.
    unsafe { switch_stack(&stack, null_mut()) }
}

/// Takes the calling thread's alternate stack away if it is the one that begins at `lowest`.
pub fn remove_alternate_stack(lowest: NonNull<u8>) {
    if alternate_stack() != Some(lowest) {
        return;
    }
    let none = libc::stack_t {
        ss_sp: null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    // SAFETY: a valid structure.
    unsafe { switch_stack(&none, null_mut()) };
}

/// `sigaltstack(2)`. False if the kernel refuses.
///
/// # Safety
/// - As `sigaltstack(2)`.
unsafe fn switch_stack(new: *const libc::stack_t, old: *mut libc::stack_t) -> bool {
    // SAFETY: the caller's promise.
    unsafe { kernel!(sigaltstack, new, old) == 0 }
}
