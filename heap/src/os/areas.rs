//! Memory that Neap maps for itself: tables, mapped at their first use, and a stack for work that
//! is too large for the caller's, which may be a coroutine's of a few KiB.
//!
//! A table in the library's own data counts as writable memory in every process, touched or not,
//! and `RLIMIT_DATA` bounds writable memory. So tables that few processes use are mapped late.
//!
//! Each call on a stack of its own maps memory and unmaps it at its end, so this is for rare work.
//! It takes no lock, so a signal handler or a fork may happen in between.

use super::linux::Linux;
use super::{Os, arch, mapping};
use crate::base::sync::plain::{AtomicPtr, Ordering};
use bytemuck::Zeroable;
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};

/// A zeroed `T` that is mapped once, and never unmapped.
#[derive(Debug)]
pub struct Late<T>(AtomicPtr<T>);

impl<T: Zeroable> Late<T> {
    /// Not mapped yet.
    pub const fn new() -> Self {
        Late(AtomicPtr::new(null_mut()))
    }

    /// The table, if it is mapped.
    #[inline]
    pub fn find(&self) -> Option<NonNull<T>> {
        NonNull::new(self.0.load(Ordering::Acquire))
    }

    /// The table, mapped if need be. `None` if the kernel refuses. Takes no lock.
    pub fn open(&self) -> Option<NonNull<T>> {
        self.find().or_else(|| self.map())
    }

    #[cold]
    fn map(&self) -> Option<NonNull<T>> {
        const { assert!(align_of::<T>() <= 4096) };
        let bytes = size_of::<T>().next_multiple_of(Linux.page_bytes());
        mapping::publish(&self.0, mapping::map_committed(bytes)?, bytes);
        self.find()
    }
}

/// Bytes of the stack that work gets.
const STACK_BYTES: usize = 64 << 10;

/// Calls `work` on a stack of its own, with a zeroed value that is not on it. `None` if the kernel
/// has no memory for them.
pub fn with<T: Zeroable, R>(work: impl FnOnce(&mut T) -> R) -> Option<R> {
    const { assert!(align_of::<T>() <= 4096) };
    let room = Room::new(size_of::<T>())?;
    // SAFETY: new pages read as zero, which is a value; they are large enough, aligned, and no
    // other code else's.
    let value = unsafe { room.value().cast::<T>().as_mut() };
    Some(room.call(|| work(value)))
}

/// Calls `work` on a stack of its own; on the caller's if the kernel has no memory for one.
pub fn on_stack<R>(work: impl FnOnce() -> R) -> R {
    match Room::new(0) {
        Some(room) => room.call(work),
        None => work(),
    }
}

/// A mapping: a guard page, a stack, and a value's pages above it.
struct Room {
    base: NonNull<u8>,
    bytes: usize,
    /// How far above `base` the stack ends and the value begins.
    top: usize,
}

impl Room {
    fn new(value_bytes: usize) -> Option<Room> {
        let page = Linux.page_bytes();
        let top = page + STACK_BYTES.next_multiple_of(page);
        let bytes = top + value_bytes.next_multiple_of(page);
        let base = Linux.reserve(bytes, page)?;
        let room = Room { base, bytes, top };
        // SAFETY: all of our own reservation but the guard.
        let committed = unsafe { Linux.commit(base.add(page), bytes - page) };
        committed.ok().map(|()| room)
    }

    fn value(&self) -> NonNull<u8> {
        // SAFETY: inside the mapping, or its end.
        unsafe { self.base.add(self.top) }
    }

    /// Calls `work` on the stack.
    fn call<W: FnOnce() -> R, R>(&self, work: W) -> R {
        let mut call = Call {
            work: Some(work),
            result: None,
        };
        let top = self.value().as_ptr();
        // SAFETY: the stack below `top` is committed, aligned to a page, and no thread runs on it;
        // `run` gets the call it is made for.
        unsafe { arch::call_on(top, run::<W, R>, (&raw mut call).cast()) };
        match call.result {
            Some(result) => result,
            None => unreachable!("the work was done"),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: a whole reservation, out of use.
        unsafe { Linux.unmap(self.base, self.bytes) };
    }
}

/// Work to be done, and what came of it.
struct Call<W, R> {
    work: Option<W>,
    result: Option<R>,
}

/// # Safety
/// - `call` is a [`Call`] of these types, the caller's.
unsafe extern "C" fn run<W: FnOnce() -> R, R>(call: *mut c_void) {
    // SAFETY: the caller's promise.
    let call = unsafe { &mut *call.cast::<Call<W, R>>() };
    call.result = call.work.take().map(|work| work());
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::sync::AtomicU64;
    use crate::os::loader;
    use std::vec::Vec;

    #[repr(transparent)]
    struct Table([AtomicU64; 10_000]);
    // SAFETY: integers only, and 0 is a value of each.
    unsafe impl Zeroable for Table {}

    #[test]
    fn a_table_is_mapped_once_and_zero() {
        static TABLE: Late<Table> = Late::new();
        assert!(TABLE.find().is_none());
        let open = || TABLE.open().unwrap().as_ptr() as usize;
        let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(open)).collect();
        let found: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        assert!(found.iter().all(|&at| at == found[0]));
        // SAFETY: mapped, and never unmapped.
        let table = unsafe { TABLE.find().unwrap().as_ref() };
        assert!(table.0.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn the_value_is_zero_and_errno_stays() {
        loader::set_errno(77);
        let sum = with(|words: &mut [u64; 4096]| {
            words[4095] += 5;
            words.iter().sum::<u64>()
        });
        assert_eq!((sum, loader::errno()), (Some(5), 77));
        assert_eq!(with(|words: &mut [u64; 1]| words[0]), Some(0));
    }

    #[test]
    fn work_runs_elsewhere_and_comes_back() {
        let here = 0u8;
        let local = (&raw const here).addr();
        let kept: Vec<usize> = (0..100).collect();
        let (far, sum) = on_stack(|| {
            let there = [1u8; 8 << 10];
            let sum = kept.iter().sum::<usize>();
            (core::hint::black_box(&there).as_ptr().addr(), sum)
        });
        assert_eq!(sum, 4950);
        assert!(far.abs_diff(local) > 256 << 10);
        let nested = on_stack(|| on_stack(|| kept.len()));
        assert_eq!(nested, 100);
    }
}
