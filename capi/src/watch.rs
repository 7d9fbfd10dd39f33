//! Calls of the C library that Neap must know of: those that map over the heap or unmap its pages,
//! fill them or advise on them, lock its memory, or enter a sandbox.
//!
//! Each then calls the next library's function, which the constructor found, or the kernel directly
//! before that. They take no lock and allocate nothing, so they may be called wherever the
//! originals may: in a signal handler, or in a child of `vfork`.

use crate::imports::aliases;
use crate::loader::{next_or_kernel, wraps};
use core::ffi::{c_int, c_long, c_ulong, c_void};
use neap_heap::base::units::SLICE_BYTES;
use neap_heap::init;
use neap_heap::mapped_over;
use neap_heap::os::process;

wraps! {
    MMAP: c"mmap",
        unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, c_long) -> *mut c_void;
    MUNMAP: c"munmap", unsafe extern "C" fn(*mut c_void, usize) -> c_int;
    MREMAP: c"mremap", unsafe extern "C" fn(*mut c_void, usize, usize, c_int, ...) -> *mut c_void;
    SHMAT: c"shmat", unsafe extern "C" fn(c_int, *const c_void, c_int) -> *mut c_void;
    MADVISE: c"madvise", unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
    IOCTL: c"ioctl", unsafe extern "C" fn(c_int, c_ulong, ...) -> c_int;
    PRCTL: c"prctl", unsafe extern "C" fn(c_int, ...) -> c_int;
    MLOCKALL: c"mlockall", unsafe extern "C" fn(c_int) -> c_int;
    MUNLOCKALL: c"munlockall", unsafe extern "C" fn() -> c_int;
}

/// Maps memory. What the program maps over a block (a file, shared memory) is not the heap's
/// memory, and must not come back from `calloc` after the block is freed.
///
/// # Safety
/// - As `mmap(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: c_long,
) -> *mut c_void {
    // Before the call, which may fail after the kernel has unmapped what was there.
    if flags & libc::MAP_FIXED != 0 {
        mapped_over::note(address.addr(), bytes);
    }
    // SAFETY: as C declares the function; without one, as the kernel's call of this number.
    let mapped =
        unsafe { next_or_kernel!(MMAP(address, bytes, access, flags, file, offset), mmap) };
    note(mapped, bytes);
    mapped
}

// Offsets have 64 bits anyway.
aliases! {
    mmap64 = mmap(
        address: *mut c_void,
        bytes: usize,
        access: c_int,
        flags: c_int,
        file: c_int,
        offset: c_long
    ) -> *mut c_void;
}

/// Unmaps memory. Pages of a block that the program unmaps are mapped afresh when it frees the
/// block.
///
/// # Safety
/// - As `munmap(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(address: *mut c_void, bytes: usize) -> c_int {
    // Before the call: afterwards another thread may have the addresses, outside of the arenas.
    mapped_over::note(address.addr(), bytes);
    // SAFETY: as in `mmap`.
    unsafe { next_or_kernel!(MUNMAP(address, bytes), munmap) }
}

/// Moves a mapping, perhaps over a block, or pages of a block elsewhere.
///
/// C declares the last argument as variable; on the machines that Neap runs on it comes in the same
/// register.
///
/// # Safety
/// - As `mremap(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_bytes: usize,
    bytes: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    // Before the call, as in `mmap` and `munmap`: what is moved away or cut off is missing in the
    // block.
    mapped_over::note(old.addr(), old_bytes);
    if flags & libc::MREMAP_FIXED != 0 {
        mapped_over::note(new.addr(), bytes);
    }
    // SAFETY: as in `mmap`.
    let mapped = unsafe { next_or_kernel!(MREMAP(old, old_bytes, bytes, flags, new), mremap) };
    note(mapped, bytes);
    mapped
}

/// Attaches shared memory, perhaps over a block (`SHM_REMAP`). Only the kernel knows how long it
/// is. Up to the end of a slice suffices: a program may attach it only over memory of its own,
/// which is one block, and larger blocks are mapped afresh as a whole.
///
/// # Safety
/// - As `shmat(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn shmat(id: c_int, address: *const c_void, flags: c_int) -> *mut c_void {
    // SAFETY: as in `mmap`.
    let mapped = unsafe { next_or_kernel!(SHMAT(id, address, flags), shmat) };
    note(mapped, SLICE_BYTES - mapped.addr() % SLICE_BYTES);
    mapped
}

/// Advice that stays with the pages: they are missing in children or in core dumps, or the kernel
/// may merge them. Advice on huge pages stays as well, but changes no contents, and programs give
/// it for many blocks.
const LASTING: [c_int; 4] = [
    libc::MADV_DONTFORK,
    libc::MADV_WIPEONFORK,
    libc::MADV_DONTDUMP,
    libc::MADV_MERGEABLE,
];

/// Advises the kernel on pages. What the program asks for its block must not hold for the block's
/// next owner.
///
/// # Safety
/// - As `madvise(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    // SAFETY: as in `mmap`.
    let answer = unsafe { next_or_kernel!(MADVISE(start, bytes, advice), madvise) };
    // Also after an error, before which the kernel may have followed the advice for some pages.
    if LASTING.contains(&advice) {
        mapped_over::note(start.addr(), bytes);
    }
    answer
}

fn note(mapped: *mut c_void, bytes: usize) {
    if mapped != libc::MAP_FAILED {
        mapped_over::note(mapped.addr(), bytes);
    }
}

/// The kernel's `struct uffdio_range`, with which the argument of `UFFDIO_REGISTER` begins.
#[repr(C)]
struct Range {
    start: u64,
    bytes: u64,
}

/// `UFFDIO_REGISTER`: `_IOWR(0xaa, 0, struct uffdio_register)`, which is 32 bytes long. The kernel
/// looks at 32 bits.
const UFFDIO_REGISTER: u32 = 3 << 30 | 32 << 16 | 0xaa << 8;

/// Controls a device. Pages that the program fills itself (userfaultfd) do not read as zero when
/// they are absent, so blocks with such pages are mapped afresh when they are freed.
///
/// C declares the third argument as variable; on the machines that Neap runs on it comes in the
/// same register.
///
/// # Safety
/// - As `ioctl(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: as in `mmap`.
    let answer = unsafe { next_or_kernel!(IOCTL(file, request, argument), ioctl) };
    if request as u32 == UFFDIO_REGISTER && answer == 0 {
        // SAFETY: the kernel took the range from there just now.
        let range = unsafe { argument.cast::<Range>().read_unaligned() };
        mapped_over::note(range.start as usize, range.bytes as usize);
    }
    answer
}

/// Locks the process's memory. A program that does so must not take page faults afterwards, so
/// nothing goes back to the kernel from then on.
///
/// # Safety
/// - None: it takes no pointers. Unsafe as all functions here, which C calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    // SAFETY: as in `mmap`.
    let answer = unsafe { next_or_kernel!(MLOCKALL(flags), mlockall) };
    if answer == 0 {
        process::set_memory_locked(true);
    }
    answer
}

/// Unlocks it.
///
/// # Safety
/// - As [`mlockall`].
#[unsafe(no_mangle)]
unsafe extern "C" fn munlockall() -> c_int {
    // SAFETY: as in `mmap`.
    let answer = unsafe { next_or_kernel!(MUNLOCKALL(), munlockall) };
    if answer == 0 {
        process::set_memory_locked(false);
    }
    answer
}

/// Controls the process. A program that is about to forbid itself system calls does not know of the
/// queries to `/proc/self/pagemap`. A filter may kill the process for them, so they end before it
/// is installed.
///
/// C declares the arguments after the first as variable; on the machines that Neap runs on they
/// come in the same registers.
///
/// # Safety
/// - As `prctl(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn prctl(
    operation: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    if matches!(operation, libc::PR_SET_SECCOMP | libc::PR_SET_NO_NEW_PRIVS) {
        init::ask_no_more();
    }
    // SAFETY: as in `mmap`.
    unsafe { next_or_kernel!(PRCTL(operation, second, third, fourth, fifth), prctl) }
}
