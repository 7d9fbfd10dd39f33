//! One of a run's two programs: the subject, or its driver.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// A running program.
pub struct Party {
    /// Its part in the run.
    pub role: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    /// The end of its standard error.
    tail: Arc<Mutex<Vec<u8>>>,
}

/// What is heard of the one that drives a run.
pub enum Heard {
    /// A line of its standard output, and when it came.
    Line(Instant, String),
    /// It has closed its standard output.
    Closed,
}

/// How much of a standard error is kept.
const TAIL: usize = 4_096;

impl Party {
    /// Starts `command`. It dies with this process. Its standard output goes to `ear`, or is
    /// dropped.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(
        role: &'static str,
        mut command: Command,
        ear: Option<Sender<Heard>>,
    ) -> anyhow::Result<Party> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // SAFETY: between fork and exec, the closure makes one system call and does not allocate.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start the {role} {program}"))?;
        let tail = Arc::new(Mutex::new(Vec::new()));
        if let Some(errors) = child.stderr.take() {
            let tail = Arc::clone(&tail);
            std::thread::spawn(move || keep_tail(errors, &tail));
        }
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || listen(output, ear));
        }
        let input = child.stdin.take();
        Ok(Party {
            role,
            child,
            input,
            tail,
        })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Closes its standard input.
    pub fn dismiss(&mut self) {
        self.input = None;
    }

    /// Asks it to end.
    pub fn terminate(&mut self) {
        if self.ended().is_none() {
            // SAFETY: the call takes numbers; the child was not waited for, so its number is its
            // own.
            unsafe { libc::kill(self.id() as i32, libc::SIGTERM) };
        }
    }

    /// Waits for its end, but no longer than `longest`.
    pub fn wait(&mut self, longest: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            match self.ended() {
                None if start.elapsed() < longest => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                status => return status,
            }
        }
    }

    /// The last line of its standard error.
    pub fn last_words(&self) -> String {
        let tail = self
            .tail
            .lock()
            .map(|tail| tail.clone())
            .unwrap_or_default();
        let text = String::from_utf8_lossy(&tail);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines: Vec<&str> = lines.collect();
        lines[lines.len().saturating_sub(LINES)..].join(" / ")
    }
}

/// How many lines of a standard error are shown.
const LINES: usize = 4;

/// How a program ended, in words.
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".into(),
    }
}

/// Whether a program that was asked to end did so in order, whatever its code.
pub fn is_orderly(status: ExitStatus) -> bool {
    let orderly = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGKILL];
    status
        .signal()
        .is_none_or(|signal| orderly.contains(&signal))
}

/// Keeps the last bytes of a stream until it ends.
fn keep_tail(mut stream: impl Read, tail: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 1_024];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        let Ok(mut tail) = tail.lock() else { return };
        tail.extend(&bytes[..count]);
        let over = tail.len().saturating_sub(TAIL);
        tail.drain(..over);
    }
}

/// Passes on the lines of a stream until it ends.
fn listen(stream: impl Read, ear: Option<Sender<Heard>>) {
    for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
        if let Some(ear) = &ear {
            let text = String::from_utf8_lossy(&line).into_owned();
            // A run that is over does not listen any more.
            let _ = ear.send(Heard::Line(Instant::now(), text));
        }
    }
    if let Some(ear) = ear {
        let _ = ear.send(Heard::Closed);
    }
}
