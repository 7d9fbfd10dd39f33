//! Locates the library and names it for the dynamic loader.

use crate::failure::{Failure, shown};
use crate::program::elf::Elf;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Candidates, relative to this program's directory: the shipped file, cargo's build for this very
/// program, cargo's separate build (perhaps an earlier one), and the installed place.
const PLACES: [&str; 4] = [
    "libneap.so",
    "deps/libneap_c.so",
    "libneap_c.so",
    "../lib/libneap.so",
];

/// The variable that the dynamic loader reads.
pub const PRELOAD: &str = "LD_PRELOAD";

/// The library that belongs to this program.
pub fn find() -> Result<PathBuf, Failure> {
    let exe = env::current_exe()
        .map_err(|error| failure!("cannot tell where neap itself is: {error}"))?;
    let room = exe.parent().unwrap_or(Path::new("/"));
    let places = PLACES.map(|place| room.join(place));
    let found = places.iter().find(|place| place.is_file());
    found
        .and_then(|place| place.canonicalize().ok())
        .ok_or_else(|| missing(&places))
}

/// The library's headers, which programs are compared with.
pub fn headers(library: &Path) -> Result<Elf, Failure> {
    let damaged = |what: &dyn std::fmt::Display| {
        failure!("{} is damaged: {what}; install it again", shown(library))
    };
    let headers = Elf::read(library).map_err(|error: io::Error| damaged(&error))?;
    headers.ok_or_else(|| damaged(&"no ELF headers"))
}

fn missing(places: &[PathBuf]) -> Failure {
    let looked: Vec<String> = places
        .iter()
        .map(|place| shown(place).to_string())
        .collect();
    failure!(
        "the library cannot be found: put libneap.so beside neap or in ../lib (looked at {})",
        looked.join(", ")
    )
}

/// Whether cargo built the file, and will again.
pub fn is_of_a_build(library: &Path) -> bool {
    library.ends_with("libneap_c.so")
}

/// The value of `LD_PRELOAD` with `library` before its current value.
pub fn preload(library: &Path) -> Result<OsString, Failure> {
    let mut value = nameable(library)?.into_os_string();
    for entry in entries(&env::var_os(PRELOAD).unwrap_or_default()) {
        if !is_same_file(Path::new(entry), library) {
            value.push(":");
            value.push(entry);
        }
    }
    Ok(value)
}

/// The first library of a list made by [`preload`].
pub fn first(list: &OsStr) -> &OsStr {
    entries(list).next().unwrap_or_default()
}

fn entries(list: &OsStr) -> impl Iterator<Item = &OsStr> {
    let separated = list.as_bytes().split(|&byte| byte == b':' || byte == b' ');
    separated
        .filter(|entry| !entry.is_empty())
        .map(OsStr::from_bytes)
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    a == b || identity(a).is_some_and(|identity_of_a| Some(identity_of_a) == identity(b))
}

/// Whether the loader takes `path` in `LD_PRELOAD` as one name. It splits at spaces and colons and
/// expands `$ORIGIN` and similar tokens, and has no quoting.
pub fn is_plain(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    !bytes.iter().any(|byte| b" :$".contains(byte))
}

/// `library`, or a link to it whose name the loader understands. The link stays, because programs
/// that the program starts later need it.
fn nameable(library: &Path) -> Result<PathBuf, Failure> {
    if is_plain(library) {
        return Ok(library.to_owned());
    }
    let rooms = rooms_for_links();
    let mut plain = rooms.iter().filter(|room| is_plain(room));
    let linked = plain.find_map(|room| link(room, library).ok());
    linked.ok_or_else(|| {
        failure!(
            "the dynamic loader cannot preload {}: its path has a space, a colon or a dollar sign, \
             and no directory for a link was found; put the library elsewhere",
            shown(library)
        )
    })
}

/// Private directories for links, best first. The first candidates last as long as the system runs,
/// and programs that change their user can search them.
fn rooms_for_links() -> Vec<PathBuf> {
    let user = geteuid().as_raw();
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    [
        Some(PathBuf::from("/run")),
        runtime,
        Some(env::temp_dir()),
        Some(PathBuf::from("/tmp")),
        Some(PathBuf::from("/dev/shm")),
    ]
    .into_iter()
    .flatten()
    .filter(|room| room.is_absolute())
    .map(|room| room.join(format!("neap-{user}")))
    .collect()
}

fn link(room: &Path, library: &Path) -> io::Result<PathBuf> {
    claim(room)?;
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let name = room.join(format!("libneap-{:016x}.so", hasher.finish()));
    if fs::read_link(&name).is_ok_and(|target| target == library) {
        return Ok(name);
    }
    sweep(room)?;
    let fresh = room.join(format!("new-{}", std::process::id()));
    symlink(library, &fresh)?;
    fs::rename(&fresh, &name)?;
    Ok(name)
}

/// Removes links to libraries that are gone.
fn sweep(room: &Path) -> io::Result<()> {
    for entry in fs::read_dir(room)? {
        let name = entry?.path();
        if !name.exists() {
            // Another neap may have removed it meanwhile.
            let _ = fs::remove_file(&name);
        }
    }
    Ok(())
}

/// Makes the directory `room`, or checks that this user owns it and no other user can put a link
/// into it. A user who could would choose the code that programs run.
fn claim(room: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(room) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let meta = fs::symlink_metadata(room)?;
    let ours = meta.uid() == geteuid().as_raw();
    if meta.is_dir() && ours && meta.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(io::Error::from(io::ErrorKind::PermissionDenied))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn paths_that_the_loader_would_split_or_expand_are_not_plain() {
        assert!(is_plain(Path::new("/usr/lib/libneap.so")));
        for path in ["/a b/libneap.so", "/a:b/libneap.so", "/$LIB/libneap.so"] {
            assert!(!is_plain(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_link_is_made_once_and_mended() {
        let room = tempfile::tempdir().unwrap();
        let room = room.path().join("links");
        let target = Path::new("/some where/libneap.so");
        let gone = link(&room, Path::new("/gone :/libneap.so")).unwrap();
        let name = link(&room, target).unwrap();
        assert!(
            gone.symlink_metadata().is_err(),
            "links to nowhere are swept"
        );
        assert_eq!(fs::read_link(&name).unwrap(), target);
        fs::remove_file(&name).unwrap();
        symlink("/elsewhere", &name).unwrap();
        assert_eq!(link(&room, target).unwrap(), name);
        assert_eq!(fs::read_link(&name).unwrap(), target);
    }

    #[test]
    fn a_directory_that_others_can_write_is_not_claimed() {
        let room = tempfile::tempdir().unwrap();
        fs::set_permissions(room.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(claim(room.path()).is_err());
        fs::set_permissions(room.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(claim(room.path()).is_ok());
    }

    #[test]
    fn entries_are_split_at_spaces_and_colons() {
        let list: Vec<_> = entries(OsStr::new("a.so: b.so c.so:")).collect();
        assert_eq!(list, ["a.so", "b.so", "c.so"]);
    }
}
