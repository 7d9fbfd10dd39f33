//! The memory files that Neap keeps in a process, found through /proc as any other process finds
//! them. The status page says what the process gave back to the kernel, and how much of it it
//! regretted. It is read without a request, so that reading changes nothing.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use anyhow::{Context as _, ensure};
use neap_shared::status_page::{self, COARSE_AT, Coarse, HEAD_AT, Head, SizeFigure};

use crate::cases::tree::{self, Life};
use crate::engine::record::Figure;

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

/// The table of sizes on a status page.
///
/// # Errors
/// If the file is shorter.
pub fn sizes(page: &File) -> anyhow::Result<Vec<SizeFigure>> {
    let at = |index| status_page::SIZES_AT + index * size_of::<SizeFigure>();
    (0..status_page::SIZES)
        .map(|index| read(page, at(index)))
        .collect()
}

/// The figures' names.
pub const PURGED: &str = "purged";
pub const REGRETTED: &str = "regretted";

/// Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purges {
    /// Given back to the kernel.
    pub purged: u64,
    /// Of these, wanted again within the decay time.
    pub regretted: u64,
}

impl From<Coarse> for Purges {
    fn from(heap: Coarse) -> Purges {
        Purges {
            purged: heap.purged_bytes,
            regretted: heap.regretted_bytes,
        }
    }
}

impl Purges {
    fn and(self, other: Purges) -> Purges {
        Purges {
            purged: self.purged + other.purged,
            regretted: self.regretted + other.regretted,
        }
    }

    /// As figures.
    pub fn figures(&self) -> [Figure; 2] {
        [
            Figure::bytes(PURGED, self.purged as f64),
            Figure::bytes(REGRETTED, self.regretted as f64),
        ]
    }
}

/// The part of what was purged that was regretted; 0 if nothing was.
pub fn share(purged: f64, regretted: f64) -> f64 {
    if purged > 0.0 {
        regretted / purged
    } else {
        0.0
    }
}

/// The page heap's figures of a process; `None` if it has no status page.
pub fn of_process(process: u32) -> Option<Coarse> {
    latest(&page_of(process)?)
}

/// What the calling process gave back; `None` if it has no status page.
pub fn own() -> Option<Purges> {
    of_process(std::process::id()).map(Purges::from)
}

/// The status pages of processes. A page stays open until its process has ended, and then gives its
/// last figures.
#[derive(Debug, Default)]
pub struct StatusPages {
    open: HashMap<Life, File>,
    /// Of pages that are no longer any process's.
    closed: Option<Purges>,
}

impl StatusPages {
    /// Opens the pages of processes whose pages are not open yet, and closes those of processes
    /// that have ended.
    pub fn look(&mut self, processes: impl Iterator<Item = Life>) {
        for life in processes {
            if !self.open.contains_key(&life) {
                self.open.extend(page_of(life.0).map(|page| (life, page)));
            }
        }
        let ended = self
            .open
            .extract_if(|life, _| tree::life(life.0) != Some(*life));
        let figures = ended.filter_map(|(_, page)| purges(&page));
        self.closed = figures.chain(self.closed).reduce(Purges::and);
    }

    /// The figures of all pages so far. Pages of `living` are opened anew, because a process that
    /// calls `exec` gets another. `None` without any page.
    pub fn sum(&mut self, living: impl Iterator<Item = Life>) -> Option<Purges> {
        for life in living {
            if let Some(page) = page_of(life.0) {
                self.renew(life, page);
            }
        }
        let open = self.open.values().filter_map(purges);
        open.chain(self.closed).reduce(Purges::and)
    }

    /// Opens the page that a process has now, and keeps the figures of the one that it had before.
    fn renew(&mut self, life: Life, page: File) {
        let is_other = |before: &&File| file_of(before) != file_of(&page);
        let figures = self.open.get(&life).filter(is_other).and_then(purges);
        self.closed = figures.into_iter().chain(self.closed).reduce(Purges::and);
        self.open.insert(life, page);
    }
}

/// What tells one file from another.
fn file_of(page: &File) -> Option<u64> {
    page.metadata().ok().map(|about| about.ino())
}

/// A process's own status page. A child of fork may hold its parent's for a moment.
fn page_of(process: u32) -> Option<File> {
    let page = open(&process.to_string(), status_page::NAME)?;
    ensure_words(&page, status_page::MAGIC, status_page::VERSION).ok()?;
    let head: Head = read(&page, HEAD_AT).ok()?;
    (head.pid == u64::from(process)).then_some(page)
}

/// How often a page that is being written is read again.
const TRIES: usize = 100;

fn latest(page: &File) -> Option<Coarse> {
    let once = || {
        let coarse: Coarse = read(page, COARSE_AT).ok()?;
        let after: u64 = read(page, COARSE_AT).ok()?;
        (coarse.sequence.is_multiple_of(2) && after == coarse.sequence).then_some(coarse)
    };
    (0..TRIES).find_map(|_| once())
}

fn purges(page: &File) -> Option<Purges> {
    latest(page).map(Purges::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd as _;

    mod memory_file {
        use super::*;

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

    /// A status page of this process, if `pid` is its number.
    fn made(pid: u64, sequence: u64) -> File {
        // SAFETY: the name is a C string.
        let file = unsafe {
            let made = libc::memfd_create(status_page::NAME.as_ptr(), libc::MFD_CLOEXEC);
            assert!(made >= 0);
            File::from_raw_fd(made)
        };
        let head = Head {
            magic: status_page::MAGIC,
            version: status_page::VERSION,
            pid,
            ..Head::default()
        };
        let coarse = Coarse {
            sequence,
            purged_bytes: 4_000,
            regretted_bytes: 100,
            ..Coarse::default()
        };
        file.write_all_at(bytemuck::bytes_of(&head), 0).unwrap();
        let coarse = bytemuck::bytes_of(&coarse);
        file.write_all_at(coarse, COARSE_AT as u64).unwrap();
        file
    }

    /// In one test: another one would find the other's page in this process.
    #[test]
    fn pages_of_a_process_are_read_even_after_its_end() {
        let me = std::process::id();
        assert_eq!(own(), None);
        let stranger = made(u64::from(me) + 1, 2);
        assert_eq!(own(), None, "the page of another process");
        drop(stranger);
        let page = made(u64::from(me), 2);
        let expected = Purges {
            purged: 4_000,
            regretted: 100,
        };
        assert_eq!(own(), Some(expected));
        let mut pages = StatusPages::default();
        assert_eq!(pages.sum(std::iter::empty()), None);
        // No process began then, as if this one had ended since.
        pages.look([(me, 7)].into_iter());
        drop(page);
        assert_eq!(pages.sum(std::iter::empty()), Some(expected));
        assert_eq!(own(), None, "the page is closed");
        let twice = Purges {
            purged: 8_000,
            regretted: 200,
        };
        let page = made(u64::from(me), 2);
        let life = tree::life(me).unwrap();
        pages.look([life].into_iter());
        drop(page);
        assert_eq!(pages.sum(std::iter::empty()), Some(twice));
        // Its next program has a page of its own.
        let page = made(u64::from(me), 2);
        for again in [page.try_clone().unwrap(), page] {
            pages.renew(life, again);
            let after = pages.sum(std::iter::empty());
            assert_eq!(after.map(|sum| sum.purged), Some(12_000));
        }
        drop(pages);
        assert_eq!(own(), None);
        let torn = made(u64::from(me), 3);
        assert_eq!(purges(&torn), None, "it is being written");
        assert_eq!((share(4_000.0, 100.0), share(0.0, 0.0)), (0.025, 0.0));
    }
}
