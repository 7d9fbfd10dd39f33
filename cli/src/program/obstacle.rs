//! Why a program cannot run under Neap.

use super::elf::Elf;
use crate::choice::Choice;
use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND};
use askama::Template;
use rustix::fs::{StatVfs, StatVfsMountFlags, getxattr, statvfs};
use rustix::process::{getgid, getuid};
use rustix::thread::no_new_privs;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A file of a chain that cannot run under Neap.
#[derive(Debug, Template)]
#[template(path = "obstacle.txt")]
pub struct Obstacle {
    pub file: PathBuf,
    pub why: Why,
}

/// The reason.
#[derive(Debug)]
pub enum Why {
    /// There is no file of that name, on `PATH` or at that path.
    NotFound,
    /// The interpreter that it names does not exist.
    NoInterpreter(PathBuf),
    /// It is a directory.
    Directory,
    /// This user may not execute the file.
    NotPermitted,
    /// It is neither a program nor a script.
    NotAProgram,
    /// It is statically linked: no dynamic loader can preload a library.
    Static,
    /// It is statically linked with Neap, so it needs no preload.
    NeapInside,
    /// Its loader belongs to another C library, for which this library is not built.
    OtherLoader(PathBuf),
    /// It is built for another processor or word size than the library.
    OtherMachine { program: Elf, library: Elf },
    /// The loader ignores preloads for programs that gain privileges.
    Privileged(Gain),
    /// Each script's interpreter is itself a script.
    TooDeep,
    /// It is `env` with options that Neap would have to parse and does not.
    OpaqueEnv,
    /// The file could not be examined.
    Unreadable(io::Error),
}

impl Why {
    /// The obstacle that `file` is for this reason.
    pub fn at<S: AsRef<OsStr> + ?Sized>(self, file: &S) -> Obstacle {
        let file = PathBuf::from(file.as_ref());
        Obstacle { file, why: self }
    }
}

choice! {
    /// How a program gains privileges by being executed.
    pub enum Gain {
        /// The set-user-ID bit, of another user.
        User = "set-user-ID",
        /// The set-group-ID bit, of another group.
        Group = "set-group-ID",
        /// Capabilities stored with the file.
        Capabilities = "has file capabilities",
    }
}

impl From<Obstacle> for Failure {
    fn from(obstacle: Obstacle) -> Self {
        let code = match obstacle.why {
            Why::NotFound => NOT_FOUND,
            _ => NOT_EXECUTABLE,
        };
        Self::with_code(code, obstacle.to_string())
    }
}

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
