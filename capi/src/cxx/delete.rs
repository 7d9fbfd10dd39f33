//! The twelve forms of `operator delete`.
//!
//! A size that the compiler states is checked as by `free_sized`: it is the size
//! that was asked of `new`. An alignment that comes without a size adds nothing.

use crate::cxx::replaced::{self, Derived};
use core::ffi::c_void;
use core::mem::transmute;
use neap::front;

/// A reference to `std::nothrow`: it chooses the form and is never read.
type Nothrow = *const c_void;
/// `operator delete(block, size)` of the C++ runtime.
type SizedForm = unsafe extern "C" fn(*mut c_void, usize);
/// `operator delete(block, size, align)` of the C++ runtime.
type SizedAlignedForm = unsafe extern "C" fn(*mut c_void, usize, usize);
/// `operator delete(block, nothrow)` of the C++ runtime.
type NothrowForm = unsafe extern "C" fn(*mut c_void, Nothrow);
/// `operator delete(block, align, nothrow)` of the C++ runtime.
type AlignedNothrowForm = unsafe extern "C" fn(*mut c_void, usize, Nothrow);

/// `operator delete(block)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPv(block: *mut c_void) {
    // SAFETY: the caller's promise is the same.
    unsafe { front::free(block.cast()) }
}

/// `operator delete[](block)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdaPv(block: *mut c_void) {
    // SAFETY: the caller's promise is the same.
    unsafe { front::free(block.cast()) }
}

/// `operator delete(block, align)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPvSt11align_val_t(block: *mut c_void, _align: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { front::free(block.cast()) }
}

/// `operator delete[](block, align)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdaPvSt11align_val_t(block: *mut c_void, _align: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { front::free(block.cast()) }
}

/// `operator delete(block, size)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`, called with these values; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPvm(block: *mut c_void, size: usize) {
    static BEHIND: Derived = Derived::new(c"_ZdlPvm");
    // SAFETY: the caller's promise is the same.
    unsafe { sized(&BEHIND, block, size) }
}

/// `operator delete[](block, size)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`, called with these values; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdaPvm(block: *mut c_void, size: usize) {
    static BEHIND: Derived = Derived::new(c"_ZdaPvm");
    // SAFETY: the caller's promise is the same.
    unsafe { sized(&BEHIND, block, size) }
}

/// `operator delete(block, size, align)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`, called with these values; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPvmSt11align_val_t(block: *mut c_void, size: usize, align: usize) {
    static BEHIND: Derived = Derived::new(c"_ZdlPvmSt11align_val_t");
    // SAFETY: the caller's promise is the same.
    unsafe { sized_aligned(&BEHIND, block, size, align) }
}

/// `operator delete[](block, size, align)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`, called with these values; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdaPvmSt11align_val_t(block: *mut c_void, size: usize, align: usize) {
    static BEHIND: Derived = Derived::new(c"_ZdaPvmSt11align_val_t");
    // SAFETY: the caller's promise is the same.
    unsafe { sized_aligned(&BEHIND, block, size, align) }
}

/// `operator delete(block, nothrow)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPvRKSt9nothrow_t(block: *mut c_void, tag: Nothrow) {
    static BEHIND: Derived = Derived::new(c"_ZdlPvRKSt9nothrow_t");
    // SAFETY: the caller's promise is the same.
    unsafe { nothrow(&BEHIND, block, tag) }
}

/// `operator delete[](block, nothrow)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdaPvRKSt9nothrow_t(block: *mut c_void, tag: Nothrow) {
    static BEHIND: Derived = Derived::new(c"_ZdaPvRKSt9nothrow_t");
    // SAFETY: the caller's promise is the same.
    unsafe { nothrow(&BEHIND, block, tag) }
}

/// `operator delete(block, align, nothrow)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`, called with these values; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPvSt11align_val_tRKSt9nothrow_t(
    block: *mut c_void,
    align: usize,
    tag: Nothrow,
) {
    static BEHIND: Derived = Derived::new(c"_ZdlPvSt11align_val_tRKSt9nothrow_t");
    // SAFETY: the caller's promise is the same.
    unsafe { aligned_nothrow(&BEHIND, block, align, tag) }
}

/// `operator delete[](block, align, nothrow)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`, called with these values; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdaPvSt11align_val_tRKSt9nothrow_t(
    block: *mut c_void,
    align: usize,
    tag: Nothrow,
) {
    static BEHIND: Derived = Derived::new(c"_ZdaPvSt11align_val_tRKSt9nothrow_t");
    // SAFETY: the caller's promise is the same.
    unsafe { aligned_nothrow(&BEHIND, block, align, tag) }
}

/// Frees a block of `size` bytes, or lets the program's own operators do it.
///
/// # Safety
/// - As the operator that calls it.
#[inline(always)]
unsafe fn sized(behind: &Derived, block: *mut c_void, size: usize) {
    if replaced::any()
        && let Some(form) = behind.get()
    {
        // SAFETY: the symbol is this operator's other definition; the caller's promise is the same.
        return unsafe { transmute::<_, SizedForm>(form)(block, size) };
    }
    // SAFETY: the caller's promise is the same.
    unsafe { front::free_sized(block.cast(), size) }
}

/// As [`sized`], with the alignment.
///
/// # Safety
/// - As the operator that calls it.
#[inline(always)]
unsafe fn sized_aligned(behind: &Derived, block: *mut c_void, size: usize, align: usize) {
    if replaced::any()
        && let Some(form) = behind.get()
    {
        // SAFETY: the symbol is this operator's other definition; the caller's promise is the same.
        return unsafe { transmute::<_, SizedAlignedForm>(form)(block, size, align) };
    }
    // SAFETY: the caller's promise is the same.
    unsafe { front::free_aligned_sized(block.cast(), align, size) }
}

/// Frees a block whose constructor threw, or lets the program's own operators do it.
///
/// # Safety
/// - As the operator that calls it.
#[inline(always)]
unsafe fn nothrow(behind: &Derived, block: *mut c_void, tag: Nothrow) {
    if replaced::any()
        && let Some(form) = behind.get()
    {
        // SAFETY: the symbol is this operator's other definition; the caller's promise is the same.
        return unsafe { transmute::<_, NothrowForm>(form)(block, tag) };
    }
    // SAFETY: the caller's promise is the same.
    unsafe { front::free(block.cast()) }
}

/// As [`nothrow`], with the alignment.
///
/// # Safety
/// - As the operator that calls it.
#[inline(always)]
unsafe fn aligned_nothrow(behind: &Derived, block: *mut c_void, align: usize, tag: Nothrow) {
    if replaced::any()
        && let Some(form) = behind.get()
    {
        // SAFETY: the symbol is this operator's other definition; the caller's promise is the same.
        return unsafe { transmute::<_, AlignedNothrowForm>(form)(block, align, tag) };
    }
    // SAFETY: the caller's promise is the same.
    unsafe { front::free(block.cast()) }
}
