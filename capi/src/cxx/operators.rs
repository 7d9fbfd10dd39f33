//! The eight forms of `operator new` and the twelve of `operator delete`.
//!
//! A stated size that is too small is refused only under `NEAP_CHECK=1` and `NEAP_HARDEN`. A
//! program that deletes through a base class without a virtual destructor states one, and no code
//! here needs it. `NEAP_HARDEN` also refuses a `delete` of a block that another form than `new`
//! returned.

use crate::c;
use crate::cxx;
use crate::loader::{Symbol, jump_by, named};
use core::ffi::c_void;
use core::mem::transmute;
use core::ptr::{NonNull, null_mut};
use neap_heap::watched::harden::Form;
use neap_heap::watched::stated;
use neap_heap::{free, malloc};

type Block = *mut c_void;
/// A form of the C++ runtime: of `new`, whose first argument is a size, or of `delete`. One with
/// fewer arguments ignores the registers of the others, and one of `delete` returns nothing.
type RuntimeForm<First> = unsafe extern "C" fn(First, usize, usize) -> Block;

/// Derived forms: the name, the arguments, and what the form passes to the function that does the
/// work. That function also gets the form's [`Symbol`]. `nothrow` is a reference to `std::nothrow`,
/// which is never read.
macro_rules! forms {
    ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)? = $work:ident($($value:expr),*);)*) => {$(
        #[doc = concat!("The operator, as `", stringify!($work), "`.")]
        ///
        /// # Safety
        /// - A block is null or came from the matching `new`, called with these values; the program
        ///   no longer uses it.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
            static BEHIND: Symbol = Symbol::new(named!($name));
            #[allow(unused_unsafe, reason = "`new` takes no pointer")]
            // SAFETY: the caller's promise is the same.
            unsafe { $work(&BEHIND, $($value),*) }
        }
    )*};
}

/// `operator new(size)`.
#[unsafe(no_mangle)]
extern "C-unwind" fn _Znwm(size: usize) -> Block {
    plain(size, Form::New)
}

/// `operator new[](size)`.
#[unsafe(no_mangle)]
extern "C-unwind" fn _Znam(size: usize) -> Block {
    static BEHIND: Symbol = Symbol::new(c"_Znam");
    match cxx::surely_none() {
        true => plain(size, Form::Array),
        // SAFETY: the operator of that name; 0 for the form without an alignment.
        false => unsafe { array_elsewhere(size, 0, &BEHIND) },
    }
}

/// `operator new(size, align)`.
#[unsafe(no_mangle)]
extern "C-unwind" fn _ZnwmSt11align_val_t(size: usize, align: usize) -> Block {
    aligned(size, align)
}

/// `operator new[](size, align)`.
#[unsafe(no_mangle)]
extern "C-unwind" fn _ZnamSt11align_val_t(size: usize, align: usize) -> Block {
    static BEHIND: Symbol = Symbol::new(c"_ZnamSt11align_val_t");
    match cxx::surely_none() {
        true => aligned(size, align),
        // SAFETY: the operator of that name; 0 is no alignment that a compiler passes.
        false => unsafe { array_elsewhere(size, align, &BEHIND) },
    }
}

forms! {
    _ZnwmRKSt9nothrow_t(size: usize, nothrow: usize) -> Block
        = plain_nothrow(size, nothrow, Form::New);
    _ZnamRKSt9nothrow_t(size: usize, nothrow: usize) -> Block
        = plain_nothrow(size, nothrow, Form::Array);
    _ZnwmSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, nothrow: usize) -> Block
        = aligned_nothrow(size, align, nothrow);
    _ZnamSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, nothrow: usize) -> Block
        = aligned_nothrow(size, align, nothrow);
}

/// Allocates; on failure, runs the new-handler's loop and throws `std::bad_alloc`.
#[inline(always)]
fn plain(size: usize, form: Form) -> Block {
    match malloc::allocate_hit(size) {
        Some(block) => block.cast(),
        None => plain_miss(size, form),
    }
}

/// [`plain`] after a miss in the magazine. Out of line, so that the hot path needs no stack frame.
#[cold]
#[inline(never)]
extern "C-unwind" fn plain_miss(size: usize, form: Form) -> Block {
    let block = marked(size, form);
    if block.is_null() {
        // SAFETY: a form without alignment passes 1.
        return unsafe { exhausted(size, 1) };
    }
    block.cast()
}

/// A block past the magazine, with a note of the form.
#[inline(always)]
fn marked(size: usize, form: Form) -> *mut u8 {
    let block = malloc::allocate_missed(size);
    stated::mark(block, form);
    block
}

/// Allocates an aligned block; on failure, runs the new-handler's loop and throws `std::bad_alloc`.
/// For an alignment that is no power of two it throws at once, as libstdc++ does.
#[inline(always)]
fn aligned(size: usize, align: usize) -> Block {
    match c::hit(size, align) {
        Some(block) => block.cast(),
        None => aligned_miss(size, align),
    }
}

/// [`aligned`] after a miss in the magazine.
#[cold]
#[inline(never)]
extern "C-unwind" fn aligned_miss(size: usize, align: usize) -> Block {
    let block = attempt(size, align);
    if block.is_null() {
        // SAFETY: the alignment is the operator's.
        return unsafe { exhausted(size, align) };
    }
    block.cast()
}

/// An aligned block; null if memory ran out or `align` is no power of two.
#[inline]
fn attempt(size: usize, align: usize) -> *mut u8 {
    if !align.is_power_of_two() {
        return null_mut();
    }
    c::allocate(size, align)
}

/// Goes on in the form of `new[]` that [`array_form`] chooses. So no frame of Rust is between the
/// caller and what that form throws.
///
/// # Safety
/// - `behind` is the operator's. `align` is what it was given, or 0 for the form without.
#[unsafe(naked)]
unsafe extern "C-unwind" fn array_elsewhere(size: usize, align: usize, behind: &Symbol) -> Block {
    jump_by!(array_form)
}

/// What a throwing `new[]` calls, if it is not known that the program replaces no operator: the C++
/// runtime's form, which calls `new`, or this library's.
extern "C" fn array_form(_size_and_align: &mut [usize; 2], behind: &Symbol) -> Block {
    cxx::instead(behind).map_or(own_array as Block, NonNull::as_ptr)
}

/// This library's `new[]`. An `align` of 0 means the form without an alignment.
extern "C-unwind" fn own_array(size: usize, align: usize) -> Block {
    match align {
        0 => plain(size, Form::Array),
        _ => aligned(size, align),
    }
}

/// A block, or the result of the C++ runtime's nothrow form.
#[inline(always)]
fn plain_nothrow(behind: &Symbol, size: usize, nothrow: usize, form: Form) -> Block {
    if cxx::surely_none() {
        let block = malloc::allocate_hit(size).unwrap_or_else(|| marked(size, form));
        if !block.is_null() {
            return block.cast();
        }
    }
    elsewhere(behind, size, nothrow, 0, 1)
}

/// Calls the C++ runtime's form, which calls the throwing one, new-handler included, and catches.
/// `second` and `third` are the operator's other arguments.
#[cold]
#[inline(never)]
fn elsewhere(behind: &Symbol, size: usize, second: usize, third: usize, align: usize) -> Block {
    match cxx::runtime_form(behind) {
        // SAFETY: the symbol is this operator's other definition.
        Some(form) => unsafe {
            transmute::<NonNull<c_void>, RuntimeForm<usize>>(form)(size, second, third)
        },
        None => attempt(size, align).cast(),
    }
}

/// Like [`plain_nothrow`], with an alignment.
#[inline(always)]
fn aligned_nothrow(behind: &Symbol, size: usize, align: usize, nothrow: usize) -> Block {
    if cxx::surely_none() {
        let block = c::hit(size, align).unwrap_or_else(|| attempt(size, align));
        if !block.is_null() {
            return block.cast();
        }
    }
    elsewhere(behind, size, align, nothrow, align)
}

/// Finds memory for `operator new` after a first failure, or throws.
///
/// Exceptions pass through this frame: it has unwind information and nothing to clean up.
///
/// ```text
///   on entry        after the prologue
///   rsp → return    rsp+24 → return      rdi  size   kept in rbx
///                   rsp+16 → rbx         rsi  align  kept in r12
///                   rsp+8  → r12
///                   rsp    → padding (16-byte alignment at calls)
///
///        ┌──────────────► handler? ── none ──► leave the frame, jump to the thrower
///        │                   │ call it (may throw)
///        └── null ─────── allocate ── block ──► return it
/// ```
///
/// # Safety
/// - `align` is what the operator was given, or 1.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn exhausted(size: usize, align: usize) -> Block {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r12, 0",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rbx, rdi",
        "mov r12, rsi",
        // Call the handler, then try again.
        "2:",
        "mov rdi, r12",
        "call {handler}",
        "test rax, rax",
        "jz 3f",
        "call rax",
        "mov rdi, rbx",
        "mov rsi, r12",
        "call {retry}",
        "test rax, rax",
        "jz 2b",
        ".cfi_remember_state",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r12",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "ret",
        // No handler: throw as if the operator's caller had called the thrower.
        ".cfi_restore_state",
        "3:",
        "mov rdi, rbx",
        "call {thrower}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r12",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "jmp rax",
        ".cfi_endproc",
        handler = sym cxx::handler,
        retry = sym cxx::retry,
        thrower = sym cxx::thrower,
    )
}

/// Finds memory for `operator new` after a first failure, or throws.
///
/// Exceptions pass through this frame: it has unwind information and nothing to clean up.
///
/// ```text
///   on entry           after the prologue
///   sp → the caller's  sp+32 → the caller's   x0  size   kept in x19
///   x30  return        sp+24 → x20            x1  align  kept in x20
///                      sp+16 → x19
///                      sp+8  → x30
///                      sp    → x29
///
///        ┌──────────────► handler? ── none ──► leave the frame, jump to the thrower
///        │                   │ call it (may throw)
///        └── null ─────── allocate ── block ──► return it
/// ```
///
/// # Safety
/// - `align` is what the operator was given, or 1.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn exhausted(size: usize, align: usize) -> Block {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "stp x19, x20, [sp, #16]",
        ".cfi_offset x19, -16",
        ".cfi_offset x20, -8",
        "mov x29, sp",
        "mov x19, x0",
        "mov x20, x1",
        // Call the handler, then try again.
        "2:",
        "mov x0, x20",
        "bl {handler}",
        "cbz x0, 3f",
        "blr x0",
        "mov x0, x19",
        "mov x1, x20",
        "bl {retry}",
        "cbz x0, 2b",
        ".cfi_remember_state",
        "ldp x19, x20, [sp, #16]",
        ".cfi_restore x19",
        ".cfi_restore x20",
        "ldp x29, x30, [sp], #32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "ret",
        // No handler: throw as if the operator's caller had called the thrower.
        ".cfi_restore_state",
        "3:",
        "mov x0, x19",
        "bl {thrower}",
        "mov x16, x0",
        "ldp x19, x20, [sp, #16]",
        ".cfi_restore x19",
        ".cfi_restore x20",
        "ldp x29, x30, [sp], #32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "br x16",
        ".cfi_endproc",
        handler = sym cxx::handler,
        retry = sym cxx::retry,
        thrower = sym cxx::thrower,
    )
}

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
            false => delete_elsewhere(block, second, third, behind, form, own),
        }
    }
}

/// [`derived`] through the C++ runtime's operator, if the program has replaced any operator.
///
/// # Safety
/// - As for the operator that calls it.
#[cold]
#[inline(never)]
unsafe fn delete_elsewhere(
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
            Some(other) => {
                transmute::<NonNull<c_void>, RuntimeForm<Block>>(other)(block, second, third);
            }
            None => own(block, second, third, form),
        }
    }
}
