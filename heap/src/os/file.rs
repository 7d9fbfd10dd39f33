//! Files and descriptors.
//!
//! The `malloc` family must not be cancellation points: a thread cancelled inside one would leave
//! locks held, and memory that no code owns. So where the C library's function is a cancellation
//! point (`open`, `read`, `write`, `close` …), this file makes the system call by number, as all of
//! this layer does. `heap/tests/structure` keeps those functions out of this crate.
//!
//! Every public function keeps the caller's `errno`.

use super::arch::STATUS_OF_PATH;
use crate::base::sync::plain::{AtomicI32, AtomicU64, Ordering::Relaxed};
use core::ffi::{CStr, c_int};
use syscalls::raw_syscall;

/// A second descriptor of the same file, numbered above those that programs use, closed by `exec`.
pub fn duplicate(descriptor: i32) -> Option<i32> {
    duplicate_above(descriptor, 200)
}

/// Like [`duplicate`], with a number of at least `least`.
pub fn duplicate_above(descriptor: i32, least: i32) -> Option<i32> {
    let second = control(descriptor, libc::F_DUPFD_CLOEXEC, least);
    (second >= 0).then_some(second)
}

/// The least numbers for descriptors that Neap keeps, best first, because programs use low ones.
/// Below 64, because a higher number makes the kernel enlarge the process's table of descriptors,
/// which takes 7 to 19 ms while threads share it (measured). Never one of the three that programs
/// close and open again.
pub(super) const ABOVE: [i32; 3] = [48, 16, 3];

/// Moves a descriptor that this layer opened to a number out of the way of the program's own.
pub(super) fn move_up(low: i32) -> Option<i32> {
    let mut numbers = ABOVE.into_iter();
    let high = numbers.find_map(|least| duplicate_above(low, least));
    close(low);
    high
}

/// Writes all of `bytes` to `descriptor`; retries after interruptions and short writes, and waits
/// for the reader of a descriptor that does not block. False on an error, after [`INTERRUPTIONS`]
/// in a row, and when all waits together have lasted [`PATIENCE_S`].
pub fn write_all(descriptor: i32, mut bytes: &[u8]) -> bool {
    const INTERRUPTED: isize = -(libc::EINTR as isize);
    const FULL: isize = -(libc::EAGAIN as isize);
    let mut patience = libc::timespec {
        tv_sec: PATIENCE_S,
        tv_nsec: 0,
    };
    let mut left = INTERRUPTIONS;
    while !bytes.is_empty() {
        // SAFETY: the bytes are readable for their length.
        match unsafe { kernel!(write, descriptor, bytes.as_ptr(), bytes.len()) } {
            written if written > 0 => {
                bytes = &bytes[written as usize..];
                left = INTERRUPTIONS;
            }
            INTERRUPTED if left > 0 => left -= 1,
            FULL if left > 0 && may_have_room(descriptor, &mut patience) => left -= 1,
            _ => return false,
        }
    }
    true
}

/// Waits until `descriptor` may take more, at most for `patience`, from which the kernel takes the
/// time that passed. False if that is over.
#[cold]
fn may_have_room(descriptor: i32, patience: &mut libc::timespec) -> bool {
    let mut wanted = libc::pollfd {
        fd: descriptor,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one descriptor, and a time that the kernel may change; no mask.
    let ready = unsafe { kernel!(ppoll, &raw mut wanted, 1, &raw mut *patience, 0) };
    ready == 1 || ready == -(libc::EINTR as isize)
}

/// How long one message waits for its readers, in seconds.
const PATIENCE_S: libc::time_t = 2;

/// How often a write without progress may be interrupted. A timer of a profiler interrupts one that
/// waits for a slow reader up to a thousand times a second.
const INTERRUPTIONS: u32 = 10_000;

/// Reads a small file into `buffer`. Returns the number of bytes read, or `None` if it is not a
/// regular file, or cannot be opened or read.
pub fn read_file(path: &CStr, buffer: &mut [u8]) -> Option<usize> {
    let descriptor = sys_open(path, libc::O_RDONLY | libc::O_NONBLOCK, 0)?;
    let is_regular =
        status_of(descriptor).is_some_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG);
    let read = is_regular.then(|| read_some(descriptor, buffer)).flatten();
    close(descriptor);
    read
}

/// Reads the next bytes; 0 at the end. `None` on an error.
pub fn read_some(descriptor: i32, buffer: &mut [u8]) -> Option<usize> {
    // SAFETY: the buffer is writable for its length.
    let read = unsafe { kernel!(read, descriptor, buffer.as_mut_ptr(), buffer.len()) };
    usize::try_from(read).ok()
}

/// Opens a file of the kernel's for reading; `exec` closes the descriptor. Not for a path that
/// others chose: a pipe would wait for its writer.
pub fn open_read(path: &CStr) -> Option<i32> {
    sys_open(path, libc::O_RDONLY, 0)
}

/// Whether `descriptor` refers to a file of `/proc`.
pub fn is_proc(descriptor: i32) -> bool {
    let mut system = core::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the buffer is as large as the kernel's answer, which fills it, and zeros are a valid
    // value.
    let answer = unsafe {
        let refused = kernel!(fstatfs, descriptor, system.as_mut_ptr()) != 0;
        (!refused).then(|| system.assume_init())
    };
    answer.is_some_and(|system| system.f_type == libc::PROC_SUPER_MAGIC as _)
}

/// Opens `path` for appending, creates it if necessary (mode 0644); `exec` closes the descriptor.
/// `None` for a named pipe that no process reads.
pub fn open_append(path: &CStr) -> Option<i32> {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NONBLOCK;
    sys_open(path, flags, 0o644)
}

/// Closes a descriptor that this layer opened.
pub fn close(descriptor: i32) {
    // SAFETY: a number. An error loses no data, so it is ignored.
    unsafe { kernel!(close, descriptor) };
}

/// An open file of this process. The program may close its descriptor, and open another file under
/// its number.
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    /// Its number.
    pub descriptor: i32,
    /// The file that the descriptor refers to while it is ours.
    pub identity: FileIdentity,
}

impl OpenFile {
    /// The file behind a descriptor of ours. Closes it and returns `None` if the kernel does not
    /// tell which it is.
    pub fn of(descriptor: i32) -> Option<OpenFile> {
        let Some(identity) = file_identity(descriptor) else {
            close(descriptor);
            return None;
        };
        Some(OpenFile {
            descriptor,
            identity,
        })
    }

    /// Whether the descriptor still refers to this file.
    pub fn is_ours(&self) -> bool {
        file_identity(self.descriptor) == Some(self.identity)
    }

    /// Closes the descriptor, if it still refers to this file.
    pub fn close(&self) {
        if self.is_ours() {
            close(self.descriptor);
        }
    }
}

/// A file that Neap keeps open, in words that a fork's child finds.
pub(super) struct KeptFile {
    /// Its descriptor, or [`NONE`].
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

const NONE: i32 = -1;

impl KeptFile {
    pub(super) const fn none() -> KeptFile {
        KeptFile {
            descriptor: AtomicI32::new(NONE),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }

    pub(super) fn set(&self, file: OpenFile) {
        self.device.store(file.identity.device, Relaxed);
        self.inode.store(file.identity.inode, Relaxed);
        self.descriptor.store(file.descriptor, Relaxed);
    }

    /// The file, whether or not its descriptor is still ours.
    pub(super) fn get(&self) -> Option<OpenFile> {
        let file = OpenFile {
            descriptor: self.descriptor.load(Relaxed),
            identity: FileIdentity {
                device: self.device.load(Relaxed),
                inode: self.inode.load(Relaxed),
            },
        };
        (file.descriptor != NONE).then_some(file)
    }

    /// Forgets the file. Writes nothing if there is none: in a fork's child that costs a page.
    pub(super) fn take(&self) -> Option<OpenFile> {
        let file = self.get()?;
        self.descriptor.store(NONE, Relaxed);
        Some(file)
    }
}

/// The identity of an open file: device and inode. It shows whether a number is still ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// The device's number.
    pub device: u64,
    /// The inode's number.
    pub inode: u64,
}

/// The file that `descriptor` refers to; `None` if it is closed.
pub fn file_identity(descriptor: i32) -> Option<FileIdentity> {
    status_of(descriptor).map(identity)
}

/// The file that `path` names now; `None` if there is none.
pub fn path_identity(path: &CStr) -> Option<FileIdentity> {
    // SAFETY: a C string; `status` hands over a buffer as large as the kernel's answer.
    let ask = |status| unsafe {
        raw_syscall!(STATUS_OF_PATH, libc::AT_FDCWD, path.as_ptr(), status, 0) as isize
    };
    status(ask).map(identity)
}

fn status_of(descriptor: i32) -> Option<libc::stat> {
    // SAFETY: `status` hands over a buffer as large as the kernel's answer.
    status(|status| unsafe { kernel!(fstat, descriptor, status) })
}

fn status(ask: impl FnOnce(*mut libc::stat) -> isize) -> Option<libc::stat> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::uninit();
    if ask(status.as_mut_ptr()) != 0 {
        return None;
    }
    // SAFETY: the call returned 0, so it filled the buffer.
    Some(unsafe { status.assume_init() })
}

#[allow(
    clippy::unnecessary_cast,
    reason = "the fields' types differ between machines"
)]
fn identity(status: libc::stat) -> FileIdentity {
    FileIdentity {
        device: status.st_dev as u64,
        inode: status.st_ino as u64,
    }
}

/// `open(2)`, closed by `exec`. Makes no terminal the process's own.
fn sys_open(path: &CStr, flags: c_int, mode: usize) -> Option<i32> {
    let flags = flags | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: a C string and plain numbers.
    let descriptor = unsafe { kernel!(openat, libc::AT_FDCWD, path.as_ptr(), flags, mode) };
    i32::try_from(descriptor).ok().filter(|&number| number >= 0)
}

/// `pread(2)` of whole words.
pub(super) fn read_words_at(descriptor: c_int, words: &mut [u64], offset: i64) -> isize {
    let (place, bytes) = (words.as_mut_ptr(), size_of_val(words));
    // SAFETY: the words are writable, and any bits are one.
    unsafe { kernel!(pread64, descriptor, place, bytes, offset) }
}

/// `fcntl(2)` with a number.
pub(super) fn control(descriptor: c_int, command: c_int, argument: c_int) -> c_int {
    // SAFETY: plain numbers.
    unsafe { kernel!(fcntl, descriptor, command, argument) as c_int }
}

#[cfg(test)]
mod tests {
    use super::super::loader;
    use super::super::process::process_id;
    use super::*;

    #[test]
    fn descriptors_are_told_apart() {
        let folder = std::env::temp_dir().join(std::format!("neap-file-{}", process_id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = std::ffi::CString::new(folder.join("log").to_str().unwrap()).unwrap();
        let first = open_append(&path).unwrap();
        assert!(write_all(first, b"one\n"));
        let second = open_append(&path).unwrap();
        assert!(write_all(second, b"two\n"));
        assert_eq!(file_identity(first), file_identity(second));
        assert_ne!(file_identity(first), file_identity(1));
        close(first);
        close(second);
        let mut buffer = [0; 64];
        let read = read_file(&path, &mut buffer).unwrap();
        assert_eq!(&buffer[..read], b"one\ntwo\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn failures_keep_errno() {
        loader::set_errno(99);
        assert!(!write_all(-1, b"x"));
        assert_eq!(read_file(c"/nonexistent/file", &mut [0; 8]), None);
        assert_eq!(open_append(c"/nonexistent/file"), None);
        assert_eq!(read_file(c"/dev/null", &mut [0; 8]), None);
        assert_eq!(file_identity(-1), None);
        assert_eq!(loader::errno(), 99);
    }
}
