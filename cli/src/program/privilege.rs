//! Whether executing a file makes the kernel set `AT_SECURE`, under which the loader ignores
//! preloads.

use super::obstacle::Gain;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io, mem, ptr};

/// What executing `file` gains for this user. Root gains nothing from root's files.
pub fn gain(file: &Path) -> io::Result<Option<Gain>> {
    let meta = fs::metadata(file)?;
    let name = CString::new(file.as_os_str().as_bytes())?;
    if is_without_gains(&name) {
        return Ok(None);
    }
    // SAFETY: these two calls only read the credentials of this process.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let (set_user, set_group) = (meta.mode() & libc::S_ISUID != 0, takes_group(meta.mode()));
    Ok(match () {
        () if set_user && meta.uid() != user => Some(Gain::User),
        () if set_group && meta.gid() != group => Some(Gain::Group),
        () if user != 0 && has_capabilities(&name) => Some(Gain::Capabilities),
        () => None,
    })
}

/// Without the group's execute bit, the set-group-ID bit meant mandatory locking.
fn takes_group(mode: u32) -> bool {
    let bits = libc::S_ISGID | libc::S_IXGRP;
    mode & bits == bits
}

/// Whether a mount option or a process flag disables these bits.
fn is_without_gains(file: &CStr) -> bool {
    // SAFETY: PR_GET_NO_NEW_PRIVS takes no pointers.
    let no_new = unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) } == 1;
    // SAFETY: statvfs is plain numbers, for which zero bytes are a value.
    let mut mount: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: `file` ends with a zero byte and `mount` is a place for one statvfs.
    let known = unsafe { libc::statvfs(file.as_ptr(), &raw mut mount) } == 0;
    no_new || known && mount.f_flag & libc::ST_NOSUID != 0
}

fn has_capabilities(file: &CStr) -> bool {
    // SAFETY: both names end with a zero byte; a size of 0 asks for the length only.
    unsafe {
        libc::getxattr(
            file.as_ptr(),
            c"security.capability".as_ptr(),
            ptr::null_mut(),
            0,
        ) > 0
    }
}
