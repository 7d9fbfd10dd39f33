//! Files of the kernel that are read now and then, by one thread at a time.
//!
//! The kernel may take milliseconds to answer: for `memory.stat` it sums up the counters of all
//! processors. So the reader holds no lock meanwhile that any thread waits for. A fork waits only
//! while a file is opened or closed, and its child closes the one that is open.

use super::file::{self, FileIdentity, OpenFile};
use super::lock::{FutexGuard, FutexLock, Rank};
use crate::base::sync::plain::{AtomicI32, AtomicU64, Ordering::Relaxed};
use core::ffi::CStr;

/// Held by the thread that asks. No thread waits for it.
#[unsafe(link_section = "neap_fork")]
static ASKING: FutexLock = FutexLock::new(Rank::Apart);

/// Held while the file is opened or closed.
#[unsafe(link_section = "neap_fork")]
static OPENING: FutexLock = FutexLock::new(Rank::Opening);

/// The file that is open. Written under [`OPENING`].
#[unsafe(link_section = "neap_fork")]
static OPEN: Open = Open {
    descriptor: AtomicI32::new(NONE),
    device: AtomicU64::new(0),
    inode: AtomicU64::new(0),
};

struct Open {
    /// Its descriptor, or [`NONE`].
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

const NONE: i32 = -1;

impl Open {
    fn note(&self, file: OpenFile) {
        self.device.store(file.identity.device, Relaxed);
        self.inode.store(file.identity.inode, Relaxed);
        self.descriptor.store(file.descriptor, Relaxed);
    }

    /// Closes the descriptor, if there is one and its number is still ours.
    fn close(&self) {
        let descriptor = self.descriptor.load(Relaxed);
        if descriptor == NONE {
            return;
        }
        self.descriptor.store(NONE, Relaxed);
        let identity = FileIdentity {
            device: self.device.load(Relaxed),
            inode: self.inode.load(Relaxed),
        };
        let file = OpenFile {
            descriptor,
            identity,
        };
        file.close();
    }
}

/// The right to ask.
#[derive(Debug)]
pub struct Inquiry {
    _guard: FutexGuard<'static>,
}

impl Inquiry {
    /// `None` while another thread asks, or an interrupted call of this one.
    pub fn begin() -> Option<Inquiry> {
        ASKING.try_lock().map(|guard| Inquiry { _guard: guard })
    }

    /// Reads a small file into `buffer`. Returns the number of bytes read, or `None` if the file
    /// cannot be opened or read now.
    pub fn read(&self, path: &CStr, buffer: &mut [u8]) -> Option<usize> {
        let descriptor = {
            // In a fork's child, a thread that was about to fork itself may hold it for good.
            let _alone = OPENING.try_lock()?;
            let file = OpenFile::of(file::open_read(path)?)?;
            OPEN.note(file);
            file.descriptor
        };
        let read = file::read_some(descriptor, buffer);
        let _alone = OPENING.lock();
        OPEN.close();
        read
    }
}

/// The lock that a fork closes.
pub fn opening() -> &'static FutexLock {
    &OPENING
}

/// In a fork's child: ends the inquiry of a thread that stayed in the parent.
pub fn end_inherited() {
    if ASKING.free_if_left() {
        OPEN.close();
    }
}
