//! Paths that the dynamic loader takes as one name, for the lab and for tests. The loader splits
//! `LD_PRELOAD` at spaces and colons, and expands dollar signs.

use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, io};

/// The library, or a copy of it with such a path.
///
/// # Errors
/// If there is no place for a copy.
pub fn nameable(library: PathBuf) -> io::Result<PathBuf> {
    if is_plain(&library) {
        return Ok(library);
    }
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let copy = replacement()?.join(format!("libneap-{:016x}.so", hasher.finish()));
    // A copy that is in use keeps its name: the lab compares it with the processes' mappings.
    if is_current(&copy, &library) {
        return Ok(copy);
    }
    let fresh = fresh_name(&copy);
    fs::copy(&library, &fresh)?;
    fs::rename(&fresh, &copy)?;
    Ok(copy)
}

/// Whether the copy was made after the library, and whole.
fn is_current(copy: &Path, library: &Path) -> bool {
    let figures = |path| {
        let meta = fs::metadata(path).ok()?;
        Some((meta.len(), meta.modified().ok()?))
    };
    let (Some(copy), Some(library)) = (figures(copy), figures(library)) else {
        return false;
    };
    copy.0 == library.0 && copy.1 >= library.1
}

fn fresh_name(copy: &Path) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    copy.with_extension(format!("{}-{number}", std::process::id()))
}

/// Whether the loader takes the path as one name.
pub fn is_plain(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    !bytes.iter().any(|byte| b" :$".contains(byte))
}

/// A directory of this user's own with such a path, in which files can be executed.
///
/// # Errors
/// If there is none.
pub fn replacement() -> io::Result<PathBuf> {
    // SAFETY: only reads the credentials of this process.
    let name = format!("neap-tests-{}", unsafe { libc::geteuid() });
    let parents = [env::temp_dir(), "/var/tmp".into(), "/dev/shm".into()];
    let mut rooms = parents.iter().map(|parent| parent.join(&name));
    let room = rooms.find(|room| is_plain(room) && claim(room).is_ok());
    room.ok_or_else(|| {
        io::Error::other(
            "no directory without a space in its path, in which files can be executed: set TMPDIR",
        )
    })
}

/// Makes the directory, or checks that no other user can put files into it.
fn claim(room: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(room) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let meta = fs::symlink_metadata(room)?;
    // SAFETY: only reads the credentials of this process.
    let is_own = meta.uid() == unsafe { libc::geteuid() };
    if meta.is_dir() && is_own && meta.mode() & 0o022 == 0 && may_execute(room)? {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

fn may_execute(room: &Path) -> io::Result<bool> {
    let path = CString::new(room.as_os_str().as_bytes())?;
    let mut system = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends with a zero, and there is room for the answer.
    if unsafe { libc::statvfs(path.as_ptr(), system.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it wrote the answer.
    Ok(unsafe { system.assume_init() }.f_flag & libc::ST_NOEXEC == 0)
}
