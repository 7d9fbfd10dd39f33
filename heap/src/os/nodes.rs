//! NUMA nodes: how many have processors, and which of them runs the calling thread.

use super::file::read_file;
use super::{loader, process};
use crate::base::sync::plain::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::base::sync::plain::{AtomicPtr, AtomicUsize};
use core::ffi::c_void;
use core::mem::transmute;
use core::ptr::null_mut;

/// Most nodes that Neap tells apart. A further node shares the number of one of these.
pub const MOST_NODES: usize = 4;

/// How many node numbers are in use; 0: unknown.
#[unsafe(link_section = "neap_fork")]
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The same. Set before [`COUNT`], so that a fork sees it before any thread uses a new number.
#[unsafe(link_section = "neap_fork")]
static FOUND: AtomicUsize = AtomicUsize::new(0);

/// The vDSO's `getcpu`, which tells a thread's node without entering the kernel; null before
/// [`find_teller`], and where there is none.
#[unsafe(link_section = "neap_fork")]
static TELL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Looks for the vDSO's function. The caller holds no lock: the search calls functions that other
/// objects may define, and such a function may allocate.
pub(crate) fn find_teller() {
    let found = loader::of_kernel(c"__vdso_getcpu").map_or(null_mut(), |found| found.as_ptr());
    TELL.store(found, Relaxed);
}

/// How many node numbers are in use. 1 until [`learn`] is called.
#[inline]
pub fn count() -> usize {
    COUNT.load(Acquire).max(1)
}

/// How many node numbers may be in use, for a fork that has begun to close locks: no number comes
/// into use meanwhile.
pub fn most_used() -> usize {
    FOUND.load(SeqCst).max(1)
}

/// The number of the calling thread's node.
#[inline]
pub fn current() -> usize {
    match COUNT.load(Acquire) {
        0 | 1 => 0,
        count => ask(count),
    }
}

#[cold]
fn ask(count: usize) -> usize {
    type Tell = unsafe extern "C" fn(*mut u32, *mut u32, *mut c_void) -> isize;
    let mut node = 0;
    // SAFETY: several nodes are known only with a function of this type. The number is ours, and
    // stays 0 on a failure.
    unsafe {
        transmute::<*mut c_void, Tell>(TELL.load(Relaxed))(null_mut(), &mut node, null_mut())
    };
    // A node that had no processor when the kernel was asked has another's number.
    node as usize % count
}

/// Asks the kernel how many nodes have processors, if no earlier call has learnt it. `is_forking`
/// tells whether a fork has begun to close locks. Without the kernel's function all memory counts
/// as one node's, because a system call would cost each slow path as much as the path itself.
#[inline(never)]
pub fn learn(is_forking: fn() -> bool) {
    if COUNT.load(Relaxed) != 0 || TELL.load(Relaxed).is_null() || !process::may_query() {
        return;
    }
    let mut text = [0; 64];
    let read = read_file(c"/sys/devices/system/node/has_cpu", &mut text).unwrap_or(0);
    let count = (last_number(&text[..read]).unwrap_or(0) + 1).min(MOST_NODES);
    FOUND.store(count, SeqCst);
    // A fork that has begun may already have passed the depots of further nodes. A later call asks
    // again.
    if !is_forking() {
        COUNT.store(count, Release);
    }
}

/// The last number in a list such as `0-1,3`.
fn last_number(list: &[u8]) -> Option<usize> {
    let mut numbers = list.trim_ascii_end().rsplit(|byte| !byte.is_ascii_digit());
    core::str::from_utf8(numbers.next()?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_with_the_highest_number() {
        for (list, last) in [("0\n", 0), ("0-1\n", 1), ("0,2-11", 11), ("3", 3)] {
            assert_eq!(last_number(list.as_bytes()), Some(last));
        }
        assert_eq!(last_number(b"\n"), None);
    }

    /// One test, because both parts concern the one function.
    #[test]
    fn nodes_are_counted_once_the_kernels_function_is_known() {
        unsafe extern "C" fn fifth(_: *mut u32, node: *mut u32, _: *mut c_void) -> isize {
            // SAFETY: `ask` hands over a number of its own.
            unsafe { *node = 5 };
            0
        }
        learn(|| panic!("no question to the kernel"));
        assert_eq!(count(), 1);
        TELL.store(fifth as *mut c_void, Relaxed);
        let numbers = [2, 3, MOST_NODES].map(ask);
        assert_eq!(
            numbers,
            [1, 2, 1],
            "a node that comes later has another's number"
        );
        find_teller();
        learn(|| false);
        assert!(current() < count() && count() <= MOST_NODES);
    }
}
