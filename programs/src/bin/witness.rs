//! `witness REPORT LIBRARY preload|watch -- PROGRAM ARGS…`
//!
//! Runs a program, follows every process that it starts by ptrace, and appends a line to REPORT at
//! the end of each one (see [`neap_programs::witness`]). With `preload` the program runs under
//! LIBRARY, with `watch` it does not. The witness ends with the program's status when the last
//! process has ended. If the witness is killed, the kernel kills all of them.

use neap_programs::witness::{Presence, Process};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

type Pid = libc::pid_t;

const OPTIONS: i32 = libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_EXITKILL;

fn main() -> ExitCode {
    match watch() {
        Ok(status) if libc::WIFEXITED(status) => ExitCode::from(libc::WEXITSTATUS(status) as u8),
        Ok(status) => ExitCode::from(128 + libc::WTERMSIG(status) as u8),
        Err(error) => {
            eprintln!("witness: {error}");
            ExitCode::from(126)
        }
    }
}

fn watch() -> io::Result<i32> {
    let mut arguments = std::env::args_os().skip(1);
    let mut next = || {
        arguments
            .next()
            .ok_or(io::Error::other("too few arguments"))
    };
    let (report, library, mode, _dashes) = (next()?, next()?, next()?, next()?);
    let mut command = Command::new(next()?);
    command.args(arguments);
    if mode == "preload" {
        command.env("LD_PRELOAD", &library);
    }
    end_with_parent()?;
    let mut witness = Witness {
        report: OpenOptions::new().create(true).append(true).open(report)?,
        library: library
            .into_string()
            .map_err(|_| io::Error::other("a library's odd name"))?,
        root: start(command)?,
    };
    witness.follow()
}

/// So that a test that ends leaves no processes behind.
fn end_with_parent() -> io::Result<()> {
    // SAFETY: the call takes a number and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } as i64).map(drop)
}

/// Starts the program with this process as its tracer from the first instruction on.
fn start(mut command: Command) -> io::Result<Pid> {
    let (mut released, mut release) = io::pipe()?;
    // SAFETY: this process has one thread, so the child may run any code.
    let child = check(unsafe { libc::fork() } as i64)? as Pid;
    if child == 0 {
        drop(release);
        let error = match released.read_exact(&mut [0]) {
            Ok(()) => command.exec(),
            Err(error) => error,
        };
        eprintln!("witness: {:?}: {error}", command.get_program());
        std::process::exit(127);
    }
    ptrace(libc::PTRACE_SEIZE, child, OPTIONS as usize)?;
    release.write_all(&[0])?;
    Ok(child)
}

struct Witness {
    report: File,
    library: String,
    root: Pid,
}

impl Witness {
    /// Resumes all processes until the last one has ended; returns the program's status.
    fn follow(&mut self) -> io::Result<i32> {
        let mut root_status = 0;
        while let Some((pid, status)) = wait()? {
            if libc::WIFSTOPPED(status) {
                self.stopped(pid, status)?;
            } else if pid == self.root {
                root_status = status;
            }
        }
        Ok(root_status)
    }

    fn stopped(&mut self, pid: Pid, status: i32) -> io::Result<()> {
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            libc::PTRACE_EVENT_EXIT => {
                self.note(pid)?;
                resume(libc::PTRACE_CONT, pid, 0)
            }
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => {
                resume(libc::PTRACE_LISTEN, pid, 0)
            }
            0 => resume(libc::PTRACE_CONT, pid, signal),
            _ => resume(libc::PTRACE_CONT, pid, 0),
        }
    }

    /// Writes down a process at its end. Threads that end are ignored.
    fn note(&mut self, pid: Pid) -> io::Result<()> {
        if !leads_its_process(pid)? {
            return Ok(());
        }
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let file = fs::read_link(format!("/proc/{pid}/exe"))?;
        let process = Process {
            presence: Presence::from_maps(&maps, &self.library),
            status: exit_status(pid)?,
            file: file.display().to_string(),
        };
        self.report.write_all(process.to_line().as_bytes())
    }
}

fn leads_its_process(pid: Pid) -> io::Result<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(status.lines().any(|line| line == format!("Tgid:\t{pid}")))
}

fn exit_status(pid: Pid) -> io::Result<i32> {
    let mut message: libc::c_ulong = 0;
    let place = (&raw mut message) as usize;
    ptrace(libc::PTRACE_GETEVENTMSG, pid, place)?;
    Ok(message as i32)
}

/// The next event of any followed process; `None` after the last has ended.
fn wait() -> io::Result<Option<(Pid, i32)>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is writable for the call.
        let waited = check(unsafe { libc::waitpid(-1, &mut status, libc::__WALL) } as i64);
        match waited {
            Ok(pid) => return Ok(Some((pid as Pid, status))),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Resumes a stopped process. It may have been killed in the meantime.
fn resume(how: libc::c_uint, pid: Pid, signal: i32) -> io::Result<()> {
    match ptrace(how, pid, signal as usize) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other,
    }
}

fn ptrace(request: libc::c_uint, pid: Pid, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests used reads `addr`; `data` is a number, or for
    // GETEVENTMSG the address of a `c_ulong` that lives across the call.
    check(unsafe { libc::ptrace(request, pid, 0_usize, data) }).map(drop)
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
