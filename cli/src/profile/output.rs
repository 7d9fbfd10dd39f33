//! Files that are there whole, or not at all: what was there before is not lost when the disk is full.

use crate::failure::{Failure, shown};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes `bytes` beside `file` and gives them its name. A device or a pipe is written to as it is.
///
/// # Errors
/// It could not be written; then `file` is as it was.
pub fn write(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let done = match fs::metadata(file) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_file() => through(file, bytes),
        Ok(_) => fs::canonicalize(file).and_then(|file| beside(&file, bytes)),
        Err(_) => beside(file, bytes),
    };
    done.map_err(|error| Failure::own(format!("cannot write {}: {error}", shown(file))))
}

fn through(file: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all(bytes)
}

fn beside(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    let other: PathBuf = file.with_file_name(hidden);
    let created = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&other)?;
    let done = fill(created, bytes).and_then(|()| fs::rename(&other, file));
    if done.is_err() {
        // The error that led here says more than one about a file that is left behind.
        let _ = fs::remove_file(&other);
    }
    done
}

/// Some file systems say only here that the disk is full.
fn fill(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("out");
        let link = room.path().join("link");
        symlink("out", &link).unwrap();
        write(&file, b"one").unwrap();
        write(&link, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(room.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_cannot_be_written_is_said_by_name() {
        let room = tempfile::tempdir().unwrap();
        let missing = room.path().join("no/such/file");
        for (file, why) in [
            (missing.as_path(), "No such file"),
            (room.path(), "directory"),
            (Path::new("/dev/full"), "No space left"),
            (Path::new("/"), "directory"),
        ] {
            let failure = write(file, b"x").unwrap_err().to_string();
            assert!(failure.contains(why), "{failure}");
            assert!(failure.contains(file.to_str().unwrap()), "{failure}");
        }
    }
}
