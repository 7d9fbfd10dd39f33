//! A run's two programs: the subject, and its driver.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::command::last_lines;

/// A running program.
pub struct Party {
    /// Its part in the run.
    pub role: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    /// How it ended, and what it and its descendants used.
    end: Option<(ExitStatus, libc::rusage)>,
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

/// How much of a standard error is kept: enough for a report with its stack traces.
const TAIL: usize = 64 << 10;

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
            end: None,
            tail,
        })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.end.is_none() {
            self.end = reaped(&self.child);
        }
        self.end.map(|(status, _)| status)
    }

    /// What it and its descendants used, once it has ended.
    pub fn usage(&self) -> Option<&libc::rusage> {
        self.end.as_ref().map(|(_, usage)| usage)
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

    /// The end of its standard error so far; the reader may be behind by [`BEHIND`].
    pub fn errors(&self) -> String {
        std::thread::sleep(BEHIND);
        let tail = self.tail.lock().map(|tail| tail.clone());
        String::from_utf8_lossy(&tail.unwrap_or_default()).into_owned()
    }

    /// The last lines of its standard error.
    pub fn last_words(&self) -> String {
        last_lines(&self.errors())
    }
}

/// How a child has ended and what it and its descendants used, if it has ended and nothing else
/// has waited for it.
pub fn reaped(child: &Child) -> Option<(ExitStatus, libc::rusage)> {
    // SAFETY: all-zero is a valid value of this plain structure.
    let (mut usage, mut status) = (unsafe { std::mem::zeroed() }, 0);
    let id = child.id() as i32;
    // SAFETY: the call fills in both.
    let ended = unsafe { libc::wait4(id, &raw mut status, libc::WNOHANG, &raw mut usage) };
    (ended == id).then(|| (ExitStatus::from_raw(status), usage))
}

/// Both.
pub struct Parties {
    pub subject: Party,
    pub driver: Option<Party>,
    /// What is heard of the driver, or of the subject if there is none.
    pub heard: Receiver<Heard>,
}

/// Why a run has no result.
#[derive(Debug, PartialEq)]
pub struct Failure {
    /// In a few words, for the table.
    pub what: String,
    /// What the program said.
    pub said: String,
}

impl std::error::Error for Failure {}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Failure { what, said } = self;
        match said.as_str() {
            "" => out.write_str(what),
            said => write!(out, "{what}: {said}"),
        }
    }
}

/// For the end of a program whose input is closed, and for one that was asked to end.
const LONGEST_END: Duration = Duration::from_secs(60);
/// The readers of the standard errors may be behind by this.
const BEHIND: Duration = Duration::from_millis(50);

impl Parties {
    /// Starts both.
    ///
    /// # Errors
    /// If one does not start.
    pub fn start(subject: Command, driver: Option<Command>) -> anyhow::Result<Parties> {
        let (ear, heard) = mpsc::channel();
        let (own, of_driver) = match driver {
            Some(_) => (None, Some(ear)),
            None => (Some(ear), None),
        };
        let subject = Party::start("subject", subject, own)?;
        let start = |mut command: Command| {
            command.env("CASE_SUBJECT", subject.id().to_string());
            Party::start("driver", command, of_driver)
        };
        let driver = driver.map(start).transpose()?;
        Ok(Parties {
            subject,
            driver,
            heard,
        })
    }

    /// Fails if one has ended.
    ///
    /// # Errors
    /// If so.
    pub fn ensure_running(&mut self) -> Result<(), Failure> {
        let parties = [Some(&mut self.subject), self.driver.as_mut()];
        let early = |party: &mut Party| Some((party.role, party.ended()?));
        let found = parties.into_iter().flatten().find_map(early);
        found.map_or(Ok(()), |(role, end)| {
            Err(self.failed(format!("{role} ended early: {}", in_words(end))))
        })
    }

    /// The driving program has closed its standard output too early.
    pub fn silent(&mut self) -> Failure {
        let party = self.driver.as_mut().unwrap_or(&mut self.subject);
        let what = match party.wait(LONGEST_GRACE).map(in_words) {
            Some(status) => format!("{} ended early: {status}", party.role),
            None => format!("{} closed its output early", party.role),
        };
        self.failed(what)
    }

    /// What happened, with the programs' last words.
    pub fn failed(&self, what: String) -> Failure {
        let parties = [Some(&self.subject), self.driver.as_ref()];
        let words = parties.into_iter().flatten().map(|party| {
            let words = party.last_words();
            (!words.is_empty()).then(|| format!("{}: {words}", party.role))
        });
        let said = words.flatten().collect::<Vec<_>>().join(" / ");
        Failure { what, said }
    }

    /// Lets the programs end.
    ///
    /// # Errors
    /// If one does not end, or not in order.
    pub fn finish(&mut self) -> Result<(), Failure> {
        let end = self.end(LONGEST_GRACE)?;
        let is_good = match self.driver {
            Some(_) => is_orderly(end),
            None => end.success(),
        };
        self.ensure_good("subject", (end, is_good))
    }

    /// Lets the programs end: the driver first, if there is one. The subject then has `grace` from
    /// the end of its input until it is asked to. Returns how the subject ended.
    ///
    /// # Errors
    /// If one does not end, or the driver fails.
    pub fn end(&mut self, grace: Duration) -> Result<ExitStatus, Failure> {
        if let Some(driver) = &mut self.driver {
            driver.dismiss();
            let end = driver.wait(LONGEST_END);
            let end = end.ok_or_else(|| self.failed("driver does not end".into()))?;
            self.ensure_good("driver", (end, end.success()))?;
        }
        self.subject.dismiss();
        if self.driver.is_some() && self.subject.wait(grace).is_none() {
            self.subject.terminate();
        }
        let end = self.subject.wait(LONGEST_END);
        end.ok_or_else(|| self.failed("subject does not end".into()))
    }

    fn ensure_good(&self, role: &str, (end, is_good): (ExitStatus, bool)) -> Result<(), Failure> {
        if is_good {
            return Ok(());
        }
        Err(self.failed(format!("{role} ended badly: {}", in_words(end))))
    }
}

/// From the end of a subject's input until it is asked to end.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// How a program ended, in words.
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".into(),
    }
}

/// Whether a program that was asked to end did so in order, whatever its code.
fn is_orderly(status: ExitStatus) -> bool {
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
