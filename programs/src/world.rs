//! Where a program runs: a directory, an environment, a deadline and an allocator.

use crate::bench::{self, Bench, Tier};
use crate::installed::search_path;
use crate::ledger::{Audit, Auditor};
use crate::outcome::Outcome;
use crate::witness::{self, Presence, Process};
use std::cell::Cell;
use std::fmt;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Variables that control the suite. They are hidden from the programs, because the library would
/// take them for misspelt options.
const OWN_VARIABLES: [&str; 3] = ["LIBRARY_UNDER_TEST", "TEST_TIER", "REQUIRE_ALL"];

/// The allocator of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// The C library: the reference.
    System,
    /// The library under test, preloaded.
    Library,
}

impl fmt::Display for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "the system's malloc",
            Self::Library => "the library",
        })
    }
}

/// A directory, an environment, a deadline and an allocator. Dropping it removes the directory.
pub struct World<'b> {
    /// Shared by all tests.
    pub bench: &'b Bench,
    /// Where commands run; also their `HOME` and `TMPDIR`.
    pub directory: PathBuf,
    allocator: Allocator,
    deadline: Instant,
    commands: Cell<u32>,
    /// Observes the ledgers of all processes under the library; idle in the system's world.
    auditor: Auditor,
}

/// A command's end.
pub struct Ended {
    /// The program's status; for a signal, 128 plus its number.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// The program and every process that it started.
    pub processes: Vec<Process>,
}

impl<'b> World<'b> {
    /// A new world. In the full tier the limit is ten times as long.
    ///
    /// # Errors
    /// If its directory cannot be made.
    pub fn open(
        bench: &'b Bench,
        name: &str,
        allocator: Allocator,
        limit: Duration,
    ) -> Outcome<Self> {
        let suffix = match allocator {
            Allocator::System => "system",
            Allocator::Library => "library",
        };
        Ok(Self {
            bench,
            directory: bench.new_directory(&format!("{name}-{suffix}"))?,
            allocator,
            deadline: Instant::now() + limit * bench.tier.pick(1, 10),
            commands: Cell::new(0),
            auditor: match allocator {
                Allocator::System => Auditor::default(),
                Allocator::Library => Auditor::start(),
            },
        })
    }

    /// The size for this run's tier.
    pub fn size<T>(&self, quick: T, full: T) -> T {
        Tier::pick(self.bench.tier, quick, full)
    }

    /// A path in this world's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a file to this world's directory.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Outcome<()> {
        Ok(fs::write(self.path(name), contents)?)
    }

    /// A program's command line, to be extended and then run with [`World::finish`] or
    /// [`World::serve`]. It has no standard input. Its environment is the same on every machine,
    /// except for the library's own options.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mode = match self.allocator {
            Allocator::System => "watch",
            Allocator::Library => "preload",
        };
        let mut command = Command::new(&self.bench.witness);
        command
            .arg(self.new_report())
            .arg(&self.bench.library)
            .args([mode, "--"]);
        command
            .arg(program.as_ref())
            .current_dir(&self.directory)
            .env_clear();
        command
            .env("PATH", search_path())
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC");
        command
            .env("HOME", &self.directory)
            .env("TMPDIR", &self.directory);
        let options = std::env::vars_os().filter(|(name, _)| is_library_option(name));
        command.envs(options).stdin(Stdio::null()).process_group(0);
        command
    }

    /// Runs a program that must succeed; returns its standard output.
    ///
    /// # Errors
    /// Same as [`World::finish`]; also if the status is not 0.
    pub fn run(&self, program: impl AsRef<Path>, arguments: &[&str]) -> Outcome<String> {
        let mut command = self.command(program);
        command.args(arguments);
        self.succeed(command)
    }

    /// [`World::run`] for a command made by [`World::command`].
    ///
    /// # Errors
    /// Same as [`World::run`].
    pub fn succeed(&self, command: Command) -> Outcome<String> {
        let shown = shown(&command);
        let ended = self.finish(command)?;
        if !ended.status.success() {
            let Ended {
                status,
                stdout,
                stderr,
                ..
            } = ended;
            return Err(format!("{shown}: {status}\n{}{}", tail(&stdout), tail(&stderr)).into());
        }
        Ok(ended.stdout)
    }

    /// Waits for a command and all its descendants, and judges the witness's report.
    ///
    /// # Errors
    /// If it does not end in time, any process crashed, the library was missing from a process that
    /// could load it (in the system's world: was present), or the library printed a message.
    pub fn finish(&self, mut command: Command) -> Outcome<Ended> {
        let shown = shown(&command);
        let outputs = ["stdout", "stderr"].map(|kind| self.path(&format!(".{kind}")));
        command
            .stdout(File::create(&outputs[0])?)
            .stderr(File::create(&outputs[1])?);
        let report = report_of(&command);
        let child = command.spawn()?;
        self.auditor.watch(child.id());
        let status = self.wait(child).map_err(|e| format!("{shown}: {e}"))?;
        let [stdout, stderr] = outputs.map(|path| lossy(&path));
        let explain = |e| format!("{shown}: {status}: {e}\n{}{}", tail(&stdout), tail(&stderr));
        let processes = witness::read(&report).map_err(explain)?;
        witness::judge(&processes, self.expected()).map_err(explain)?;
        assert_quiet(&stderr).map_err(explain)?;
        Ok(Ended {
            status,
            stdout,
            stderr,
            processes,
        })
    }

    /// Observes the ledgers of the processes under `witness` from now on.
    pub(crate) fn audit_under(&self, witness: u32) {
        self.auditor.watch(witness);
    }

    /// Ends the world; returns the observations of its ledgers.
    ///
    /// # Errors
    /// If the observing thread failed.
    pub fn close(mut self) -> Outcome<Audit> {
        self.auditor.end()
    }

    /// The library's expected presence in this world's processes.
    pub fn expected(&self) -> Presence {
        match self.allocator {
            Allocator::System => Presence::Absent,
            Allocator::Library => Presence::Carried,
        }
    }

    /// Retries every 20 ms until it succeeds.
    ///
    /// # Errors
    /// The last failure before this world's deadline.
    pub fn until<T>(&self, mut attempt: impl FnMut() -> Outcome<T>) -> Outcome<T> {
        loop {
            match attempt() {
                Err(error) if Instant::now() > self.deadline => {
                    return Err(format!("out of time: {error}").into());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
                done => return done,
            }
        }
    }

    /// Waits for a witness; kills its process group at the deadline.
    ///
    /// # Errors
    /// If the deadline has passed.
    pub fn wait(&self, mut child: Child) -> Outcome<ExitStatus> {
        let waited = self.until(|| child.try_wait()?.ok_or("still running".into()));
        if waited.is_err() {
            kill_group(&mut child);
        }
        waited
    }

    fn new_report(&self) -> PathBuf {
        self.commands.set(self.commands.get() + 1);
        self.path(&format!(".report-{}", self.commands.get()))
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        bench::remove(&self.directory);
    }
}

/// A short name for a file's contents, to compare files without keeping them.
///
/// # Errors
/// If the file cannot be read.
pub fn fingerprint(path: &Path) -> Outcome<String> {
    let mut file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut hasher = DefaultHasher::new();
    let (mut buffer, mut length) = (vec![0; 1 << 16], 0);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(format!("{length} bytes, {:016x}", hasher.finish()));
        }
        hasher.write(&buffer[..read]);
        length += read;
    }
}

/// Kills a child that leads a process group, and the group.
pub fn kill_group(child: &mut Child) {
    // SAFETY: the call takes numbers. The child is not reaped yet, so its id is its own.
    unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
    if let Err(error) = child.wait() {
        eprintln!("a killed child cannot be waited for: {error}");
    }
}

/// The end of a long text, to show in a failure.
pub fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(15)..];
    last.iter().map(|line| format!("  | {line}\n")).collect()
}

/// A file's text, even if it is not UTF-8; a missing file is empty.
pub fn lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Fails if the library printed a message.
///
/// # Errors
/// The first line that it printed.
pub fn assert_quiet(output: &str) -> Outcome<()> {
    match output.lines().find(|line| line.starts_with("neap: ")) {
        Some(line) => Err(format!("the library wrote: {line}").into()),
        None => Ok(()),
    }
}

fn is_library_option(name: &std::ffi::OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("NEAP_") && !OWN_VARIABLES.contains(&name.as_ref())
}

/// The witness's first argument: the file of its report.
pub(crate) fn report_of(command: &Command) -> PathBuf {
    command
        .get_args()
        .next()
        .map(PathBuf::from)
        .unwrap_or_default()
}

/// The command line without the witness's part.
fn shown(command: &Command) -> String {
    let words: Vec<_> = command
        .get_args()
        .skip(4)
        .map(|word| word.to_string_lossy())
        .collect();
    words.join(" ")
}
