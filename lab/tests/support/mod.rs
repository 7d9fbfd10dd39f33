//! What several tests stand on.

use std::path::PathBuf;

/// Neap's library: what LIBRARY_UNDER_TEST names, or what cargo built beside this test. Left to itself, the command takes
/// the shipped one where there is one, of whatever sources.
pub fn neap() -> PathBuf {
    if let Some(named) = std::env::var_os("LIBRARY_UNDER_TEST") {
        return PathBuf::from(named);
    }
    let program = std::env::current_exe().expect("this test has no path");
    let beside = program.parent().expect("a path has a folder");
    let places = [beside.join("libneap_c.so"), beside.join("../libneap_c.so")];
    let found = places.into_iter().find(|path| path.is_file());
    found.expect("cargo builds libneap_c.so with the tests")
}
