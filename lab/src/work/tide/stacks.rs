//! The source of the coroutines' stacks, corosensei's own or the preloaded Neap's, and the
//! coroutines that touch their stack and park.

use std::ffi::{CStr, c_int, c_void};
use std::io;

use anyhow::Context as _;
use clap::ValueEnum;
use corosensei::Coroutine;
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

/// Bytes that a coroutine writes to its stack before it parks: less than a page, so that each holds
/// one page.
const TOUCHED: usize = 1_024;

/// A coroutine that neither takes nor returns a value.
pub type Parked<T> = Coroutine<(), (), (), T>;

/// All parked coroutines.
pub struct Crowd<'a, S: Source> {
    source: &'a S,
    stack_bytes: usize,
    parked: Vec<Parked<S::Stack>>,
}

impl<'a, S: Source> Crowd<'a, S> {
    /// No coroutines yet; stacks of `stack_bytes` of address space.
    pub fn new(source: &'a S, stack_bytes: usize) -> Crowd<'a, S> {
        Crowd {
            source,
            stack_bytes,
            parked: Vec::new(),
        }
    }

    /// Creates `count` coroutines and parks each. If the stacks run out, returns a message about
    /// it.
    pub fn create(&mut self, count: usize) -> String {
        self.parked.reserve_exact(count);
        for done in 0..count {
            match self.source.stack(self.stack_bytes) {
                Ok(stack) => self.parked.push(parked(stack)),
                Err(error) => return shortfall(done, &error),
            }
        }
        String::new()
    }

    /// Lets all of them end, in the order of creation, and forgets them.
    pub fn close(&mut self) {
        for mut coroutine in std::mem::take(&mut self.parked) {
            coroutine.resume(());
            debug_assert!(coroutine.done());
        }
    }

    /// How many are parked.
    pub fn len(&self) -> usize {
        self.parked.len()
    }

    /// The page that each has touched, and its place in the table of all.
    pub fn live_bytes(&self) -> u64 {
        let table = self.len() * size_of::<Parked<S::Stack>>();
        self.len() as u64 * page_size() + table as u64
    }
}

/// A coroutine on `stack` that has touched it and waits to be resumed to its end.
pub fn parked<T: corosensei::stack::Stack + 'static>(stack: T) -> Parked<T> {
    let mut coroutine = Coroutine::with_stack(stack, |yielder, ()| {
        let mut local = [0_u8; TOUCHED];
        std::hint::black_box(&mut local);
        yielder.suspend(());
        std::hint::black_box(&mut local);
    });
    coroutine.resume(());
    coroutine
}

/// How many were created, and the error that stopped it: the system's own words, without Rust's
/// number.
fn shortfall(done: usize, error: &std::io::Error) -> String {
    let text = error.to_string();
    let reason = text.split(" (os error").next().unwrap_or(&text);
    format!("{} coroutines, then: {reason}", thousands(done as u64))
}

/// `32752` as `32,752`.
pub fn thousands(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
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
        let error = Shared::find().err().unwrap().to_string();
        assert!(error.contains("neap_stack_alloc"), "{error}");
    }

    /// A source of two stacks.
    struct Few(std::cell::Cell<usize>);

    impl Source for Few {
        type Stack = <Own as Source>::Stack;

        fn stack(&self, bytes: usize) -> std::io::Result<Self::Stack> {
            let left = self.0.get();
            if left == 0 {
                return Err(std::io::Error::from_raw_os_error(libc::ENOMEM));
            }
            self.0.set(left - 1);
            Own.stack(bytes)
        }
    }

    #[test]
    fn coroutines_park_and_end() {
        let mut crowd = Crowd::new(&Own, 64 << 10);
        assert_eq!(crowd.create(5), "");
        assert!(crowd.len() == 5 && crowd.live_bytes() >= 5 * page_size());
        assert!(crowd.parked.iter().all(|c| c.started() && !c.done()));
        crowd.close();
        assert_eq!((crowd.len(), crowd.live_bytes()), (0, 0));
    }

    #[test]
    fn where_stacks_run_out_the_rest_live_on_and_it_is_told() {
        let source = Few(std::cell::Cell::new(2));
        let mut crowd = Crowd::new(&source, 64 << 10);
        let note = crowd.create(5);
        assert_eq!(note, "2 coroutines, then: Cannot allocate memory");
        assert_eq!(crowd.len(), 2);
        crowd.close();
    }

    #[test]
    fn numbers_have_their_thousands_apart() {
        let text = [0, 999, 1_000, 32_752, 1_000_000].map(thousands);
        assert_eq!(text, ["0", "999", "1,000", "32,752", "1,000,000"]);
    }
}
