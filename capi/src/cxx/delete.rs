//! The twelve forms of `operator delete`.
//!
//! A stated size that is too small is refused only under `NEAP_CHECK=1` and `NEAP_HARDEN`. A
//! program that deletes through a base class without a virtual destructor states one, and no code
//! here needs it. `NEAP_HARDEN` also refuses a `delete` of what another form than `new` gave.

use crate::cxx;
use crate::loader::Symbol;
use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::ptr::NonNull;
use neap_heap::free;
use neap_heap::watched::harden::Form;

/// A form of the C++ runtime. One with fewer arguments ignores the registers of the others.
type RuntimeForm = unsafe extern "C" fn(*mut c_void, usize, usize);

/// `operator delete(block)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; the program no longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPv(block: *mut c_void) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_formed(block.cast(), Form::New) }
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

/// The derived forms: name, arguments after the block, and what they are to the function that does
/// the work. `nothrow` is a reference to `std::nothrow`, which is never read.
macro_rules! forms {
    ($($name:ident($($argument:ident),*) = $work:ident($first:expr, $second:expr, $form:expr);)*) => {$(
        #[doc = concat!("`operator delete`, as `", stringify!($work), "`.")]
        ///
        /// # Safety
        /// - `block` is null or came from the matching `new`, called with these values; the program
        ///   no longer uses it.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(block: *mut c_void, $($argument: usize),*) {
            static BEHIND: Symbol = Symbol::new(match CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            });
            // SAFETY: the caller's promise is the same.
            unsafe { $work(&BEHIND, block, $first, $second, $form) }
        }
    )*};
}

forms! {
    _ZdaPv() = unsized_form(0, 0, Form::Array);
    _ZdaPvSt11align_val_t(align) = unsized_form(align, 0, Form::Any);
    _ZdlPvm(size) = sized_form(size, 1, Form::New);
    _ZdaPvm(size) = sized_form(size, 1, Form::Array);
    _ZdlPvmSt11align_val_t(size, align) = sized_form(size, align, Form::Any);
    _ZdaPvmSt11align_val_t(size, align) = sized_form(size, align, Form::Any);
    _ZdlPvRKSt9nothrow_t(nothrow) = unsized_form(nothrow, 0, Form::Any);
    _ZdaPvRKSt9nothrow_t(nothrow) = unsized_form(nothrow, 0, Form::Any);
    _ZdlPvSt11align_val_tRKSt9nothrow_t(align, nothrow) = unsized_form(align, nothrow, Form::Any);
    _ZdaPvSt11align_val_tRKSt9nothrow_t(align, nothrow) = unsized_form(align, nothrow, Form::Any);
}

/// Frees a block of `size` bytes at a multiple of `align`.
///
/// # Safety
/// - As for the operator that calls it.
#[inline(always)]
unsafe fn sized_form(behind: &Symbol, block: *mut c_void, size: usize, align: usize, form: Form) {
    if !cxx::surely_none() {
        // SAFETY: the caller's promise is the same.
        return unsafe { sized_elsewhere(block, size, align, behind, form) };
    }
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_deleted(block.cast(), size, align, form) }
}

/// [`sized_form`] through the C++ runtime's operator, if the program has replaced any operator.
///
/// # Safety
/// - As for the operator that calls it.
#[cold]
#[inline(never)]
unsafe fn sized_elsewhere(
    block: *mut c_void,
    size: usize,
    align: usize,
    behind: &Symbol,
    form: Form,
) {
    // SAFETY: the symbol is this operator's other definition; the caller's promise is the same.
    unsafe {
        match cxx::instead(behind) {
            Some(other) => transmute::<NonNull<c_void>, RuntimeForm>(other)(block, size, align),
            None => free::free_deleted(block.cast(), size, align, form),
        }
    }
}

/// Frees a block. `second` and `third` are the operator's other arguments.
///
/// # Safety
/// - As for the operator that calls it.
#[inline(always)]
unsafe fn unsized_form(
    behind: &Symbol,
    block: *mut c_void,
    second: usize,
    third: usize,
    form: Form,
) {
    if !cxx::surely_none() {
        // SAFETY: the caller's promise is the same.
        return unsafe { unsized_elsewhere(block, second, third, behind, form) };
    }
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_formed(block.cast(), form) }
}

/// [`unsized_form`] through the C++ runtime's operator, if the program has replaced any operator.
///
/// # Safety
/// - As for the operator that calls it.
#[cold]
#[inline(never)]
unsafe fn unsized_elsewhere(
    block: *mut c_void,
    second: usize,
    third: usize,
    behind: &Symbol,
    form: Form,
) {
    // SAFETY: the symbol is this operator's other definition; the caller's promise is the same.
    unsafe {
        match cxx::instead(behind) {
            Some(other) => transmute::<NonNull<c_void>, RuntimeForm>(other)(block, second, third),
            None => free::free_formed(block.cast(), form),
        }
    }
}
