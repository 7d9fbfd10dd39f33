//! The source of the coroutines' stacks: corosensei's own, or the preloaded Neap's.

use std::ffi::{CStr, c_int, c_void};
use std::io;

use anyhow::Context as _;
use clap::ValueEnum;
use corosensei::stack::{DefaultStack, Stack, StackPointer};

use crate::names::named;
use crate::pagemap::page_size;
use crate::work::heap;

named! {
    /// A kind of stacks.
    #[derive(ValueEnum)]
    pub enum StackKind {
        /// corosensei's `DefaultStack`: a mapping for each.
        Own = "own",
        /// `neap_stack_alloc` of the preloaded library.
        Neap = "neap",
    }
}

/// A source of stacks.
pub trait Source {
    /// The type of its stacks.
    type Stack: Stack + 'static;

    /// A stack of `bytes` of address space, including its guard page.
    ///
    /// # Errors
    /// If there is none.
    fn stack(&self, bytes: usize) -> io::Result<Self::Stack>;
}

/// corosensei's own stacks.
pub struct Own;

impl Source for Own {
    type Stack = DefaultStack;

    fn stack(&self, bytes: usize) -> io::Result<DefaultStack> {
        // It adds a guard page to the requested bytes.
        DefaultStack::new(bytes - page_size() as usize)
    }
}

/// `neap_stack_t` of neap.h.
#[repr(C)]
struct Raw {
    top: *mut c_void,
    limit: *mut c_void,
    bytes: usize,
}

type Alloc = unsafe extern "C" fn(usize, *mut Raw) -> c_int;
type Free = unsafe extern "C" fn(*mut Raw);

/// The preloaded library's stacks.
#[derive(Clone, Copy)]
pub struct Shared {
    alloc: Alloc,
    free: Free,
}

impl Shared {
    /// Looks up the C functions in this process.
    ///
    /// # Errors
    /// If the process has none.
    pub fn find() -> anyhow::Result<Shared> {
        let symbol = |name: &CStr| {
            let found = heap::symbol(name);
            found.with_context(|| format!("the preloaded library has no {name:?}"))
        };
        let (alloc, free) = (symbol(c"neap_stack_alloc")?, symbol(c"neap_stack_free")?);
        // SAFETY: neap.h fixes the types behind these two names.
        unsafe {
            Ok(Shared {
                alloc: std::mem::transmute::<*mut c_void, Alloc>(alloc),
                free: std::mem::transmute::<*mut c_void, Free>(free),
            })
        }
    }
}

/// Whether this process's heap is Neap.
pub fn is_neap() -> bool {
    heap::symbol(c"neap_version").is_some()
}

/// One of Neap's stacks, given back when dropped.
pub struct Lent {
    raw: Raw,
    free: Free,
}

impl Source for Shared {
    type Stack = Lent;

    fn stack(&self, bytes: usize) -> io::Result<Lent> {
        let mut raw = Raw {
            top: std::ptr::null_mut(),
            limit: std::ptr::null_mut(),
            bytes: 0,
        };
        // SAFETY: the place to write to is of the header's type.
        match unsafe { (self.alloc)(bytes, &raw mut raw) } {
            0 => Ok(Lent {
                raw,
                free: self.free,
            }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: the stack came from the same library, and no coroutine runs on it any longer.
        unsafe { (self.free)(&raw mut self.raw) }
    }
}

/// # Panics
/// If the address is 0, which no stack has.
fn pointer(address: *mut c_void) -> StackPointer {
    StackPointer::new(address as usize).expect("a stack lies at no address")
}

// SAFETY: neap.h promises page-aligned ends, at least 4 KiB between them, and a guard page just
// below the lower one; the limit includes that page, as the trait asks.
unsafe impl Stack for Lent {
    fn base(&self) -> StackPointer {
        pointer(self.raw.top)
    }

    fn limit(&self) -> StackPointer {
        pointer(self.raw.limit.wrapping_byte_sub(page_size() as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_of_its_own_has_the_address_space_asked_for() {
        let stack = Own.stack(64 << 10).unwrap();
        assert_eq!(stack.base().get() - stack.limit().get(), 64 << 10);
    }

    #[test]
    fn a_process_without_neap_has_no_stacks_of_neap() {
        assert!(!is_neap());
        let error = Shared::find().err().unwrap().to_string();
        assert!(error.contains("neap_stack_alloc"), "{error}");
    }
}
