//! Paths that the dynamic loader takes as one name. It splits `LD_PRELOAD` at spaces and colons,
//! and expands dollar signs.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, io};

/// The library, or a symbolic link to it with such a path.
///
/// # Errors
/// If there is no place for a link.
pub fn nameable(library: PathBuf) -> io::Result<PathBuf> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    if is_plain(&library) {
        return Ok(library);
    }
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let link = replacement()?.join(format!("libneap-{:016x}.so", hasher.finish()));
    // Made beside it, so that there is a link at every moment.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let fresh = link.with_extension(format!("{}-{number}", std::process::id()));
    symlink(&library, &fresh)?;
    fs::rename(&fresh, &link)?;
    Ok(link)
}

/// Whether the loader takes the path as one name.
pub fn is_plain(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    !bytes.iter().any(|byte| b" :$".contains(byte))
}

/// A directory of this user's own with such a path.
///
/// # Errors
/// If there is none.
pub fn replacement() -> io::Result<PathBuf> {
    // SAFETY: only reads the credentials of this process.
    let name = format!("neap-tests-{}", unsafe { libc::geteuid() });
    let parents = [env::temp_dir(), "/var/tmp".into(), "/dev/shm".into()];
    let mut rooms = parents.iter().map(|parent| parent.join(&name));
    let room = rooms.find(|room| is_plain(room) && claim(room).is_ok());
    room.ok_or_else(|| io::Error::other("no directory without a space in its path: set TMPDIR"))
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
    if meta.is_dir() && is_own && meta.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}
