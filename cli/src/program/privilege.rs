//! Whether executing a file makes the kernel set `AT_SECURE`, under which the loader ignores
//! preloads.

use super::obstacle::Gain;
use rustix::fs::{StatVfs, StatVfsMountFlags, getxattr, statvfs};
use rustix::process::{getgid, getuid};
use rustix::thread::no_new_privs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

/// What executing `file` gains for this user. Root gains nothing from root's files.
pub fn gain(file: &Path) -> io::Result<Option<Gain>> {
    let meta = fs::metadata(file)?;
    if is_without_gains(file) {
        return Ok(None);
    }
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let (set_user, set_group) = (meta.mode() & libc::S_ISUID != 0, takes_group(meta.mode()));
    Ok(match () {
        () if set_user && meta.uid() != user => Some(Gain::User),
        () if set_group && meta.gid() != group => Some(Gain::Group),
        () if user != 0 && has_capabilities(file) => Some(Gain::Capabilities),
        () => None,
    })
}

/// Without the group's execute bit, the set-group-ID bit meant mandatory locking.
fn takes_group(mode: u32) -> bool {
    let bits = libc::S_ISGID | libc::S_IXGRP;
    mode & bits == bits
}

/// Whether a mount option or a process flag disables these bits.
fn is_without_gains(file: &Path) -> bool {
    let without_set_ids = |mount: StatVfs| mount.f_flag.contains(StatVfsMountFlags::NOSUID);
    no_new_privs().unwrap_or(false) || statvfs(file).is_ok_and(without_set_ids)
}

fn has_capabilities(file: &Path) -> bool {
    // Without room for the value, the call tells its length.
    getxattr(file, "security.capability", &mut [0; 0]).is_ok_and(|length| length > 0)
}
