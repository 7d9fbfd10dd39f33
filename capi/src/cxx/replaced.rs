//! Programs that replace only some of the operators.
//!
//! The standard lets a program replace any of the base operators. The other forms then call the
//! program's: `new[]` calls `new`, `delete[]` calls `delete`, and the sized and nothrow forms call
//! those without. If a preloaded library answered these forms itself, it would mix its blocks with
//! the program's. So the derived forms check this module first, and then call the C++ runtime's
//! forms, which call the program's.
//!
//! Only the program and libraries that are preloaded before this one can define operators that
//! other objects call instead of this library's. All of them are loaded before this library's
//! constructor runs.

use crate::cxx::runtime;
use crate::loader;
use crate::optional::optional;
use core::ffi::{CStr, c_void};
use core::ops::Range;
use core::ptr::{NonNull, null_mut};
use neap_heap::base::sync::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

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
pub(super) fn instead(derived: &Derived) -> Option<NonNull<c_void>> {
    if all_ours() { None } else { derived.get() }
}

/// The C++ runtime's form of a derived operator. Also finds out whether the program replaces any.
pub(super) fn runtime_form(derived: &Derived) -> Option<NonNull<c_void>> {
    all_ours();
    derived.get()
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

/// One derived operator of the C++ runtime, found on first use.
pub(super) struct Derived {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Derived {
    /// The operator with the mangled `name`.
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(null_mut()),
        }
    }

    /// The next definition after this library's; `None` without a C++ runtime.
    pub(super) fn get(&self) -> Option<NonNull<c_void>> {
        let known = NonNull::new(self.found.load(Ordering::Relaxed));
        known.or_else(|| {
            let found = runtime::behind(self.name)?;
            self.found.store(found.as_ptr(), Ordering::Relaxed);
            Some(found)
        })
    }
}
