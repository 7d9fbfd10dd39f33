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
use neap_heap::watched::harden::Form;

/// A reference to `std::nothrow`: it chooses the form and is never read.
type Nothrow = *const c_void;
/// `operator delete(block, size)` of the C++ runtime.
type SizedForm = unsafe extern "C" fn(*mut c_void, usize);
/// `operator delete(block, size, align)` of the C++ runtime.
type SizedAlignedForm = unsafe extern "C" fn(*mut c_void, usize, usize);
/// A form of the C++ runtime without a size. One with fewer arguments ignores the registers of the
/// others.
type UnsizedForm = unsafe extern "C" fn(*mut c_void, usize, usize);

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
    static BEHIND: Derived = Derived::new(c"_ZdaPv");
    // SAFETY: the caller's promise is the same.
    unsafe { without_size(&BEHIND, block, 0, 0, Form::Array) }
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
unsafe extern "C" fn _ZdaPvSt11align_val_t(block: *mut c_void, align: usize) {
    static BEHIND: Derived = Derived::new(c"_ZdaPvSt11align_val_t");
    // SAFETY: the caller's promise is the same.
    unsafe { without_size(&BEHIND, block, align, 0, Form::Any) }
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
    unsafe { without_size(&BEHIND, block, tag.addr(), 0, Form::Any) }
}

/// `operator delete[](block, nothrow)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; the program no longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdaPvRKSt9nothrow_t(block: *mut c_void, tag: Nothrow) {
    static BEHIND: Derived = Derived::new(c"_ZdaPvRKSt9nothrow_t");
    // SAFETY: the caller's promise is the same.
    unsafe { without_size(&BEHIND, block, tag.addr(), 0, Form::Any) }
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
    unsafe { without_size(&BEHIND, block, align, tag.addr(), Form::Any) }
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
    unsafe { without_size(&BEHIND, block, align, tag.addr(), Form::Any) }
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

/// Frees a block. `second` and `third` are the operator's other arguments.
///
/// # Safety
/// - Same as for the operator that calls it.
#[inline(always)]
unsafe fn without_size(
    behind: &Derived,
    block: *mut c_void,
    second: usize,
    third: usize,
    form: Form,
) {
    if !replaced::surely_none() {
        // SAFETY: the caller's promise is the same.
        return unsafe { without_size_elsewhere(block, second, third, behind, form) };
    }
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_formed(block.cast(), form) }
}

/// [`without_size`] through the C++ runtime's operator, if the program has replaced any operator.
///
/// # Safety
/// - Same as for the operator that calls it.
#[cold]
#[inline(never)]
unsafe fn without_size_elsewhere(
    block: *mut c_void,
    second: usize,
    third: usize,
    behind: &Derived,
    form: Form,
) {
    // SAFETY: the symbol is this operator's other definition; the caller's promise is the same.
    unsafe {
        match replaced::instead(behind) {
            Some(other) => {
                transmute::<NonNull<c_void>, UnsizedForm>(other)(block, second, third);
            }
            None => free::free_formed(block.cast(), form),
        }
    }
}
