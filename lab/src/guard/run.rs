//! One run: a server under `neap run`, and its client, which sends one request after another.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use neap_shared::status_page::{self, SizeFigure};

use super::programs::{Program, Report};
use crate::cases::case::Work;
use crate::cases::party::{Heard, Party, in_words};
use crate::cases::tree;
use crate::{command, status};

/// For a client to send its requests, and for a server to end.
const LONGEST_LOAD: Duration = Duration::from_secs(600);
const LONGEST_END: Duration = Duration::from_secs(60);

/// Whether the extension makes its wrong access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    Planted,
    Sound,
}

/// What came of a run.
pub struct Outcome {
    /// How many requests got the right answer.
    pub answers: u64,
    /// How long all of them took.
    pub time: Duration,
    /// What Neap reported.
    pub report: Option<Report>,
    /// How the server ended, and the end of what it wrote to standard error.
    pub end: String,
}

/// The command `neap`.
pub struct Neap {
    pub command: PathBuf,
}

impl Neap {
    /// Runs a server with guarded samples at the rate `interval`.
    ///
    /// # Errors
    /// If a program does not start or end, or the client says that an answer is wrong.
    pub fn guarded(
        &self,
        program: &Program,
        (extension, interval): (Extension, &str),
        requests: u64,
    ) -> anyhow::Result<Outcome> {
        let guard = format!("--guard={interval}");
        let mut service = Service::start(&self.command, program, (extension, &guard), requests)?;
        let (answers, time) = service.load()?;
        let (status, errors) = service.end()?;
        let from = errors.len().saturating_sub(300);
        Ok(Outcome {
            answers,
            time,
            report: Report::find(&errors),
            end: format!(
                "{} {}",
                in_words(status),
                errors.get(from..).unwrap_or_default()
            ),
        })
    }

    /// How many of the allocations of a request can be guarded: the mean over `requests`, after as
    /// many others.
    ///
    /// # Errors
    /// If a run fails.
    pub fn candidates(&self, program: &Program, requests: u64) -> anyhow::Result<f64> {
        let count = |requests| {
            let sound = (Extension::Sound, "--count");
            let mut service = Service::start(&self.command, program, sound, requests)?;
            let (answers, _) = service.load()?;
            ensure!(answers == requests, "it answered {answers} of {requests}");
            let id = service.server.id();
            command::output(
                std::process::Command::new(&self.command).args(["stat", &id.to_string()]),
            )?;
            let count = guardable(id, PAGE_BYTES)?;
            service.end()?;
            Ok::<u64, anyhow::Error>(count)
        };
        let (few, many) = (count(requests)?, count(2 * requests)?);
        Ok(many.saturating_sub(few) as f64 / requests as f64)
    }
}

/// The largest block that is guarded.
const PAGE_BYTES: usize = 4096;

/// A running server with its client.
struct Service {
    server: Child,
    client: Party,
    heard: Receiver<Heard>,
    errors: PathBuf,
    /// Nothing of a run is left behind, whatever becomes of it.
    _end: tree::EndAll,
    _work: Work,
}

impl Service {
    fn start(
        neap: &Path,
        program: &Program,
        (extension, option): (Extension, &str),
        requests: u64,
    ) -> anyhow::Result<Service> {
        let work = Work::new()?;
        let (case, home) = (&program.case, &program.home);
        let words = [
            neap.to_string_lossy().into_owned(),
            "run".into(),
            option.into(),
            "--".into(),
        ];
        let words: Vec<String> = words
            .into_iter()
            .chain(case.subject.iter().cloned())
            .collect();
        let mut command = home.command(&words, Some(&work))?;
        let errors = PathBuf::from(home.filled("{work}/errors", Some(&work)));
        command
            .env(
                "PLANTED",
                if extension == Extension::Planted {
                    "1"
                } else {
                    "0"
                },
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&errors).with_context(|| format!("cannot make {errors:?}"))?);
        tree::adopt_orphans();
        let end = tree::EndAll;
        let server = command.spawn().context("cannot start the server")?;
        let mut command = home.command(&case.driver, Some(&work))?;
        command.env("REQUESTS", requests.to_string());
        command.envs(program.variables().iter().copied());
        let (ear, heard) = mpsc::channel();
        Ok(Service {
            server,
            client: Party::start("client", command, Some(ear))?,
            heard,
            errors,
            _end: end,
            _work: work,
        })
    }

    /// How many requests were answered, and how long that took.
    fn load(&mut self) -> anyhow::Result<(u64, Duration)> {
        let (mut answers, mut seconds) = (None, None::<f64>);
        while answers.is_none() || seconds.is_none() {
            let Ok(Heard::Line(_, line)) = self.heard.recv_timeout(LONGEST_LOAD) else {
                let words = self.client.last_words();
                let errors = fs::read_to_string(&self.errors).unwrap_or_default();
                anyhow::bail!("the client failed: {words} / {errors}");
            };
            match line.split_once(' ') {
                Some(("answers", number)) => answers = number.trim().parse().ok(),
                Some(("seconds", number)) => seconds = number.trim().parse().ok(),
                _ => {}
            }
        }
        let time = Duration::from_secs_f64(seconds.unwrap_or_default());
        Ok((answers.unwrap_or_default(), time))
    }

    /// Ends it. How it ended, and what it wrote to standard error.
    fn end(&mut self) -> anyhow::Result<(ExitStatus, String)> {
        self.client.dismiss();
        let status = self
            .client
            .wait(LONGEST_END)
            .context("the client does not end")?;
        ensure!(
            status.success(),
            "the client failed: {}",
            self.client.last_words()
        );
        if self.server.try_wait()?.is_none() {
            // SAFETY: the call takes numbers; the child was not waited for, so its number is its
            // own.
            unsafe { libc::kill(self.server.id() as i32, libc::SIGTERM) };
        }
        let status = command::wait(&mut self.server, LONGEST_END)?;
        let errors = fs::read(&self.errors)?;
        Ok((status, String::from_utf8_lossy(&errors).into_owned()))
    }
}

/// For a process to get its status page.
const LONGEST: Duration = Duration::from_secs(30);

/// The allocations of a process in the counting mode that could have been guarded: those of at most
/// a page. Its status page has their number as of the last answer to `neap stat`.
///
/// # Errors
/// If the process shows no status page, or is not in the counting mode.
pub fn guardable(process: u32, page_bytes: usize) -> anyhow::Result<u64> {
    let start = Instant::now();
    let file = loop {
        match status::open(&process.to_string(), status_page::NAME) {
            Some(file) => break file,
            None if start.elapsed() < LONGEST => std::thread::sleep(Duration::from_millis(10)),
            None => None.context("it shows no status page: it is not under Neap")?,
        }
    };
    status::ensure_words(&file, status_page::MAGIC, status_page::VERSION)?;
    let mut count = 0;
    for index in 0..=page_bytes / status_page::SIZE_STEP {
        let at = status_page::SIZES_AT + index * size_of::<SizeFigure>();
        count += status::read::<SizeFigure>(&file, at)?.count;
    }
    ensure!(count > 0, "it does not count its allocations");
    Ok(count)
}
