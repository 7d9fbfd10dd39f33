//! Calls of the C library that Neap must know of: who maps over the heap or fills its pages, and who
//! enters a sandbox.
//!
//! Each is the kernel's call by its number, as in the C library, so they may be called wherever those may:
//! in a signal handler, in a child of `vfork`.

use core::ffi::{c_int, c_long, c_ulong, c_void};
use neap::front;

/// Maps memory. What the program maps over a block (`MAP_FIXED`: a file, shared memory) is no memory of the
/// heap, and must not come back from `calloc` when the block was freed.
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
    // SAFETY: the caller's promise.
    let mapped =
        unsafe { libc::syscall(libc::SYS_mmap, address, bytes, access, flags, file, offset) };
    let mapped = mapped as *mut c_void;
    if flags & libc::MAP_FIXED != 0 && mapped != libc::MAP_FAILED {
        front::note_mapped_over(mapped.addr(), bytes);
    }
    mapped
}

/// The same: offsets have 64 bits anyway.
///
/// # Safety
/// - As `mmap(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    bytes: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: c_long,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { mmap(address, bytes, access, flags, file, offset) }
}

/// The kernel's `struct uffdio_range`, with which the argument of `UFFDIO_REGISTER` begins.
#[repr(C)]
struct Range {
    start: u64,
    bytes: u64,
}

/// `UFFDIO_REGISTER`: `_IOWR(0xaa, 0, struct uffdio_register)`, which is 32 bytes long.
const UFFDIO_REGISTER: c_ulong = 3 << 30 | 32 << 16 | 0xaa << 8;

/// Asks a device. Pages that the program fills itself (userfaultfd) do not read as zero when they are
/// absent, so blocks with such pages are mapped afresh when they are freed.
///
/// C declares the third argument as variable; on the machines that Neap runs on it comes in the same register.
///
/// # Safety
/// - As `ioctl(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_ioctl, file, request, argument) } as c_int;
    if request == UFFDIO_REGISTER && answer == 0 {
        // SAFETY: the kernel took the range from there just now.
        let range = unsafe { argument.cast::<Range>().read_unaligned() };
        front::note_mapped_over(range.start as usize, range.bytes as usize);
    }
    answer
}

/// Does something to the process. A program that is about to forbid itself system calls knows nothing of the
/// questions to `/proc/self/pagemap`; a filter may kill for them, so they end before it.
///
/// C declares the arguments after the first as variable; on the machines that Neap runs on they come in
/// the same registers.
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
        front::ask_no_more();
    }
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_prctl, operation, second, third, fourth, fifth) };
    answer as c_int
}
