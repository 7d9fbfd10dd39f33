//! Another process's memory files: the way to their bytes, the futex that wakes the process's purge
//! thread, and the region of its profile.

use super::process::Process;
use crate::failure::Failure;
use bytemuck::Pod;
use memmap2::MmapOptions;
use neap_shared::areas::range;
use neap_shared::sites::{self, Head};
use neap_shared::status_page;
use rustix::fs::{FileType, OFlags, SealFlags};
use rustix::thread::futex;
use std::ffi::CStr;
use std::fs::File;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{io, thread};

/// How often to retry a figure that is being written, with a millisecond in between.
const TRIES: u32 = 100;

/// Most mappings of a name that are examined.
const MOST_MAPPINGS: usize = 64;

/// A way to read the bytes.
#[derive(Debug)]
pub struct Reach {
    file: File,
    /// Where `file`, which is then `/proc/PID/mem`, maps the memory file, because the process has
    /// closed its descriptor. `None`: `file` is the memory file itself.
    base: Option<u64>,
}

/// A kind of memory file that Neap makes.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Its name.
    pub name: &'static CStr,
    /// Its bytes.
    pub bytes: u64,
}

impl Kind {
    fn link(self) -> String {
        format!("/memfd:{} (deleted)", self.name.to_string_lossy())
    }
}

impl Reach {
    /// The file behind a descriptor, if its size is sealed.
    pub fn of_descriptor(descriptor: OwnedFd, kind: Kind) -> Result<Reach, Failure> {
        let refused = |why: String| failure!("the file {}: {why}", kind.link());
        let stat = rustix::fs::fstat(&descriptor).map_err(|error| refused(error.to_string()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused(
                "is no regular file, so Neap did not make it".into(),
            ));
        }
        let sealed = SealFlags::SHRINK | SealFlags::GROW;
        match rustix::fs::fcntl_get_seals(&descriptor) {
            Ok(seals) if seals.contains(sealed) => {}
            _ => return Err(refused("is not sealed, so Neap did not make it".into())),
        }
        if u64::try_from(stat.st_size) == Ok(kind.bytes) {
            Ok(Reach {
                file: File::from(descriptor),
                base: None,
            })
        } else {
            Err(refused(format!(
                "has {} bytes instead of {}: use the neap that came with the library",
                stat.st_size, kind.bytes
            )))
        }
    }

    /// All ways to files of this kind in a process: its descriptors first, then its mappings.
    ///
    /// # Errors
    ///
    /// The user may not inspect the process, or none of the files with this name is one that Neap
    /// made.
    pub fn all(process: &Process, kind: Kind) -> Result<Vec<Reach>, Failure> {
        let names = process.descriptors(&kind.link());
        let names = names.map_err(|error| refused(process, &error))?;
        let (mut found, mut last) = (Vec::new(), None);
        for name in names {
            match open_descriptor(process, &name, kind) {
                Ok(reach) => found.push(reach),
                Err(failure) => last = Some(failure),
            }
        }
        if found.is_empty() {
            found.extend(mappings(process, kind)?);
        }
        match last {
            Some(failure) if found.is_empty() => Err(failure),
            _ => Ok(found),
        }
    }

    /// Fills `bytes` from `at` on.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, self.place(at))
    }

    fn place(&self, at: usize) -> u64 {
        self.base.unwrap_or(0).saturating_add(at as u64)
    }

    /// A value at `at`.
    pub fn value<T: Pod>(&self, at: usize) -> io::Result<T> {
        let mut value = T::zeroed();
        self.read(at, bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// The record that begins a file, if its magic number, its version and its length are as
    /// expected; otherwise what it is instead.
    pub fn head<T: Pod>(
        &self,
        at: usize,
        expected: [u64; 3],
        words: fn(&T) -> [u64; 3],
    ) -> Result<T, String> {
        let head = self.value(at);
        let head = head.map_err(|error| format!("cannot be read: {error}"))?;
        let ([magic, version, bytes], [our_magic, ours, our_bytes]) = (words(&head), expected);
        match () {
            () if magic != our_magic => Err("is none of Neap's: its first word is another".into()),
            () if version != ours => Err(format!(
                "has layout {version}, and this neap reads layout {ours}: use the neap that came \
                 with the library"
            )),
            () if bytes != our_bytes => {
                Err(format!("makes no sense: it says that it has {bytes} bytes"))
            }
            () => Ok(head),
        }
    }

    /// Writes one aligned word, and so atomically.
    pub fn put(&self, at: usize, word: u64) -> io::Result<()> {
        self.file.write_all_at(&word.to_ne_bytes(), self.place(at))
    }

    /// Wakes the process's thread. Does nothing if only the process's memory can be reached; then
    /// the process's next slow path finds the request.
    pub fn ring(&self) -> io::Result<()> {
        match self.base {
            None => ring(&self.file),
            Some(_) => Ok(()),
        }
    }

    /// A value at `at` that the sequence number at `sequence` guards. `None` if it was never
    /// written, or was being written at every try.
    pub fn guarded<T: Pod>(&self, sequence: usize, at: usize) -> io::Result<Option<T>> {
        for _ in 0..TRIES {
            let before: u64 = self.value(sequence)?;
            if before == 0 {
                return Ok(None);
            }
            let value = self.value(at)?;
            if before.is_multiple_of(2) && self.value::<u64>(sequence)? == before {
                return Ok(Some(value));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(None)
    }
}

fn open_descriptor(process: &Process, name: &str, kind: Kind) -> Result<Reach, Failure> {
    let file = process.file(name, OFlags::RDWR);
    let file = file.map_err(|error| refused(process, &error))?;
    Reach::of_descriptor(OwnedFd::from(file), kind)
}

/// A process may have closed all descriptors that it does not know; its mappings remain.
fn mappings(process: &Process, kind: Kind) -> Result<Vec<Reach>, Failure> {
    let maps = process.text("maps");
    let maps = maps.map_err(|error| refused(process, &error))?;
    let ranges = maps.lines().filter_map(|line| mapping(line, kind));
    let reach = |range: Range<u64>| {
        // Root may open the mapped file itself.
        let name = format!("map_files/{:x}-{:x}", range.start, range.end);
        if let Ok(reach) = open_descriptor(process, &name, kind) {
            return Ok(reach);
        }
        match process.file("mem", OFlags::RDWR) {
            Ok(file) => Ok(Reach {
                file,
                base: Some(range.start),
            }),
            Err(error) => Err(closed(process, &error)),
        }
    };
    ranges.take(MOST_MAPPINGS).map(reach).collect()
}

/// The address range of the line's mapping, if it maps the whole file.
fn mapping(line: &str, kind: Kind) -> Option<Range<u64>> {
    let range = range(line.strip_suffix(&kind.link())?)?;
    (range.end.checked_sub(range.start)? >= kind.bytes).then_some(range)
}

/// Why the user may not inspect a process.
fn refused(process: &Process, error: &io::Error) -> Failure {
    if process.has_ended() {
        return ended(process);
    }
    let pid = process.pid();
    Failure::own(match (error.kind(), process.user()) {
        (io::ErrorKind::PermissionDenied, Some(user)) => forbidden(pid, user, us()),
        _ => format!("cannot look into process {pid}: {error}"),
    })
}

/// The kernel forbids user `us` to inspect a process of `user`. It may forbid root as well.
fn forbidden(pid: i32, user: u32, us: u32) -> String {
    match us {
        0 => format!(
            "process {pid} (of user {user}) cannot be inspected even by this root user, which \
             lacks CAP_SYS_PTRACE: \
             run neap outside of the container, or as the root user that owns the process"
        ),
        _ if us != user => format!(
            "process {pid} belongs to another user (number {user}): run neap as that user or as \
             root"
        ),
        _ => format!(
            "process {pid} does not let other processes look into it (it has more rights than its \
             user, or made \
             itself undumpable): run neap as root"
        ),
    }
}

/// Why the user may not read the memory of a process that has closed its descriptor.
fn closed(process: &Process, error: &io::Error) -> Failure {
    let advice = match us() {
        0 => {
            "in a container, run neap outside of it; /proc/sys/kernel/yama/ptrace_scope at 3 \
             forbids it"
        }
        _ => "run neap as root, or set /proc/sys/kernel/yama/ptrace_scope to 0",
    };
    failure!(
        "{} has closed the descriptor of its status page, and this system forbids reading its \
         memory ({error}): {advice}",
        process.title()
    )
}

/// The process has ended.
pub fn ended(process: &Process) -> Failure {
    failure!("process {} has ended", process.pid())
}

/// This process's user.
pub fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Offset of the futex on which a process's purge thread sleeps.
const BELL_AT: usize = status_page::CONTROL_AT + offset_of!(status_page::Control, bell);
/// Bytes mapped; the kernel rounds them up to whole pages.
const MAPPED: usize = BELL_AT + size_of::<u64>();

/// Adds 1 to the word and wakes its sleepers. The file's size is sealed, so the mapping cannot
/// fault.
fn ring(status_page: &File) -> io::Result<()> {
    let map = MmapOptions::new().len(MAPPED).map_raw(status_page)?;
    // SAFETY: mapped above and aligned to 4 bytes; other processes access it only with atomic
    // operations. The reference ends before the mapping.
    let word = unsafe { AtomicU32::from_ptr(map.as_mut_ptr().byte_add(BELL_AT).cast()) };
    word.fetch_add(1, Ordering::SeqCst);
    futex::wake(word, futex::Flags::empty(), i32::MAX.unsigned_abs())?;
    Ok(())
}

/// The memory file.
const KIND: Kind = Kind {
    name: sites::NAME,
    bytes: sites::BYTES as u64,
};

/// A memory file with the head of a region.
#[derive(Debug)]
pub struct Region {
    reach: Reach,
    pid: u64,
}

impl Region {
    /// The region of a process.
    ///
    /// # Errors
    ///
    /// The process has never sampled, or the same as for [`Region::find`].
    pub fn open(pid: i32) -> Result<Region, Failure> {
        let process = Process::open(pid)?;
        Region::of_process(&process)?.ok_or_else(|| {
            failure!(
                "{} does not sample: start it with neap run --profile, or switch it on with neap \
                 profile",
                process.title()
            )
        })
    }

    /// The region of a process, or `None` if it has never sampled.
    ///
    /// # Errors
    ///
    /// The same as for [`super::StatusPage::open`], or its region is malformed.
    pub fn find(pid: i32) -> Result<Option<Region>, Failure> {
        Region::of_process(&Process::open(pid)?)
    }

    fn of_process(process: &Process) -> Result<Option<Region>, Failure> {
        let numbers = process.numbers();
        let (mut newest, mut fault): (Option<(u64, Reach)>, _) = (None, None);
        for reach in Reach::all(process, KIND)? {
            match head(&reach) {
                Ok(head) if !numbers.contains(&head.pid) => {}
                Ok(head) if newest.as_ref().is_some_and(|(ms, _)| *ms > head.changed_ms) => {}
                Ok(head) => newest = Some((head.changed_ms, reach)),
                Err(failure) => fault = Some(failure),
            }
        }
        let pid = u64::from(process.pid().unsigned_abs());
        match (newest, fault) {
            (Some((_, reach)), _) => Ok(Some(Region { reach, pid })),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(None),
        }
    }

    /// The region behind a descriptor that a process has sent.
    pub fn of_descriptor(descriptor: OwnedFd) -> Result<Region, Failure> {
        let reach = Reach::of_descriptor(descriptor, KIND)?;
        let pid = head(&reach)?.pid;
        Ok(Region { reach, pid })
    }

    /// Its current head.
    pub fn head(&self) -> Result<Head, Failure> {
        head(&self.reach)
    }

    /// The region's bytes, up to the last site in use: at most [`sites::BYTES`].
    pub fn read(&self) -> Result<Vec<u8>, Failure> {
        let head = self.head()?;
        let used = usize::try_from(head.sites).unwrap_or(usize::MAX);
        let mut bytes = vec![0; sites::site_at(used.min(sites::MOST_SITES))];
        self.reach.read(0, &mut bytes).map_err(|error| {
            failure!(
                "the profile of process {} cannot be read: {error}",
                self.pid
            )
        })?;
        leave_out_later_sites(&mut bytes, head.sites);
        Ok(bytes)
    }
}

/// The process may have added a site since `sites` was read. Limits the head of the copy to the
/// sites that were read.
fn leave_out_later_sites(bytes: &mut [u8], sites: u64) {
    let at = offset_of!(Head, sites);
    let word = &mut bytes[at..at + size_of::<u64>()];
    let now = bytemuck::pod_read_unaligned::<u64>(word);
    word.copy_from_slice(&now.min(sites).to_ne_bytes());
}

fn head(reach: &Reach) -> Result<Head, Failure> {
    let expected = [sites::MAGIC, sites::VERSION, sites::BYTES as u64];
    let head = reach.head(0, expected, |head: &Head| {
        [head.magic, head.version, head.bytes]
    });
    head.map_err(|why| failure!("a profile's region {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::testing::Forged;
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    use std::ptr::null_mut;

    #[test]
    fn root_is_not_told_to_become_root() {
        assert!(forbidden(7, 5, 1000).ends_with("run neap as that user or as root"));
        assert!(forbidden(7, 1000, 1000).ends_with("run neap as root"));
        for user in [0, 1000] {
            let told = forbidden(7, user, 0);
            assert!(told.contains("CAP_SYS_PTRACE") && told.contains("outside of the container"));
            assert!(!told.contains("another user"), "{told}");
        }
    }

    #[test]
    fn a_sleeper_on_the_status_page_is_woken() {
        let forged = Forged::status_page();
        let file = File::from(forged.descriptor());
        let sleeper = {
            let file = file.try_clone().unwrap();
            std::thread::spawn(move || sleep_on(&file))
        };
        // Ring until one ring finds it asleep, or it finds that the word has changed.
        while !sleeper.is_finished() {
            ring(&file).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        sleeper.join().unwrap();
    }

    fn sleep_on(status_page: &File) {
        // SAFETY: as in `ring`.
        let base = unsafe {
            mmap(
                null_mut(),
                MAPPED,
                ProtFlags::READ,
                MapFlags::SHARED,
                status_page,
                0,
            )
            .unwrap()
        };
        // SAFETY: as in `ring`; only read here.
        let word = unsafe { AtomicU32::from_ptr(base.byte_add(BELL_AT).cast()) };
        let seen = word.load(Ordering::SeqCst);
        // A spurious wake-up ends the test as well.
        let _ = futex::wait(word, futex::Flags::empty(), seen, None);
        // SAFETY: as in `ring`.
        unsafe { munmap(base, MAPPED).unwrap() };
    }

    #[test]
    fn as_much_is_read_as_there_is() {
        let forged = Forged::profile();
        assert_eq!(forged.region().read().unwrap().len(), sites::site_at(1));
        let sites_word = std::mem::offset_of!(Head, sites);
        forged.write(sites_word, &[0xff; 8]);
        let most = sites::site_at(sites::MOST_SITES);
        assert_eq!(forged.region().read().unwrap().len(), most);
    }

    #[test]
    fn sites_that_came_while_it_was_read_are_left_out() {
        let mut bytes = vec![0; sites::SITES_AT];
        let sites_of =
            |bytes: &[u8]| bytemuck::pod_read_unaligned::<Head>(&bytes[..size_of::<Head>()]).sites;
        for (now, before, kept) in [(8, 7, 7), (7, 7, 7), (u64::MAX, u64::MAX, u64::MAX)] {
            let at = offset_of!(Head, sites);
            bytes[at..at + 8].copy_from_slice(&u64::to_ne_bytes(now));
            leave_out_later_sites(&mut bytes, before);
            assert_eq!(sites_of(&bytes), kept);
        }
    }

    #[test]
    fn files_that_are_no_regions_are_refused() {
        for (at, why) in [(0, "first word"), (8, "layout 9"), (16, "9 bytes")] {
            let forged = Forged::profile();
            forged.write(at, &9_u64.to_ne_bytes());
            let failure = Region::of_descriptor(forged.descriptor()).unwrap_err();
            assert!(failure.to_string().contains(why), "{failure}");
        }
        let status_page = Forged::status_page();
        assert!(Region::of_descriptor(status_page.descriptor()).is_err());
    }
}
