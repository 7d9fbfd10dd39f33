//! The memory files that Neap keeps in a process, found through /proc as any other process finds
//! them.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, ensure};

/// Opens the memory file `name` of process `who`, a PID or `self`; `None` while it has none.
pub fn open(who: &str, name: &CStr) -> Option<File> {
    let wanted = format!("/memfd:{} (deleted)", name.to_string_lossy());
    let descriptors = fs::read_dir(format!("/proc/{who}/fd")).ok()?;
    descriptors.flatten().find_map(|entry| {
        let link = fs::read_link(entry.path()).ok()?;
        (link.to_string_lossy() == wanted)
            .then(|| File::open(entry.path()).ok())
            .flatten()
    })
}

/// The `T` at byte `at` of `file`.
///
/// # Errors
/// If the file is shorter.
pub fn read<T: bytemuck::Pod>(file: &File, at: usize) -> anyhow::Result<T> {
    let mut value = T::zeroed();
    let bytes = bytemuck::bytes_of_mut(&mut value);
    file.read_exact_at(bytes, at as u64)
        .with_context(|| format!("the memory file has nothing at byte {at}"))?;
    Ok(value)
}

/// Fails unless the file begins with these two words.
///
/// # Errors
/// If it begins with others.
pub fn ensure_words(file: &File, magic: u64, version: u64) -> anyhow::Result<()> {
    let words: [u64; 2] = read(file, 0)?;
    ensure!(
        words == [magic, version],
        "the memory file is of another version of Neap than neap-lab"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd as _;

    /// A memory file of this process with these words.
    fn made(name: &CStr, words: [u64; 3]) -> File {
        // SAFETY: the name is a C string.
        let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        assert!(descriptor >= 0);
        // SAFETY: the descriptor is new, and only this file owns it.
        let file = unsafe { File::from_raw_fd(descriptor) };
        file.write_all_at(bytemuck::bytes_of(&words), 0).unwrap();
        file
    }

    #[test]
    fn a_file_is_found_by_its_name_and_read() {
        let name = c"neap-lab-test";
        assert!(open("self", name).is_none());
        let made = made(name, [7, 1, 42]);
        let found = open("self", name).unwrap();
        drop(made);
        assert!(ensure_words(&found, 7, 1).is_ok());
        assert!(ensure_words(&found, 7, 2).is_err());
        assert_eq!(read::<u64>(&found, 16).unwrap(), 42);
        assert!(read::<u64>(&found, 24).is_err());
    }
}
