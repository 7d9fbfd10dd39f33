//! Commands that are run to their end.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// A run that takes longer counts as hung.
pub const LONGEST: Duration = Duration::from_secs(180);

/// The file that the shell would run for `name`.
pub fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
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
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = piped(command)?;
    let reader = |stream: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // If the pipe breaks, the caller judges what arrived before.
            let _ = stream.map(|mut s| s.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let stdout = reader(child.stdout.take().map(|s| Box::new(s) as _));
    let stderr = reader(child.stderr.take().map(|s| Box::new(s) as _));
    let status = wait(&mut child, LONGEST)?;
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    let (stdout, stderr) = (text(stdout), text(stderr));
    if !status.success() {
        let last = stderr
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("");
        bail!("{program} ended with {status}: {last}");
    }
    Ok((stdout, stderr))
}

/// Starts `command` with nothing to read, and with pipes for what it writes.
///
/// # Errors
/// If it does not start.
pub fn piped(command: &mut Command) -> anyhow::Result<Child> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let started = command.spawn();
    started.with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))
}

/// Runs `command` to its end, however long it takes, and returns its standard output.
///
/// # Errors
/// If it fails; the error contains its last lines.
pub fn finished(mut command: impl std::borrow::BorrowMut<Command>) -> anyhow::Result<String> {
    let command = command.borrow_mut();
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    // Some report errors on standard output, such as Python's venv.
    let told = text(&output.stdout) + &text(&output.stderr);
    let lines: Vec<&str> = told
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let tail = lines[lines.len().saturating_sub(5)..].join(" / ");
    bail!("{program} ended with {}: {tail}", output.status)
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
        std::thread::sleep(Duration::from_millis(5));
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
