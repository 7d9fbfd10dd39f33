//! A process by its directory in /proc, which is kept open. It never becomes the directory of
//! another process with the same PID.

use super::place::Place;
use crate::failure::Failure;
use rustix::fs::{AtFlags, Dir, FileType, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use std::{ffi::OsString, path::Path};

/// Most bytes read of a file in /proc. The maps and smaps of a process with 65,530 mappings are
/// shorter.
const LONGEST: u64 = 256 << 20;
/// Most descriptors examined of those with the right name. A process may have any number.
const MOST_DESCRIPTORS: usize = 64;
/// The length to which the kernel cuts process names.
const SHORT_NAME: usize = 15;

/// A process that exists, or existed when this value was made.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    directory: OwnedFd,
}

impl Process {
    /// The process with this PID.
    pub fn open(pid: i32) -> Result<Process, Failure> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty()) {
            Ok(directory) => Ok(Process { pid, directory }),
            Err(Errno::NOENT) if Path::new("/proc/self").exists() => {
                Err(failure!("there is no process {pid}"))
            }
            Err(error) => Err(failure!("cannot look at process {pid} in /proc: {error}")),
        }
    }

    /// Its PID.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// `redis-server (1234)`.
    pub fn title(&self) -> String {
        format!("{} ({})", crate::failure::shown(&self.name()), self.pid)
    }

    /// Its name: the kernel's, or a longer form from its first argument where the kernel cut it.
    pub fn name(&self) -> String {
        let short = self.text("comm").unwrap_or_default();
        let short = short.trim_end_matches('\n');
        let arguments = self.text("cmdline").unwrap_or_default();
        let first = arguments.split('\0').next().unwrap_or_default();
        let base = first.rsplit('/').next().unwrap_or_default();
        match short.len() >= SHORT_NAME && base.starts_with(short) {
            true => base.to_owned(),
            false => short.to_owned(),
        }
    }

    /// The file name of its program, through all links; `None` if the user may not see it.
    pub fn program(&self) -> Option<String> {
        let path = self.link("exe")?;
        path.rsplit('/').next().map(str::to_owned)
    }

    /// Where a link in its directory leads; `None` if the user may not see it.
    pub fn link(&self, name: &str) -> Option<String> {
        let path = rustix::fs::readlinkat(&self.directory, name, Vec::new()).ok()?;
        Some(path.to_string_lossy().into_owned())
    }

    /// Where it runs.
    pub fn place(&self) -> Place {
        Place::of(&self.text("cgroup").unwrap_or_default())
    }

    /// Whether it has ended: it is gone, or a zombie.
    pub fn has_ended(&self) -> bool {
        let Ok(status) = self.text("stat") else {
            return true;
        };
        let state = status.rsplit(") ").next().unwrap_or_default();
        state.starts_with(['Z', 'X'])
    }

    /// The effective user ID.
    pub fn user(&self) -> io::Result<u32> {
        let status = self.text("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Its PIDs, in our PID namespace and the nested ones.
    pub fn numbers(&self) -> Vec<u64> {
        let status = self.text("status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let words = line.unwrap_or_default().split_whitespace();
        let mut numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        numbers.push(u64::from(self.pid.unsigned_abs()));
        numbers
    }

    /// Opens a file in its directory.
    pub fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::empty())?;
        Ok(File::from(file))
    }

    /// Reads a file in its directory.
    pub fn text(&self, name: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        let file = self.file(name, OFlags::RDONLY)?;
        file.take(LONGEST).read_to_end(&mut bytes)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Its descriptors of memory files at `link`, as names in its directory, up to a limit.
    pub fn descriptors(&self, link: &str) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in Dir::new(self.file("fd", OFlags::RDONLY | OFlags::DIRECTORY)?)? {
            let number = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            let number = number.to_string_lossy();
            if found.len() < MOST_DESCRIPTORS && self.leads_to(&number, link) {
                found.push(format!("fd/{number}"));
            }
        }
        Ok(found)
    }

    /// Whether a descriptor refers to a memory file at `link`. A file elsewhere may have the same
    /// name; it is never opened, because its file system may not answer.
    fn leads_to(&self, number: &str, link: &str) -> bool {
        let name = format!("fd/{number}");
        let target = rustix::fs::readlinkat(&self.directory, name.as_str(), Vec::new());
        if !target.is_ok_and(|target| target.to_bytes() == link.as_bytes()) {
            return false;
        }
        let information = self.text(&format!("fdinfo/{number}")).unwrap_or_default();
        mount(&information) == memory_mount()
            && rustix::fs::statat(&self.directory, name.as_str(), AtFlags::empty())
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }
}

/// The addresses at the beginning of a line of `maps` or `smaps`.
pub fn range(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let number = |word| u64::from_str_radix(word, 16).ok();
    Some(number(start)?..number(end)?)
}

/// The mount of a descriptor's file, from the descriptor's fdinfo.
fn mount(information: &str) -> Option<u64> {
    let mut lines = information.lines();
    let line = lines.find_map(|line| line.strip_prefix("mnt_id:"))?;
    line.trim().parse().ok()
}

/// The mount of all memory files, found through one made here.
fn memory_mount() -> Option<u64> {
    static MOUNT: OnceLock<Option<u64>> = OnceLock::new();
    *MOUNT.get_or_init(|| {
        let file = rustix::fs::memfd_create("neap-mount", MemfdFlags::CLOEXEC).ok()?;
        let information = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
        mount(&std::fs::read_to_string(information).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::testing::Forged;

    fn own() -> Process {
        Process::open(std::process::id().cast_signed()).unwrap()
    }

    #[test]
    fn only_memory_files_are_found_by_their_name() {
        let link = "/memfd:neap-test (deleted)";
        assert_eq!(own().descriptors(link).unwrap(), Vec::<String>::new());
        let files: Vec<Forged> = (0..MOST_DESCRIPTORS + 2)
            .map(|_| Forged::unsealed(c"neap-test", 1))
            .collect();
        assert_eq!(own().descriptors(link).unwrap().len(), MOST_DESCRIPTORS);
        drop(files);
        let ordinary = tempfile::NamedTempFile::new().unwrap();
        let link = ordinary.path().to_str().unwrap();
        assert_eq!(own().descriptors(link).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_process_tells_who_it_is() {
        let own = own();
        let numbers = own.numbers();
        assert!(numbers.contains(&u64::from(std::process::id())));
        assert_eq!(own.user().unwrap(), crate::attach::reach::us());
        assert!(!own.has_ended() && !own.name().is_empty());
        assert!(Process::open(i32::MAX).is_err());
    }
}
