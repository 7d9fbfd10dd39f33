//! The stack on which a thread's handlers of signals run, if its own has no room.

use super::arch::call;
use core::mem::MaybeUninit;
use core::ptr::{NonNull, null, null_mut};

/// The calling thread's alternate stack for handlers: its lowest byte, if it has one.
pub fn current() -> Option<NonNull<u8>> {
    let mut now = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: the buffer is as large as the kernel's answer; zeros are also valid.
    let now = unsafe {
        switch(null(), now.as_mut_ptr());
        now.assume_init()
    };
    NonNull::new(now.ss_sp.cast()).filter(|_| now.ss_flags & libc::SS_DISABLE == 0)
}

/// Lets handlers of the calling thread run on these bytes. False if the kernel refuses.
///
/// # Safety
/// - They are the caller's, until the thread has ended or [`remove`] was called.
pub unsafe fn set(lowest: NonNull<u8>, bytes: usize) -> bool {
    let stack = libc::stack_t {
        ss_sp: lowest.as_ptr().cast(),
        ss_flags: 0,
        ss_size: bytes,
    };
    // SAFETY: a valid structure; the caller's promise.
    unsafe { switch(&stack, null_mut()) }
}

/// Takes the calling thread's alternate stack away if it is the one that begins at `lowest`.
pub fn remove(lowest: NonNull<u8>) {
    if current() != Some(lowest) {
        return;
    }
    let none = libc::stack_t {
        ss_sp: null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    // SAFETY: a valid structure.
    unsafe { switch(&none, null_mut()) };
}

/// `sigaltstack(2)`. False if the kernel refuses.
///
/// # Safety
/// - As `sigaltstack(2)`.
unsafe fn switch(new: *const libc::stack_t, old: *mut libc::stack_t) -> bool {
    let [new, old] = [new.expose_provenance(), old.expose_provenance()];
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_sigaltstack, [new, old, 0, 0]) == 0 }
}
