//! The names of the C standard and their relatives, as glibc 2.36 behaves, with C23's frees that
//! state a size; the same under glibc's internal names (`__libc_malloc` …), and SunOS's `cfree`.
//! Old programs and some interposers call these, and would reach a second heap without them here.

use crate::imports::{aliases, fail, or_enomem};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use neap_heap::malloc::Placement;
use neap_heap::os::Os;
use neap_heap::os::linux::Linux;
use neap_heap::os::loader::set_errno;
use neap_heap::{free, malloc};

/// `size` bytes at a multiple of 16; `malloc(0)` gives a block of its own.
#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    fresh(size)
}

/// [`malloc`] for callers in this library, as the other inlined functions here: the loader may bind
/// the exported names to a library in front of this one, which may call back.
#[inline(always)]
fn fresh(size: usize) -> *mut c_void {
    match malloc::allocate_hit(size) {
        Some(block) => block.cast(),
        None => malloc_miss(size),
    }
}

/// [`malloc`] past the magazine: out of line, so that the hot path needs no stack frame.
#[cold]
#[inline(never)]
fn malloc_miss(size: usize) -> *mut c_void {
    or_enomem(malloc::allocate_missed(size))
}

/// `count * size` bytes of zeros; null and `ENOMEM` if the product overflows.
#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    zeroed(count, size)
}

/// [`calloc`], as [`fresh`].
#[inline(always)]
fn zeroed(count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        return calloc_miss(usize::MAX);
    };
    match malloc::allocate_zeroed_hit(bytes) {
        Some(block) => block.cast(),
        None => calloc_miss(bytes),
    }
}

/// [`calloc`] past the magazine, as [`malloc_miss`]. Sizes beyond the address space are refused
/// there.
#[cold]
#[inline(never)]
fn calloc_miss(bytes: usize) -> *mut c_void {
    or_enomem(malloc::allocate_zeroed_missed(bytes))
}

/// Resizes a block. A null `block` allocates; size 0 frees and gives null, as glibc does.
///
/// # Safety
/// - `block` is null or a live block of this library, not used by others meanwhile.
/// - After success (and after size 0) the caller no longer uses `block`.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise is the same.
    unsafe { resize(block, size) }
}

/// [`realloc`], as [`fresh`].
///
/// # Safety
/// - As [`realloc`].
#[inline(always)]
unsafe fn resize(block: *mut c_void, size: usize) -> *mut c_void {
    match malloc::placement(block.cast(), size, 16) {
        Placement::InPlace if size != 0 => block,
        // SAFETY: the caller's promise.
        Placement::Move(held) if size != 0 => unsafe { realloc_moving(block, held, size) },
        // SAFETY: the caller's promise.
        _ => unsafe { realloc_missed(block, size) },
    }
}

/// [`realloc`] to another class. Out of line, so that one in place needs no stack frame.
///
/// # Safety
/// - As [`realloc`]; [`malloc::placement`] said that the block moves, and holds `held` bytes.
#[inline(never)]
unsafe extern "C" fn realloc_moving(block: *mut c_void, held: usize, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    or_enomem(unsafe { malloc::reallocate_moving(block.cast(), held, size) })
}

/// [`realloc`] past the fast path.
///
/// # Safety
/// - As [`realloc`].
#[inline(never)]
unsafe extern "C" fn realloc_missed(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        return fresh(size);
    }
    if size == 0 {
        // SAFETY: not null, so the caller vouches for a live block.
        unsafe { free::free(block.cast()) };
        return null_mut();
    }
    // SAFETY: not null, so the caller vouches for a live block; size is not 0.
    or_enomem(unsafe { malloc::reallocate_missed(block.cast(), size, 16) })
}

/// [`realloc`] to `count * size` bytes; null and `ENOMEM`, the block untouched, if that overflows.
/// As in glibc, it calls the first `realloc` of the process.
///
/// # Safety
/// - As [`realloc`].
#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's promise is the same.
        Some(bytes) => unsafe { realloc(block, bytes) },
        None => fail(libc::ENOMEM),
    }
}

/// Gives a block back; null does nothing. Keeps `errno`.
///
/// # Safety
/// - `block` is null or a live block of this library that no thread uses any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free(block.cast()) }
}

/// How many bytes of `block` may be written, at least as many as were requested; 0 for null.
///
/// # Safety
/// - `block` is null or a live block of this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: the caller's promise is the same.
    unsafe { free::usable_size(block.cast()) }
}

/// The largest alignment that `neap_heap::malloc` serves: 1 GiB. Requests beyond it fail.
const LARGEST: usize = 1 << 30;
/// The alignment of every block, even with a size class of 8 bytes (`NEAP_CLASSES`).
const LEAST: usize = 8;

/// A block at a multiple of `align`, if that is a power of two and the calling thread's magazine
/// alone can serve it; otherwise `None`.
#[inline(always)]
pub(crate) fn hit(size: usize, align: usize) -> Option<*mut u8> {
    match align.is_power_of_two() {
        true => malloc::allocate_aligned_hit(size, align),
        false => None,
    }
}

/// A block at a multiple of `align`, a power of two; null if there is none.
#[cold]
#[inline(never)]
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
extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    at_multiple(align, size)
}

/// [`memalign`], as [`fresh`].
#[inline(always)]
fn at_multiple(align: usize, size: usize) -> *mut c_void {
    match hit(size, align) {
        Some(block) => block.cast(),
        None => missed(align.checked_next_power_of_two(), size),
    }
}

/// `size` bytes at a multiple of `align`; null and `EINVAL` if that is no power of two, as C17 and
/// glibc 2.38 have it. Every `size` is accepted.
#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    match hit(size, align) {
        Some(block) => block.cast(),
        None => missed(Some(align).filter(|align| align.is_power_of_two()), size),
    }
}

/// After [`hit`] had nothing. Out of line, so that a hit needs no stack frame.
#[cold]
#[inline(never)]
fn missed(align: Option<usize>, size: usize) -> *mut c_void {
    match align {
        Some(align) => or_enomem(allocate(size, align)),
        None => fail(libc::EINVAL),
    }
}

/// Stores a block at a multiple of `align` in `*out` and returns 0, or returns `EINVAL` (not a
/// power of two times `sizeof(void *)`) or `ENOMEM` and leaves `*out` alone. `ENOMEM` is in `errno`
/// as well, as in glibc: programs print it.
///
/// # Safety
/// - `out` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
        return libc::EINVAL;
    }
    let block = hit(size, align).unwrap_or_else(|| allocate(size, align));
    if block.is_null() {
        set_errno(libc::ENOMEM);
        return libc::ENOMEM;
    }
    // SAFETY: the caller says so.
    unsafe { out.write(block.cast()) };
    0
}

/// `size` bytes at the start of an OS page.
#[unsafe(no_mangle)]
extern "C" fn valloc(size: usize) -> *mut c_void {
    at_multiple(Linux.page_bytes(), size)
}

/// As [`valloc`], with `size` rounded up to whole OS pages.
#[unsafe(no_mangle)]
extern "C" fn pvalloc(size: usize) -> *mut c_void {
    let page = Linux.page_bytes();
    match size.checked_next_multiple_of(page) {
        Some(bytes) => at_multiple(page, bytes),
        None => fail(libc::ENOMEM),
    }
}

/// Frees a block of `malloc`, `calloc` or `realloc` that was asked for with `size` bytes; null does
/// nothing.
///
/// # Safety
/// - `block` is null or a live block that no thread uses any more, and `size` is what was asked
///   for.
#[unsafe(no_mangle)]
unsafe extern "C" fn free_sized(block: *mut c_void, size: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_sized(block.cast(), size) }
}

/// Frees a block of `aligned_alloc(align, size)`; null does nothing.
///
/// # Safety
/// - `block` is null or a live block that no thread uses any more, and `align` and `size` are what
///   was asked for.
#[unsafe(no_mangle)]
unsafe extern "C" fn free_aligned_sized(block: *mut c_void, align: usize, size: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_aligned_sized(block.cast(), align, size) }
}

// The names under which others call the same functions.
aliases! {
    __libc_malloc = fresh(size: usize) -> *mut c_void;
    __libc_calloc = zeroed(count: usize, size: usize) -> *mut c_void;
    __libc_realloc = resize(block: *mut c_void, size: usize) -> *mut c_void;
    __libc_free = free(block: *mut c_void);
    cfree = free(block: *mut c_void);
    __libc_memalign = at_multiple(align: usize, size: usize) -> *mut c_void;
    __libc_valloc = valloc(size: usize) -> *mut c_void;
    __libc_pvalloc = pvalloc(size: usize) -> *mut c_void;
    __posix_memalign = posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int;
}
