//! Status pages and profile regions made by tests.

use super::memory_file::Region;
use super::status_page::StatusPage;
use bytemuck::bytes_of;
use neap_shared::sites;
use neap_shared::status_page::{self, Head};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType,
};
use std::ffi::CStr;
use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// A memory file like that of a process under Neap, or almost like it.
pub struct Forged {
    file: File,
}

impl Forged {
    /// A sealed file of zeros.
    pub fn zeros(name: &CStr, bytes: usize) -> Forged {
        let forged = Forged::unsealed(name, bytes);
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&forged.file, seals).unwrap();
        forged
    }

    /// An unsealed file of zeros.
    pub fn unsealed(name: &CStr, bytes: usize) -> Forged {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create(name, flags).unwrap());
        file.set_len(bytes as u64).unwrap();
        Forged { file }
    }

    /// A status page with a valid head, of this process.
    pub fn status_page() -> Forged {
        let forged = Forged::zeros(status_page::NAME, status_page::BYTES);
        let head = Head {
            magic: status_page::MAGIC,
            version: status_page::VERSION,
            bytes: status_page::BYTES as u64,
            pid: u64::from(std::process::id()),
            page_bytes: 4096,
            frontend: 1,
            made_ms: 1,
        };
        forged.write(status_page::HEAD_AT, bytes_of(&head));
        forged
    }

    /// A region with a valid head, of this process.
    pub fn profile() -> Forged {
        let forged = Forged::zeros(sites::NAME, sites::BYTES);
        let head = sites::Head {
            magic: sites::MAGIC,
            version: sites::VERSION,
            bytes: sites::BYTES as u64,
            pid: u64::from(std::process::id()),
            sites: 1,
            ..sites::Head::default()
        };
        forged.write(0, bytes_of(&head));
        forged
    }

    /// Writes bytes at an offset.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.file.write_all_at(bytes, at as u64).unwrap();
    }

    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A duplicate of its descriptor.
    pub fn descriptor(&self) -> OwnedFd {
        OwnedFd::from(self.file.try_clone().unwrap())
    }

    /// Opens it as a status page.
    pub fn open(&self) -> StatusPage {
        StatusPage::of_descriptor(self.descriptor()).unwrap()
    }

    /// Opens it as a region.
    pub fn region(&self) -> Region {
        Region::of_descriptor(self.descriptor()).unwrap()
    }
}

/// Sends words and descriptors to a socket.
pub fn send(name: &[u8], words: &[u64], descriptors: &[BorrowedFd<'_>]) {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    rustix::net::sendmsg_addr(
        &socket,
        &SocketAddrUnix::new(name).unwrap(),
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::empty(),
    )
    .unwrap();
}
