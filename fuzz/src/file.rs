//! An input as a file: in memory, made once, and reached by its path in `/proc/self/fd`.

use rustix::fs::{MemfdFlags, SealFlags};
use std::ffi::CStr;
use std::fs::{File, Permissions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;

/// A memory file.
pub struct Memory {
    file: File,
}

impl Memory {
    /// An executable file whose length follows each [`Memory::set`].
    pub fn growing() -> Self {
        let file = memory_file(c"neap-fuzz");
        file.set_permissions(Permissions::from_mode(0o755))
            .expect("our own file");
        Self { file }
    }

    /// A file of zeros whose size is sealed, as Neap makes them.
    pub fn sealed(name: &CStr, bytes: usize) -> Self {
        let file = memory_file(name);
        file.set_len(bytes as u64).expect("our own file");
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).expect("our own file");
        Self { file }
    }

    /// Replaces the contents.
    pub fn set(&self, bytes: &[u8]) {
        self.file.set_len(bytes.len() as u64).expect("our own file");
        self.put(0, bytes);
    }

    /// Overwrites a part.
    pub fn put(&self, at: usize, bytes: &[u8]) {
        self.file
            .write_all_at(bytes, at as u64)
            .expect("our own file");
    }

    /// A path that opens the file.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Its inode number.
    pub fn inode(&self) -> u64 {
        self.file.metadata().expect("our own file").ino()
    }

    /// Another descriptor of it.
    pub fn descriptor(&self) -> OwnedFd {
        self.file.try_clone().expect("few files are open").into()
    }
}

fn memory_file(name: &CStr) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    File::from(rustix::fs::memfd_create(name, flags).expect("few files are open"))
}
