//! Blocks at a stated alignment.

use crate::errno::{fail, or_enomem, set};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use neap_heap::malloc;
use neap_heap::os::Os;
use neap_heap::os::linux::Linux;

/// The largest alignment that `neap_heap::malloc` serves: 1 GiB. Requests beyond it fail.
const LARGEST: usize = 1 << 30;
/// The alignment of every block, even with a size class of 8 bytes (`NEAP_CLASSES`).
const LEAST: usize = 8;

/// A block at a multiple of `align`, a power of two; null if there is none.
#[inline]
pub(crate) fn allocate(size: usize, align: usize) -> *mut u8 {
    if align <= LEAST {
        return malloc::allocate(size);
    }
    if align > LARGEST {
        return null_mut();
    }
    malloc::allocate_aligned(size, align)
}

/// `size` bytes at a multiple of `align`, which is rounded up to a power of two
/// as glibc does; `EINVAL` if it cannot be.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => or_enomem(allocate(size, align)),
        None => fail(libc::EINVAL),
    }
}

/// `size` bytes at a multiple of `align`; null and `EINVAL` if that is no power of two, as C17 and
/// glibc 2.38 have it. Every `size` is accepted.
#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    match align.is_power_of_two() {
        true => or_enomem(allocate(size, align)),
        false => fail(libc::EINVAL),
    }
}

/// Stores a block at a multiple of `align` in `*out` and returns 0, or returns `EINVAL` (not a
/// power of two times `sizeof(void *)`) or `ENOMEM` and leaves `*out` alone. `ENOMEM` is in `errno`
/// as well, as in glibc: programs print it.
///
/// # Safety
/// - `out` may be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    align: usize,
    size: usize,
) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
        return libc::EINVAL;
    }
    let block = allocate(size, align);
    if block.is_null() {
        set(libc::ENOMEM);
        return libc::ENOMEM;
    }
    // SAFETY: the caller says so.
    unsafe { out.write(block.cast()) };
    0
}

/// `size` bytes at the start of an OS page.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn valloc(size: usize) -> *mut c_void {
    memalign(Linux.page_bytes(), size)
}

/// As [`valloc`], with `size` rounded up to whole OS pages.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pvalloc(size: usize) -> *mut c_void {
    let page = Linux.page_bytes();
    match size.checked_next_multiple_of(page) {
        Some(bytes) => memalign(page, bytes),
        None => fail(libc::ENOMEM),
    }
}
