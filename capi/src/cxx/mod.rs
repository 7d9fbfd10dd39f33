//! The 20 replaceable forms of C++'s `operator new` and `operator delete`.
//!
//! `operators.rs` defines the symbols; their fast paths are `malloc` and `free`. The out-of-memory
//! path needs the C++ runtime. This library is not linked to it, so this file finds it in the
//! running process:
//!
//! - A throwing `new` enters `exhausted`. It calls the new-handler and retries until an allocation
//!   succeeds or the handler throws. Without a handler it throws `std::bad_alloc`. The only Rust
//!   frame below a handler or a throw is the operator's own, which has nothing to clean up.
//! - A nothrow `new` calls the C++ runtime's nothrow form, which calls this library's throwing form
//!   and catches.
//!
//! The runtime is looked up at each failure, because `dlopen` may load it late. The global scope
//! alone is not enough: a C program that loads a C++ plugin has the runtime in the plugin's scope
//! only.
//!
//! The standard lets a program replace any of the base operators. The other forms then call the
//! program's: `new[]` calls `new`, `delete[]` calls `delete`, and the sized and nothrow forms call
//! those without. If a preloaded library answered these forms itself, it would mix its blocks with
//! the program's. So the derived forms check [`surely_none`] first, and then call the C++ runtime's
//! forms, which call the program's.
//!
//! Only the program and libraries that are preloaded before this one can define operators that
//! other objects call instead of this library's. All of them are loaded before this library's
//! constructor runs.

use crate::c;
use crate::imports::optional;
use crate::loader::{self, Symbol, listed, objects_of};
use core::ffi::{CStr, c_int, c_void};
use core::mem::{transmute, zeroed};
use core::ops::Range;
use core::ptr::NonNull;
use neap_heap::base::sync::{AtomicU8, AtomicUsize, Ordering};
use neap_heap::os;
use neap_heap::os::process::fatal;
use neap_heap::watched::harden::Form;
use neap_heap::watched::stated;

mod operators;

/// Not checked yet.
const UNKNOWN: u8 = 0;
/// All of [`BASES`] are this library's.
const OURS: u8 = 1;
/// The program defines at least one of them.
const REPLACED: u8 = 2;

/// Which object defines the process's base operators. Every thread that checks finds the same
/// answer.
static BASE_OPERATORS: AtomicU8 = AtomicU8::new(UNKNOWN);

/// From where to where this library is loaded.
static OWN: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));

/// The base operators, which the standard lets a program replace alone.
const BASES: [&CStr; 8] = [
    c"_Znwm",
    c"_Znam",
    c"_ZdlPv",
    c"_ZdaPv",
    c"_ZnwmSt11align_val_t",
    c"_ZnamSt11align_val_t",
    c"_ZdlPvSt11align_val_t",
    c"_ZdaPvSt11align_val_t",
];

/// Whether it is already known that the program replaces nothing: three instructions on a hot path.
#[inline(always)]
pub(super) fn surely_none() -> bool {
    BASE_OPERATORS.load(Ordering::Relaxed) == OURS
}

/// The form that a derived operator must call instead; `None` if the program replaces nothing or no
/// C++ runtime is loaded.
pub(super) fn instead(derived: &Symbol) -> Option<NonNull<c_void>> {
    (!all_ours()).then(|| derived.found_by(behind)).flatten()
}

/// The C++ runtime's form of a derived operator. Also finds out whether the program replaces any.
pub(super) fn runtime_form(derived: &Symbol) -> Option<NonNull<c_void>> {
    all_ours();
    derived.found_by(behind)
}

/// Finds out which object defines the base operators, at the start of a program with a C++ runtime.
/// Later, an operator would take the loader's lock. That deadlocks if its thread holds a lock for
/// which a constructor of a library being loaded waits.
pub(crate) fn begin(own: &Range<usize>) {
    OWN.0.store(own.start, Ordering::Relaxed);
    OWN.1.store(own.end, Ordering::Relaxed);
    // By the loader when it loaded this library: a look-up that fails leaves an error.
    if !optional!("_ZSt15get_new_handlerv").is_null() {
        all_ours();
    }
}

/// Whether this library defines every base operator. Asks the loader if this is not known yet.
fn all_ours() -> bool {
    match BASE_OPERATORS.load(Ordering::Relaxed) {
        UNKNOWN => {
            let ours = BASES.iter().all(|name| is_ours(name));
            BASE_OPERATORS.store(if ours { OURS } else { REPLACED }, Ordering::Relaxed);
            ours
        }
        known => known == OURS,
    }
}

/// Whether the process's `name` resolves to this library.
fn is_ours(name: &CStr) -> bool {
    let own = OWN.0.load(Ordering::Relaxed)..OWN.1.load(Ordering::Relaxed);
    loader::first(name).is_some_and(|found| own.contains(&found.as_ptr().addr()))
}

/// How the file names of libraries that may define the C++ runtime's functions begin. Python
/// packages for musl contain a runtime of their own with a checksum in its name.
const RUNTIMES: [&[u8]; 4] = [b"libstdc++", b"libc++.", b"libc++-", b"libc++abi"];

/// Their usual sonames. They find a runtime that was loaded under another file name, or by a path
/// that is too long to be copied.
const SONAMES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++.so.1", c"libc++abi.so.1"];

/// `std::new_handler`. It may throw, so only assembly calls it.
type NewHandler = extern "C-unwind" fn();

/// The function `name` of the C++ runtime.
fn find(name: &CStr) -> Option<NonNull<c_void>> {
    loader::first(name).or_else(|| anywhere(name))
}

/// The function `name` in any of [`RUNTIMES`] or [`SONAMES`] that is loaded.
fn anywhere(name: &CStr) -> Option<NonNull<c_void>> {
    let mut files = RUNTIMES.iter();
    let mut sonames = SONAMES.iter();
    files
        .find_map(|start| loader::inside(start, name))
        .or_else(|| sonames.find_map(|soname| loader::within(soname, name)))
}

/// The next definition of operator `name` after this library's; `None` without a C++ runtime.
pub(super) fn behind(name: &CStr) -> Option<NonNull<c_void>> {
    loader::next(name).or_else(|| anywhere(name))
}

/// The current new-handler, for a block at `align`; `None` if no handler can help.
pub(super) extern "C" fn handler(align: usize) -> Option<NewHandler> {
    if !align.is_power_of_two() {
        return None;
    }
    let get = find(c"_ZSt15get_new_handlerv")?;
    // SAFETY: this is `std::new_handler std::get_new_handler() noexcept`.
    let get: extern "C" fn() -> Option<NewHandler> = unsafe { core::mem::transmute(get) };
    get()
}

/// Tries again after the handler; null if memory is still short.
pub(super) extern "C" fn retry(size: usize, align: usize) -> *mut u8 {
    let block = c::allocate(size, align);
    // Neither form is known here.
    stated::mark(block, Form::Any);
    block
}

/// The function that throws `std::bad_alloc`, for a request of `size` bytes.
pub(super) extern "C" fn thrower(size: usize) -> NonNull<c_void> {
    match find(c"_ZSt17__throw_bad_allocv") {
        Some(thrower) => thrower,
        None => fatal(format_args!(
            "operator new of {size} bytes: out of memory, and no C++ runtime to throw bad_alloc"
        )),
    }
}

/// Refuses another allocator that comes before the C++ runtime, as one of `LD_PRELOAD` does. The
/// archive leaves the sized and nothrow operators to the runtime. Where other objects call the
/// program's `new`, those of the other allocator would free its blocks.
pub(crate) fn refuse_another() {
    refuse_if_others(c"_ZdlPvm");
    refuse_if_others(c"_ZnwmRKSt9nothrow_t");
}

/// [`refuse_another`], if it defines this operator.
fn refuse_if_others(operator: &CStr) {
    let own = Some(optional!("_DYNAMIC").cast());
    // SAFETY: as in `listed`.
    let others = unsafe { os::loader::find(own, c"malloc") };
    let found = (listed(c"_Znwm"), listed(operator), others.ok().flatten());
    let (Some(new), Some(other), Some(malloc)) = found else {
        return;
    };
    let [new, other, malloc] = [new, other, malloc].map(|found| found.as_ptr().cast_const());
    let [program, of_new, of_other, of_malloc] = objects_of([
        refuse_another as fn() as usize,
        new.addr(),
        other.addr(),
        malloc.addr(),
    ]);
    if of_new == program && of_other == of_malloc && !of_other.is_empty() {
        fatal(format_args!(
            "{} has operators that take blocks of the allocator that this program contains for \
             its own: start the program without it (LD_PRELOAD)",
            name_of(other)
        ));
    }
}

/// The file name of the loaded object that contains `address`.
fn name_of(address: *const c_void) -> &'static str {
    type Dladdr = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;
    let function = optional!("dladdr");
    // SAFETY: null, or the C library's function of this name and so of this type, which is handed a
    // place for its answer. The names that it answers stay while the object is loaded.
    let name = unsafe {
        let mut answer: libc::Dl_info = zeroed();
        transmute::<*const c_void, Option<Dladdr>>(function)
            .filter(|dladdr| dladdr(address, &raw mut answer) != 0 && !answer.dli_fname.is_null())
            .map(|_| CStr::from_ptr(answer.dli_fname))
    };
    name.and_then(|name| name.to_str().ok())
        .unwrap_or("another library")
}
