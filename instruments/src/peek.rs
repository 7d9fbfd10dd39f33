//! Reads words of memory that may not be mapped, without a fault.
//!
//! There are two ways, measured in `docs/decisions/0011-unwinding.md`. The near way asks the kernel
//! whether a page is readable, then reads it. (`rt_sigprocmask` copies its set of signals before it
//! refuses an invalid command.) That is safe for memory that no other thread unmaps meanwhile, such
//! as a running thread's stack. The far way has the kernel copy the word. It is always safe and
//! seven times as expensive.

use neap_heap::base::sync::plain::{AtomicU8, Ordering};
use neap_heap::kernel;
use neap_heap::os::process;
use neap_heap::os::process::process_id;

/// No page is smaller. On a machine with larger pages, this costs extra calls but stays correct.
const PAGE_BYTES: usize = 4096;
/// Bytes of the kernel's set of signals.
const SET_BYTES: usize = 8;
/// A command that no `rt_sigprocmask` has.
const NO_COMMAND: usize = -1i32 as usize;

/// Whether the kernel answers as the near way expects.
static ANSWERS: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const RELIABLE: u8 = 1;
const USELESS: u8 = 2;

/// Reads words on and near a stack; remembers the last page that was readable.
#[derive(Debug)]
pub struct Peek {
    page: usize,
    /// Where the walk began. Memory up the stack from there, within bounds, is the thread's own.
    start: usize,
}

impl Peek {
    /// A reader that knows one readable page: that of `local`, a live variable.
    pub fn beside<T>(local: &T) -> Self {
        let start = core::ptr::from_ref(local).addr();
        Self {
            page: page_of(start),
            start,
        }
    }

    /// How far up the stack an address lies from where the walk began, in bytes; a very large
    /// number for an address below.
    #[inline]
    pub fn height(&self, address: usize) -> usize {
        address.wrapping_sub(page_of(self.start) * PAGE_BYTES)
    }

    /// The word at `address`; `None` if it is misaligned or not readable. No other thread may unmap
    /// the memory meanwhile.
    #[inline]
    pub fn near(&mut self, address: usize) -> Option<usize> {
        if !address.is_multiple_of(size_of::<usize>()) {
            return None;
        }
        if page_of(address) != self.page {
            if !is_readable(address) {
                return None;
            }
            self.page = page_of(address);
        }
        // SAFETY: aligned, and its page is readable: the kernel said so, or a local variable is on
        // it.
        Some(unsafe { core::ptr::with_exposed_provenance::<usize>(address).read_volatile() })
    }
}

/// Larger frames are not read the near way, which requires memory that stays mapped.
const NEAR_BYTES: usize = 1 << 20;

impl Peek {
    /// The word at `address`: the near way on the walk's first stack, the far way elsewhere. The
    /// address decides, not a frame's stack pointer, which may be garbage.
    #[inline]
    pub fn read(&mut self, address: usize) -> Option<usize> {
        if self.height(address) < NEAR_BYTES {
            return self.near(address);
        }
        far(address).map(usize::from_ne_bytes)
    }
}

fn page_of(address: usize) -> usize {
    address / PAGE_BYTES
}

/// The 8 bytes at any `address`; `None` if they are not readable, or if the kernel or a sandbox
/// forbids the call.
#[cold]
pub fn far(address: usize) -> Option<[u8; 8]> {
    if !process::may_query() {
        return None;
    }
    let mut bytes = [0; 8];
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: core::ptr::with_exposed_provenance_mut(address),
        iov_len: bytes.len(),
    };
    let [local, remote] = [&raw const local, &raw const remote];
    // SAFETY: writes the local buffer only; the kernel checks the other address.
    let copied = unsafe { kernel!(process_vm_readv, process_id(), local, 1, remote, 1, 0) };
    (copied == 8).then_some(bytes)
}

/// Whether the page of `address` is readable now.
pub fn is_readable(address: usize) -> bool {
    is_reliable() && refusal(address) == libc::EINVAL
}

/// Whether [`is_readable`] works here: under an emulator it may not.
pub fn is_reliable() -> bool {
    if ANSWERS.load(Ordering::Relaxed) == UNKNOWN {
        learn();
    }
    ANSWERS.load(Ordering::Relaxed) == RELIABLE
}

/// Whether the stack goes on for `bytes` bytes below this call: a coroutine has little. False where
/// that cannot be told.
pub fn has_stack(bytes: usize) -> bool {
    let here = 0_u8;
    let at = |below: usize| (&raw const here).addr().saturating_sub(below);
    (0..=bytes)
        .step_by(PAGE_BYTES)
        .all(|below| is_readable(at(below)))
}

/// Whether memory at `address` holds `code`.
pub fn holds(address: usize, code: [u8; 8]) -> bool {
    let end = address.saturating_add(code.len() - 1);
    let is_in_page = page_of(end) == page_of(address);
    let are_readable = is_readable(address) && (is_in_page || is_readable(end));
    // SAFETY: both ends are readable: the kernel said so. Code that a return address leads to is
    // not unmapped meanwhile.
    are_readable
        && unsafe { core::ptr::with_exposed_provenance::<[u8; 8]>(address).read_volatile() } == code
}

/// Tries the question where the answer is known: an emulator may check the command first, and a
/// filter may refuse the call.
#[cold]
fn learn() {
    let here = 0_u64;
    let good = refusal(core::ptr::from_ref(&here).addr());
    let bad = refusal(usize::MAX - PAGE_BYTES + 1);
    let reliable = good == libc::EINVAL && bad == libc::EFAULT;
    ANSWERS.store(if reliable { RELIABLE } else { USELESS }, Ordering::Relaxed);
}

/// The error of the call that always fails: EINVAL if the kernel could read `address`, EFAULT if
/// not.
fn refusal(address: usize) -> i32 {
    // SAFETY: the kernel checks the address, and changes no mask on an unknown command.
    -unsafe { kernel!(rt_sigprocmask, NO_COMMAND, address, 0, SET_BYTES) } as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_heap::os::linux::Linux;
    use neap_heap::os::{Os, loader};

    #[test]
    fn words_are_read_and_holes_are_not() {
        let words = [11_usize, 12, 13];
        let at = words.as_ptr().addr();
        let mut peek = Peek::beside(&words);
        assert_eq!(peek.near(at), Some(11));
        assert_eq!(peek.near(at + 8), Some(12));
        assert_eq!(peek.near(at + 4), None);
        assert_eq!(far(at + 8), Some(12_usize.to_ne_bytes()));
        loader::set_errno(77);
        for hole in [0, 8, usize::MAX - 7, usize::MAX - 4095, 1 << 63] {
            assert_eq!(peek.near(hole), None);
            assert_eq!(far(hole), None);
        }
        assert_eq!(loader::errno(), 77);
    }

    #[test]
    fn a_page_without_access_is_a_hole() {
        let page = Linux.page_bytes();
        let base = Linux.reserve(2 * page, page).unwrap();
        let at = base.as_ptr().addr();
        // SAFETY: the first page of our own reservation.
        unsafe { Linux.commit(base, page) }.unwrap();
        let local = 0;
        let mut peek = Peek::beside(&local);
        assert_eq!(peek.near(at + page - 8), Some(0));
        assert_eq!(peek.near(at + page), None);
        assert_eq!(far(at + page - 4), None);
        // SAFETY: as above; the page holds no value.
        if unsafe { Linux.install_guard(base, page) }.is_ok() {
            assert_eq!(Peek::beside(&local).near(at), None);
            assert_eq!(far(at), None);
        }
        // SAFETY: the whole reservation, which the test no longer uses.
        unsafe { Linux.unmap(base, 2 * page) };
    }
}
