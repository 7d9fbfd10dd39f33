//! The process: its identity, environment, limits and clocks, the machine that it runs on, its
//! messages and its end, and whether Neap may query the kernel.
//!
//! Neap makes some system calls that other allocators do not make, and a sandbox may kill the
//! process for them ([`may_query`]). The program says so (by an option, or by a system call that
//! libneap.so sees), or Neap notices: a process that had no system call filter at its start and has
//! one now has entered a sandbox in a way that Neap did not see. A filter from before the start
//! means nothing, because containers have one and do not kill.
//!
//! Every function keeps the caller's `errno`.

use super::arch;
use super::file::write_all;
pub use super::loader::auxiliary;
use super::loader::{self, keep_errno};
use crate::base::sync::plain::{AtomicBool, AtomicI8, AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use core::ffi::{CStr, c_char, c_void};
use core::fmt::{self, Write};
use core::mem::{MaybeUninit, transmute};
use core::ptr::null_mut;

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

/// The process's ID.
pub fn process_id() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { kernel!(getpid) as i32 }
}

/// The ID of the process that the library was started in, or of a fork's child.
#[unsafe(link_section = "neap_fork")]
static OWN: AtomicI32 = AtomicI32::new(0);

/// Notes this process's ID: before its first free, and in a fork's child.
pub(crate) fn note_own() {
    OWN.store(process_id(), Ordering::Relaxed);
}

/// The ID that [`note_own`] noted last.
pub(crate) fn own() -> i32 {
    OWN.load(Ordering::Relaxed)
}

/// Whether the heap's memory belongs to this process. False in a child that shares the memory, or
/// that the C library does not know of.
pub(crate) fn is_own() -> bool {
    own() == process_id()
}

static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes in an OS page.
#[inline]
pub(super) fn page_bytes() -> usize {
    if cfg!(target_arch = "x86_64") {
        return 4096;
    }
    match PAGE_BYTES.load(Ordering::Relaxed) {
        0 => ask_page_bytes(),
        known => known,
    }
}

#[cold]
fn ask_page_bytes() -> usize {
    // The kernel refuses advice about an address inside a page, even for no bytes.
    // SAFETY: it changes nothing.
    let is_start = |at: &usize| unsafe { kernel!(madvise, *at, 0, 0) == 0 };
    let answer = (12..20).map(|shift| 1 << shift).find(is_start);
    let answer = answer.unwrap_or(64 << 10);
    PAGE_BYTES.store(answer, Ordering::Relaxed);
    answer
}

/// Whether a process with this ID exists.
pub fn process_exists(id: i32) -> bool {
    // SAFETY: plain numbers; signal 0 only checks that the process exists.
    unsafe { kernel!(kill, id, 0) != -(libc::ESRCH as isize) }
}

/// Ends the process and all its threads, without exit handlers.
pub fn exit_at_once(status: i32) -> ! {
    loop {
        // SAFETY: exit_group takes no pointers; it does not return.
        unsafe { kernel!(exit_group, status) };
    }
}

/// Most bytes that the kernel accepts for arguments and environment (three quarters of an 8 MiB
/// stack), and its own words among them.
const START_STRINGS: usize = (6 << 20) + (16 << 10);

/// Whether the kernel wrote this string of the environment to the program's stack at its start.
/// Other strings, which the program added, may be constants. The kernel's lie above sixteen random
/// bytes, whose address it tells, by at most the length that it allows for strings.
pub fn is_of_the_kernel(string: *const c_char) -> bool {
    let low = auxiliary(libc::AT_RANDOM);
    low != 0 && (low..low + START_STRINGS).contains(&string.addr())
}

/// Three random words; from the bytes that the kernel gave the program at its start if it refuses
/// the question.
pub fn random_words() -> [u64; 3] {
    const NONBLOCK: usize = 1;
    let mut words = [0u64; 3];
    let (place, bytes) = (words.as_mut_ptr(), size_of_val(&words));
    // SAFETY: the kernel writes to the words, at most as many bytes as they have.
    let got = unsafe { kernel!(getrandom, place, bytes, NONBLOCK) };
    if got == bytes as isize {
        return words;
    }
    let given = auxiliary(libc::AT_RANDOM) as *const [u64; 2];
    let [first, second] = match given.is_null() {
        true => [place.addr() as u64, 0],
        // SAFETY: the kernel's sixteen bytes, which stay for the life of the process.
        false => unsafe { given.read_unaligned() },
    };
    // The same bytes guard the program's stacks, so they do not show in what is made of them.
    let mix = |word: u64, key: u64| {
        let mixed = (word ^ key).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed ^ (mixed >> 29)).wrapping_mul(second | 1)
    };
    [mix(first, 1), mix(first, 2), mix(first, 3)]
}

/// Whether the process runs with more privileges than its caller (`AT_SECURE`).
pub fn is_secure() -> bool {
    auxiliary(libc::AT_SECURE) != 0
}

unsafe extern "C" {
    // Not `environ`: under musl a program's own variable of that name would stand for it.
    static mut __environ: *mut *mut c_char;
    static program_invocation_short_name: *const c_char;
}

/// The process's environment; null before the C library has set it.
pub fn environment() -> *mut *mut c_char {
    // SAFETY: the C library's own variable, read as a plain word.
    unsafe { __environ }
}

/// The strings of an environment.
///
/// # Safety
/// - `envp` is null or an array of C strings that ends in null and that no other thread changes
///   while the iterator is used.
pub unsafe fn strings_of(envp: *mut *mut c_char) -> impl Iterator<Item = *mut c_char> {
    let mut next = envp;
    core::iter::from_fn(move || {
        // SAFETY: null, or not past the null.
        let string = *unsafe { next.as_ref() }.filter(|string| !string.is_null())?;
        next = next.wrapping_add(1);
        Some(string)
    })
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
    let time = clock_time(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The kernel's function that tells the time without entering it; null before [`find_clock`], and
/// where there is none.
#[unsafe(link_section = "neap_fork")]
static CLOCK: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Looks for the kernel's function.
pub(crate) fn find_clock() {
    let found = loader::of_kernel(arch::CLOCK).map_or(null_mut(), |found| found.as_ptr());
    CLOCK.store(found, Ordering::Relaxed);
}

/// A clock's time. A preloaded library may have a `clock_gettime` of its own.
pub(super) fn clock_time(clock: libc::clockid_t) -> libc::timespec {
    type Clock = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> i32;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: null, or a function of this type; the buffer is ours, and stays zero on a failure.
    unsafe {
        match transmute::<*mut c_void, Option<Clock>>(CLOCK.load(Ordering::Relaxed)) {
            Some(tell) => _ = tell(clock, &mut time),
            None => _ = kernel!(clock_gettime, clock, &raw mut time),
        }
    }
    time
}

/// The process's page faults so far: minor, then major.
pub fn faults() -> [u64; 2] {
    let usage = usage();
    [usage.ru_minflt as u64, usage.ru_majflt as u64]
}

/// What the process has used so far.
pub(super) fn usage() -> libc::rusage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the struct, and zeros are a valid value.
    unsafe {
        kernel!(getrusage, libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    }
}

/// By number, because C libraries differ in the type of `resource`.
pub(super) fn limit_of(resource: impl Into<i64>) -> Option<usize> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // 0: this process, and no new limit.
    // SAFETY: the buffer is ours; on a failure it stays "no limit".
    unsafe { kernel!(prlimit64, 0, resource.into(), 0, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur as usize)
}

/// Whether the program locked its memory (`mlockall`). It must not take page faults later, so no
/// page that it had once may go, neither by advice that works on locked memory nor by mapping
/// afresh. Of a call past the library's own wrapper Neap learns range by range, because the kernel
/// refuses `MADV_DONTNEED` there.
#[unsafe(link_section = "neap_fork")]
static MEMORY_LOCKED: AtomicBool = AtomicBool::new(false);

/// Whether the program is known to have locked its memory.
#[inline]
pub fn is_memory_locked() -> bool {
    MEMORY_LOCKED.load(Ordering::Relaxed)
}

/// The program locked its memory, or unlocked it; or this process is the child of one that locked
/// its own: locks are not inherited.
pub fn set_memory_locked(locked: bool) {
    // Writes only where it must: in a fork's child a write costs a page.
    if is_memory_locked() != locked {
        MEMORY_LOCKED.store(locked, Ordering::Relaxed);
    }
}

/// The machine, as far as this process may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// Bytes of RAM.
    pub bytes: usize,
    /// Processors that the process may run on.
    pub processors: usize,
}

/// How large the machine is; `None` if it must not be asked, or refuses.
pub fn hardware() -> Option<Hardware> {
    if !may_query() {
        return None;
    }
    Some(Hardware {
        bytes: memory()?,
        processors: processors()?,
    })
}

fn memory() -> Option<usize> {
    let mut info = MaybeUninit::<libc::sysinfo>::uninit();
    // SAFETY: a buffer of the right size, which is filled when the call returns 0.
    let info = unsafe { (kernel!(sysinfo, info.as_mut_ptr()) == 0).then(|| info.assume_init())? };
    (info.totalram as usize).checked_mul(info.mem_unit as usize)
}

fn processors() -> Option<usize> {
    let mut set = [0u64; 64];
    // SAFETY: a buffer of that size.
    let bytes = unsafe { kernel!(sched_getaffinity, 0, size_of_val(&set), set.as_mut_ptr()) };
    let count = set.iter().map(|word| word.count_ones() as usize).sum();
    (bytes > 0).then_some(count)
}

#[unsafe(link_section = "neap_fork")]
static ALLOWED: AtomicBool = AtomicBool::new(true);
/// The kernel's answer at the start; less than 0 before the question, and where the kernel knows no
/// filters or an emulator hides them. Then a later filter cannot be noticed.
static AT_START: AtomicI8 = AtomicI8::new(-1);

/// `PR_GET_SECCOMP`: 0 without a filter, less if the call is refused.
fn filters() -> i8 {
    // SAFETY: no pointers.
    unsafe { kernel!(prctl, libc::PR_GET_SECCOMP, 0, 0, 0, 0) as i8 }
}

/// Notes the filter at the process's start.
pub fn note_filter() {
    if !ALLOWED.load(Ordering::Relaxed) {
        return;
    }
    AT_START.store(filters(), Ordering::Relaxed);
}

/// Whether the process started under no filter, as far as is known. Makes no system call.
pub fn started_unfiltered() -> bool {
    AT_START.load(Ordering::Relaxed) == 0
}

/// From now on Neap queries nothing.
pub fn forbid_queries() {
    ALLOWED.store(false, Ordering::Relaxed);
}

/// Whether [`forbid_queries`] was called.
pub fn queries_are_forbidden() -> bool {
    !ALLOWED.load(Ordering::Relaxed)
}

/// Says that an option has no effect.
#[cold]
pub fn warn_forbidden(option: &str) {
    warn(format_args!(
        "{option} is ignored: NEAP_KERNEL_QUERIES=0 or a sandbox forbids its system calls"
    ));
}

/// Whether Neap may do more than manage memory: read files, start threads.
pub fn may_query() -> bool {
    if !ALLOWED.load(Ordering::Relaxed) {
        return false;
    }
    if AT_START.load(Ordering::Relaxed) == 0 && filters() != 0 {
        forbid_queries();
    }
    ALLOWED.load(Ordering::Relaxed)
}

/// Most bytes of text that go out in one write.
const PIECE_BYTES: usize = 512;

/// Text on its way out in pieces, for what must not allocate.
pub struct Pieces<'a> {
    text: [u8; PIECE_BYTES],
    used: usize,
    send: &'a mut dyn FnMut(&[u8]) -> fmt::Result,
}

impl<'a> Pieces<'a> {
    /// No text yet; `send` takes each piece that is full.
    pub fn new(send: &'a mut dyn FnMut(&[u8]) -> fmt::Result) -> Self {
        Self {
            text: [0; PIECE_BYTES],
            used: 0,
            send,
        }
    }

    /// Sends what has been collected.
    pub fn flush(&mut self) -> fmt::Result {
        let used = core::mem::take(&mut self.used);
        (self.send)(&self.text[..used])
    }
}

impl Write for Pieces<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.used == PIECE_BYTES {
                self.flush()?;
            }
            self.text[self.used] = byte;
            self.used += 1;
        }
        Ok(())
    }
}

/// Writes all of `bytes` to standard error.
pub fn to_standard_error(bytes: &[u8]) -> fmt::Result {
    match write_all(libc::STDERR_FILENO, bytes) {
        true => Ok(()),
        false => Err(fmt::Error),
    }
}

fn write_line(args: fmt::Arguments<'_>, send: &mut dyn FnMut(&[u8]) -> fmt::Result) -> fmt::Result {
    let mut line = Pieces::new(send);
    writeln!(line, "neap: {args}")?;
    line.flush()
}

/// Writes `neap: <message>` to standard error and aborts the process.
#[cold]
#[inline(never)]
pub fn fatal(args: fmt::Arguments<'_>) -> ! {
    warn(args);
    abort()
}

/// Aborts the process.
pub fn abort() -> ! {
    // SAFETY: abort may be called at any point.
    unsafe { libc::abort() }
}

/// Writes `neap: <message>` to standard error, in one write if it is of at most [`PIECE_BYTES`] and
/// the kernel takes it whole.
#[cold]
#[inline(never)]
pub fn warn(args: fmt::Arguments<'_>) {
    // A closed standard error is no reason to fail: nothing could read the line.
    let _ = write_line(args, &mut to_standard_error);
}

/// Bytes that are most likely text, on one line: control characters are escaped.
pub struct Lossy<'a>(pub &'a [u8]);

impl fmt::Display for Lossy<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.utf8_chunks().try_for_each(|chunk| {
            chunk
                .valid()
                .chars()
                .try_for_each(|letter| match letter.is_control() {
                    true => write!(out, "{}", letter.escape_default()),
                    false => out.write_char(letter),
                })?;
            out.write_str(if chunk.invalid().is_empty() {
                ""
            } else {
                "\u{fffd}"
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    #[test]
    fn the_process_knows_itself() {
        assert_eq!(process_id() as u32, std::process::id());
        assert!(!program_name().is_empty());
        assert!(!is_secure());
    }

    #[test]
    fn the_machine_has_memory_and_processors() {
        let machine = hardware().expect("no sandbox here");
        assert!(machine.bytes > 64 << 20);
        assert!((1..=4096).contains(&machine.processors));
    }

    fn writes(args: fmt::Arguments<'_>) -> Vec<Vec<u8>> {
        let mut writes = Vec::new();
        let mut keep = |bytes: &[u8]| {
            writes.push(bytes.to_vec());
            Ok(())
        };
        write_line(args, &mut keep).unwrap();
        writes
    }

    #[test]
    fn a_line_has_prefix_and_newline() {
        let line = writes(format_args!("double free of {:#x}", 64));
        assert_eq!(line, [b"neap: double free of 0x40\n"]);
    }

    #[test]
    fn a_long_line_is_whole() {
        for bytes in 500..=600 {
            let long: String = "x".repeat(bytes);
            let written = writes(format_args!("{long}"));
            assert_eq!(written.len(), (bytes + 7).div_ceil(PIECE_BYTES));
            assert_eq!(written.concat(), std::format!("neap: {long}\n").as_bytes());
        }
    }

    #[test]
    fn what_is_no_text_stays_on_its_line() {
        let text = std::format!("{}", Lossy(b"caf\xc3\xa9\n\x1b[31m\xff\x7f\xc2\x9b\0."));
        assert_eq!(text, "caf\u{e9}\\n\\u{1b}[31m\u{fffd}\\u{7f}\\u{9b}\\u{0}.");
    }
}
