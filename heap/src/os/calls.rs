//! System calls by number, where the C library's function of the name is a cancellation point.
//!
//! `malloc` and its kin are none: a thread cancelled inside one would leave locks held, and memory
//! that no code owns. POSIX names the functions that are (`open`, `read`, `write`, `close` …).
//! `tests/structure.rs` keeps them out of this crate.
//!
//! Results and `errno` are those of the C library's functions.

use core::ffi::{CStr, c_int, c_long, c_void};

/// `open(2)`.
pub(super) fn open(path: &CStr, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: a C string and plain numbers.
    unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, mode) as c_int }
}

/// `close(2)`.
pub(super) fn close(descriptor: c_int) {
    // SAFETY: plain numbers.
    unsafe { libc::syscall(libc::SYS_close, c_long::from(descriptor)) };
}

/// `read(2)`.
pub(super) fn read(descriptor: c_int, buffer: &mut [u8]) -> isize {
    let descriptor = c_long::from(descriptor);
    // SAFETY: the buffer is writable for its length.
    unsafe {
        libc::syscall(
            libc::SYS_read,
            descriptor,
            buffer.as_mut_ptr(),
            buffer.len(),
        ) as isize
    }
}

/// `pread(2)` of whole words.
pub(super) fn read_words_at(descriptor: c_int, words: &mut [u64], offset: i64) -> isize {
    let (descriptor, bytes) = (c_long::from(descriptor), size_of_val(words));
    let buffer: *mut c_void = words.as_mut_ptr().cast();
    // SAFETY: the words are writable, and any bits are one.
    unsafe { libc::syscall(libc::SYS_pread64, descriptor, buffer, bytes, offset) as isize }
}

/// `write(2)`.
pub(super) fn write(descriptor: c_int, bytes: &[u8]) -> isize {
    let descriptor = c_long::from(descriptor);
    // SAFETY: the bytes are readable for their length.
    unsafe { libc::syscall(libc::SYS_write, descriptor, bytes.as_ptr(), bytes.len()) as isize }
}

/// `fcntl(2)` with a number.
pub(super) fn control(descriptor: c_int, command: c_int, argument: c_int) -> c_int {
    let [descriptor, command, argument] = [descriptor, command, argument].map(c_long::from);
    // SAFETY: plain numbers.
    unsafe { libc::syscall(libc::SYS_fcntl, descriptor, command, argument) as c_int }
}

/// `sendmsg(2)`.
///
/// # Safety
/// - The message is valid, and what it points to.
pub(super) unsafe fn send(socket: c_int, message: &libc::msghdr, flags: c_int) -> isize {
    let (socket, flags) = (c_long::from(socket), c_long::from(flags));
    let message = core::ptr::from_ref(message);
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_sendmsg, socket, message, flags) as isize }
}
