//! Threads, the process, its environment and descriptors: thin wrappers over the C library.
//!
//! Every function keeps the caller's `errno`.

use super::errno::{self, keep_errno};
use super::linux::call;
use super::{calls, scratch};
use crate::base::sync::plain::{AtomicBool, AtomicUsize, Ordering};
use core::ffi::{CStr, c_char, c_void};

/// A thread-specific slot whose destructor runs at thread end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(libc::pthread_key_t);

impl Key {
    /// A new key; `None` if the process has no more. The C library may allocate.
    pub fn create(at_thread_end: unsafe extern "C" fn(*mut c_void)) -> Option<Self> {
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
    pub fn set(self, value: *mut c_void) -> bool {
        let kept = value.cast_const();
        // SAFETY: the key is alive, because keys are never deleted; only the destructor reads the
        // value.
        keep_errno(|| unsafe { libc::pthread_setspecific(self.0, kept) == 0 })
    }

    /// The calling thread's value, null if never set.
    pub fn get(self) -> *mut c_void {
        // SAFETY: the key is alive.
        unsafe { libc::pthread_getspecific(self.0) }
    }
}

/// Registers handlers around `fork`: before, after in the parent, after in the child. False if the
/// C library has no memory for them (it may allocate).
pub fn at_fork(
    before: unsafe extern "C" fn(),
    in_parent: unsafe extern "C" fn(),
    in_child: unsafe extern "C" fn(),
) -> bool {
    // SAFETY: the three are plain functions that live as long as the program.
    keep_errno(|| unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) == 0
    })
}

/// Starts a detached thread that runs `body` with `stack_bytes` of stack for its own frames. It
/// inherits the signal mask. False if the C library or the kernel refuses. The C library allocates.
///
/// The C library needs 4 KiB of stack for it, and the caller's stack may be a coroutine's, so the
/// call runs on a stack of its own.
pub fn spawn(body: extern "C" fn(*mut c_void) -> *mut c_void, stack_bytes: usize) -> bool {
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
    keep_errno(|| scratch::on_stack(start))
}

/// Bytes of a thread's stack besides its frames: glibc puts thread-local variables there.
static LEAST_STACK: AtomicUsize = AtomicUsize::new(UNKNOWN_STACK);

/// Used if the C library does not tell: enough for 1 MiB of thread-local variables. Mostly address
/// space.
const UNKNOWN_STACK: usize = (1 << 20) + (64 << 10);

/// Asks the C library for the least stack size. `dlsym` takes the loader's lock and may allocate,
/// so [`spawn`] must not do it.
pub fn learn_least_stack() {
    type Least = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    // SAFETY: a C string, and a handle that dlsym knows. Where glibc has the function, it has this
    // type and reads no attribute.
    let bytes = keep_errno(|| unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr());
        let least = core::mem::transmute::<*mut c_void, Option<Least>>(found);
        least.map(|least| least(core::ptr::null()))
    });
    if let Some(bytes) = bytes {
        LEAST_STACK.store(bytes, Ordering::Relaxed);
    }
}

/// Runs `work` with every signal masked that a program can mask.
///
/// `pthread_sigmask` sets the mask and leaves the C library's own signals alone. If they were
/// masked, `setuid` would wait without end for a thread that `work` starts. False, and nothing
/// done, if the mask cannot be set.
pub fn with_signals_masked(work: impl FnOnce() -> bool) -> bool {
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: buffers of the right size; `before` is filled when it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        if libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) != 0 {
            return false;
        }
        let done = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut());
        done
    }
}

/// A thread's mask of signals, in the kernel's form.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct SignalMask(u64);

impl SignalMask {
    /// No signal.
    pub const NONE: SignalMask = SignalMask(0);

    /// All signals except 32 and 33, which the C library reserves. If they were masked, `setuid` in
    /// another thread would wait for this one.
    pub const ALL: SignalMask = SignalMask(!(3 << 31));
}

/// Masks these signals and no others for the calling thread. Returns the mask before.
pub fn mask_signals(SignalMask(mask): SignalMask) -> SignalMask {
    let mut before = 0u64;
    let new = (&raw const mask).expose_provenance();
    let old = (&raw mut before).expose_provenance();
    // SAFETY: two sets of the size that is said.
    unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_SETMASK as usize, new, old, size_of_val(&mask)],
        )
    };
    SignalMask(before)
}

/// The C library's name of the calling thread: never 0, and of no other live thread.
pub fn own_name() -> usize {
    // SAFETY: no arguments.
    unsafe { libc::pthread_self() as usize }
}

/// Names the calling thread, as tools like `top` show it. By number: libneap.so interposes `prctl`.
pub fn name_thread(name: &CStr) {
    // SAFETY: a C string; the kernel copies at most 16 bytes of it.
    keep_errno(|| unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr()) });
}

/// The calling thread's TID.
pub fn thread_id() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Whether this process has a thread with this TID.
pub fn thread_exists(id: i32) -> bool {
    // SAFETY: plain numbers; signal 0 only checks that the thread exists.
    keep_errno(|| unsafe { libc::syscall(libc::SYS_tgkill, process_id(), id, 0) == 0 })
}

/// The two commands of `membarrier(2)` in use here.
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

static BARRIER_ALLOWED: AtomicBool = AtomicBool::new(true);

/// Forbids `membarrier` from now on, because the program is about to forbid itself system calls.
/// [`heavy_barrier`] then returns false.
pub fn forbid_barrier() {
    BARRIER_ALLOWED.store(false, Ordering::Relaxed);
}

/// Registers the process for [`heavy_barrier`]. While the process has one thread this takes under a
/// microsecond. Later the kernel waits for a grace period of RCU first: for 6 to 30 ms, and for
/// much longer on an overloaded machine. A fork's child inherits the registration.
pub fn prepare_barrier() {
    if BARRIER_ALLOWED.load(Ordering::Relaxed) {
        keep_errno(|| membarrier(REGISTER_PRIVATE_EXPEDITED));
    }
}

fn membarrier(command: i32) -> bool {
    // SAFETY: membarrier takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Makes every running thread of the process pass a full memory barrier before it returns.
/// Registers the process if that has not [been done](prepare_barrier). If the kernel refuses, returns false and promises nothing.
pub fn heavy_barrier() -> bool {
    if !BARRIER_ALLOWED.load(Ordering::Relaxed) {
        return false;
    }
    keep_errno(|| {
        membarrier(PRIVATE_EXPEDITED)
            || (membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED))
    })
}

/// The process's ID.
pub fn process_id() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { call(libc::SYS_getpid, [0; 4]) as i32 }
}

/// Whether a process with this ID exists.
pub fn process_exists(id: i32) -> bool {
    // SAFETY: plain numbers; signal 0 only checks that the process exists.
    keep_errno(|| unsafe { libc::kill(id, 0) == 0 || errno::get() != libc::ESRCH })
}

/// Ends the process and all its threads, without exit handlers.
pub fn exit_at_once(status: i32) -> ! {
    loop {
        // SAFETY: exit_group takes no pointers; it does not return.
        unsafe { call(libc::SYS_exit_group, [status as usize, 0, 0, 0]) };
    }
}

/// Most bytes that the kernel accepts for arguments and environment (three quarters of an 8 MiB
/// stack), and its own words among them.
const START_STRINGS: usize = (6 << 20) + (16 << 10);

/// Whether the kernel wrote this string of the environment to the program's stack at its start.
/// Other strings, which the program added, may be constants. The kernel's lie above sixteen random
/// bytes, whose address it tells, by at most the length that it allows for strings.
pub fn is_of_the_kernel(string: *const c_char) -> bool {
    // SAFETY: getauxval takes no pointers.
    let low = keep_errno(|| unsafe { libc::getauxval(libc::AT_RANDOM) }) as usize;
    low != 0 && (low..low + START_STRINGS).contains(&string.addr())
}

/// Whether the process runs with more privileges than its caller (`AT_SECURE`).
pub fn is_secure() -> bool {
    // SAFETY: getauxval takes no pointers.
    keep_errno(|| unsafe { libc::getauxval(libc::AT_SECURE) != 0 })
}

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
    static program_invocation_short_name: *const c_char;
}

/// The process's environment; null before the C library has set it.
pub fn environment() -> *mut *mut c_char {
    // SAFETY: the C library's own variable, read as a plain word.
    unsafe { environ }
}

/// A second descriptor of the same file, numbered above those that programs use, closed by `exec`.
pub fn duplicate(descriptor: i32) -> Option<i32> {
    duplicate_above(descriptor, 200)
}

/// Like [`duplicate`], with a number of at least `least`.
pub fn duplicate_above(descriptor: i32, least: i32) -> Option<i32> {
    let second = keep_errno(|| calls::control(descriptor, libc::F_DUPFD_CLOEXEC, least));
    (second >= 0).then_some(second)
}

/// Writes all of `bytes` to `descriptor`; retries after interruptions and short writes. False on an
/// error.
pub fn write_all(descriptor: i32, mut bytes: &[u8]) -> bool {
    keep_errno(|| {
        while !bytes.is_empty() {
            match calls::write(descriptor, bytes) {
                written if written > 0 => bytes = &bytes[written as usize..],
                written if written < 0 && errno::get() == libc::EINTR => {}
                _ => return false,
            }
        }
        true
    })
}

/// Reads a small file into `buffer`. Returns the number of bytes read, or `None` if the file cannot
/// be opened or read.
pub fn read_file(path: &CStr, buffer: &mut [u8]) -> Option<usize> {
    keep_errno(|| {
        let descriptor = open_read(path)?;
        let read = calls::read(descriptor, buffer);
        close(descriptor);
        usize::try_from(read).ok()
    })
}

/// Reads the next bytes; 0 at the end. `None` on an error.
pub fn read_some(descriptor: i32, buffer: &mut [u8]) -> Option<usize> {
    let read = keep_errno(|| calls::read(descriptor, buffer));
    usize::try_from(read).ok()
}

/// Opens `path` for reading; `exec` closes the descriptor.
pub fn open_read(path: &CStr) -> Option<i32> {
    let descriptor = keep_errno(|| calls::open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0));
    (descriptor >= 0).then_some(descriptor)
}

/// Whether `descriptor` refers to a file of `/proc`.
pub fn is_proc(descriptor: i32) -> bool {
    let mut system = core::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the buffer is as large as the kernel's answer.
    keep_errno(|| unsafe { libc::fstatfs(descriptor, system.as_mut_ptr()) }) == 0
        // SAFETY: the kernel filled it, and zeros are a valid value.
        && unsafe { system.assume_init() }.f_type == libc::PROC_SUPER_MAGIC
}

/// Opens `path` for appending, creates it if necessary (mode 0644); `exec` closes the descriptor.
pub fn open_append(path: &CStr) -> Option<i32> {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    let descriptor = keep_errno(|| calls::open(path, flags, 0o644));
    (descriptor >= 0).then_some(descriptor)
}

/// Closes a descriptor that this room opened.
pub fn close(descriptor: i32) {
    // An error loses no data, so it is ignored.
    keep_errno(|| calls::close(descriptor));
}

/// The identity of an open file: device and inode. Tells whether a number is still ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// The device's number.
    pub device: u64,
    /// The inode's number.
    pub inode: u64,
}

/// The file that `descriptor` refers to; `None` if it is closed.
pub fn file_identity(descriptor: i32) -> Option<FileIdentity> {
    // SAFETY: `identity` hands over a buffer as large as the kernel's answer.
    identity(|status| unsafe { libc::fstat(descriptor, status) })
}

/// The file that `path` names now; `None` if there is none.
pub fn path_identity(path: &CStr) -> Option<FileIdentity> {
    // SAFETY: a C string; `identity` hands over a buffer as large as the kernel's answer.
    identity(|status| unsafe { libc::stat(path.as_ptr(), status) })
}

fn identity(ask: impl FnOnce(*mut libc::stat) -> i32) -> Option<FileIdentity> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::uninit();
    if keep_errno(|| ask(status.as_mut_ptr())) != 0 {
        return None;
    }
    // SAFETY: the call returned 0, so it filled the buffer.
    let status = unsafe { status.assume_init() };
    #[allow(
        clippy::unnecessary_cast,
        reason = "the fields' types differ between machines"
    )]
    Some(FileIdentity {
        device: status.st_dev as u64,
        inode: status.st_ino as u64,
    })
}

/// Monotonic time in ns.
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Processor time of the calling thread in ns.
pub fn processor_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The time of day in ns since 1970.
pub fn time_of_day_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct is a local variable; these clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The process's page faults so far: minor, then major.
pub fn faults() -> [u64; 2] {
    let mut usage = core::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the struct, and zeros are a valid value.
    let usage = keep_errno(|| unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    });
    [usage.ru_minflt as u64, usage.ru_majflt as u64]
}

/// The program's file name without its directory; empty if the C library does not know it yet.
pub fn program_name() -> &'static [u8] {
    // SAFETY: the C library's own variable: null or a C string that lives as long as the program.
    unsafe {
        let name = program_invocation_short_name;
        if name.is_null() {
            b""
        } else {
            CStr::from_ptr(name).to_bytes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_told_apart() {
        let folder = std::env::temp_dir().join(std::format!("neap-thread-{}", process_id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = std::ffi::CString::new(folder.join("log").to_str().unwrap()).unwrap();
        let first = open_append(&path).unwrap();
        assert!(write_all(first, b"one\n"));
        let second = open_append(&path).unwrap();
        assert!(write_all(second, b"two\n"));
        assert_eq!(file_identity(first), file_identity(second));
        assert_ne!(file_identity(first), file_identity(1));
        close(first);
        close(second);
        let mut buffer = [0; 64];
        let read = read_file(&path, &mut buffer).unwrap();
        assert_eq!(&buffer[..read], b"one\ntwo\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn failures_keep_errno() {
        errno::set(99);
        assert!(!write_all(-1, b"x"));
        assert_eq!(read_file(c"/nonexistent/file", &mut [0; 8]), None);
        assert_eq!(open_append(c"/nonexistent/file"), None);
        assert_eq!(file_identity(-1), None);
        assert_eq!(errno::get(), 99);
    }

    #[test]
    fn the_process_knows_itself() {
        assert_eq!(process_id() as u32, std::process::id());
        assert!(!program_name().is_empty());
        assert!(!is_secure());
    }
}
