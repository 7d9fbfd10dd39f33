//! Where a program runs: a directory, an environment, a deadline and an allocator.

use crate::Outcome;
use crate::bench::{self, Bench, Tier};
use crate::ledger::{Audit, Auditor};
use crate::program::search_path;
use crate::server::Server;
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

/// Variables that steer the suite. They are kept from the programs: the library would
/// take them for misspelt options.
const OWN_VARIABLES: [&str; 3] = ["LIBRARY_UNDER_TEST", "TEST_TIER", "REQUIRE_ALL"];

/// Who serves malloc in a world.
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

/// A directory, an environment, a deadline and an allocator.
/// Dropped, it removes the directory.
pub struct World<'b> {
    /// What all tests share.
    pub bench: &'b Bench,
    /// Where commands run; also their `HOME` and `TMPDIR`.
    pub directory: PathBuf,
    allocator: Allocator,
    deadline: Instant,
    commands: Cell<u32>,
    /// Looks at the ledgers of all that runs under the library; idle in the system's world.
    auditor: Auditor,
}

/// A command's end.
pub struct Ended {
    /// The program's status; 128 and the signal's number when it died of one.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// It and every process it started.
    pub processes: Vec<Process>,
}

impl<'b> World<'b> {
    /// A new world. In the full tier the limit is ten times as long.
    ///
    /// # Errors
    /// When its directory cannot be made.
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

    /// Writes a file into this world's directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Outcome<()> {
        Ok(fs::write(self.path(name), contents)?)
    }

    /// A program's command line, to be added to and then ended with [`World::finish`]
    /// or [`World::serve`]. It has no standard input, and an environment that is the
    /// same on every machine but for the library's own options.
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

    /// Runs a program that must succeed; gives its standard output.
    ///
    /// # Errors
    /// As [`World::finish`]; also when the status is not 0.
    pub fn run(&self, program: impl AsRef<Path>, arguments: &[&str]) -> Outcome<String> {
        let mut command = self.command(program);
        command.args(arguments);
        self.succeed(command)
    }

    /// [`World::run`] for a command made by [`World::command`].
    ///
    /// # Errors
    /// As [`World::run`].
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

    /// Waits for a command and all it started, and judges what the witness saw.
    ///
    /// # Errors
    /// When it does not end in time, when any process crashed, when one that could carry
    /// the library did not (in the system's world: did), or when the library wrote
    /// something of its own.
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

    /// Starts a command as a server; it is killed with the guard at the latest.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn serve(&self, command: Command) -> Outcome<Server<'_>> {
        let report = report_of(&command);
        Server::start(self, command, report)
    }

    /// From now on the ledgers of what `witness` started are looked at.
    pub(crate) fn audit_under(&self, witness: u32) {
        self.auditor.watch(witness);
    }

    /// Ends the world; gives what was seen of the ledgers in it.
    ///
    /// # Errors
    /// When nobody could look.
    pub fn close(mut self) -> Outcome<Audit> {
        self.auditor.end()
    }

    /// How the library stands to the processes of this world.
    pub fn expected(&self) -> Presence {
        match self.allocator {
            Allocator::System => Presence::Absent,
            Allocator::Library => Presence::Carried,
        }
    }

    /// Tries again every 20 ms until it succeeds.
    ///
    /// # Errors
    /// The last failure, when this world's deadline has come.
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
    /// When the deadline has come.
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
/// When the file cannot be read.
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

/// The end of a long text: what a failure shows of an output.
pub fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(15)..];
    last.iter().map(|line| format!("  | {line}\n")).collect()
}

/// A file's text, whatever its bytes; a missing file is empty.
pub fn lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The library prints nothing of its own.
///
/// # Errors
/// The first line that it wrote after all.
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

/// The witness's first argument.
fn report_of(command: &Command) -> PathBuf {
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
