//! Mappings of memory that no file stands behind.

use core::ffi::c_void;
use core::ptr::NonNull;

/// How reserved memory is mapped.
pub(super) const RESERVED: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Anonymous memory. By number, for libneap.so has an `mmap` of its own, which watches the
/// program's.
///
/// # Safety
/// - As `mmap(2)`.
pub(super) unsafe fn map(at: *mut c_void, bytes: usize, access: i32, flags: i32) -> *mut c_void {
    let [access, flags, no_file] = [access, flags, -1].map(core::ffi::c_long::from);
    // SAFETY: the caller's promise.
    unsafe {
        libc::syscall(libc::SYS_mmap, at, bytes, access, flags, no_file, 0usize) as *mut c_void
    }
}

/// A mapping without access at an address of the kernel's choice.
pub(super) fn map_reserved(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new mapping takes nothing from anybody.
    let at = unsafe { map(core::ptr::null_mut(), bytes, libc::PROT_NONE, RESERVED) };
    if at == libc::MAP_FAILED {
        None
    } else {
        NonNull::new(at.cast())
    }
}

/// Memory at the end of the program's heap, at a multiple of `align`. Readable and writable.
pub(super) fn at_break(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let more = libc::intptr_t::try_from(bytes.checked_add(align)?).ok()?;
    // SAFETY: growing the heap takes nothing from others; the C library's own allocator expects
    // gaps.
    let start = unsafe { libc::sbrk(more) };
    if start.addr() == usize::MAX {
        return None;
    }
    NonNull::new(start.addr().next_multiple_of(align) as *mut u8)
}

/// What reserving this many bytes takes, in ns; `None` if it is refused.
pub(super) fn price_ns(bytes: usize) -> Option<u64> {
    let begin = now_ns();
    let at = map_reserved(bytes)?;
    let price = now_ns().saturating_sub(begin);
    // SAFETY: mapped just above, and not shared.
    unsafe { unmap(at.as_ptr(), bytes) };
    Some(price)
}

fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the buffer is ours; on a failure it stays zero.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Reserves at the last multiple of `align` before `near`, if that is free.
pub(super) fn reserve_below(near: NonNull<u8>, bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let wish = near.as_ptr().map_addr(|at| at / align * align);
    // SAFETY: a new mapping takes nothing from others: the address is a wish.
    let at = unsafe { map(wish.cast(), bytes, libc::PROT_NONE, RESERVED) };
    if at == libc::MAP_FAILED || at.cast() == wish {
        return NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED);
    }
    // SAFETY: mapped just above, and not shared.
    unsafe { unmap(at.cast(), bytes) };
    None
}

/// Reserves more than asked, then gives back what stands before and after the aligned part.
pub(super) fn reserve_and_trim(bytes: usize, align: usize, page: usize) -> Option<NonNull<u8>> {
    let slack = align.checked_sub(page)?;
    let start = map_reserved(bytes.checked_add(slack)?)?;
    let before = (start.as_ptr() as usize).next_multiple_of(align) - start.as_ptr() as usize;
    // SAFETY: `before <= slack`, so head, aligned part and tail are the whole mapping made above.
    unsafe {
        let base = start.add(before);
        unmap(start.as_ptr(), before);
        unmap(base.add(bytes).as_ptr(), slack - before);
        Some(base)
    }
}

/// A new page or more, all zero, that is all zero again in every child that has memory of its own.
pub(super) fn map_wiped(bytes: usize) -> Option<NonNull<u8>> {
    let at = map_reserved(bytes)?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: mapped just above.
    let ready = unsafe {
        libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_WIPEONFORK) == 0
            && libc::mprotect(at.as_ptr().cast(), bytes, access) == 0
    };
    if !ready {
        // SAFETY: mapped just above, and not shared.
        unsafe { unmap(at.as_ptr(), bytes) };
    }
    ready.then_some(at)
}

/// # Safety
/// - The range is mapped by this room and out of use, or empty.
pub(super) unsafe fn unmap(at: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(at.cast(), bytes) };
    }
}
