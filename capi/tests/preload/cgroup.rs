//! In a control group with little memory, that the test makes for itself below its own: alive, and
//! no nearer to the limit than under the C library.

use crate::places;
use crate::skips::{announce, is_root, needs_root, skipped};
use crate::support::{self, Artifact, compile_strictly, text};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LIMIT: u64 = 192 << 20;

/// How long something may take on a machine with more to do than this.
const PATIENCE: Duration = Duration::from_secs(60);

/// A control group of this test's own, removed when it is dropped.
struct Group {
    folder: PathBuf,
    used: &'static str,
}

impl Group {
    /// One with [`LIMIT`], or none, and the reason on stderr.
    fn new() -> Option<Group> {
        Group::limited(LIMIT)
    }

    fn limited(limit: u64) -> Option<Group> {
        match Group::try_new(limit) {
            Ok(group) => Some(group),
            Err(reason) => {
                let why = format!("no control group can be made here: {reason}");
                match is_root() {
                    true => announce(&why),
                    false => needs_root(&why),
                }
                None
            }
        }
    }

    fn try_new(limit: u64) -> io::Result<Group> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (parent, most, used) = Group::place()?;
        let name = format!("neap-test-{}-{number}", std::process::id());
        let folder = parent.join(name);
        fs::create_dir(&folder)?;
        let group = Group { folder, used };
        fs::write(group.folder.join(most), limit.to_string())?;
        Ok(group)
    }

    /// Makes a group below this one, without a limit of its own.
    fn nested(&self) -> Group {
        let folder = self.folder.join("nested");
        fs::create_dir(&folder).expect("a group below one of ours");
        Group {
            folder,
            used: self.used,
        }
    }

    /// The folder of this process's own group, where a group below it can have a limit, and the
    /// names of the files of the limit and of what is used. Nothing of the group itself is changed.
    fn place() -> io::Result<(PathBuf, &'static str, &'static str)> {
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let below = |root: &str, path: &str| Path::new(root).join(path.trim_start_matches('/'));
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':');
            let (controllers, path) = (parts.nth(1).unwrap_or(""), parts.next().unwrap_or("/"));
            if controllers.split(',').any(|name| name == "memory") {
                let folder = below("/sys/fs/cgroup/memory", path);
                return Ok((folder, "memory.limit_in_bytes", "memory.usage_in_bytes"));
            }
            let folder = below("/sys/fs/cgroup", path);
            let given = fs::read_to_string(folder.join("cgroup.subtree_control"));
            if controllers.is_empty() && given.is_ok_and(|given| given.contains("memory")) {
                return Ok((folder, "memory.max", "memory.current"));
            }
        }
        Err(io::Error::other("no memory controller below this process"))
    }

    /// Starts `command` in the group.
    fn start(&self, command: &mut Command) -> Child {
        let tasks = self.folder.join("cgroup.procs");
        let file = fs::OpenOptions::new().write(true).open(&tasks);
        let mut file = file.expect("the group takes processes");
        // SAFETY: one write of a constant to an open file: async-signal-safe, and allocates
        // nothing.
        unsafe { command.pre_exec(move || file.write_all(b"0")) };
        command.spawn().expect("the program starts")
    }

    /// Bytes that the group uses.
    fn used(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join(self.used)).expect("a group tells");
        text.trim().parse().expect("a number")
    }

    /// The least that the group uses until the test's patience ends, or it is no more than
    /// `enough`.
    fn settles_at(&self, enough: u64) -> u64 {
        let (begin, mut least) = (Instant::now(), self.used());
        while least > enough && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(100));
            least = least.min(self.used());
        }
        least
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process may not be gone quite yet.
        let begin = Instant::now();
        while fs::remove_dir(&self.folder).is_err() && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Who answers malloc.
#[derive(Clone, Copy, Debug)]
enum Heap {
    Neap,
    Glibc,
}

impl Heap {
    /// `program` under this heap; the C library is preloaded in front of what the program was
    /// linked with.
    fn command(self, program: &Path, arguments: &[&OsStr]) -> Command {
        let mut command = support::preloaded(program, arguments);
        if let Heap::Glibc = self {
            command.env("LD_PRELOAD", "libc.so.6");
        }
        command
    }
}

/// What may be told apart from noise: page tables, and the 64 pages that the kernel charges to a
/// group ahead for each processor that its tasks ran on.
fn allowance() -> u64 {
    // SAFETY: takes no pointers.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    (8 << 20) + (processors.max(1) as u64) * (64 << 12)
}

/// Kills and reaps the process when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the group uses when a churning program has freed nine tenths; `None` when it was killed.
fn churn(heap: Heap, program: &Path, enough: u64) -> Option<u64> {
    let group = Group::new()?;
    let mut command = heap.command(program, &[OsStr::new("67108864")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Killed(group.start(&mut command));
    let mut line = String::new();
    let output = child.0.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("read");
    if line != "done\n" {
        return None;
    }
    let used = group.settles_at(enough);
    drop(child.0.stdin.take());
    let status = child.0.wait().expect("a child can be waited for");
    assert!(status.success(), "{heap:?}: {status}");
    Some(used)
}

#[test]
fn a_churning_program_lives_and_gives_back() {
    let flags = ["-fno-builtin", "-Wall", "-Wextra", "-Werror"].map(OsStr::new);
    let source = "programs/limits/churn.c";
    let Some(program) = compile_strictly(source, Artifact::Program, &flags) else {
        return;
    };
    if Group::new().is_none() {
        return;
    }
    // It does not settle: what it uses when it is done is what it keeps.
    let others = churn(Heap::Glibc, &program, u64::MAX);
    let enough = others.unwrap_or(LIMIT);
    let used = churn(Heap::Neap, &program, enough).expect("killed in its group");
    println!("{used} bytes against {others:?}");
    assert!(used <= enough + allowance());
}

/// A redis-server in a group, over a socket of its own.
struct Redis {
    // Dropped before the group: one with a process in it cannot be removed.
    process: Killed,
    group: Group,
    socket: PathBuf,
}

impl Redis {
    fn start(heap: Heap) -> Option<Redis> {
        let group = Group::new()?;
        let name = format!("redis-{}-{heap:?}", std::process::id());
        let socket = places::scratch().join(name);
        let path = socket.as_os_str();
        let options = [
            "--port",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
            "--unixsocket",
        ];
        let arguments: Vec<&OsStr> = options.iter().map(OsStr::new).chain([path]).collect();
        let mut command = heap.command(Path::new("redis-server"), &arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = Killed(group.start(&mut command));
        let redis = Redis {
            process,
            group,
            socket,
        };
        redis.is_ready();
        redis.has_its_heap(heap);
        Some(redis)
    }

    fn is_ready(&self) {
        let begin = Instant::now();
        while UnixStream::connect(&self.socket).is_err() {
            assert!(begin.elapsed() < PATIENCE, "redis does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn has_its_heap(&self, heap: Heap) {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.process.0.id()));
        let library = support::library();
        let mapped = maps.expect("maps").contains(&*library.to_string_lossy());
        assert_eq!(mapped, matches!(heap, Heap::Neap), "{heap:?}");
    }

    /// What a tool of redis answers.
    fn tool(&self, tool: &str, arguments: &[&str]) -> String {
        let output = Command::new(tool)
            .arg("-s")
            .arg(&self.socket)
            .args(arguments)
            .output();
        text(&output.expect("redis-tools are there").stdout)
    }

    /// Fills it, twice with values of other sizes, and empties it. Whether it lives then.
    fn load(&self) -> bool {
        for (size, count) in [("100", "300000"), ("700", "100000"), ("60", "300000")] {
            let options = ["-q", "-t", "set", "-P", "32", "-r", "150000"];
            let more = ["-d", size, "-n", count];
            self.tool("redis-benchmark", &[&options[..], &more].concat());
        }
        self.tool("redis-cli", &["flushall"]);
        self.tool("redis-cli", &["ping"]) == "PONG\n"
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Not there if it never listened.
        let _ = fs::remove_file(&self.socket);
    }
}

/// What the group uses when redis was filled and emptied; `None` when it was killed.
fn redis(heap: Heap, enough: u64) -> Option<u64> {
    let redis = Redis::start(heap)?;
    redis.load().then(|| redis.group.settles_at(enough))
}

fn is_installed(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok()
}

#[test]
fn redis_lives_and_gives_back() {
    if !["redis-server", "redis-benchmark"]
        .into_iter()
        .all(is_installed)
    {
        return skipped("no redis here (Debian: apt install redis-server redis-tools)");
    }
    if Group::new().is_none() {
        return;
    }
    let others = redis(Heap::Glibc, u64::MAX);
    let enough = others.unwrap_or(LIMIT);
    let used = redis(Heap::Neap, enough).expect("killed in its group");
    println!("{used} bytes against {others:?}");
    assert!(used <= enough + allowance());
}

/// Bytes that the program of [`handover`] takes, frees, and then uses in another way.
const HANDED: u64 = 150 << 20;

/// A program that uses what it just freed in another way.
fn handover() -> Option<support::Built> {
    let flags = ["-fno-builtin", "-Wall", "-Wextra", "-Werror"].map(OsStr::new);
    compile_strictly("programs/limits/handover.c", Artifact::Program, &flags)
}

/// Runs it in `group`. Whether it survived.
fn hand_over(program: &Path, group: &Group, heap: Heap, [use_, block]: [&str; 2]) -> bool {
    let bytes = HANDED.to_string();
    let arguments = [use_, &bytes, block].map(OsStr::new);
    let mut child = group.start(&mut heap.command(program, &arguments));
    child.wait().expect("a child can be waited for").success()
}

/// The group's limit: a tenth more than the C library's heap needs.
const ENOUGH: u64 = (HANDED + (3 << 20)) / 10 * 11;

#[test]
fn what_was_freed_can_be_used_in_another_way_at_once() {
    let Some(program) = handover() else {
        return;
    };
    let Some(group) = Group::limited(ENOUGH) else {
        return;
    };
    for how in [
        ["mapping", "1000"],
        ["file", "100000"],
        ["child", "4194304"],
        ["mapping", "157286400"],
    ] {
        assert!(hand_over(&program, &group, Heap::Glibc, how), "{how:?}");
        assert!(hand_over(&program, &group, Heap::Neap, how), "{how:?}");
    }
}

#[test]
fn the_group_above_and_neighbours_in_it_bound_what_is_kept() {
    const NEIGHBOURS: u64 = 64 << 20;
    let Some(program) = handover() else {
        return;
    };
    let Some(above) = Group::limited(ENOUGH + NEIGHBOURS) else {
        return;
    };
    let group = above.nested();
    let bytes = NEIGHBOURS.to_string();
    let mut command = Heap::Neap.command(&program, &["hold", &bytes, "0"].map(OsStr::new));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut neighbour = Killed(above.start(&mut command));
    let mut line = String::new();
    let output = neighbour.0.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("read");
    assert_eq!(line, "held\n");
    for how in [["file", "1000"], ["mapping", "100000"]] {
        assert!(hand_over(&program, &group, Heap::Neap, how), "{how:?}");
    }
}

/// A group whose OOM killer is off pauses a thread that needs a page until another thread gives one
/// back. The purge thread gives pages back, so it must not be paused itself.
#[test]
fn where_the_kernel_kills_no_one_memory_still_goes_back() {
    let Some(program) = handover() else {
        return;
    };
    let Some(group) = Group::limited(ENOUGH) else {
        return;
    };
    if fs::write(group.folder.join("memory.oom_control"), "1").is_err() {
        return announce("the OOM killer of a control group of version 2 is always on");
    }
    for [use_, block] in [
        ["mapping", "1000"],
        ["file", "100000"],
        ["mapping", "157286400"],
    ] {
        let bytes = HANDED.to_string();
        let arguments = [use_, &bytes, block].map(OsStr::new);
        let mut child = Killed(group.start(&mut Heap::Neap.command(&program, &arguments)));
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.0.try_wait().expect("a child can be waited for") {
                break status;
            }
            assert!(begin.elapsed() < PATIENCE, "{use_} {block}: paused");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{use_} {block}");
    }
}
