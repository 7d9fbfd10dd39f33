//! Reads the status page, which is the status page of a process.

use super::memory_file::{Kind, Reach, ended};
use super::process::Process;
use crate::failure::Failure;
use neap_shared::stats::Snapshot;
use neap_shared::status_page::{self, Arenas, Coarse, Head, Served, SizeFigure};
use std::ops::Range;
use std::os::fd::OwnedFd;

/// The memory file.
pub const KIND: Kind = Kind {
    name: status_page::NAME,
    bytes: status_page::BYTES as u64,
};

/// [`Head::frontend`] of a Rust program's own allocator.
const OWN_HEAP: u64 = 2;

/// A memory file with the head of a status page. The rest of its contents is unverified.
#[derive(Debug)]
pub struct StatusPage {
    pub(super) reach: Reach,
    head: Head,
    process: Option<Process>,
}

impl StatusPage {
    /// The status page of a process. A Rust program with Neap as its own allocator may have
    /// libneap.so loaded as well; then, the status page of its own allocator.
    ///
    /// # Errors
    ///
    /// There is no such process, it does not run under Neap, the user may not inspect it, or its
    /// status page is malformed.
    pub fn open(pid: i32) -> Result<StatusPage, Failure> {
        let process = Process::open(pid)?;
        if process.has_ended() {
            return Err(ended(&process));
        }
        let numbers = process.numbers();
        let (mut fault, mut found) = (None, None);
        for reach in Reach::all(&process, KIND)? {
            match head(&reach) {
                Ok(head) if numbers.contains(&head.pid) => {
                    let is_own = head.frontend == OWN_HEAP;
                    found = found.filter(|_| !is_own).or(Some((reach, head)));
                    if is_own {
                        break;
                    }
                }
                Ok(head) => fault = fault.or(Some(Fault::Foreign(head.pid))),
                Err(why) => fault = Some(Fault::Forged(why)),
            }
        }
        match found {
            Some((reach, head)) => Ok(StatusPage {
                reach,
                head,
                process: Some(process),
            }),
            None => Err(absent(&process, fault)),
        }
    }

    /// Whether the status page belongs to a Rust program's own allocator.
    pub fn is_own_heap(&self) -> bool {
        self.head.frontend == OWN_HEAP
    }

    /// The status page behind a descriptor that a process has sent.
    pub fn of_descriptor(descriptor: OwnedFd) -> Result<StatusPage, Failure> {
        let reach = Reach::of_descriptor(descriptor, KIND)?;
        let head = head(&reach).map_err(|why| failure!("a status page {why}"))?;
        let pid = i32::try_from(head.pid).unwrap_or_default();
        let process = Process::open(pid).ok();
        Ok(StatusPage {
            reach,
            head,
            process,
        })
    }

    /// The head, written once at the start.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Whether the process has ended. Its figures stay readable if its descriptor was open when the
    /// status page was found.
    pub fn has_ended(&self) -> bool {
        self.process.as_ref().is_none_or(Process::has_ended)
    }

    /// The process, unless it ended before its status page came.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// The requests served; zeros if the status page can no longer be read.
    pub fn served(&self) -> Served {
        self.reach.value(status_page::SERVED_AT).unwrap_or_default()
    }

    /// The page heap's own figures. `None` if they were never written, or were being written at
    /// every try.
    pub fn coarse(&self) -> Option<Coarse> {
        let at = status_page::COARSE_AT;
        self.reach.guarded(at, at).ok().flatten()
    }

    /// The last figures. `None` if they were never written, or were being written at every try.
    pub fn figures(&self) -> Option<Snapshot> {
        let at = status_page::FIGURES_AT;
        self.reach.guarded(at, at + size_of::<u64>()).ok().flatten()
    }

    /// The address ranges of the heap's arenas in the process.
    pub fn arenas(&self) -> Vec<Range<u64>> {
        let arenas: Arenas = self.reach.value(status_page::ARENAS_AT).unwrap_or_default();
        let count = usize::try_from(arenas.count).unwrap_or(usize::MAX);
        let ranges = arenas.ranges.iter().take(count);
        ranges
            .map(|&[start, bytes]| start..start.saturating_add(bytes))
            .collect()
    }

    /// The table of sizes. All zero unless the process is in the counting mode; empty if it can no
    /// longer be read.
    pub fn sizes(&self) -> Vec<SizeFigure> {
        let mut sizes = vec![SizeFigure::default(); status_page::SIZES];
        let bytes = bytemuck::cast_slice_mut(&mut sizes);
        match self.reach.read(status_page::SIZES_AT, bytes) {
            Ok(()) => sizes,
            Err(_) => Vec::new(),
        }
    }

    /// The process's name in messages.
    pub fn title(&self) -> String {
        match &self.process {
            Some(process) => process.title(),
            None => format!("process {}", self.head.pid),
        }
    }
}

enum Fault {
    /// A status page of another process.
    Foreign(u64),
    /// Not a status page, and the reason.
    Forged(String),
}

fn head(reach: &Reach) -> Result<Head, String> {
    let expected = [
        status_page::MAGIC,
        status_page::VERSION,
        status_page::BYTES as u64,
    ];
    reach.head(status_page::HEAD_AT, expected, |head: &Head| {
        [head.magic, head.version, head.bytes]
    })
}

/// Whether a process runs under Neap, even if it has no status page, or one that cannot be read.
pub(super) fn is_under_neap(process: &Process) -> bool {
    let is_unreadable = |reach: &Reach| head(reach).is_err();
    has_library(process) || Reach::all(process, KIND).is_ok_and(|all| all.iter().any(is_unreadable))
}

fn has_library(process: &Process) -> bool {
    let maps = process.text("maps").unwrap_or_default();
    maps.lines().any(|line| line.contains("/libneap"))
}

fn absent(process: &Process, fault: Option<Fault>) -> Failure {
    let title = process.title();
    if process.has_ended() {
        return ended(process);
    }
    Failure::own(match fault {
        Some(Fault::Forged(why)) => format!("{title}: its status page {why}"),
        Some(Fault::Foreign(pid)) => format!(
            "{title} has no status page of its own, only that of process {pid}: it has not \
             allocated since it was forked, or only watches that process"
        ),
        None if has_library(process) => format!(
            "{title} runs under Neap without a status page: it has done too little so far (neap run \
             and NEAP_STATUS_PAGE=1 make one at the start), was started with NEAP_STATUS_PAGE=0 or \
             NEAP_KERNEL_QUERIES=0, has entered a sandbox, or could not make one"
        ),
        None => format!("{title} does not run under Neap: start it with neap run"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::testing::Forged;
    use bytemuck::{Zeroable, bytes_of};

    fn refusal(forged: &Forged) -> String {
        StatusPage::of_descriptor(forged.descriptor())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn figures_are_read_as_they_were_written() {
        let forged = Forged::status_page();
        let status_page = forged.open();
        assert_eq!(status_page.head().pid, u64::from(std::process::id()));
        assert!(status_page.figures().is_none() && status_page.coarse().is_none());
        let figures = Snapshot {
            live: 77,
            ..Snapshot::default()
        };
        forged.write(status_page::FIGURES_AT + 8, bytes_of(&figures));
        forged.write(status_page::FIGURES_AT, &2_u64.to_ne_bytes());
        let coarse = Coarse {
            sequence: 4,
            purges: 5,
            ..Coarse::default()
        };
        forged.write(status_page::COARSE_AT, bytes_of(&coarse));
        assert_eq!(status_page.figures().unwrap().live, 77);
        assert_eq!(status_page.coarse().unwrap().purges, 5);
        let size = SizeFigure { count: 3, bytes: 9 };
        forged.write(
            status_page::SIZES_AT + (status_page::SIZES - 1) * size_of::<SizeFigure>(),
            bytes_of(&size),
        );
        assert_eq!(status_page.sizes().last().unwrap().bytes, 9);
    }

    #[test]
    fn what_is_being_written_for_ever_is_nothing() {
        let forged = Forged::status_page();
        forged.write(status_page::FIGURES_AT, &3_u64.to_ne_bytes());
        forged.write(status_page::COARSE_AT, &u64::MAX.to_ne_bytes());
        assert!(forged.open().figures().is_none());
        assert!(forged.open().coarse().is_none());
    }

    #[test]
    fn arenas_are_as_many_as_there_is_room_for() {
        let forged = Forged::status_page();
        let mut arenas = Arenas::zeroed();
        arenas.count = u64::MAX;
        arenas.ranges[1] = [u64::MAX - 1, 4096];
        forged.write(status_page::ARENAS_AT, bytes_of(&arenas));
        let arenas = forged.open().arenas();
        assert_eq!(arenas.len(), status_page::MOST_ARENAS);
        assert_eq!(arenas[1], u64::MAX - 1..u64::MAX);
    }

    #[test]
    fn files_that_are_no_status_pages_are_refused() {
        let unsealed = Forged::unsealed(status_page::NAME, status_page::BYTES);
        assert!(refusal(&unsealed).contains("is not sealed"));
        let small = Forged::zeros(status_page::NAME, 4096);
        assert!(refusal(&small).contains("has 4096 bytes"));
        let zeros = Forged::zeros(status_page::NAME, status_page::BYTES);
        assert!(refusal(&zeros).contains("first word"));
        for (at, why) in [(8, "layout 9"), (16, "9 bytes")] {
            let forged = Forged::status_page();
            forged.write(at, &9_u64.to_ne_bytes());
            assert!(refusal(&forged).contains(why));
        }
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = StatusPage::of_descriptor(reader.into())
            .unwrap_err()
            .to_string();
        assert!(pipe.contains("no regular file"), "{pipe}");
    }

    #[test]
    fn of_two_heaps_of_a_process_its_own_is_looked_at() {
        let library = Forged::status_page();
        let own = Forged::status_page();
        own.write(
            std::mem::offset_of!(Head, frontend),
            &OWN_HEAP.to_ne_bytes(),
        );
        let status_page = StatusPage::open(std::process::id().cast_signed()).unwrap();
        assert!(status_page.is_own_heap());
        drop((library, own));
    }

    #[test]
    fn a_process_is_found_to_hold_its_status_page() {
        let forged = Forged::status_page();
        let status_page = StatusPage::open(std::process::id().cast_signed()).unwrap();
        assert!(!status_page.has_ended());
        drop(forged);
    }
}
