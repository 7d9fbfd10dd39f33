//! Stacks for coroutines. `neap.h` says what each function promises.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use neap_heap::stacks::stack;
use neap_heap::stacks::stack::{Stack, StackError};

/// A stack as C holds it: `neap_stack_t`.
#[repr(C)]
pub(crate) struct StackOut {
    top: *mut c_void,
    limit: *mut c_void,
    bytes: usize,
}

/// A stack of `bytes` bytes, one OS page of its guard included. 0, `EINVAL` or `ENOMEM`; then `out`
/// stays what it was.
///
/// # Safety
/// - `out` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn neap_stack_alloc(bytes: usize, out: *mut StackOut) -> c_int {
    let stack = match Stack::new(bytes) {
        Ok(stack) => stack,
        Err(StackError::Size) => return libc::EINVAL,
        Err(StackError::OutOfMemory | StackError::OutOfMappings) => return libc::ENOMEM,
    };
    let filled = StackOut {
        top: stack.top().as_ptr().cast(),
        limit: stack.limit().as_ptr().cast(),
        bytes: stack.bytes(),
    };
    let _top = stack.into_raw();
    // SAFETY: the caller's promise.
    unsafe { out.write(filled) };
    0
}

/// The stack that C holds; `None` for null. Aborts if it is not a stack in use.
///
/// # Safety
/// - `stack` is null or may be read, and only the caller has what it describes.
unsafe fn borrowed(stack: *const StackOut) -> Option<ManuallyDrop<Stack>> {
    // SAFETY: the caller's promise.
    let top = NonNull::new(unsafe { stack.as_ref() }?.top)?;
    // SAFETY: as above.
    Some(ManuallyDrop::new(unsafe { Stack::from_raw(top.cast()) }))
}

/// Gives a stack back. Null does nothing, nor does a null top.
///
/// # Safety
/// - `stack` is null or filled by [`neap_stack_alloc`], and no thread runs on that stack any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn neap_stack_free(stack: *mut StackOut) {
    // SAFETY: the caller's promise.
    if let Some(stack) = unsafe { borrowed(stack) } {
        drop(ManuallyDrop::into_inner(stack));
    }
}

/// Gives back the whole pages below the stack pointer of a parked coroutine. Returns how many
/// bytes.
///
/// # Safety
/// - `stack` as in [`neap_stack_free`], `pointer` as in [`Stack::trim`].
#[unsafe(no_mangle)]
unsafe extern "C" fn neap_stack_trim(stack: *const StackOut, pointer: *const c_void) -> usize {
    // SAFETY: the caller's promise, twice.
    unsafe { borrowed(stack).map_or(0, |stack| stack.trim(pointer.cast())) }
}

/// Names a stack's owner in the report of an overflow. Null takes the name away.
///
/// # Safety
/// - `stack` as in [`neap_stack_free`].
/// - `name` is null or a C string that stays until the stack is given back.
#[unsafe(no_mangle)]
unsafe extern "C" fn neap_stack_set_owner(stack: *mut StackOut, name: *const c_char) {
    let name = if name.is_null() {
        c""
    } else {
        // SAFETY: not null; the caller's promise.
        unsafe { CStr::from_ptr(name) }
    };
    // SAFETY: the caller's promise.
    if let Some(stack) = unsafe { borrowed(stack) } {
        stack.set_owner(name);
    }
}

/// Reports overflows of stacks from now on. 1, or 0 if there is no memory or the kernel refuses.
#[unsafe(no_mangle)]
extern "C" fn neap_stack_report_overflows() -> c_int {
    c_int::from(stack::report_overflows())
}
