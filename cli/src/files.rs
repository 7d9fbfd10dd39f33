//! Reads files up to a limit, and writes them completely or not at all: a full disk does not cost
//! the earlier contents.

use crate::failure::{Failure, shown};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind::NotFound, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// Writes `bytes` beside `file`, then renames them to it, and lets no more users read an existing
/// file than before. Writes to a device or a pipe directly.
///
/// # Errors
/// It could not be written; `file` is then unchanged.
pub fn write(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let done = Way::to(file).and_then(|way| match way {
        Way::Through => through(file, bytes),
        Way::Beside(draft, file) => beside(draft, &file, bytes),
    });
    done.map_err(|error| failure(file, &error))
}

/// Reads a file, or as much of it as `most` bytes.
pub fn read(file: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|open| open.take(most).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(error) => Err(failure!("cannot read {}: {error}", shown(file))),
    }
}

/// Up to `most` bytes of a regular file whose name other people chose; `None` if it says that it
/// has none. Files of `/proc` say so, and some of them never end, or make their reader wait.
pub fn foreign(file: &Path, most: u64) -> Option<Vec<u8>> {
    let open = regular(file).ok()?;
    if open.metadata().ok()?.len() == 0 {
        return None;
    }
    let mut bytes = Vec::new();
    open.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Opens a regular file for reading; never waits for the writer of a pipe.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub fn regular(file: &Path) -> io::Result<File> {
    let open = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(file)?;
    if open.metadata()?.is_file() {
        Ok(open)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

/// Checks that [`write`] would succeed now, before the work instead of after it.
///
/// # Errors
/// It would not.
pub fn check_writable(file: &Path) -> Result<(), Failure> {
    // Opening a pipe would be visible at its other end.
    let tried = Way::to(file).map(drop);
    tried.map_err(|error| failure(file, &error))
}

/// Checks that a program started now could append to `file`, without making it. Returns a name for
/// it that survives a change of directory.
///
/// # Errors
/// It could not.
pub fn appendable(file: &Path) -> Result<PathBuf, Failure> {
    let refused = |error: io::Error| failure(file, &error);
    if fs::metadata(file).is_ok_and(|found| found.is_file()) {
        let open = OpenOptions::new().append(true).open(file);
        open.map_err(refused)?;
    } else {
        check_writable(file)?;
    }
    std::path::absolute(file).map_err(refused)
}

/// How a file is written.
enum Way {
    /// Directly.
    Through,
    /// To a draft beside it, which is then renamed to the file's name with all links resolved.
    Beside(NamedTempFile, PathBuf),
}

impl Way {
    fn to(file: &Path) -> io::Result<Self> {
        let (file, permissions) = match fs::metadata(file) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => return Ok(Self::Through),
            Ok(found) => (fs::canonicalize(file)?, found.permissions()),
            Err(_) => (file.to_owned(), Permissions::from_mode(0o666)),
        };
        let name = file.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut draft = Builder::new();
        let draft = draft.permissions(permissions).suffix(name);
        let draft = draft.tempfile_in(file.with_file_name("."))?;
        Ok(Self::Beside(draft, file))
    }
}

fn through(file: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all(bytes)
}

fn beside(mut draft: NamedTempFile, file: &Path, bytes: &[u8]) -> io::Result<()> {
    draft.write_all(bytes)?;
    // Some file systems report a full disk only at this point.
    draft.as_file().sync_data()?;
    draft.persist(file)?;
    Ok(())
}

/// The failure to write a file.
pub fn failure(file: &Path, error: &io::Error) -> Failure {
    let room = file.parent().filter(|room| room.has_root());
    let why = match room.filter(|room| error.kind() == NotFound && !room.exists()) {
        Some(room) => format!("there is no directory {}", shown(room)),
        None => reason(error),
    };
    failure!("cannot write {}: {why}", shown(file))
}

/// The text of an error, without the path that tempfile adds: only this process knows it.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" at path ").next().unwrap_or(&text).to_owned()
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
        check_writable(&file).unwrap();
        assert!(!file.exists());
        write(&file, b"one").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        check_writable(&link).unwrap();
        write(&link, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others may read it now");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(room.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_foreign_file_has_an_end() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("file");
        fs::write(&file, b"text").unwrap();
        assert_eq!(foreign(&file, 4).as_deref(), Some(&b"text"[..]));
        assert_eq!(foreign(&file, 3).as_deref(), Some(&b"tex"[..]));
        let link = room.path().join("link");
        symlink("/proc/self/maps", &link).unwrap();
        for other in [
            Path::new("/dev/zero"),
            Path::new("/"),
            &link,
            &file.join("no"),
        ] {
            assert_eq!(foreign(other, u64::MAX), None, "{other:?}");
        }
    }

    #[test]
    fn a_file_to_append_to_is_not_made_and_keeps_its_contents() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("reports");
        assert_eq!(appendable(&file).unwrap(), file);
        assert!(!file.exists());
        fs::write(&file, b"earlier").unwrap();
        appendable(&file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"earlier");
        assert_eq!(fs::read_dir(room.path()).unwrap().count(), 1);
        for wrong in [file.join("no"), room.path().to_owned()] {
            let said = appendable(&wrong).unwrap_err().to_string();
            assert!(said.contains(wrong.to_str().unwrap()), "{said}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_said_by_name() {
        let room = tempfile::tempdir().unwrap();
        let missing = room.path().join("no/such/file");
        for (file, why) in [
            (missing.as_path(), "there is no directory /"),
            (room.path(), "directory"),
            (Path::new("/dev/full"), "No space left"),
            (Path::new("/"), "directory"),
        ] {
            let failure = write(file, b"x").unwrap_err().to_string();
            assert!(failure.contains(why), "{failure}");
            assert!(failure.contains(file.to_str().unwrap()), "{failure}");
            assert!(!failure.contains("at path"), "{failure}");
        }
    }
}
