//! Copies of the process past the C library's `fork`: a raw `clone` without shared memory, as
//! sandboxes make, and `_Fork`.
//!
//! No handler of `fork` runs for these, so in the copy a lock of the heap that another thread held
//! would stay held forever. The functions here bring the heap to rest before the copy, and release
//! it afterwards, in both processes. Calls that share memory (threads, `vfork`) pass through. Neap
//! does not see a program that issues system calls with its own machine instructions.
//!
//! `syscall` also notices a program that enters a sandbox by number, or that leaves or enters a
//! namespace, for which it may have to have one thread. It notices a thread that gives up rights or
//! ends.

use crate::imports::fail_raw;
use crate::loader::{Symbol, wraps};
use core::ffi::{c_int, c_long, c_void};
use core::mem::{offset_of, transmute};
use neap_heap::base::sync::{AtomicPtr, Ordering};
use neap_heap::fork::{self, Copier};
use neap_heap::init;
use neap_heap::kernel;
use neap_heap::os::loader::set_errno;
use neap_heap::reclaim::thread::{self as purge, Hold};

wraps! {
    CLONE: c"clone", Clone;
    FORK: c"_Fork", unsafe extern "C" fn() -> c_int;
}

type Body = unsafe extern "C" fn(*mut c_void) -> c_int;
type Clone = unsafe extern "C" fn(
    Option<Body>,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;

/// The C library's `syscall`, or before it is known, one of our own.
static SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(raw as *mut c_void);

type Syscall =
    unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

/// Looks up the functions that these wrap.
pub(crate) fn begin() {
    look();
    let next = Symbol::new(c"syscall").found();
    if !next.is_null() {
        SYSCALL.store(next, Ordering::Relaxed);
    }
}

/// Bytes of the first `clone_args` (Linux 5.3). A caller may pass any size from here on.
const CLONE_ARGS_SIZE: c_long = 64;

/// Flags of a copy that shares the caller's memory, or whose thread is not the caller's copy to the
/// C library.
const SHARING: u64 = (libc::CLONE_VM | libc::CLONE_SETTLS) as u64;

/// What the child of a [`clone`] runs. It lies on the parent's stack, of which the child has a
/// copy.
struct Start {
    body: Body,
    argument: *mut c_void,
}

unsafe extern "C" fn begin_child(start: *mut c_void) -> c_int {
    // SAFETY: `clone` prepared, and this is the copy; it handed over a `Start`.
    unsafe {
        fork::in_child(Copier::Raw);
        let Start { body, argument } = start.cast::<Start>().read();
        body(argument)
    }
}

/// Makes a process or a thread that runs `body`.
///
/// C declares the last three arguments as variable; on the machines that Neap runs on they come in
/// the same places.
///
/// # Safety
/// - As `clone(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn clone(
    body: Option<Body>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_id: *mut c_void,
    tls: *mut c_void,
    child_id: *mut c_void,
) -> c_int {
    let Some(next) = CLONE.found() else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    let Some(body) = body.filter(|_| flags as u64 & SHARING == 0) else {
        // SAFETY: the caller's promise.
        return unsafe { next(body, stack, flags, argument, parent_id, tls, child_id) };
    };
    let mut start = Start { body, argument };
    let start = (&raw mut start).cast();
    // SAFETY: the caller's promise; the child begins with its own handler, and the parent goes on
    // after the call.
    unsafe {
        fork::prepare(Copier::Raw);
        let child = next(
            Some(begin_child),
            stack,
            flags,
            start,
            parent_id,
            tls,
            child_id,
        );
        fork::in_parent(Copier::Raw);
        child
    }
}

/// Forks without handlers of the program's.
///
/// # Safety
/// - As `_Fork(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Fork() -> c_int {
    // SAFETY: as in `clone`.
    let child = fork::around(|| unsafe {
        match FORK.get() {
            Some(next) => next().into(),
            None => raw_fork(),
        }
    });
    child as c_int
}

/// Copies the process by the kernel's call.
///
/// # Safety
/// - As `fork(2)`.
pub(crate) unsafe fn raw_fork() -> c_long {
    // SAFETY: the caller's promise.
    unsafe { next_syscall([libc::SYS_clone, libc::SIGCHLD.into(), 0, 0, 0, 0, 0]) }
}

/// Calls the C library's `syscall`.
///
/// # Safety
/// - As `syscall(2)`.
unsafe fn next_syscall([number, a, b, c, d, e, f]: [c_long; 7]) -> c_long {
    // SAFETY: never null: the C library's function, or ours.
    let next = unsafe { transmute::<*mut c_void, Syscall>(SYSCALL.load(Ordering::Relaxed)) };
    // SAFETY: the caller's promise.
    unsafe { next(number, a, b, c, d, e, f) }
}

/// The calls that [`seen`] looks at.
const SEEN: &[c_long] = &[
    libc::SYS_clone,
    libc::SYS_clone3,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_capset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_exit,
];

/// The kernel's call numbers are below this one.
const NUMBERS: usize = 512;

/// A bit for each call number, set if the call is in [`SEEN`].
static IS_SEEN: [u64; NUMBERS / 64] = {
    let (mut bits, mut at) = ([0; NUMBERS / 64], 0);
    while at < SEEN.len() {
        bits[SEEN[at] as usize / 64] |= 1 << (SEEN[at] % 64);
        at += 1;
    }
    bits
};

/// What `syscall` hands over: copies of the process, and three other kinds of call. They enter a
/// sandbox, need a process with one thread, or change or end the calling thread alone.
///
/// # Safety
/// - As `syscall(2)`.
unsafe extern "C" fn seen(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let call = || {
        // SAFETY: the caller's promise.
        unsafe { next_syscall([number, a, b, c, d, e, f]) }
    };
    // SAFETY: the caller's promise.
    if unsafe { copies(number, a, b) } {
        return fork::around(call);
    }
    let enters = number == libc::SYS_seccomp
        || number == libc::SYS_prctl
            && matches!(a as c_int, libc::PR_SET_SECCOMP | libc::PR_SET_NO_NEW_PRIVS);
    if enters {
        init::ask_no_more();
    }
    if number == libc::SYS_exit {
        purge::note_exit();
    }
    let _alone = alone(number, a, b);
    call()
}

/// Keeps the purge thread away while the caller leaves or enters what `kinds` names. Not for a
/// namespace of processes alone: the caller stays in its own, and could start no thread afterwards.
pub(crate) fn hold_for(kinds: c_int) -> Option<Hold> {
    (kinds != libc::CLONE_NEWPID).then(purge::hold)
}

/// Keeps the purge thread away from a call that concerns the calling thread only.
fn alone(number: c_long, a: c_long, b: c_long) -> Option<Hold> {
    match number {
        libc::SYS_unshare => hold_for(a as c_int),
        libc::SYS_setns => hold_for(b as c_int),
        libc::SYS_capset | libc::SYS_landlock_restrict_self => Some(purge::hold()),
        _ => None,
    }
}

/// Whether a call copies the process, and the copy goes on where the call returns: on the same
/// stack.
///
/// # Safety
/// - As `syscall(2)`.
unsafe fn copies(number: c_long, a: c_long, b: c_long) -> bool {
    let [flags, stack] = match number {
        libc::SYS_clone => [a as u64, b as u64],
        libc::SYS_clone3 if b >= CLONE_ARGS_SIZE && a != 0 => [
            word(a, offset_of!(libc::clone_args, flags)),
            word(a, offset_of!(libc::clone_args, stack)),
        ],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => return true,
        _ => return false,
    };
    flags & SHARING == 0 && stack == 0
}

/// The word `at` bytes into what a program passes to the kernel; all ones if the kernel cannot read
/// it.
fn word(start: c_long, at: usize) -> u64 {
    let address = (start as usize).wrapping_add(at);
    // The kernel reads the word as a set of signals, and then refuses `how`, which is no command.
    let how = usize::MAX;
    // SAFETY: the kernel refuses the command, so the call changes nothing.
    let result = unsafe { kernel!(rt_sigprocmask, how, address, 0, size_of::<u64>()) };
    match result == -libc::EFAULT as isize {
        true => u64::MAX,
        // SAFETY: just read by the kernel, and no other thread changes it during the call.
        false => unsafe { (address as *const u64).read_unaligned() },
    }
}

/// The kernel's call, as the C library makes it.
///
/// # Safety
/// - As `syscall(2)`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn raw() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "mov rdi, rax",
        "jmp {fail}",
        ".cfi_endproc",
        fail = sym fail_raw,
    )
}

/// The C library's `syscall`, after a check of the number. Ends in a jump, because a child of
/// `vfork` returns on its parent's stack.
///
/// # Safety
/// - As `syscall(2)`.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn syscall(number: c_long) -> c_long {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "cmp rdi, {numbers}",
        "jae 2f",
        "bt qword ptr [rip + {is_seen}], rdi",
        "jc {seen}",
        "2:",
        "jmp qword ptr [rip + {next}]",
        ".cfi_endproc",
        numbers = const NUMBERS,
        is_seen = sym IS_SEEN,
        seen = sym seen,
        next = sym SYSCALL,
    )
}

/// The kernel's call, as the C library makes it.
///
/// # Safety
/// - As `syscall(2)`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn raw() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc #0",
        "cmn x0, #4095",
        "b.cs 2f",
        "ret",
        "2:",
        "b {fail}",
        ".cfi_endproc",
        fail = sym fail_raw,
    )
}

/// The C library's `syscall`, after a check of the number. Ends in a jump, because a copy may
/// return on its parent's stack.
///
/// # Safety
/// - As `syscall(2)`.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn syscall(number: c_long) -> c_long {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "cmp x0, #{numbers}",
        "b.hs 2f",
        "adrp x16, {is_seen}",
        "add x16, x16, :lo12:{is_seen}",
        "lsr x17, x0, #6",
        "ldr x16, [x16, x17, lsl #3]",
        "lsr x16, x16, x0",
        "tbz x16, #0, 2f",
        "b {seen}",
        "2:",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "br x16",
        ".cfi_endproc",
        numbers = const NUMBERS,
        is_seen = sym IS_SEEN,
        seen = sym seen,
        next = sym SYSCALL,
    )
}
