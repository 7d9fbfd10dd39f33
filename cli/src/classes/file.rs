//! The file of a table.

use crate::failure::{Failure, shown};
use crate::files;
use neap_shared::classes::MOST_BYTES;
use std::ffi::OsString;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

/// The file of a table, in the format that the library reads.
pub fn file(sizes: &[u16], program: &str) -> String {
    let mut text = format!(
        "{}\n# for {}, by neap tune\n",
        neap_shared::classes::FIRST_LINE,
        program.replace(char::is_control, "?")
    );
    for size in sizes {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{size}");
    }
    text
}

/// The absolute name of a file of classes, for `neap run --classes`, because the program's
/// processes may run in other directories.
///
/// # Errors
///
/// The file cannot be read, or the library would not accept it.
pub fn absolute(file: &Path) -> Result<OsString, Failure> {
    let refused = |why: &dyn std::fmt::Display| {
        failure!(
            "--classes {}: {why}; neap tune writes such files",
            shown(file)
        )
    };
    let mut text = Vec::new();
    files::regular(file)
        .and_then(|open| open.take(MOST_BYTES as u64 + 1).read_to_end(&mut text))
        .map_err(|error| refused(&error))?;
    neap_shared::classes::parse(&text).map_err(|error| refused(&error))?;
    let absolute = std::path::absolute(file).map_err(|error| refused(&error))?;
    Ok(absolute.into_os_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_or_too_long_is_refused() {
        let long = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(long.path(), [b'#'; MOST_BYTES + 1]).unwrap();
        for (file, because) in [
            (Path::new("/dev/zero"), "it is no regular file"),
            (long.path(), "longer than 16384 bytes"),
        ] {
            let why = absolute(file).unwrap_err().to_string();
            assert!(why.contains(because), "{why}");
        }
    }
}
