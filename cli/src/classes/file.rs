//! The file of a table.

use crate::failure::{Failure, shown};
use std::ffi::OsString;
use std::fmt::Write;
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
    let text = std::fs::read(file).map_err(|error| refused(&error))?;
    neap_shared::classes::parse(&text).map_err(|error| refused(&error))?;
    let absolute = std::path::absolute(file).map_err(|error| refused(&error))?;
    Ok(absolute.into_os_string())
}
