//! A program that runs until it is told to stop.

use crate::Outcome;
use crate::witness::{self, Presence};
use crate::world::{World, kill_group, lossy, tail};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};

/// A running server under its witness. Dropped without [`Server::stop`], it is killed.
pub struct Server<'w> {
    world: &'w World<'w>,
    witness: Option<Child>,
    report: PathBuf,
    log: PathBuf,
}

impl<'w> Server<'w> {
    pub(crate) fn start(
        world: &'w World<'w>,
        mut command: Command,
        report: PathBuf,
    ) -> Outcome<Self> {
        let log = report.with_extension("log");
        let output = File::create(&log)?;
        command.stdout(output.try_clone()?).stderr(output);
        let witness = Some(command.spawn()?);
        Ok(Self {
            world,
            witness,
            report,
            log,
        })
    }

    /// Tries until the server is ready to serve.
    ///
    /// # Errors
    /// The last failure and the server's log, at the world's deadline.
    pub fn ready<T>(&self, attempt: impl FnMut() -> Outcome<T>) -> Outcome<T> {
        let ready = self.world.until(attempt);
        ready.map_err(|e| format!("{e}; the server's log:\n{}", tail(&lossy(&self.log))).into())
    }

    /// The server's own process.
    ///
    /// # Errors
    /// When it is gone.
    pub fn pid(&self) -> Outcome<u32> {
        let witness = self.witness.as_ref().ok_or("the server is stopped")?.id();
        let own = children(witness)?.first().copied();
        own.ok_or_else(|| format!("the server is gone:\n{}", tail(&lossy(&self.log))).into())
    }

    /// The server's direct children.
    ///
    /// # Errors
    /// When the server is gone.
    pub fn workers(&self) -> Outcome<Vec<u32>> {
        children(self.pid()?)
    }

    /// Asserts through their maps, now, that the server and its `workers` direct
    /// children or more run under this world's allocator.
    ///
    /// # Errors
    /// When one does not, or when there are fewer children.
    pub fn assert_identity(&self, workers: usize) -> Outcome<()> {
        let mut processes = self.workers()?;
        if processes.len() < workers {
            return Err(format!("{} workers, not {workers}", processes.len()).into());
        }
        processes.push(self.pid()?);
        processes
            .into_iter()
            .try_for_each(|pid| self.assert_one(pid))
    }

    fn assert_one(&self, pid: u32) -> Outcome<()> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let library = self.world.bench.library.to_string_lossy();
        let presence = Presence::from_maps(&maps, &library);
        if presence != self.world.expected() {
            return Err(format!("process {pid}: the library is {}", presence.word()).into());
        }
        Ok(())
    }

    /// Sends a signal to the server's own process.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: i32) -> Outcome<()> {
        // SAFETY: the call takes numbers; the witness keeps the process from being reaped.
        match unsafe { libc::kill(self.pid()? as libc::pid_t, signal) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    }

    /// Asks the server to stop, waits until all its processes ended, and judges them.
    ///
    /// # Errors
    /// When it does not stop in time or with status 0, when any of its processes
    /// crashed, or when one did not run under this world's allocator.
    pub fn stop(mut self, signal: i32) -> Outcome<()> {
        self.signal(signal)?;
        let witness = self.witness.take().ok_or("the server is stopped")?;
        let status = self.world.wait(witness)?;
        let explain = |e: String| format!("{e}; the server's log:\n{}", tail(&lossy(&self.log)));
        let judged = witness::read(&self.report)
            .and_then(|processes| witness::judge(&processes, self.world.expected()));
        judged.map_err(|e| explain(e.to_string()))?;
        if status.success() {
            Ok(())
        } else {
            Err(explain(status.to_string()).into())
        }
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if let Some(witness) = self.witness.as_mut() {
            kill_group(witness);
        }
    }
}

fn children(pid: u32) -> Outcome<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(candidate) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        if parent(candidate) == Some(pid) {
            found.push(candidate);
        }
    }
    Ok(found)
}

/// A process's parent; `None` when it is gone.
fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}
