//! Memory that other processes may read: a memory file, whose size is sealed so that no access to
//! it can fault, and a descriptor through which other processes find it.

use super::Os;
use super::file::{self, OpenFile};
use super::linux::Linux;
use super::mapping::{self, Wiped};
use super::process::limit_of;
use crate::base::sync::plain::{AtomicBool, AtomicU8, Ordering};
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// A mapped memory file of this process.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// Where it is mapped: readable, writable, shared; zero at first.
    pub base: NonNull<u8>,
    /// Its bytes.
    pub bytes: usize,
    /// The file. `exec` closes its descriptor.
    pub file: OpenFile,
}

/// A private word that says whether this process made its shared memory itself. A child with its
/// own copy of everything else finds 0 there (`MADV_WIPEONFORK`). It is not there if the kernel
/// lacks that advice.
#[unsafe(link_section = "neap_fork")]
// SAFETY: 0 is an integer.
static MINE: Wiped<AtomicU8> = unsafe { Wiped::new() };

/// Whether this process made its shared memory, or shares all its memory with the process that did.
/// If not, the memory is another process's, and this one leaves it alone. Costs no system call.
#[inline]
pub fn is_mine() -> bool {
    let mine = MINE
        .find()
        .is_none_or(|word| word.load(Ordering::Relaxed) != 0);
    mine && !is_inherited()
}

/// Whether a fork's child still shares its parent's memory.
#[unsafe(link_section = "neap_fork")]
static INHERITED: AtomicBool = AtomicBool::new(false);

/// Sets whether this process still shares its parent's memory.
pub fn set_inherited(inherited: bool) {
    INHERITED.store(inherited, Ordering::Relaxed);
}

/// Whether this process still shares its parent's memory.
#[inline]
pub fn is_inherited() -> bool {
    INHERITED.load(Ordering::Relaxed)
}

/// Marks shared memory made from now on as this process's.
pub fn claim() {
    if let Some(word) = MINE.open(Linux.page_bytes()) {
        word.store(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// Creates a memory file of `bytes`, a multiple of the page size. `None` if the kernel refuses
    /// any step.
    pub fn create(name: &CStr, bytes: usize) -> Option<Shared> {
        // Making a file longer than RLIMIT_FSIZE would end the process by SIGXFSZ.
        if limit_of(libc::RLIMIT_FSIZE).is_some_and(|most| most < bytes) {
            return None;
        }
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a C string and plain flags.
        let number = unsafe { kernel!(memfd_create, name.as_ptr(), flags) };
        let descriptor = file::move_up(i32::try_from(number).ok().filter(|&n| n >= 0)?)?;
        claim();
        let file = OpenFile::of(descriptor)?;
        let Some(base) = seal(descriptor, bytes).and_then(|()| map(descriptor, bytes)) else {
            file::close(descriptor);
            return None;
        };
        Some(Shared { base, bytes, file })
    }

    /// Closes the descriptor, if its number is still ours.
    pub fn close(&self) {
        self.file.close();
    }

    /// Unmaps the memory.
    ///
    /// # Safety
    /// - No thread uses the memory any longer.
    pub unsafe fn unmap(&self) {
        // SAFETY: mapped by `create`; the caller's promise.
        unsafe { mapping::unmap(self.base.as_ptr(), self.bytes) };
    }

    /// Sends `words` and the descriptor to the Unix socket at the path `name`. False if no process
    /// listens there or its queue is full.
    pub fn hand_to(&self, name: &[u8], words: [u64; 3]) -> bool {
        self.file.is_ours() && send(name, &words, self.file.descriptor)
    }
}

fn seal(descriptor: i32, bytes: usize) -> Option<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: plain numbers; the descriptor is ours.
    let sized = unsafe { kernel!(ftruncate, descriptor, bytes) } == 0;
    (sized && file::control(descriptor, libc::F_ADD_SEALS, seals) == 0).then_some(())
}

fn map(descriptor: i32, bytes: usize) -> Option<NonNull<u8>> {
    let (anywhere, access) = (0, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe {
        kernel!(
            mmap,
            anywhere,
            bytes,
            access,
            libc::MAP_SHARED,
            descriptor,
            0
        )
    };
    mapping::mapped(at)
}

/// Sends one datagram with a descriptor. Does not wait.
fn send(name: &[u8], words: &[u64; 3], descriptor: i32) -> bool {
    let Some((address, length)) = address_of(name) else {
        return false;
    };
    let mut room = [0u64; 4];
    let mut part = libc::iovec {
        iov_base: words.as_ptr().cast_mut().cast(),
        iov_len: size_of_val(words),
    };
    let mut message = MaybeUninit::<libc::msghdr>::zeroed();
    // SAFETY: a zeroed message is valid; the buffers outlive the call; `room` is aligned and has
    // room for one header and one descriptor.
    unsafe {
        let message = message.assume_init_mut();
        message.msg_name = (&raw const address).cast_mut().cast();
        message.msg_namelen = length;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let header = libc::CMSG_FIRSTHDR(message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header)
            .cast::<i32>()
            .write_unaligned(descriptor);
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = kernel!(socket, libc::AF_UNIX, kind, 0) as i32;
        let (message, flags) = (&raw const *message, libc::MSG_NOSIGNAL);
        let sent = socket >= 0 && kernel!(sendmsg, socket, message, flags) >= 0;
        if socket >= 0 {
            file::close(socket);
        }
        sent
    }
}

fn address_of(name: &[u8]) -> Option<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: plain numbers, for which zeros are a value.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // An empty path, or one that begins with 0, names no file.
    if name.first().is_none_or(|&first| first == 0) {
        return None;
    }
    let room = address.sun_path.get_mut(..name.len())?;
    for (place, &byte) in room.iter_mut().zip(name) {
        *place = byte as _;
    }
    let length = core::mem::offset_of!(libc::sockaddr_un, sun_path) + name.len();
    Some((address, length as libc::socklen_t))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_keeps_its_size_and_its_contents_are_shared() {
        let shared = Shared::create(c"neap-test", 1 << 16).unwrap();
        // SAFETY: mapped, writable, ours.
        unsafe { shared.base.as_ptr().add(100).write_volatile(7) };
        let mut byte = [0u8; 1];
        // SAFETY: a buffer of one byte; plain numbers.
        unsafe {
            let buffer = byte.as_mut_ptr().cast();
            assert_eq!(libc::pread(shared.file.descriptor, buffer, 1, 100), 1);
            assert_eq!(libc::ftruncate(shared.file.descriptor, 0), -1);
        }
        assert_eq!(byte, [7]);
        assert!(!shared.hand_to(b"/nobody/listens/here", [1, 2, 3]));
        assert!(is_mine());
        shared.close();
        assert!(!shared.file.is_ours());
        // SAFETY: the test no longer uses it.
        unsafe { shared.unmap() };
    }
}
