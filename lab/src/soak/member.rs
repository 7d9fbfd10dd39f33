//! One program of the load, with its driver: from its start to its end.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::views::Sample;
use crate::cases::case::{Case, Home, Work};
use crate::cases::party::{Heard, Parties};
use crate::cases::tree;
use crate::machine;

/// For a program to get ready, and to answer again.
const LONGEST_START: Duration = Duration::from_secs(120);
const LONGEST_SILENCE: Duration = Duration::from_secs(90);

/// A running member.
pub struct Member {
    /// Its name in the record.
    pub name: String,
    /// Its memory so far.
    pub samples: Vec<Sample>,
    /// How many answers were checked, and right.
    pub answers: u64,
    /// How many of its blocks were guarded, if that was asked.
    pub guarded: Option<u64>,
    /// When that number was last another.
    answered: Instant,
    is_ready: bool,
    parties: Parties,
    _work: Work,
}

impl Member {
    /// Starts a member under `library` with these variables, unless its own say otherwise.
    ///
    /// # Errors
    /// If a program does not start.
    pub fn start(
        (case, home): (&Case, &Home),
        library: &Path,
        variables: Option<(&str, &str)>,
    ) -> anyhow::Result<Member> {
        let work = Work::new()?;
        let mut all = vec![("LD_PRELOAD", library.as_os_str())];
        all.extend(variables.map(|(name, value)| (name, OsStr::new(value))));
        let subject = home.subject(case, &work, &all)?;
        let parties = Parties::start(subject, home.driver(case, &work)?)?;
        Ok(Member {
            name: case.name.clone(),
            samples: Vec::new(),
            answers: 0,
            guarded: None,
            answered: Instant::now(),
            is_ready: false,
            parties,
            _work: work,
        })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.parties.subject.id()
    }

    /// Waits until it is under load. Its programs have mapped `library` by then, unless they have
    /// Neap inside.
    ///
    /// # Errors
    /// If that takes too long, or a program has ended.
    pub fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        while !self.is_ready {
            self.listen()?;
            if start.elapsed() > LONGEST_START {
                bail!(self.parties.failed("it does not get ready".into()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether its process has mapped `library`.
    pub fn has_mapped(&self, library: &Path) -> bool {
        let maps = tree::maps(self.id()).unwrap_or_default();
        tree::files(&maps).any(|file| Path::new(file) == library)
    }

    /// Adds a sample, and hears what its programs said.
    ///
    /// # Errors
    /// If a program has ended, gave a wrong answer, or no longer answers.
    pub fn look(&mut self, at: Duration) -> anyhow::Result<()> {
        self.listen()?;
        let silent = self.answered.elapsed();
        if silent > LONGEST_SILENCE {
            let told = format!("it has not answered for {} s", silent.as_secs());
            bail!(self.parties.failed(told));
        }
        let bytes = machine::resident_kib(&self.id().to_string())? * 1_024;
        self.samples.push(Sample { at, bytes });
        Ok(())
    }

    fn listen(&mut self) -> anyhow::Result<()> {
        loop {
            match self.parties.heard.try_recv() {
                Ok(Heard::Line(at, line)) => self.hear(at, line.trim()),
                Err(TryRecvError::Empty) => return Ok(self.parties.ensure_running()?),
                Ok(Heard::Closed) | Err(TryRecvError::Disconnected) => {
                    bail!(self.parties.silent());
                }
            }
        }
    }

    fn hear(&mut self, at: Instant, line: &str) {
        match line.split_once(' ') {
            None if line == "work" => (self.is_ready, self.answered) = (true, at),
            Some(("answers", number)) => {
                let answers = number.parse().unwrap_or(self.answers);
                if answers != self.answers {
                    (self.answers, self.answered) = (answers, at);
                }
            }
            _ => {}
        }
    }

    /// Ends it: the driver first, or the program itself if it has none.
    ///
    /// # Errors
    /// If a program does not end, or not in order.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        Ok(self.parties.finish()?)
    }
}
