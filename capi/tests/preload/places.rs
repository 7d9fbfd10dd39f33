//! Where the tests' files are. The loader splits `LD_PRELOAD` at spaces and colons, and a socket's
//! path has at most 107 bytes, so not every clone's target directory will do.

use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs, io};

/// The length of a directory's path that leaves room for a socket's name.
const LONGEST: usize = 70;

/// The library under test, or a copy of it whose path the loader takes as one name.
pub fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| nameable(original())).clone()
}

fn original() -> PathBuf {
    if let Some(path) = env::var_os("LIBRARY_UNDER_TEST") {
        return PathBuf::from(path)
            .canonicalize()
            .expect("LIBRARY_UNDER_TEST names a file");
    }
    let test = env::current_exe().expect("a test knows its own path");
    let deps = test.parent().expect("a test stands in a directory");
    [deps.join("libneap_c.so"), deps.join("../libneap_c.so")]
        .iter()
        .find_map(|path| path.canonicalize().ok())
        .expect("cargo built libneap_c.so beside the test")
}

/// The directory for compiled programs, plugins and sockets: cargo's, or one in its place.
pub fn scratch() -> &'static Path {
    let cargos = Path::new(env!("CARGO_TARGET_TMPDIR"));
    match is_plain(cargos) && cargos.as_os_str().len() <= LONGEST {
        true => cargos,
        false => replacement(),
    }
}

fn nameable(library: PathBuf) -> PathBuf {
    if is_plain(&library) {
        return library;
    }
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let copy = replacement().join(format!("libneap-{:016x}.so", hasher.finish()));
    let fresh = copy.with_extension(std::process::id().to_string());
    let copied = fs::copy(&library, &fresh).and_then(|_| fs::rename(&fresh, &copy));
    copied.unwrap_or_else(|error| panic!("{}: {error}", fresh.display()));
    copy
}

fn is_plain(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    !bytes.iter().any(|byte| b" :$".contains(byte))
}

/// A directory of this user's own, outside the clone, in which files can be executed.
fn replacement() -> &'static Path {
    static ROOM: OnceLock<PathBuf> = OnceLock::new();
    ROOM.get_or_init(|| {
        // SAFETY: only reads the credentials of this process.
        let name = format!("neap-tests-{}", unsafe { libc::geteuid() });
        let parents = [env::temp_dir(), "/var/tmp".into(), "/dev/shm".into()];
        let mut rooms = parents.iter().map(|parent| parent.join(&name));
        let room = rooms.find(|room| is_plain(room) && claim(room).is_ok());
        room.expect("a directory without a space in its path, in which files can be executed")
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
    match meta.is_dir() && is_own && meta.mode() & 0o022 == 0 && may_execute(room)? {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

fn may_execute(room: &Path) -> io::Result<bool> {
    let path = CString::new(room.as_os_str().as_bytes())?;
    let mut system = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a string that ends with a zero, and room for the answer.
    if unsafe { libc::statvfs(path.as_ptr(), system.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it wrote the answer.
    Ok(unsafe { system.assume_init() }.f_flag & libc::ST_NOEXEC == 0)
}
