//! The functions that this library's functions wrap.

use crate::loader;
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use neap_heap::base::sync::plain::AtomicBool;
use neap_heap::base::sync::{AtomicPtr, Ordering};

/// A function of the next library in the search order; null until it was looked for, or if there is
/// none.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(null_mut()),
        }
    }

    /// Looks for it, at the process's start.
    pub(crate) fn look(&self) {
        if let Some(found) = loader::next_at_start(self.name) {
            self.found.store(found.as_ptr(), Ordering::Relaxed);
        }
    }

    /// [`Next::get`], also in a call that comes before the library's constructor. After it, the
    /// loader is asked: other threads may close libraries.
    pub(crate) fn found(&self) -> *mut c_void {
        if self.get().is_null() && !has_looked() {
            self.look();
        }
        match self.get() {
            found if !found.is_null() => found,
            _ => loader::next(self.name).map_or(null_mut(), |found| found.as_ptr()),
        }
    }

    pub(crate) fn get(&self) -> *mut c_void {
        self.found.load(Ordering::Relaxed)
    }
}

/// Whether all of them were looked for.
static LOOKED: AtomicBool = AtomicBool::new(false);

pub(crate) fn has_looked() -> bool {
    LOOKED.load(Ordering::Relaxed)
}

/// From now on other threads may open and close libraries.
pub(crate) fn note_looked() {
    LOOKED.store(true, Ordering::Relaxed);
}
