//! A handler of SIGSEGV in front of the program's own. Where guards against writes raise SIGBUS,
//! there is one of that signal as well.
//!
//! What runs in the handler is safe there: it allocates nothing, and takes no lock but that of a
//! [`Watch`], which is never held while signals are let in.
//!
//! The kernel puts on a stack what it interrupted, and reads that from the stack pointer when the
//! handler has returned. A copy of the frame on another stack does as well, if what points into the
//! frame points into the copy.

use super::arch::in_its_place;
use super::futex;
use super::loader::keep_errno;
use super::thread::{self, SignalMask, mask_signals};
use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use core::ffi::{c_int, c_void};
use core::hint::spin_loop;
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

/// Where a [`Report`] can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// On the stack that the program chose for its own handler.
    AsChosen,
    /// Only on the thread's alternate stack, because the fault says that the other has no room.
    Alternate,
}

type Action = libc::sigaction;
type SetAction = unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int;

/// What our handler of one signal needs to know.
struct Watch {
    signal: c_int,
    /// Whether our handler is in front of the program's, or about to be. Changes under `locked`.
    in_force: AtomicBool,
    /// Our handler was replaced, and has [come back](come_back).
    is_back: AtomicBool,
    /// The action that the program set is in one of them; the other one is written when it sets a
    /// new one, so that a child whose parent's other thread was writing finds the last. Guarded by
    /// `locked`.
    before: UnsafeCell<[MaybeUninit<Action>; 2]>,
    /// Which of the two.
    current: AtomicUsize,
    /// Held with all signals masked, so no handler of the same thread finds it taken. A child of
    /// `fork` [frees](after_fork_in_child) it.
    locked: futex::Word,
}

/// Each is a [`Report`].
static REPORTS: [AtomicPtr<()>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];
/// The C library's `sigaction`, if the frontend replaces that name: a [`SetAction`].
static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Whether a reporter needs the [alternate stack](Where::Alternate).
static NEEDS_ALTERNATE: AtomicBool = AtomicBool::new(false);
/// Whether a reported address may raise SIGBUS.
static EXPECTS_BUS: AtomicBool = AtomicBool::new(false);

// SAFETY: the cell is reached under `locked`.
unsafe impl Sync for Watch {}

static WATCHES: [Watch; 2] = [Watch::new(libc::SIGSEGV), Watch::new(libc::SIGBUS)];

/// The watch of a signal that may have one.
fn watch_of(signal: c_int) -> &'static Watch {
    &WATCHES[usize::from(signal == libc::SIGBUS)]
}

/// Puts a handler of SIGSEGV in front of the program's own. It calls `report` first, and what that
/// says follows. Later calls add a second reporter. False if the kernel refuses.
pub fn watch(report: Report, place: Where) -> bool {
    let report = report as *mut ();
    if place == Where::Alternate && !NEEDS_ALTERNATE.swap(true, Ordering::AcqRel) {
        WATCHES.iter().for_each(Watch::move_handler);
    }
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
            locked: futex::Word::new(0),
        }
    }

    fn begin(&'static self) -> bool {
        // A frontend that replaces `sigaction` may look the C library's up in its first call,
        // which comes to itself: before our handler is there, and without the lock.
        if self.action_now().is_none() {
            return false;
        }
        let mut before = self.before();
        if !self.is_watching() {
            // From here on, a `sigaction` of another thread waits for the lock, or settles
            // afterwards.
            self.in_force.store(true, Ordering::Release);
            self.in_force.store(before.take_over(), Ordering::Release);
        }
        self.is_watching()
    }

    /// Installs our handler again, which is to run on another stack from now on.
    fn move_handler(&'static self) {
        if self.action_now().is_some_and(|now| is_ours(&now)) {
            install(self.signal, &self.before().get());
        }
    }

    fn is_watching(&self) -> bool {
        self.in_force.load(Ordering::Acquire)
    }

    /// Whether another handler has replaced ours.
    fn is_replaced(&self) -> bool {
        let is_set = self.locked.load(Ordering::Relaxed) == 0;
        let may_be = is_set && self.is_watching() && !self.is_back.load(Ordering::Relaxed);
        may_be && self.action_now().is_some_and(|now| !is_ours(&now))
    }

    /// Takes [`Watch::locked`], with all signals masked.
    #[inline(never)]
    fn before(&'static self) -> Before {
        let mask = mask_signals(SignalMask::all());
        let mut tries = 0u32;
        while self.locked.swap(1, Ordering::Acquire) != 0 {
            tries += 1;
            // The holder may be a thread of a lower priority on this processor.
            match tries % TRIES {
                0 => _ = futex::wait(&self.locked, 1, Some(1)),
                _ => spin_loop(),
            }
        }
        Before { watch: self, mask }
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
    let mut before = watch_of(signal).before();
    // SAFETY: the caller's promise.
    if let Some(old) = unsafe { old.as_mut() }.filter(|old| is_ours(old)) {
        // The other thread may have found the new one already.
        *old = match Some(before.get().sa_sigaction) == new {
            true => before.previous(),
            false => before.get(),
        };
    }
    before.take_over();
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
            watch.before().take_over();
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
    let mut before = watch_of(signal).before();
    // A handler that was set in another way than by this function has replaced ours.
    if let Some(other) = before.watch.action_now().filter(|now| !is_ours(now)) {
        before.set(other);
    }
    let last = before.get();
    let done = new.is_none_or(|new| {
        before.set(new);
        install(signal, &new).is_some()
    });
    drop(before);
    // SAFETY: the caller's promise.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = last;
    }
    if done { 0 } else { -1 }
}

/// The program's action, while [`Watch::locked`] is held.
struct Before {
    watch: &'static Watch,
    /// The thread's signal mask before.
    mask: SignalMask,
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

impl Drop for Before {
    fn drop(&mut self) {
        self.watch.locked.store(0, Ordering::Release);
        mask_signals(self.mask);
    }
}

/// Tries to take the lock before a thread sleeps for a moment.
const TRIES: u32 = 1000;

/// In a child of `fork`: a thread that held the lock is not there.
pub fn after_fork_in_child() {
    for watch in &WATCHES {
        if watch.locked.load(Ordering::Relaxed) != 0 {
            watch.locked.store(0, Ordering::Release);
        }
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
/// and its stack, unless a reporter needs the alternate one. Returns the action that it replaced;
/// `None` if the kernel refuses.
fn install(signal: c_int, before: &Action) -> Option<Action> {
    let stays = is_on_the_threads_stack(before) && !NEEDS_ALTERNATE.load(Ordering::Acquire);
    let stack = if stays { 0 } else { libc::SA_ONSTACK };
    let kept = libc::SA_NODEFER | libc::SA_RESTART;
    let mut ours = *before;
    ours.sa_sigaction = on_fault as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | stack | (before.sa_flags & kept);
    let mut replaced = MaybeUninit::uninit();
    // SAFETY: valid structures; the handler keeps to what handlers may do.
    unsafe { set_action(signal, &ours, replaced.as_mut_ptr()).then(|| replaced.assume_init()) }
}

in_its_place! {
    /// Our handler: calls [`judge`], and then the program's handler in its own place. So that one
    /// returns to the kernel, and a walk through the stack comes from it to what was interrupted.
    on_fault, judge, Call
}

/// Looks at a signal, and says which handler follows, and where.
///
/// # Safety
/// - Called by [`on_fault`], with what the kernel handed over.
unsafe extern "C" fn judge(signal: c_int, call: &mut Call) {
    // SAFETY: the kernel hands over filled structures; a fault's has an address.
    let (code, address, Interrupted { pc, access, .. }) = unsafe {
        let (info, context) = (&*call.info, call.context.cast());
        (info.si_code, info.si_addr().addr(), interrupted(context))
    };
    let fault = Fault {
        address,
        pc,
        access,
    };
    // Codes of 0 and below are not the kernel's: a program sent the signal.
    let is_fault = code > 0;
    let verdict = match is_fault {
        true => keep_errno(|| verdict_on(&fault)),
        false => Verdict::Foreign,
    };
    if verdict == Verdict::Final {
        set_default(signal);
        call.handler = 0;
        return;
    }
    let next = next_of(signal, is_fault);
    call.handler = next.map_or(0, |next| next.sa_sigaction);
    if next.is_none_or(|next| next.sa_flags & libc::SA_ONSTACK != 0) {
        return;
    }
    // SAFETY: the caller's promise.
    let Some(place) = (unsafe { call.place_on_interrupted() }) else {
        return;
    };
    // A stack without room for the frame has overflowed, whatever the signal is.
    let address = place.stack;
    let reaches = Fault { address, ..fault };
    if keep_errno(|| verdict_on(&reaches)) == Verdict::Final {
        set_default(signal);
        call.handler = 0;
        return;
    }
    // SAFETY: as above. Below what it interrupted, the stack is free.
    unsafe { call.move_to(place) };
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
    let mut before = watch_of(signal).before();
    let now = before.get();
    if now.sa_flags & libc::SA_RESETHAND != 0 {
        // The program asked for one call only.
        let mut default = now;
        default.sa_sigaction = libc::SIG_DFL;
        before.set(default);
    }
    drop(before);
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

/// What a signal interrupted.
struct Interrupted {
    stack: usize,
    pc: usize,
    access: Access,
}

/// # Safety
/// - The context is the kernel's.
#[cfg(target_arch = "x86_64")]
unsafe fn interrupted(context: *const libc::ucontext_t) -> Interrupted {
    // SAFETY: the caller's promise.
    let registers = unsafe { (*context).uc_mcontext.gregs };
    Interrupted {
        stack: registers[libc::REG_RSP as usize] as usize,
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
unsafe fn interrupted(context: *const libc::ucontext_t) -> Interrupted {
    // SAFETY: the caller's promise.
    let registers = unsafe { &(*context).uc_mcontext };
    Interrupted {
        stack: registers.sp as usize,
        pc: registers.pc as usize,
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

/// What a handler is called with besides the signal. The entry of our handler fills all but
/// `handler`, and then calls that in its own place.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Call {
    /// The stack pointer at the handler's first instruction.
    pub stack: usize,
    pub info: *mut libc::siginfo_t,
    pub context: *mut c_void,
    /// 0 if none is to be called.
    pub handler: usize,
}

/// Where a copy of a frame begins, which is its lowest address, and the bytes of the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub stack: usize,
    bytes: usize,
}

/// Bytes below the stack pointer that a function may use.
const RED_ZONE: usize = if cfg!(target_arch = "x86_64") { 128 } else { 0 };

impl Call {
    /// Where the frame would be on the interrupted stack. `None` if the handler may stay where it
    /// is: our own does not run on the alternate stack, or was called there anyway, or the frame is
    /// not as expected.
    ///
    /// # Safety
    /// - It is the call of our handler by the kernel, which has not returned yet.
    unsafe fn place_on_interrupted(&self) -> Option<Place> {
        let context = self.context.cast::<libc::ucontext_t>();
        // SAFETY: the kernel filled it.
        let (alternate, interrupted) = unsafe { ((*context).uc_stack, interrupted(context).stack) };
        let start = alternate.ss_sp.addr();
        let is_on_it = |at: usize| (start..start + alternate.ss_size).contains(&at);
        if !is_on_it(self.stack) || is_on_it(interrupted) {
            return None;
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.frame_bytes() }?;
        // As far from a multiple of 64 as the frame, because the processor requires this alignment
        // of some of its parts.
        let below = interrupted.wrapping_sub(RED_ZONE + bytes);
        let stack = below.wrapping_sub(below.wrapping_sub(self.stack) % 64);
        Some(Place { stack, bytes })
    }

    /// Copies the frame to a [place](Call::place_on_interrupted), where the handler then runs.
    ///
    /// # Safety
    /// - The place is this call's, and free stack.
    unsafe fn move_to(&mut self, Place { stack, bytes }: Place) {
        // SAFETY: the caller's promise: the kernel's frame, and free stack.
        unsafe { (stack as *mut u8).copy_from_nonoverlapping(self.stack as *const u8, bytes) };
        let by = stack.wrapping_sub(self.stack);
        self.stack = stack;
        self.info = self.info.wrapping_byte_add(by);
        self.context = self.context.wrapping_byte_add(by);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the copy's.
        unsafe {
            let state = self.state();
            *state = match (*state).is_null() {
                true => null_mut(),
                false => (*state).wrapping_add(by),
            };
        }
    }
}

/// The frame of x86-64: where the handler returns to, the context, and the information. The state
/// of the floating-point unit is above, and the context points to it.
#[cfg(target_arch = "x86_64")]
impl Call {
    const CONTEXT: usize = size_of::<usize>();
    const INFO: usize = Self::CONTEXT + 304;
    const BYTES: usize = Self::INFO + size_of::<libc::siginfo_t>();
    /// Where the context has the address of the state: behind five words and 23 registers. Not
    /// every C library's headers name it.
    const STATE: usize = (5 + 23) * size_of::<usize>();

    /// The bytes of the frame, if it is as expected.
    ///
    /// # Safety
    /// - As [`Call::place_on_interrupted`].
    unsafe fn frame_bytes(&self) -> Option<usize> {
        const MOST: usize = 64 << 10;
        let is_usual = self.context.addr() == self.stack + Self::CONTEXT
            && self.info.addr() == self.stack + Self::INFO;
        // SAFETY: the caller's promise.
        let bytes = match unsafe { *self.state() } {
            state if state.is_null() => Self::BYTES,
            // SAFETY: as above.
            state => (state.addr() + unsafe { state_bytes(state) }).wrapping_sub(self.stack),
        };
        Some(bytes).filter(|bytes| is_usual && (Self::BYTES..MOST).contains(bytes))
    }

    /// The context's address of the floating-point unit's state.
    fn state(&self) -> *mut *mut u8 {
        self.context.wrapping_byte_add(Self::STATE).cast()
    }
}

/// Bytes of the floating-point unit's state, of which the kernel says where it extends the oldest
/// form.
///
/// # Safety
/// - It is the kernel's.
#[cfg(target_arch = "x86_64")]
unsafe fn state_bytes(state: *const u8) -> usize {
    const OLDEST: usize = 512;
    const WORDS: usize = 464;
    const IS_EXTENDED: u32 = 0x4650_5853;
    // SAFETY: within the oldest form.
    match unsafe { state.add(WORDS).cast::<[u32; 2]>().read_unaligned() } {
        [IS_EXTENDED, bytes] => bytes as usize,
        _ => OLDEST,
    }
}

/// The frame of AArch64: the information and the context, and above them a record for walks through
/// the stack.
#[cfg(target_arch = "aarch64")]
impl Call {
    const CONTEXT: usize = size_of::<libc::siginfo_t>();
    const RECORDS: usize = Self::CONTEXT + 176 + 288;
    const BYTES: usize = Self::RECORDS + 4096 + 16;

    /// The bytes of the frame, if it is as expected.
    ///
    /// # Safety
    /// - As [`Call::place_on_interrupted`].
    unsafe fn frame_bytes(&self) -> Option<usize> {
        // SAFETY: the caller's promise: within the kernel's frame.
        let is_usual = self.info.addr() == self.stack
            && self.context.addr() == self.stack + Self::CONTEXT
            && unsafe { ends_within((self.stack + Self::RECORDS) as *const u8) };
        is_usual.then_some(Self::BYTES)
    }
}

/// Whether the records of a context are all in it: none points to more of them.
///
/// # Safety
/// - They are the kernel's.
#[cfg(target_arch = "aarch64")]
unsafe fn ends_within(records: *const u8) -> bool {
    const MORE: u32 = 0x4558_5401;
    let mut at = 0;
    loop {
        // SAFETY: the kernel's records: the last one has no magic number.
        let [magic, bytes] = unsafe { records.add(at).cast::<[u32; 2]>().read() };
        if magic == 0 || magic == MORE || bytes == 0 {
            return magic == 0;
        }
        at += bytes as usize;
    }
}
