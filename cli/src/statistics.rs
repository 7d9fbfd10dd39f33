//! Where the processes of a run leave their statistics for `neap` to print.
//!
//! The library appends one page (text) or one line (JSON) with a single `write` to the file named
//! by `NEAP_STATS_FILE`, so pages of processes that end together stay whole.

use crate::failure::{Failure, shown};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{env, process};

/// A private file, removed with its directory when dropped.
///
/// Processes that have changed their user can still append to it: every user may search the
/// directory and write the file, but only this run knows the file's name.
pub struct Inbox {
    room: PathBuf,
    file: PathBuf,
}

impl Inbox {
    /// Makes the file.
    pub fn new() -> Result<Self, Failure> {
        Self::of("statistics", "--stats=FILE")
    }

    /// Makes the file, for the named contents. The option names another file.
    pub fn of(contents: &str, option: &str) -> Result<Self, Failure> {
        Self::create().map_err(|error| {
            let room = env::temp_dir();
            let room = shown(&room);
            failure!("cannot keep {contents} in {room}: {error}; set TMPDIR or use {option}")
        })
    }

    fn create() -> io::Result<Self> {
        let name = format!("neap-stats-{}-{:016x}", process::id(), secret()?);
        let room = env::temp_dir().join(name);
        DirBuilder::new().mode(0o711).create(&room)?;
        let file = room.join(format!("{:016x}", secret()?));
        let inbox = Self { room, file };
        let file = File::create_new(&inbox.file)?;
        file.set_permissions(fs::Permissions::from_mode(0o622))?;
        Ok(inbox)
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// What has arrived.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        fs::read(&self.file)
    }

    /// Copies what has arrived to standard error, and returns how many bytes that was.
    pub fn print(&self) -> io::Result<usize> {
        let pages = self.read()?;
        io::stderr().write_all(&pages)?;
        Ok(pages.len())
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.room);
    }
}

/// Checks before the start that the program can append to `file`. Returns a name for it that
/// survives a change of directory.
pub fn writable(file: &Path) -> Result<PathBuf, Failure> {
    let refused =
        |error: io::Error| failure!("cannot write the statistics to {}: {error}", shown(file));
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(file)
        .map_err(refused)?;
    std::path::absolute(file).map_err(refused)
}

/// A random number that other users cannot guess.
pub fn secret() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // The kernel never gives a part of so few bytes.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
