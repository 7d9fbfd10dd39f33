//! Programs that are built with a sanitizer. The library recognises them as well, and leaves their
//! processes with the same words (`capi/src/sanitizer.rs`).

use super::elf::defined;
use neap_shared::sanitizers::RUNTIMES;
use std::path::Path;

/// The sanitizer whose runtime is in one of `files`: a program and the libraries that are loaded
/// with it. A file that cannot be read has none.
pub fn among<'a>(files: impl Iterator<Item = &'a Path>) -> Option<&'static str> {
    let names = RUNTIMES.map(|(init, _)| init);
    let runtimes = files.filter_map(|file| defined(file, &names).ok().flatten());
    runtimes.min().map(|first| RUNTIMES[first].1)
}

/// Why a program with the sanitizer `name` does not run under Neap. With musl's loader, the library
/// cannot leave the process.
pub fn refusal(name: &str, loader: &Path) -> String {
    let file = loader.file_name().unwrap_or_default().as_encoded_bytes();
    let outcome = match file.starts_with(b"ld-musl") {
        true => "do not combine them",
        false => "it runs without Neap",
    };
    format!("built with {name}, which needs a malloc of its own: {outcome}")
}
