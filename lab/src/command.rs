//! Commands that are run to their end.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

/// A run that takes longer counts as hung.
pub const LONGEST: Duration = Duration::from_secs(180);

/// The file that the shell would run for `name`.
pub fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// The command of a line without quotes.
pub fn of_words(line: &str) -> Command {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Runs `command` to its end and returns its standard output.
///
/// # Errors
/// If it fails or takes longer than [`LONGEST`].
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    Ok(outputs(command)?.0)
}

/// Runs `command` to its end and returns its standard output and its standard error.
///
/// # Errors
/// If it fails or takes longer than [`LONGEST`].
pub fn outputs(command: &mut Command) -> anyhow::Result<(String, String)> {
    to_its_end(command, LONGEST)
}

/// Runs `command` to its end, however long it takes, and returns its standard output.
///
/// # Errors
/// If it fails; the error contains its last lines.
pub fn finished(mut command: impl std::borrow::BorrowMut<Command>) -> anyhow::Result<String> {
    Ok(to_its_end(command.borrow_mut(), Duration::MAX)?.0)
}

fn to_its_end(command: &mut Command, longest: Duration) -> anyhow::Result<(String, String)> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = piped(command, Stdio::null())?;
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let status = wait(&mut child, longest)?;
    let text = |thread: JoinHandle<String>| thread.join().unwrap_or_default();
    let (stdout, stderr) = (text(stdout), text(stderr));
    // Some report errors on standard output, such as Python's venv.
    ensure!(
        status.success(),
        "{program} ended with {status}: {}",
        last_lines(&format!("{stdout}{stderr}"))
    );
    Ok((stdout, stderr))
}

/// Reads a pipe to its end in a thread of its own, so that the other one does not fill.
fn reader(pipe: Option<impl io::Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // If the pipe breaks, the caller judges what arrived before.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Starts `command` with pipes for what it writes.
///
/// # Errors
/// If it does not start.
pub fn piped(command: &mut Command, input: Stdio) -> anyhow::Result<Child> {
    command
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let started = command.spawn();
    started.with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))
}

/// A process that is asked line by line; killed if this value is dropped before its end.
pub struct Dialogue {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Dialogue {
    /// Starts `command` with pipes.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(command: &mut Command) -> anyhow::Result<Dialogue> {
        let mut child = piped(command, Stdio::piped())?;
        let output = BufReader::new(child.stdout.take().context("no standard output")?);
        let input = child.stdin.take();
        Ok(Dialogue {
            child,
            input,
            output,
        })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it writes.
    ///
    /// # Errors
    /// If it has ended.
    pub fn hear(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let bytes = self.output.read_line(&mut line)?;
        ensure!(bytes > 0, "the process ended early");
        Ok(line.trim_end_matches('\n').to_string())
    }

    /// Writes it a line.
    ///
    /// # Errors
    /// If it has ended.
    pub fn say(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("the process was dismissed")?;
        writeln!(input, "{line}").context("the process is gone")
    }

    /// Closes its standard input. Returns what else it writes until it ends, to its standard output
    /// and to its standard error.
    ///
    /// # Errors
    /// If a pipe cannot be read.
    pub fn dismiss(&mut self) -> anyhow::Result<(String, String)> {
        self.input = None;
        let (mut output, mut errors) = (String::new(), String::new());
        self.output.read_to_string(&mut output)?;
        if let Some(stderr) = &mut self.child.stderr {
            stderr.read_to_string(&mut errors)?;
        }
        Ok((output, errors))
    }

    /// Waits for its end; `errors` is what it wrote to its standard error.
    ///
    /// # Errors
    /// If it fails, or does not end.
    pub fn wait(&mut self, errors: &str) -> anyhow::Result<()> {
        let status = wait(&mut self.child, LONGEST)?;
        let last = last_lines(errors);
        ensure!(status.success(), "the process ended with {status}: {last}");
        Ok(())
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        // It has ended already unless an error occurred, which has been reported by then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many lines of an output tell why a program failed.
const LAST_LINES: usize = 5;

/// The last lines that are not empty, as one.
pub fn last_lines(told: &str) -> String {
    let lines = told.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join(" / ")
}

/// Waits for a child's end, and kills it after `longest`.
///
/// # Errors
/// If it had to be killed.
pub fn wait(child: &mut Child, longest: Duration) -> anyhow::Result<std::process::ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > longest {
            child.kill()?;
            child.wait()?;
            bail!("killed after {} s", longest.as_secs());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The command `neap` beside this program, or among the shipped files.
pub fn neap() -> Option<PathBuf> {
    let mut here = std::env::current_exe().ok()?;
    here.pop();
    let places = [here.join("../dist/neap"), here.join("neap")];
    places.into_iter().find(|place| place.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hung_child_is_killed_and_a_failing_one_is_told() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        assert!(wait(&mut child, Duration::from_millis(20)).is_err());
        let error = output(Command::new("sh").args(["-c", "echo boom >&2; exit 1"])).unwrap_err();
        assert!(error.to_string().contains("boom"), "{error}");
    }

    #[test]
    fn a_failing_command_tells_its_last_lines_of_both_kinds() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo one; echo; echo two >&2; exit 4"]);
        let error = finished(&mut shell).unwrap_err().to_string();
        assert!(
            error.contains("one / two") && error.contains('4'),
            "{error}"
        );
    }
}
