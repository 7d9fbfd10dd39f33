//! The socket to which processes send the descriptors of their status pages and profiles
//! (`NEAP_MONITOR`), so that `neap` sees even a short-lived process.

use super::memory_file::{Region, us};
use super::status_page::StatusPage;
use crate::failure::{Failure, shown};
use crate::files::reason;
use neap_shared::status_page::{GREETING, KIND_PROFILE, KIND_STATUS_PAGE};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, UCred, bind, recvmsg, shutdown, socket_with, sockopt,
};
use rustix::process::{Resource, getrlimit};
use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, thread};
use tempfile::{Builder, TempDir};

/// The most arrivals that wait. Further ones are dropped.
const MOST_WAITING: u64 = 512;

/// [`MOST_WAITING`], or fewer under a low limit on open files. Each arrival holds two files, and a
/// quarter of the limit must stay for the rest of this process.
fn most_waiting() -> usize {
    let files = getrlimit(Resource::Nofile).current;
    files.map_or(MOST_WAITING, |files| (files / 8 * 3).min(MOST_WAITING)) as usize
}

/// Bytes of a message.
const MESSAGE: usize = 3 * size_of::<u64>();

/// The socket, and what has arrived at it. Dropping it ends the thread that reads.
#[derive(Debug)]
pub struct Monitor {
    socket: Arc<OwnedFd>,
    waiting: Arc<Mutex<Vec<Arrival>>>,
    reader: Option<thread::JoinHandle<()>>,
    /// Only this user may search it. What a process sends there reaches this process or, after its
    /// end, none.
    room: TempDir,
}

/// A new directory for the socket, in the first of [`folders`] that takes one.
fn room() -> Result<TempDir, Failure> {
    let private = Permissions::from_mode(0o700);
    let mut room = Builder::new();
    let room = room.prefix("neap-").permissions(private);
    let mut first = Err(io::ErrorKind::InvalidFilename.into());
    for (index, folder) in folders().enumerate() {
        match room.tempdir_in(&folder) {
            Ok(room) => return Ok(room),
            refused if index == 0 => first = refused,
            Err(_) => {}
        }
    }
    first.map_err(|error: io::Error| {
        failure!(
            "cannot make a socket for the program in {}: {}; set TMPDIR to a directory that can be \
             written",
            shown(&folders().next().unwrap_or_else(env::temp_dir)),
            reason(&error)
        )
    })
}

/// Candidate directories for the socket, best first. `/tmp` may be mounted read-only.
fn folders() -> impl Iterator<Item = PathBuf> {
    [
        Some(env::temp_dir()),
        env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        Some(PathBuf::from("/tmp")),
        Some(PathBuf::from("/dev/shm")),
        env::current_dir().ok(),
    ]
    .into_iter()
    .flatten()
    .filter(|folder| folder.is_absolute() && folder.as_os_str().len() < LONGEST_FOLDER)
}

/// A socket's path has at most 107 bytes, of which the new directory's name takes some.
const LONGEST_FOLDER: usize = 60;
/// The socket's name in its directory.
const SOCKET: &str = "socket";

impl Monitor {
    /// Binds a socket under a unique name.
    pub fn bind() -> Result<Monitor, Failure> {
        let room = room()?;
        let name = room.path().join(SOCKET);
        let socket = socket(&name).map_err(|error| {
            failure!(
                "cannot make the socket {} for the program: {error}; set TMPDIR to a directory on \
                 another file system",
                shown(&name)
            )
        })?;
        Ok(Monitor {
            socket: Arc::new(socket),
            waiting: Arc::default(),
            reader: None,
            room,
        })
    }

    /// The value for `NEAP_MONITOR`.
    pub fn name(&self) -> OsString {
        self.room.path().join(SOCKET).into_os_string()
    }

    /// Begins to read, in a thread: call it only after forking the program.
    ///
    /// # Panics
    ///
    /// If no thread can be started.
    pub fn start(&mut self) {
        let (socket, waiting) = (Arc::clone(&self.socket), Arc::clone(&self.waiting));
        self.reader = Some(thread::spawn(move || read(&socket, &waiting)));
    }

    /// Ends the reading, once everything has been read that was sent before.
    pub fn finish(&mut self) {
        self.shut();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }

    /// Has the thread end when it has read everything. This can only fail for a descriptor that is
    /// no socket.
    fn shut(&self) {
        let _ = shutdown(&*self.socket, Shutdown::Read);
    }

    /// What has arrived since the last call, oldest first.
    pub fn arrivals(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn socket(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_passcred(&socket, true)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// A status page or a region that a process sent.
#[derive(Debug)]
pub struct Arrival {
    /// The sender, as the kernel reports it.
    pub pid: u32,
    /// The status page or region.
    pub what: What,
}

/// See [`Arrival`].
#[derive(Debug)]
pub enum What {
    /// A process has started.
    StatusPage(StatusPage),
    /// A process has begun to sample.
    Profile(Region),
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shut();
    }
}

fn read(socket: &OwnedFd, sink: &Mutex<Vec<Arrival>>) {
    let most = most_waiting();
    while let Ok(received) = receive(socket) {
        if received.is_end() {
            return;
        }
        let Some(arrival) = received.arrival() else {
            continue;
        };
        let mut waiting = sink.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < most {
            waiting.push(arrival);
        }
    }
}

/// One message.
struct Received {
    bytes: usize,
    words: [u64; 4],
    from: Option<UCred>,
    descriptors: Vec<OwnedFd>,
}

fn receive(socket: &OwnedFd) -> rustix::io::Result<Received> {
    // One word more than a message, to recognise a longer one.
    let mut words = [0_u64; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = retry_on_intr(|| {
        let bytes = bytemuck::bytes_of_mut(&mut words);
        let mut parts = [IoSliceMut::new(bytes)];
        recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut received = Received {
        bytes: message.bytes,
        words: words.map(u64::from_le),
        from: None,
        descriptors: Vec::new(),
    };
    for part in control.drain() {
        match part {
            RecvAncillaryMessage::ScmRights(rights) => received.descriptors.extend(rights),
            RecvAncillaryMessage::ScmCredentials(from) => received.from = Some(from),
            _ => {}
        }
    }
    Ok(received)
}

impl Received {
    /// Whether the socket was shut down. For any message, even an empty one, the kernel names the
    /// sender.
    fn is_end(&self) -> bool {
        self.bytes == 0 && self.from.is_none()
    }

    /// The arrival, if this user sent it and it is well-formed.
    fn arrival(self) -> Option<Arrival> {
        let from = self.from.filter(|from| from.uid.as_raw() == us())?;
        let pid = from.pid.as_raw_pid().unsigned_abs();
        let [descriptor] = <[OwnedFd; 1]>::try_from(self.descriptors).ok()?;
        if self.bytes != MESSAGE || self.words[0] != GREETING {
            return None;
        }
        let what = match self.words[1] {
            KIND_STATUS_PAGE => What::StatusPage(StatusPage::of_descriptor(descriptor).ok()?),
            KIND_PROFILE => What::Profile(Region::of_descriptor(descriptor).ok()?),
            _ => return None,
        };
        Some(Arrival { pid, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::testing::{Forged, send};
    use std::os::unix::ffi::OsStringExt;
    use std::time::{Duration, Instant};

    fn wait_for(monitor: &Monitor, count: usize) -> Vec<Arrival> {
        let (mut all, start) = (Vec::new(), Instant::now());
        while all.len() < count && start.elapsed() < Duration::from_secs(20) {
            all.extend(monitor.arrivals());
            thread::yield_now();
        }
        all
    }

    #[test]
    fn status_pages_and_profiles_arrive_and_nothing_else_does() {
        let mut monitor = Monitor::bind().unwrap();
        let name = monitor.name().into_vec();
        let (status_page, profile) = (Forged::status_page(), Forged::profile());
        send(
            &name,
            &[GREETING + 1, KIND_STATUS_PAGE, 7],
            &[status_page.file()],
        );
        send(&name, &[GREETING, 3, 7], &[status_page.file()]);
        send(&name, &[GREETING, KIND_STATUS_PAGE, 7], &[]);
        send(&name, &[GREETING, KIND_STATUS_PAGE], &[status_page.file()]);
        send(
            &name,
            &[GREETING, KIND_STATUS_PAGE, 7, 8],
            &[status_page.file()],
        );
        send(&name, &[], &[]);
        send(
            &name,
            &[GREETING, KIND_STATUS_PAGE, 7],
            &[status_page.file(), status_page.file()],
        );
        send(&name, &[GREETING, KIND_STATUS_PAGE, 7], &[profile.file()]);
        send(&name, &[GREETING, KIND_PROFILE, 7], &[status_page.file()]);
        send(&name, &[GREETING, KIND_PROFILE, 7], &[profile.file()]);
        send(
            &name,
            &[GREETING, KIND_STATUS_PAGE, 7],
            &[status_page.file()],
        );
        monitor.start();
        let arrivals = wait_for(&monitor, 2);
        let us = std::process::id();
        assert!(arrivals.iter().all(|arrival| arrival.pid == us));
        assert!(
            matches!(
                arrivals.as_slice(),
                [
                    Arrival {
                        what: What::Profile(_),
                        ..
                    },
                    Arrival {
                        what: What::StatusPage(_),
                        ..
                    }
                ]
            ),
            "{arrivals:?}"
        );
    }

    /// However late the thread gets a processor.
    #[test]
    fn what_was_sent_before_the_end_arrives() {
        for count in [1, 2, 10] {
            let mut monitor = Monitor::bind().unwrap();
            let (name, status_page) = (monitor.name().into_vec(), Forged::status_page());
            for _ in 0..count {
                let words = [GREETING, KIND_STATUS_PAGE, 7];
                send(&name, &words, &[status_page.file()]);
            }
            monitor.start();
            monitor.finish();
            assert_eq!(monitor.arrivals().len(), count);
        }
    }

    #[test]
    fn a_flood_does_not_take_all_descriptors() {
        let mut monitor = Monitor::bind().unwrap();
        let name = monitor.name().into_vec();
        monitor.start();
        let status_page = Forged::status_page();
        let most = most_waiting();
        for _ in 0..most + 40 {
            send(
                &name,
                &[GREETING, KIND_STATUS_PAGE, 7],
                &[status_page.file()],
            );
        }
        // The thread reads the messages in order, so the last ones are dropped.
        let start = Instant::now();
        while monitor.waiting.lock().unwrap().len() < most
            && start.elapsed() < Duration::from_secs(20)
        {
            thread::yield_now();
        }
        assert_eq!(monitor.arrivals().len(), most);
    }

    #[test]
    fn the_thread_ends_with_the_monitor() {
        let mut monitor = Monitor::bind().unwrap();
        monitor.start();
        let waiting = Arc::downgrade(&monitor.waiting);
        drop(monitor);
        let start = Instant::now();
        while waiting.strong_count() > 0 && start.elapsed() < Duration::from_secs(20) {
            thread::yield_now();
        }
        assert_eq!(waiting.strong_count(), 0);
    }
}
