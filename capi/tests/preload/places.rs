//! Where the tests' files are. The loader splits `LD_PRELOAD` at spaces and colons, and a socket's
//! path has at most 107 bytes, so some clones' target directories are unsuitable.

use crate::nameable::{is_plain, nameable, replacement};
use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The longest path of a directory that leaves room for a socket's name.
const LONGEST: usize = 70;

/// The library under test, or a copy of it whose path has no space or colon.
pub fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            let library = original();
            nameable(library).expect("a copy of the library")
        })
        .clone()
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

/// The directory for compiled programs, plugins and sockets: cargo's, or a substitute for it.
pub fn scratch() -> &'static Path {
    static REPLACEMENT: OnceLock<PathBuf> = OnceLock::new();
    let cargos = Path::new(env!("CARGO_TARGET_TMPDIR"));
    match is_plain(cargos) && cargos.as_os_str().len() <= LONGEST {
        true => cargos,
        false => REPLACEMENT.get_or_init(|| replacement().expect("a scratch directory")),
    }
}
