//! Programs that replace only some of the operators.
//!
//! The standard lets a program replace `operator new(size_t)` and
//! `operator delete(void *)` alone; the sized and nothrow forms then call its own. A
//! preloaded library that answers those forms itself would hand the
//! program's blocks to the wrong heap. So they ask here first, and step aside for
//! the C++ runtime's forms, which call the program's.

use crate::cxx::runtime;
use crate::loader;
use core::ffi::{CStr, c_void};
use core::ptr::{NonNull, null_mut};
use neap::base::sync::{AtomicPtr, AtomicU8, Ordering};

/// Not looked yet.
const UNKNOWN: u8 = 0;
/// All of [`BASES`] are this library's.
const OURS: u8 = 1;
/// The program has at least one of its own.
const REPLACED: u8 = 2;

/// What the process's base operators are. Every thread that looks finds the same.
static BASE_OPERATORS: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The operators that the others are defined by.
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

/// Whether it is known that nothing is replaced: two instructions of a hot path.
#[inline(always)]
pub(super) fn surely_none() -> bool {
    BASE_OPERATORS.load(Ordering::Relaxed) == OURS
}

/// Where a derived operator must step aside to; none if nothing is replaced or there is no C++ runtime.
pub(super) fn instead(derived: &Derived) -> Option<NonNull<c_void>> {
    if all_ours() { None } else { derived.get() }
}

/// The C++ runtime's form of a derived operator; settles beside whether anything is replaced.
pub(super) fn runtime_form(derived: &Derived) -> Option<NonNull<c_void>> {
    all_ours();
    derived.get()
}

/// Whether every base operator is this library's; asks the loader the first time.
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

/// Whether the process's `name` stands in this library.
fn is_ours(name: &CStr) -> bool {
    let here = NonNull::from(&BASE_OPERATORS).cast();
    loader::first(name).is_some_and(|found| loader::image(found) == loader::image(here))
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

    /// Its definition behind this library's; none without a C++ runtime.
    pub(super) fn get(&self) -> Option<NonNull<c_void>> {
        let known = NonNull::new(self.found.load(Ordering::Relaxed));
        known.or_else(|| {
            let found = runtime::behind(self.name)?;
            self.found.store(found.as_ptr(), Ordering::Relaxed);
            Some(found)
        })
    }
}
