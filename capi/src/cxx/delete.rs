//! The twelve forms of `operator delete`.
//!
//! A stated size that is too small is refused only under `NEAP_CHECK=1` and `NEAP_HARDEN`. A
//! program that deletes through a base class without a virtual destructor states one, and no code
//! here needs it. `NEAP_HARDEN` also refuses a `delete` of what another form than `new` gave.

use crate::cxx;
use crate::loader::Symbol;
use core::ffi::c_void;
use core::mem::transmute;
use core::ptr::NonNull;
use neap_heap::free;
use neap_heap::watched::harden::Form;

type Block = *mut c_void;
/// A form of the C++ runtime. One with fewer arguments ignores the registers of the others.
type RuntimeForm = unsafe extern "C" fn(Block, usize, usize);
/// What frees a block here, by the operator's arguments.
type Own = unsafe fn(Block, usize, usize, Form);

/// `operator delete(block)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; the program no longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPv(block: Block) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_formed(block.cast(), Form::New) }
}

/// `operator delete(block, align)`.
///
/// # Safety
/// - `block` is null or came from the matching `new`; the program no longer uses it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZdlPvSt11align_val_t(block: Block, _align: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free(block.cast()) }
}

forms! {
    _ZdaPv(block: Block) = derived(block, 0, 0, Form::Array, unsized_own);
    _ZdaPvSt11align_val_t(block: Block, align: usize)
        = derived(block, align, 0, Form::Any, unsized_own);
    _ZdlPvm(block: Block, size: usize) = derived(block, size, 1, Form::New, sized_own);
    _ZdaPvm(block: Block, size: usize) = derived(block, size, 1, Form::Array, sized_own);
    _ZdlPvmSt11align_val_t(block: Block, size: usize, align: usize)
        = derived(block, size, align, Form::Any, sized_own);
    _ZdaPvmSt11align_val_t(block: Block, size: usize, align: usize)
        = derived(block, size, align, Form::Any, sized_own);
    _ZdlPvRKSt9nothrow_t(block: Block, nothrow: usize)
        = derived(block, nothrow, 0, Form::Any, unsized_own);
    _ZdaPvRKSt9nothrow_t(block: Block, nothrow: usize)
        = derived(block, nothrow, 0, Form::Any, unsized_own);
    _ZdlPvSt11align_val_tRKSt9nothrow_t(block: Block, align: usize, nothrow: usize)
        = derived(block, align, nothrow, Form::Any, unsized_own);
    _ZdaPvSt11align_val_tRKSt9nothrow_t(block: Block, align: usize, nothrow: usize)
        = derived(block, align, nothrow, Form::Any, unsized_own);
}

/// Frees a block of `size` bytes at a multiple of `align`.
///
/// # Safety
/// - As for the operator that calls it.
#[inline(always)]
unsafe fn sized_own(block: Block, size: usize, align: usize, form: Form) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_deleted(block.cast(), size, align, form) }
}

/// Frees a block of a size that is not stated.
///
/// # Safety
/// - As for the operator that calls it.
#[inline(always)]
unsafe fn unsized_own(block: Block, _second: usize, _third: usize, form: Form) {
    // SAFETY: the caller's promise is the same.
    unsafe { free::free_formed(block.cast(), form) }
}

/// Frees a block by `own`. `second` and `third` are the operator's other arguments.
///
/// # Safety
/// - As for the operator that calls it.
#[inline(always)]
unsafe fn derived(
    behind: &Symbol,
    block: Block,
    second: usize,
    third: usize,
    form: Form,
    own: Own,
) {
    // SAFETY: the caller's promise is the same.
    unsafe {
        match cxx::surely_none() {
            true => own(block, second, third, form),
            false => elsewhere(block, second, third, behind, form, own),
        }
    }
}

/// [`derived`] through the C++ runtime's operator, if the program has replaced any operator.
///
/// # Safety
/// - As for the operator that calls it.
#[cold]
#[inline(never)]
unsafe fn elsewhere(
    block: Block,
    second: usize,
    third: usize,
    behind: &Symbol,
    form: Form,
    own: Own,
) {
    // SAFETY: the symbol is this operator's other definition; the caller's promise is the same.
    unsafe {
        match cxx::instead(behind) {
            Some(other) => transmute::<NonNull<c_void>, RuntimeForm>(other)(block, second, third),
            None => own(block, second, third, form),
        }
    }
}
