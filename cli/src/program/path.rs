//! Finds a program by name, as `execvp` does.

use super::obstacle::{Obstacle, Why};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, io};

/// Where `execvp` searches if `PATH` is not set.
const WITHOUT_PATH: &str = "/bin:/usr/bin";

/// The file that `name` refers to.
pub fn locate(name: &OsStr) -> Result<PathBuf, Obstacle> {
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return is_executable(&file).map(|()| file);
    }
    let path = env::var_os("PATH").unwrap_or_else(|| OsString::from(WITHOUT_PATH));
    search(name, &path)
}

/// The first executable file. Without one, the obstacle of the first file of that name.
fn search(name: &OsStr, path: &OsStr) -> Result<PathBuf, Obstacle> {
    let mut obstacle = Why::NotFound.at(name);
    for room in env::split_paths(path) {
        let file = match room.as_os_str().is_empty() {
            true => Path::new(".").join(name),
            false => room.join(name),
        };
        match is_executable(&file) {
            Ok(()) if !name.is_empty() => return Ok(file),
            Err(found)
                if matches!(
                    (&found.why, &obstacle.why),
                    (Why::NotPermitted, Why::NotFound)
                ) =>
            {
                obstacle = found
            }
            Ok(()) | Err(_) => {}
        }
    }
    Err(obstacle)
}

/// Whether this user may execute `file`.
pub fn is_executable(file: &Path) -> Result<(), Obstacle> {
    let meta = file.metadata().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Why::NotFound.at(file),
        _ => Why::Unreadable(error).at(file),
    })?;
    match (meta.is_dir(), meta.is_file() && may_execute(file)) {
        (true, _) => Err(Why::Directory.at(file)),
        (_, true) => Ok(()),
        (_, false) => Err(Why::NotPermitted.at(file)),
    }
}

fn may_execute(file: &Path) -> bool {
    CString::new(file.as_os_str().as_bytes()).is_ok_and(|file| {
        // SAFETY: `file` is a string that ends with a zero byte and outlives the call.
        unsafe { libc::faccessat(libc::AT_FDCWD, file.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
    })
}
