//! Whether a page can be guarded by write protection, as the heap guards stacks. The tests of other
//! crates include this file.

use neap_shared::userfaultfd::{
    API, KNOWS_WRITES, PROTECTED, REGISTER, SIGBUS, USER_MODE_ONLY, VERSION, WRITE_PROTECT, WRITES,
    ZERO_PAGE,
};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Guards a page or more, and has the kernel write to it.
///
/// # Safety
/// - The pages are mapped readable and writable, and no other code uses them.
pub unsafe fn guards_writes(page: *mut u8, bytes: usize) -> io::Result<()> {
    let file = open(USER_MODE_ONLY).or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => open(0),
        _ => Err(error),
    })?;
    let ask = |request: u32, mut words: [u64; 4]| {
        let (file, request) = (file.as_raw_fd(), libc::c_ulong::from(request));
        // SAFETY: the argument of each of these requests has at most four words.
        answer(unsafe { libc::syscall(libc::SYS_ioctl, file, request, &raw mut words) })?;
        Ok::<_, io::Error>(words)
    };
    let (start, length) = (page.expose_provenance() as u64, bytes as u64);
    let [_, features, ..] = ask(API, [VERSION, SIGBUS, 0, 0])?;
    ask(REGISTER, [start, length, WRITES, 0])?;
    ask(ZERO_PAGE, [start, length, 0, 0])?;
    ask(WRITE_PROTECT, [start, length, PROTECTED, 0])?;
    // SAFETY: the caller's promise; the page has room for the byte.
    let written = unsafe { libc::syscall(libc::SYS_getrandom, page, 1, 0) };
    if features & KNOWS_WRITES != 0 && written == -1 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

fn open(flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: userfaultfd takes no pointers.
    let file = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | flags) };
    // SAFETY: a new descriptor, which no other value owns.
    answer(file).map(|file| unsafe { OwnedFd::from_raw_fd(file as i32) })
}

fn answer(result: libc::c_long) -> io::Result<libc::c_long> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}
