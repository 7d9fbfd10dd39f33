//! Calls of the C library that Neap must know of: those that map over the heap or unmap its pages,
//! fill them or advise on them, lock its memory, or enter a sandbox.
//!
//! Each then calls the next library's function, which the constructor found, or the kernel directly
//! before that. They take no lock and allocate nothing, so they may be called wherever the
//! originals may: in a signal handler, or in a child of `vfork`.

use crate::imports::aliases;
use crate::loader::wrappers;
use core::ffi::{c_int, c_long, c_ulong, c_void};
use neap_heap::base::units::SLICE_BYTES;
use neap_heap::init;
use neap_heap::mapped_over;
use neap_heap::os::process;

fn note(mapped: *mut c_void, bytes: usize) {
    if mapped != libc::MAP_FAILED {
        mapped_over::note(mapped.addr(), bytes);
    }
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

/// The kernel's `struct uffdio_range`, with which the argument of `UFFDIO_REGISTER` begins.
#[repr(C)]
struct Range {
    start: u64,
    bytes: u64,
}

/// `UFFDIO_REGISTER`: `_IOWR(0xaa, 0, struct uffdio_register)`, which is 32 bytes long. The kernel
/// looks at 32 bits.
const UFFDIO_REGISTER: u32 = 3 << 30 | 32 << 16 | 0xaa << 8;

wrappers! {
    /// Maps memory. What the program maps over a block (a file, shared memory) is not the heap's
    /// memory, and must not come back from `calloc` after the block is freed.
    ///
    /// # Safety
    /// - As `mmap(2)`.
    fn mmap(
        address: *mut c_void,
        bytes: usize,
        access: c_int,
        flags: c_int,
        file: c_int,
        offset: c_long
    ) -> *mut c_void = |next| {
        // Before the call, which may fail after the kernel has unmapped what was there.
        if flags & libc::MAP_FIXED != 0 {
            mapped_over::note(address.addr(), bytes);
        }
        let mapped = next();
        note(mapped, bytes);
        mapped
    }

    /// Unmaps memory. Pages of a block that the program unmaps are mapped afresh when it frees the
    /// block.
    ///
    /// # Safety
    /// - As `munmap(2)`.
    fn munmap(address: *mut c_void, bytes: usize) -> c_int = |next| {
        // Before the call: afterwards another thread may have the addresses, outside of the arenas.
        mapped_over::note(address.addr(), bytes);
        next()
    }

    /// Moves a mapping, perhaps over a block, or pages of a block elsewhere.
    ///
    /// # Safety
    /// - As `mremap(2)`.
    fn mremap(
        old: *mut c_void,
        old_bytes: usize,
        bytes: usize,
        flags: c_int;
        ... new: *mut c_void
    ) -> *mut c_void = |next| {
        // Before the call, as in `mmap` and `munmap`: what is moved away or cut off is missing in
        // the block.
        mapped_over::note(old.addr(), old_bytes);
        if flags & libc::MREMAP_FIXED != 0 {
            mapped_over::note(new.addr(), bytes);
        }
        let mapped = next();
        note(mapped, bytes);
        mapped
    }

    /// Attaches shared memory, perhaps over a block (`SHM_REMAP`). Only the kernel knows how long
    /// it is. Up to the end of a slice suffices: a program may attach it only over memory of its
    /// own, which is one block, and larger blocks are mapped afresh as a whole.
    ///
    /// # Safety
    /// - As `shmat(2)`.
    fn shmat(id: c_int, address: *const c_void, flags: c_int) -> *mut c_void = |next| {
        let mapped: *mut c_void = next();
        note(mapped, SLICE_BYTES - mapped.addr() % SLICE_BYTES);
        mapped
    }

    /// Advises the kernel on pages. What the program asks for its block must not hold for the
    /// block's next owner.
    ///
    /// # Safety
    /// - As `madvise(2)`.
    fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int = |next| {
        let answer = next();
        // Also after an error, before which the kernel may have followed the advice for some pages.
        if LASTING.contains(&advice) {
            mapped_over::note(start.addr(), bytes);
        }
        answer
    }

    /// Controls a device. Pages that the program fills itself (userfaultfd) do not read as zero
    /// when they are absent, so blocks with such pages are mapped afresh when they are freed.
    ///
    /// # Safety
    /// - As `ioctl(2)`.
    fn ioctl(file: c_int, request: c_ulong; ... argument: *mut c_void) -> c_int = |next| {
        let answer = next();
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
    fn mlockall(flags: c_int) -> c_int = |next| {
        let answer = next();
        if answer == 0 {
            process::set_memory_locked(true);
        }
        answer
    }

    /// Unlocks it.
    ///
    /// # Safety
    /// - As [`mlockall`].
    fn munlockall() -> c_int = |next| {
        let answer = next();
        if answer == 0 {
            process::set_memory_locked(false);
        }
        answer
    }

    /// Controls the process. A program that is about to forbid itself system calls does not know of
    /// the queries to `/proc/self/pagemap`. A filter may kill the process for them, so they end
    /// before it is installed.
    ///
    /// # Safety
    /// - As `prctl(2)`.
    fn prctl(
        operation: c_int;
        ... second: c_ulong,
        third: c_ulong,
        fourth: c_ulong,
        fifth: c_ulong
    ) -> c_int = |next| {
        if matches!(operation, libc::PR_SET_SECCOMP | libc::PR_SET_NO_NEW_PRIVS) {
            init::ask_no_more();
        }
        next()
    }
}

// Both names have offsets of 64 bits.
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
