//! The processes of a run, seen from outside: which they are, their memory, their processor time,
//! which library's malloc they use, and their end.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use procfs::process::{Process, Stat};

use crate::machine;

/// A process's number and its start, which no other process shares.
pub type Life = (u32, u64);

/// The processes below a subject.
pub struct Tree {
    subject: u32,
    driver: Option<u32>,
    library: PathBuf,
    /// Whether a process has mapped the library.
    mapped: HashMap<Life, bool>,
    /// The processes of the last look around.
    known: Vec<u32>,
}

/// Where processes are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Among those that were found last.
    Known,
    /// Among all of this machine, which takes milliseconds.
    Around,
}

/// What the processes hold and took, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    /// Resident bytes; pages that processes share count once.
    pub bytes: u64,
    /// Processor time so far.
    pub cpu: Duration,
    /// Those that have mapped the library.
    pub processes: usize,
}

/// Processor time in the kernel's ticks, with that of children that ended. As long as a process
/// waits to be reaped, its ticks are in no other process's.
fn ticks(process: &Stat) -> u64 {
    let of_children = (process.cutime + process.cstime) as u64;
    process.utime + process.stime + of_children
}

fn has_ended(process: &Stat) -> bool {
    process.state == 'Z'
}

impl Tree {
    /// The processes below `subject`. Those below `driver` do not count, nor do those that have not
    /// mapped `library`.
    pub fn new(subject: u32, driver: Option<u32>, library: &Path) -> Tree {
        Tree {
            subject,
            driver,
            library: library.to_path_buf(),
            mapped: HashMap::new(),
            known: Vec::new(),
        }
    }

    /// Those below `driver` do not count any more.
    pub fn leave_out(&mut self, driver: u32) {
        self.driver = Some(driver);
    }

    /// Memory and processor time now.
    pub fn held(&mut self, look: Look) -> Held {
        let all: Vec<Stat> = match look {
            Look::Known => self.known.iter().copied().filter_map(process).collect(),
            Look::Around => self.processes(),
        };
        let ticks: u64 = all.iter().map(ticks).sum();
        let counted = self.with_library(&all);
        let bytes = match counted[..] {
            [only] => machine::resident_kib(&only.to_string()).unwrap_or(0) * 1_024,
            _ => counted.iter().map(|&id| proportional_bytes(id)).sum(),
        };
        Held {
            bytes,
            cpu: Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64),
            processes: counted.len(),
        }
    }

    /// The processes that count, by what they have mapped now: `exec` may have changed that.
    pub fn counted(&mut self) -> Vec<u32> {
        self.mapped.clear();
        let all = self.processes();
        self.with_library(&all)
    }

    /// Those of the last look that had mapped the library, some of which may have ended.
    pub fn lives(&self) -> impl Iterator<Item = Life> {
        let counted = self.mapped.iter().filter(|(_, mapped)| **mapped);
        counted.map(|(life, _)| *life)
    }

    /// The living processes that do not count.
    pub fn uncounted(&mut self) -> Vec<u32> {
        let counted = self.counted();
        let is_other = |id: &u32| !counted.contains(id) && maps(*id).is_some_and(|m| !m.is_empty());
        self.known.iter().copied().filter(is_other).collect()
    }

    /// Makes the kernel's peak of every process begin anew.
    pub fn restart_peaks(&mut self) {
        for id in self.counted() {
            // A process that has ended has no peak.
            let _ = fs::write(format!("/proc/{id}/clear_refs"), "5");
        }
    }

    /// The kernel's own peak, if there is one process.
    pub fn exact_peak(&mut self) -> Option<u64> {
        match self.counted()[..] {
            [only] => Some(machine::peak_resident_kib(only).ok()? * 1_024),
            _ => None,
        }
    }

    /// The processes below the subject, and orphans.
    fn processes(&mut self) -> Vec<Stat> {
        let me = std::process::id();
        let is_root = |process: &Stat| {
            let (id, parent) = (process.pid as u32, process.ppid as u32);
            id == self.subject || (parent == me && Some(id) != self.driver)
        };
        let found = below(all_processes(), is_root);
        self.known = found.iter().map(|process| process.pid as u32).collect();
        found
    }

    fn with_library(&mut self, processes: &[Stat]) -> Vec<u32> {
        let mut with = Vec::new();
        for process in processes.iter().filter(|process| !has_ended(process)) {
            let id = process.pid as u32;
            let mapped = self.mapped.entry((id, process.starttime)).or_default();
            *mapped = *mapped || maps(id).is_some_and(|maps| has_mapped(&maps, &self.library));
            if *mapped {
                with.push(id);
            }
        }
        with
    }
}

/// The text of /proc/PID/maps, if the process lives.
pub fn maps(id: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{id}/maps")).ok()
}

/// Whether a process with these maps has mapped `library`.
fn has_mapped(maps: &str, library: &Path) -> bool {
    files(maps).any(|file| Path::new(file) == library)
}

/// The files in the text of /proc/PID/maps.
pub fn files(maps: &str) -> impl Iterator<Item = &str> {
    maps.lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
}

/// Resident bytes, where a page that several processes share counts in parts.
pub fn proportional_bytes(id: u32) -> u64 {
    machine::kib_of(&format!("/proc/{id}/smaps_rollup"), "Pss").unwrap_or(0) * 1_024
}

/// Every process of this machine.
fn all_processes() -> Vec<Stat> {
    let all = procfs::process::all_processes()
        .into_iter()
        .flatten()
        .flatten();
    all.filter_map(|process| process.stat().ok()).collect()
}

/// The process that has this number now, unless it has ended and waits to be reaped.
pub(crate) fn life(id: u32) -> Option<Life> {
    let process = process(id).filter(|process| !has_ended(process))?;
    Some((id, process.starttime))
}

/// The process with that number, if there is one.
fn process(id: u32) -> Option<Stat> {
    Process::new(id as i32).ok()?.stat().ok()
}

/// Those of `all` for which `is_root`, and all below them.
fn below(all: Vec<Stat>, is_root: impl Fn(&Stat) -> bool) -> Vec<Stat> {
    let (mut found, mut rest): (Vec<Stat>, Vec<Stat>) = all.into_iter().partition(is_root);
    let mut next = 0;
    while next < found.len() {
        let parent = found[next].pid;
        found.extend(rest.extract_if(.., |process| process.ppid == parent));
        next += 1;
    }
    found
}

/// Lets this process inherit the orphans of its descendants, so that [`end_all`] finds them.
pub fn adopt_orphans() {
    // SAFETY: the call takes numbers and changes nothing but who inherits this process's orphans.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Ends every process of a run when dropped.
pub struct EndAll;

impl Drop for EndAll {
    fn drop(&mut self) {
        end_all();
    }
}

/// Kills every descendant of this process, and waits for the orphans among them. A process that
/// forks meanwhile is found in the next pass.
fn end_all() {
    let me = std::process::id();
    for _ in 0..PASSES {
        let mut descendants = below(all_processes(), |process| process.ppid as u32 == me);
        descendants.retain(|process| !has_ended(process));
        if descendants.is_empty() {
            break;
        }
        for process in &descendants {
            // SAFETY: the call takes numbers; the process is one that a run started.
            unsafe { libc::kill(process.pid, libc::SIGKILL) };
        }
        std::thread::sleep(PAUSE);
    }
    // SAFETY: no status is asked for; without a child that has ended the call returns at once.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}

/// The passes of [`end_all`], and the time between two: five seconds in all.
const PASSES: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);

/// Parts of allocators' file names.
const LIBRARIES: [&str; 6] = [
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libsnmalloc",
    "librpmalloc",
    "libneap",
];

/// A text in programs that have jemalloc linked in, as some Rust programs do. There is no such text
/// for mimalloc: CPython contains it without using it.
const JEMALLOC: &[u8] = b"<jemalloc>";

/// Why the processes do not show what the allocator does; `None` if they do. `is_own`: the
/// allocator is the C library, beside which no other may be mapped.
pub fn objection(processes: &[u32], is_own: bool) -> Option<String> {
    if processes.is_empty() {
        return Some("the library is mapped in no process of the subject".into());
    }
    let of_process = |&id: &u32| {
        let maps = maps(id)?;
        let other = is_own.then(|| other_library(&maps)).flatten();
        other
            .map(|file| format!("it has mapped {file}"))
            .or_else(|| linked(&fs::read_link(format!("/proc/{id}/exe")).ok()?))
    };
    processes.iter().find_map(of_process)
}

/// A process without the allocator may be a helper, such as a shell. The most bytes of a helper.
const HELPER_BYTES: u64 = 8 << 20;

/// Why processes that did not map the allocator matter; `None` if they are small.
pub fn stranger(processes: &[u32]) -> Option<String> {
    processes.iter().find_map(|&id| {
        let bytes = proportional_bytes(id);
        let name = fs::read_to_string(format!("/proc/{id}/comm")).ok()?;
        (bytes > HELPER_BYTES).then(|| {
            let megabytes = bytes / 1_000_000;
            format!(
                "{} holds {megabytes} MB without the library",
                name.trim_end()
            )
        })
    })
}

fn other_library(maps: &str) -> Option<String> {
    let mut names = files(maps).filter_map(|file| file.rsplit('/').next());
    let is_one = |name: &&str| LIBRARIES.iter().any(|part| name.starts_with(part));
    names.find(is_one).map(str::to_string)
}

/// The allocator that is linked into a program; each file is read once.
fn linked(program: &PathBuf) -> Option<String> {
    static KNOWN: Mutex<Option<HashMap<PathBuf, bool>>> = Mutex::new(None);
    let mut known = KNOWN.lock().ok()?;
    let has_it = *known
        .get_or_insert_default()
        .entry(program.clone())
        .or_insert_with(|| {
            let bytes = fs::read(program).unwrap_or_default();
            bytes.windows(JEMALLOC.len()).any(|part| part == JEMALLOC)
        });
    has_it.then(|| format!("{} has jemalloc linked in", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromRead as _;
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    fn stat(text: &str) -> Stat {
        Stat::from_read(text.as_bytes()).unwrap()
    }

    /// A process that took 100 ticks.
    fn one(id: u32, parent: u32) -> Stat {
        let text = "(a) b) S PARENT 12 12 0 -1 0 1 2 3 4 10 20 30 40 20 0 1 0 777 1 2 3 1 1 1 1 1 0 0 \
                    0 0 0 0 0 17 3 0 0 0 0 0 1 1 1 1 1 1 1 0";
        stat(&format!(
            "{id} {}",
            text.replace("PARENT", &parent.to_string())
        ))
    }

    #[test]
    fn descendants_are_found_however_deep() {
        let all = [one(9, 7), one(1, 0), one(7, 5), one(5, 1), one(6, 1)];
        let found = below(all.into(), |process| process.pid == 5);
        let ids: Vec<i32> = found.iter().map(|process| process.pid).collect();
        assert_eq!(ids, [5, 7, 9]);
        assert_eq!((ticks(&one(9, 7)), has_ended(&one(9, 7))), (100, false));
    }

    #[test]
    fn what_a_process_mapped_before_exec_does_not_count() {
        let shell = fs::canonicalize("/bin/sh").unwrap();
        let mut child = Command::new(&shell)
            .args(["-c", "read line; exec sleep 100"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut tree = Tree::new(child.id(), None, &shell);
        let within = |mut is_so: Box<dyn FnMut() -> bool + '_>| {
            let until = Instant::now() + Duration::from_secs(30);
            while !is_so() {
                assert!(Instant::now() < until, "not within 30 s");
                std::thread::sleep(PAUSE);
            }
        };
        let id = child.id();
        within(Box::new(|| {
            tree.held(Look::Around);
            tree.lives().any(|life| life.0 == id)
        }));
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let name = format!("/proc/{id}/comm");
        within(Box::new(|| {
            fs::read_to_string(&name).is_ok_and(|it| it == "sleep\n")
        }));
        // Other tests' children are orphans to this tree.
        assert!(!tree.counted().contains(&id));
        assert!(tree.uncounted().contains(&id));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn this_process_holds_memory_and_has_its_c_library() {
        let library = crate::work::identity::own_heap().unwrap();
        let mut tree = Tree::new(std::process::id(), None, &library);
        let held = tree.held(Look::Around);
        assert!(held.bytes > 100_000 && held.processes >= 1, "{held:?}");
        assert!(tree.held(Look::Known).processes >= 1);
        let mut none = Tree::new(std::process::id(), None, Path::new("/nowhere.so"));
        assert_eq!(none.held(Look::Around).processes, 0);
    }

    #[test]
    fn another_allocator_is_an_objection_and_none_is_none() {
        let maps = "7f00-7f01 r-xp 0 08:01 1 /usr/lib/libc.so.6\n";
        assert_eq!(other_library(maps), None);
        let other = format!("{maps}7f02-7f03 r-xp 0 08:01 1 /usr/lib/libjemalloc.so.2\n");
        assert_eq!(other_library(&other).unwrap(), "libjemalloc.so.2");
        assert!(objection(&[], true).is_some());
        let held = vec![7u8; 2 * HELPER_BYTES as usize];
        let told = stranger(&[std::process::id()]).unwrap();
        assert!(told.ends_with("without the library"), "{told}");
        assert_eq!(held[held.len() / 2], 7);
        assert_eq!(stranger(&[]), None);
        assert_eq!(linked(&"/bin/sh".into()), None);
        let file = std::env::temp_dir().join(format!("neap-case-mark-{}", std::process::id()));
        fs::write(&file, b"\x7fELF <jemalloc>: %s").unwrap();
        assert!(linked(&file).unwrap().ends_with("has jemalloc linked in"));
        fs::remove_file(file).unwrap();
    }
}
