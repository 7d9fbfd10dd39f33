//! The twelve forms of `operator delete`.
//!
//! A stated size that is too small is refused only under `NEAP_CHECK=1` and `NEAP_HARDEN`. A
//! program that deletes through a base class without a virtual destructor states one, and no code
//! here needs it. `NEAP_HARDEN` also refuses a `delete` of what another form than `new` gave.

use crate::cxx::replaced::{self, Derived};
use core::ffi::c_void;
use core::mem::transmute;
use core::ptr::NonNull;
use neap_heap::free;
use neap_heap::harden::Form;

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
/// - `block` is null or came from the matching `new`; the program no longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPv(block: *mut c_void) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_formed(block.cast(), Form::New) }
}

/// `operator delete[](block)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; the program no longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdaPv(block: *mut c_void) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_formed(block.cast(), Form::Array) }
}

/// `operator delete(block, align)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; the program no longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPvSt11align_val_t(block: *mut c_void, _align: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free(block.cast()) }
}

/// `operator delete[](block, align)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; the program no longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdaPvSt11align_val_t(block: *mut c_void, _align: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free(block.cast()) }
}

/// `operator delete(block, size)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`, called with these values; the program no
///   longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPvm(block: *mut c_void, size: usize) {
    static BEHIND: Derived = Derived::new(c"_ZdlPvm");
    // SAFETY: the caller's promise is the same.
    unsafe { sized(&BEHIND, block, size, Form::New) }
}

/// `operator delete[](block, size)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`, called with these values; the program no
///   longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdaPvm(block: *mut c_void, size: usize) {
    static BEHIND: Derived = Derived::new(c"_ZdaPvm");
    // SAFETY: the caller's promise is the same.
    unsafe { sized(&BEHIND, block, size, Form::Array) }
}

/// `operator delete(block, size, align)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`, called with these values; the program no
///   longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPvmSt11align_val_t(block: *mut c_void, size: usize, align: usize) {
    static BEHIND: Derived = Derived::new(c"_ZdlPvmSt11align_val_t");
    // SAFETY: the caller's promise is the same.
    unsafe { sized_aligned(&BEHIND, block, size, align) }
}

/// `operator delete[](block, size, align)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`, called with these values; the program no
///   longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdaPvmSt11align_val_t(block: *mut c_void, size: usize, align: usize) {
    static BEHIND: Derived = Derived::new(c"_ZdaPvmSt11align_val_t");
    // SAFETY: the caller's promise is the same.
    unsafe { sized_aligned(&BEHIND, block, size, align) }
}

/// `operator delete(block, nothrow)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; the program no longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPvRKSt9nothrow_t(block: *mut c_void, tag: Nothrow) {
    static BEHIND: Derived = Derived::new(c"_ZdlPvRKSt9nothrow_t");
    // SAFETY: the caller's promise is the same.
    unsafe { nothrow(&BEHIND, block, tag) }
}

/// `operator delete[](block, nothrow)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; the program no longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdaPvRKSt9nothrow_t(block: *mut c_void, tag: Nothrow) {
    static BEHIND: Derived = Derived::new(c"_ZdaPvRKSt9nothrow_t");
    // SAFETY: the caller's promise is the same.
    unsafe { nothrow(&BEHIND, block, tag) }
}

/// `operator delete(block, align, nothrow)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`, called with these values; the program no
///   longer uses it.
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
/// - `block` is null or came from the matching `new`, called with these values; the program no
///   longer uses it.
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

/// Frees a block of `size` bytes.
///
/// # Safety
/// - Same as for the operator that calls it.
#[inline(always)]
unsafe fn sized(behind: &Derived, block: *mut c_void, size: usize, form: Form) {
    if !replaced::surely_none() {
        // SAFETY: the caller's promise is the same.
        return unsafe { sized_elsewhere(behind, block, size, form) };
    }
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_deleted(block.cast(), size, 1, form) }
}

/// [`sized`] through the C++ runtime's operator, if the program has replaced any operator.
///
/// # Safety
/// - Same as for the operator that calls it.
#[cold]
#[inline(never)]
unsafe fn sized_elsewhere(behind: &Derived, block: *mut c_void, size: usize, form: Form) {
    // SAFETY: the symbol is this operator's other definition; the caller's promise is the same.
    unsafe {
        match replaced::instead(behind) {
            Some(form) => transmute::<NonNull<c_void>, SizedForm>(form)(block, size),
            None => free::free_deleted(block.cast(), size, 1, form),
        }
    }
}

/// Like [`sized`], with the alignment.
///
/// # Safety
/// - Same as for the operator that calls it.
#[inline(always)]
unsafe fn sized_aligned(behind: &Derived, block: *mut c_void, size: usize, align: usize) {
    if !replaced::surely_none() {
        // SAFETY: the caller's promise is the same.
        return unsafe { sized_aligned_elsewhere(behind, block, size, align) };
    }
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_deleted(block.cast(), size, align, Form::Any) }
}

/// [`sized_aligned`] through the C++ runtime's operator, if the program has replaced any operator.
///
/// # Safety
/// - Same as for the operator that calls it.
#[cold]
#[inline(never)]
unsafe fn sized_aligned_elsewhere(behind: &Derived, block: *mut c_void, size: usize, align: usize) {
    // SAFETY: the symbol is this operator's other definition; the caller's promise is the same.
    unsafe {
        match replaced::instead(behind) {
            Some(form) => transmute::<NonNull<c_void>, SizedAlignedForm>(form)(block, size, align),
            None => free::free_deleted(block.cast(), size, align, Form::Any),
        }
    }
}

/// Frees a block whose constructor threw.
///
/// # Safety
/// - Same as for the operator that calls it.
#[inline(always)]
unsafe fn nothrow(behind: &Derived, block: *mut c_void, tag: Nothrow) {
    if !replaced::surely_none() {
        // SAFETY: the caller's promise is the same.
        return unsafe { nothrow_elsewhere(behind, block, tag) };
    }
    // SAFETY: the caller's promise is the same.
    unsafe { free::free(block.cast()) }
}

/// [`nothrow`] through the C++ runtime's operator, if the program has replaced any operator.
///
/// # Safety
/// - Same as for the operator that calls it.
#[cold]
#[inline(never)]
unsafe fn nothrow_elsewhere(behind: &Derived, block: *mut c_void, tag: Nothrow) {
    // SAFETY: the symbol is this operator's other definition; the caller's promise is the same.
    unsafe {
        match replaced::instead(behind) {
            Some(form) => transmute::<NonNull<c_void>, NothrowForm>(form)(block, tag),
            None => free::free(block.cast()),
        }
    }
}

/// Like [`nothrow`], with the alignment.
///
/// # Safety
/// - Same as for the operator that calls it.
#[inline(always)]
unsafe fn aligned_nothrow(behind: &Derived, block: *mut c_void, align: usize, tag: Nothrow) {
    if !replaced::surely_none() {
        // SAFETY: the caller's promise is the same.
        return unsafe { aligned_nothrow_elsewhere(behind, block, align, tag) };
    }
    // SAFETY: the caller's promise is the same.
    unsafe { free::free(block.cast()) }
}

/// [`aligned_nothrow`] through the C++ runtime's operator, if the program has replaced any
/// operator.
///
/// # Safety
/// - Same as for the operator that calls it.
#[cold]
#[inline(never)]
unsafe fn aligned_nothrow_elsewhere(
    behind: &Derived,
    block: *mut c_void,
    align: usize,
    tag: Nothrow,
) {
    // SAFETY: the symbol is this operator's other definition; the caller's promise is the same.
    unsafe {
        match replaced::instead(behind) {
            Some(form) => transmute::<NonNull<c_void>, AlignedNothrowForm>(form)(block, align, tag),
            None => free::free(block.cast()),
        }
    }
}
