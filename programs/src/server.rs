//! A program that runs until it is told to stop.

use crate::outcome::Outcome;
use crate::witness::{self, Presence};
use crate::world::{World, assert_quiet, kill_group, lossy, report_of, tail};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};

/// A running server under its witness. Dropping it without [`Server::stop`] kills it.
pub struct Server<'w> {
    world: &'w World<'w>,
    witness: Option<Child>,
    report: PathBuf,
    log: PathBuf,
}

impl World<'_> {
    /// Starts a command as a server, which is killed at the latest when the guard is dropped.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn serve(&self, command: Command) -> Outcome<Server<'_>> {
        Server::start(self, command)
    }
}

impl<'w> Server<'w> {
    fn start(world: &'w World<'w>, mut command: Command) -> Outcome<Self> {
        let report = report_of(&command);
        let log = report.with_extension("log");
        let output = File::create(&log)?;
        command.stdout(output.try_clone()?).stderr(output);
        let witness = command.spawn()?;
        world.audit_under(witness.id());
        let witness = Some(witness);
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
    /// The server's log, and why it is not ready: it has ended, or the last failure before the
    /// world's deadline.
    pub fn ready<T>(&mut self, mut attempt: impl FnMut() -> Outcome<T>) -> Outcome<T> {
        let ready = self.world.until(|| match self.is_gone()? {
            true => Ok(Err("the server is gone".into())),
            false => attempt().map(Ok),
        });
        let explain = |e| format!("{e}; the server's log:\n{}", tail(&lossy(&self.log))).into();
        ready.and_then(|attempted| attempted).map_err(explain)
    }

    fn is_gone(&mut self) -> Outcome<bool> {
        let witness = self.witness.as_mut().ok_or("the server is stopped")?;
        Ok(witness.try_wait()?.is_some())
    }

    /// The PID of the server itself.
    ///
    /// # Errors
    /// If it has ended.
    pub fn pid(&self) -> Outcome<u32> {
        let witness = self.witness.as_ref().ok_or("the server is stopped")?.id();
        let own = children(witness)?.first().copied();
        own.ok_or_else(|| format!("the server is gone:\n{}", tail(&lossy(&self.log))).into())
    }

    /// The server's direct children.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn workers(&self) -> Outcome<Vec<u32>> {
        children(self.pid()?)
    }

    /// Checks through their maps that the server and its direct children, at least `workers`, run
    /// under this world's allocator.
    ///
    /// # Errors
    /// If one does not, or if there are fewer children.
    pub fn assert_identity(&self, workers: usize) -> Outcome<()> {
        let mut processes = self.workers()?;
        processes.push(self.pid()?);
        let mut seen = 0;
        for maps in processes.into_iter().filter_map(maps) {
            self.assert_one(&maps)?;
            seen += 1;
        }
        if seen <= workers {
            return Err(format!("{seen} processes are too few for {workers} workers").into());
        }
        Ok(())
    }

    fn assert_one(&self, maps: &str) -> Outcome<()> {
        let library = self.world.bench.library.to_string_lossy();
        let presence = Presence::from_maps(maps, &library);
        if presence != self.world.expected() {
            return Err(format!("a server's process: the library is {}", presence.word()).into());
        }
        Ok(())
    }

    /// Sends a signal to the server itself.
    ///
    /// # Errors
    /// If it has ended.
    pub fn signal(&self, signal: i32) -> Outcome<()> {
        // SAFETY: the call takes numbers; the witness keeps the process from being reaped.
        match unsafe { libc::kill(self.pid()? as libc::pid_t, signal) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    }

    /// Tells the server to stop, waits until all its processes have ended, and judges them.
    ///
    /// # Errors
    /// If it does not stop in time or with status 0, any of its processes crashed or did not run
    /// under this world's allocator, or the library printed a message.
    pub fn stop(mut self, signal: i32) -> Outcome<()> {
        self.signal(signal)?;
        let witness = self.witness.take().ok_or("the server is stopped")?;
        let status = self.world.wait(witness)?;
        let explain = |e: String| format!("{e}; the server's log:\n{}", tail(&lossy(&self.log)));
        let judged = witness::read(&self.report)
            .and_then(|processes| witness::judge(&processes, self.world.expected()))
            .and_then(|()| assert_quiet(&lossy(&self.log)));
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

/// A process's maps; `None` if it has ended or is a zombie.
fn maps(pid: u32) -> Option<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    (!maps.is_empty()).then_some(maps)
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

/// A process's parent; `None` if it has ended.
fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}
