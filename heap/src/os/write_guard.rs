//! Guards by write protection (userfaultfd): they cost no mapping where the kernel has no guards by
//! advice (before Linux 6.13).
//!
//! The pages of a guard map the shared zero page, write-protected in a range that is registered
//! with a userfaultfd of ours. A write to one is SIGBUS (`UFFD_FEATURE_SIGBUS`), and a system call
//! that writes there fails with `EFAULT`. A read is not noticed.
//!
//! - Guards are gone in a child that has memory of its own, and when the descriptor is closed. So
//!   each descriptor has a [generation]: guards of another generation must be made again. It is
//!   kept in a page with `MADV_WIPEONFORK`, where a child finds zeros.
//! - Programs close numbers that they do not know, and open other files under them. So device and
//!   inode are compared before each use. Before Linux 5.12 many kinds of files have one inode, so
//!   ours has a [mark](MARK) as well.
//! - AArch64 knows the request since Linux 5.7, but protects since 6.10, and before 5.14 it does
//!   not say so. So the first guard of a process is [tried](stops_writes).
//! - A discarded page is a guard no longer, whether there is a descriptor or not.
//! - A registered range is a mapping of its own, which merges with registered neighbours only. So
//!   ranges are registered as large as the caller allows.
//!
//! The caller lets one thread in at a time.
//!
//! [generation]: Own::generation

use super::file::{self, KeptFile, OpenFile};
use super::mapping::{self, Wiped};
use super::process::{self, page_bytes, process_id};
use crate::base::sync::plain::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use core::ops::Range;
use core::ptr::NonNull;
use neap_shared::userfaultfd::{
    API, KNOWS_WRITES, PROTECTED, REGISTER, SIGBUS, USER_MODE_ONLY, VERSION, WRITE_PROTECT, WRITES,
    ZERO_PAGE,
};

/// The kernel has no such guards, or not for this memory (for example, because it is locked).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardRefused;

/// How often a process opens a descriptor before it gives up: the program closes it again and
/// again, or the kernel refuses. A shortage of descriptors or memory does not count, as it passes.
const MOST_ATTEMPTS: u32 = 64;
const SHORTAGES: [i32; 3] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];

/// What belongs to one process. All zero in a new page, and in a child after fork.
#[repr(C)]
struct Own {
    /// That of the descriptor in [`LAST`]; 0 while there is none.
    generation: AtomicU64,
    /// The process that opened it. One that shares the memory, but not the descriptors, opens none,
    /// and takes none for lost.
    owner: AtomicU32,
    attempts: AtomicU32,
    /// Whether a guard was seen to stop a write.
    works: AtomicBool,
    /// The range that was registered last.
    start: AtomicUsize,
    end: AtomicUsize,
}

// SAFETY: integers.
static OWN: Wiped<Own> = unsafe { Wiped::new() };
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// The descriptor last opened; unlike [`Own`], a child finds it.
static LAST: KeptFile = KeptFile::none();

/// Whether a file's number still refers to it, and it is a descriptor as [`open`] makes them.
fn is_ours(file: &OpenFile) -> bool {
    file.is_ours() && file::control(file.descriptor, GET_SIGNAL, 0) == MARK
}

/// Closes the last descriptor: the parent's, in a child that `fork` made.
pub fn close_last() {
    if let Some(file) = LAST.take().filter(is_ours) {
        file::close(file.descriptor);
    }
}

/// The generation of the guards that hold as far as is known without asking; 0 if none do.
pub(super) fn generation() -> u64 {
    OWN.find().map_or(0, |own| own.generation.load(Relaxed))
}

/// [`generation`], after asking whether the descriptor is still open, unless a sandbox forbids it.
pub(super) fn generation_now() -> u64 {
    match OWN.find() {
        Some(own) if process::may_query() => own.generation_now().unwrap_or(0),
        _ => generation(),
    }
}

/// The pages that are to be a guard.
#[derive(Clone, Copy)]
pub(super) struct Guard {
    pub(super) start: NonNull<u8>,
    pub(super) bytes: usize,
}

/// Makes some pages a guard. Registers up to all of `within`, but at least `least`, which contain
/// the guard. Returns its generation.
///
/// # Safety
/// - The ranges are the heap's, the guard is committed, and no thread uses its pages.
pub(super) unsafe fn install(
    guard: Guard,
    within: Range<usize>,
    least: Range<usize>,
) -> Result<u64, GuardRefused> {
    // A filter from before the start may kill for a call that few programs make.
    let may_ask = process::started_unfiltered() && process::may_query();
    if !may_ask || !mapping::follows_advice() {
        return Err(GuardRefused);
    }
    let own = OWN.open(page_bytes()).ok_or(GuardRefused)?;
    let generation = own.generation_now().or_else(|| own.open());
    let generation = generation.ok_or(GuardRefused)?;
    // Linux 6.18 merges no range that it was asked for a page of, before that was registered.
    let mut failure = match own.covers(&guard) {
        true => guard.protect(),
        false => libc::ENOENT,
    };
    // What was registered may have been mapped afresh since.
    let mut ranges = [within, least].into_iter();
    if failure == libc::ENOENT && ranges.any(|range| own.register(range)) {
        failure = guard.protect();
    }
    if failure == 0 && !own.works.load(Relaxed) {
        if !stops_writes(guard.start) {
            own.attempts.store(MOST_ATTEMPTS, Relaxed);
            own.generation.store(0, Relaxed);
            close_last();
            return Err(GuardRefused);
        }
        own.works.store(true, Relaxed);
    }
    if failure != 0 {
        // Some of its pages may be protected.
        guard.for_each_page(|at| write_protect(at, page_bytes(), 0));
        return Err(GuardRefused);
    }
    Ok(generation)
}

/// Takes back what [`install`] did. The pages read as zero, or as nothing is known.
///
/// # Safety
/// - The range is committed, and no thread uses it.
pub(super) unsafe fn remove(guard: Guard) -> Result<(), GuardRefused> {
    let Guard { start, bytes } = guard;
    // SAFETY: the caller's promise.
    let discarded = unsafe { mapping::advise(start.as_ptr(), bytes, libc::MADV_DONTNEED) };
    // Where the guards are gone, there is nothing to take back.
    if discarded == 0 || generation_now() == 0 {
        return Ok(());
    }
    // Locked memory is not discarded. A sandbox may kill for the request.
    // Page by page, because older kernels refuse a range of several mappings.
    if process::may_query() && guard.for_each_page(|at| write_protect(at, page_bytes(), 0)) == 0 {
        return Ok(());
    }
    Err(GuardRefused)
}

impl Own {
    /// The generation, unless the descriptor is lost.
    fn generation_now(&self) -> Option<u64> {
        let generation = self.generation.load(Relaxed);
        let holds = || {
            LAST.get().is_some_and(|file| is_ours(&file))
                || self.owner.load(Relaxed) != process_id() as u32
        };
        (generation != 0 && holds()).then_some(generation)
    }

    #[cold]
    fn open(&self) -> Option<u64> {
        let me = process_id() as u32;
        let is_mine = match self.owner.load(Relaxed) {
            // The first one, or a child's with memory of its own.
            0 => GENERATIONS.load(Relaxed) > 0 || process::is_own(),
            owner => owner == me,
        };
        if !is_mine || self.attempts.fetch_add(1, Relaxed) >= MOST_ATTEMPTS {
            return None;
        }
        self.generation.store(0, Relaxed);
        let file = open().map_err(|error| {
            let passes = SHORTAGES.contains(&error);
            self.attempts.fetch_sub(u32::from(passes), Relaxed);
        });
        LAST.set(file.ok()?);
        let generation = GENERATIONS.fetch_add(1, Relaxed) + 1;
        self.owner.store(me, Relaxed);
        self.end.store(0, Relaxed);
        self.generation.store(generation, Relaxed);
        Some(generation)
    }

    /// Whether a guard lies in the range that was registered last.
    fn covers(&self, guard: &Guard) -> bool {
        let start = guard.start.as_ptr().addr();
        self.start.load(Relaxed) <= start && start + guard.bytes <= self.end.load(Relaxed)
    }

    fn register(&self, range: Range<usize>) -> bool {
        let mut argument = [range.start as u64, range.len() as u64, WRITES, 0];
        let is_registered = ask(REGISTER, &mut argument) == 0;
        if is_registered {
            self.start.store(range.start, Relaxed);
            self.end.store(range.end, Relaxed);
        }
        is_registered
    }
}

impl Guard {
    /// Maps the zero page where nothing is mapped, and protects what is there. Returns `errno`, or
    /// 0.
    fn protect(self) -> i32 {
        let start = self.start.as_ptr().addr();
        match protect(start, self.bytes) {
            // Not registered, or in several mappings.
            libc::ENOENT => self.for_each_page(|at| protect(at, page_bytes())),
            failure => failure,
        }
    }

    /// Asks something for all pages. Returns the first `errno`, or 0.
    fn for_each_page(self, mut ask: impl FnMut(usize) -> i32) -> i32 {
        let start = self.start.as_ptr().addr();
        let pages = (start..start + self.bytes).step_by(page_bytes());
        pages.fold(0, |first, at| match (first, ask(at)) {
            (0, failure) => failure,
            (first, _) => first,
        })
    }
}

/// [`Guard::protect`] in one mapping, of which all or nothing is mapped.
fn protect(start: usize, bytes: usize) -> i32 {
    match ask(ZERO_PAGE, &mut [start as u64, bytes as u64, 0, 0]) {
        0 | libc::EEXIST => write_protect(start, bytes, PROTECTED),
        failure => failure,
    }
}

fn write_protect(start: usize, bytes: usize, mode: u64) -> i32 {
    ask(WRITE_PROTECT, &mut [start as u64, bytes as u64, mode, 0])
}

/// `F_SETSIG`, `F_GETSIG`: the signal for asynchronous input. Ours asks for none, so it is free to
/// be a mark: the highest signal.
const SET_SIGNAL: i32 = 10;
const GET_SIGNAL: i32 = 11;
const MARK: i32 = 64;

/// Makes a request of our descriptor. Returns `errno`, or 0.
fn ask(request: u32, argument: &mut [u64; 4]) -> i32 {
    LAST.get().map_or(libc::EBADF, |file| {
        ask_of(file.descriptor, request, argument)
    })
}

/// `ioctl(2)`. Returns the number of an error, or 0.
fn ask_of(number: i32, request: u32, argument: &mut [u64; 4]) -> i32 {
    const TRIES: usize = 8;
    let mut error = 0;
    for _ in 0..TRIES {
        // SAFETY: the argument of each of these requests has at most four words.
        error = -unsafe { kernel!(ioctl, number, request, argument.as_mut_ptr()) } as i32;
        if ![libc::EAGAIN, libc::EINTR].contains(&error) {
            break;
        }
        if request == ZERO_PAGE {
            // The pages so far, or an error.
            let done = (argument[3] as i64).max(0) as u64;
            *argument = [argument[0] + done, argument[1] - done, 0, 0];
        }
    }
    error
}

/// Whether the kernel refuses to write to a page.
fn stops_writes(page: NonNull<u8>) -> bool {
    let (no_mask, bytes) = (0, size_of::<u64>());
    // SAFETY: changes no mask. The page, which no thread uses, has room for the mask.
    unsafe {
        kernel!(
            rt_sigprocmask,
            libc::SIG_BLOCK,
            no_mask,
            page.as_ptr(),
            bytes
        ) != 0
    }
}

/// Opens a descriptor at a number out of the way of the program's own. Returns `errno` if that
/// fails, 0 for what this kernel lacks.
fn open() -> Result<OpenFile, i32> {
    let open = |flags: i32| {
        // SAFETY: no pointers.
        unsafe { kernel!(userfaultfd, flags) as i32 }
    };
    let mut low = open(libc::O_CLOEXEC | USER_MODE_ONLY);
    if low == -libc::EINVAL {
        low = open(libc::O_CLOEXEC);
    }
    if low < 0 {
        return Err(-low);
    }
    let high = file::move_up(low).and_then(OpenFile::of);
    let file = high.ok_or(libc::EMFILE)?;
    let mut answer = [VERSION, SIGBUS, 0, 0];
    if ask_of(file.descriptor, API, &mut answer) == 0
        && answer[1] & KNOWS_WRITES != 0
        && file::control(file.descriptor, SET_SIGNAL, MARK) == 0
    {
        return Ok(file);
    }
    file::close(file.descriptor);
    Err(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::child::{Limit, succeeds};

    /// The kernel refuses the third page, at which nothing is mapped. In a child, because no other
    /// thread may make guards meanwhile.
    #[test]
    fn a_guard_that_is_refused_half_way_protects_no_page() {
        const PAGES: usize = 8;
        let page = process::auxiliary(libc::AT_PAGESZ);
        let start = mapping::map_reserved(PAGES * page).unwrap();
        let at = |number: usize| start.as_ptr().wrapping_add(number * page);
        let is_guard = |number| stops_writes(NonNull::new(at(number)).unwrap());
        let refused_whole = || {
            process::note_own();
            process::note_filter();
            let all = start.as_ptr().addr()..at(PAGES).addr();
            let install = |from, pages: usize| {
                let start = NonNull::new(at(from)).unwrap();
                let bytes = pages * page;
                let guard = Guard { start, bytes };
                // SAFETY: this test's own pages.
                unsafe { install(guard, all.clone(), all.clone()) }
            };
            // SAFETY: as above.
            assert!(unsafe { mapping::protect(at(0), PAGES * page, mapping::committed()) });
            if install(0, 2).is_err() {
                return true;
            }
            // SAFETY: as above.
            unsafe { mapping::unmap(at(6), page) };
            install(4, 4).is_err() && is_guard(1) && ![4, 5, 7].into_iter().any(is_guard)
        };
        assert!(succeeds(Limit::None, refused_whole));
    }

    #[test]
    fn a_page_that_may_be_written_is_no_guard() {
        // At least a page of every kernel's.
        const BYTES: usize = 64 << 10;
        let page = mapping::map_reserved(BYTES).unwrap();
        let allow = |access| {
            // SAFETY: this test's own pages.
            let failed = unsafe { libc::mprotect(page.as_ptr().cast(), BYTES, access) };
            assert_eq!(failed, 0);
        };
        allow(libc::PROT_READ | libc::PROT_WRITE);
        assert!(!stops_writes(page));
        allow(libc::PROT_READ);
        assert!(stops_writes(page));
    }
}
