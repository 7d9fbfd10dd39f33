//! One run: a server under `neap run`, and its client, which sends one request after another.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use neap_shared::status_page;

use super::programs::{Program, Report};
use crate::cases::case::Work;
use crate::cases::party::{Heard, Parties, in_words};
use crate::cases::tree;
use crate::{command, status};

/// For a client to send its requests.
const LONGEST_LOAD: Duration = Duration::from_secs(600);

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
        let status = service.parties.end(Duration::ZERO)?;
        let server = &service.parties.subject;
        Ok(Outcome {
            answers,
            time,
            report: Report::find(&server.errors()),
            end: format!("{} {}", in_words(status), server.last_words()),
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
            let id = service.parties.subject.id();
            command::output(Command::new(&self.command).args(["stat", &id.to_string()]))?;
            let count = guardable(id, PAGE_BYTES)?;
            service.parties.end(Duration::ZERO)?;
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
    parties: Parties,
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
        let run = [&neap.to_string_lossy(), "run", option, "--"].map(str::to_string);
        let mut server = home.command(&[&run[..], &case.subject].concat(), Some(&work))?;
        let planted = if extension == Extension::Planted {
            "1"
        } else {
            "0"
        };
        server.env("PLANTED", planted);
        let client = home.driver(case, &work)?.map(|mut client| {
            client.env("REQUESTS", requests.to_string());
            client.envs(program.variables());
            client
        });
        tree::adopt_orphans();
        Ok(Service {
            _end: tree::EndAll,
            parties: Parties::start(server, client)?,
            _work: work,
        })
    }

    /// How many requests were answered, and how long that took.
    fn load(&mut self) -> anyhow::Result<(u64, Duration)> {
        let (mut answers, mut seconds) = (None, None::<f64>);
        while answers.is_none() || seconds.is_none() {
            let Ok(Heard::Line(_, line)) = self.parties.heard.recv_timeout(LONGEST_LOAD) else {
                bail!(self.parties.failed("the client failed".into()));
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
}

/// The allocations of a process in the counting mode that could have been guarded: those of at most
/// a page. Its status page has their number as of the last answer to `neap stat`.
///
/// # Errors
/// If the process shows no status page, or is not in the counting mode.
pub fn guardable(process: u32, page_bytes: usize) -> anyhow::Result<u64> {
    let page = status::open(&process.to_string(), status_page::NAME);
    let page = page.context("it shows no status page: it is not under Neap")?;
    status::ensure_words(&page, status_page::MAGIC, status_page::VERSION)?;
    let sizes = status::sizes(&page)?.into_iter();
    let small = sizes.take(page_bytes / status_page::SIZE_STEP + 1);
    let count = small.map(|size| size.count).sum();
    ensure!(count > 0, "it does not count its allocations");
    Ok(count)
}
