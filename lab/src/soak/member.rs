//! One program of the load, with its driver: from its start to its end.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::views::Sample;
use crate::cases::case::Case;
use crate::cases::case::{Home, Work};
use crate::cases::party::{Heard, Party, in_words, is_orderly};
use crate::cases::tree;
use crate::machine;

/// For a program to get ready, to answer again, and to end.
const LONGEST_START: Duration = Duration::from_secs(120);
const LONGEST_SILENCE: Duration = Duration::from_secs(90);
const LONGEST_END: Duration = Duration::from_secs(60);

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
    subject: Party,
    driver: Option<Party>,
    heard: Receiver<Heard>,
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
        variables: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> anyhow::Result<Member> {
        let work = Work::new()?;
        let (ear, heard) = mpsc::channel();
        let mut command = home.command(&case.subject, Some(&work))?;
        command.env("LD_PRELOAD", library).envs(variables);
        for (name, value) in &case.env {
            command.env(name, home.filled(value, Some(&work)));
        }
        let driven = !case.driver.is_empty();
        let subject = Party::start("subject", command, (!driven).then(|| ear.clone()))?;
        let driver = match driven {
            true => {
                let command: Command = home.command(&case.driver, Some(&work))?;
                Some(Party::start("driver", command, Some(ear))?)
            }
            false => None,
        };
        Ok(Member {
            name: case.name.clone(),
            samples: Vec::new(),
            answers: 0,
            guarded: None,
            answered: Instant::now(),
            is_ready: false,
            subject,
            driver,
            heard,
            _work: work,
        })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.subject.id()
    }

    /// Waits until it is under load. Its programs have mapped `library` by then, unless they have
    /// Neap inside.
    ///
    /// # Errors
    /// If that takes too long, or a program has ended.
    pub fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        while !self.is_ready {
            ensure!(
                start.elapsed() < LONGEST_START,
                "{}",
                self.told("it does not get ready")
            );
            self.listen()?;
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
        let told = format!("it has not answered for {} s", silent.as_secs());
        ensure!(silent < LONGEST_SILENCE, "{}", self.told(&told));
        let bytes = machine::resident_kib(&self.id().to_string())? * 1_024;
        self.samples.push(Sample { at, bytes });
        Ok(())
    }

    fn listen(&mut self) -> anyhow::Result<()> {
        loop {
            match self.heard.try_recv() {
                Ok(Heard::Line(at, line)) => self.hear(at, line.trim()),
                Err(TryRecvError::Empty) => break,
                Ok(Heard::Closed) | Err(TryRecvError::Disconnected) => {
                    // Its last words may be behind.
                    std::thread::sleep(Duration::from_millis(100));
                    bail!("{}", self.told("it ended early"));
                }
            }
        }
        let ended = self.subject.ended().map(in_words);
        ensure!(
            ended.is_none(),
            "{}",
            self.told(&format!("it ended early: {}", ended.unwrap_or_default()))
        );
        Ok(())
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

    /// What happened, with the last words of its programs.
    fn told(&self, what: &str) -> String {
        let words = [Some(&self.subject), self.driver.as_ref()];
        let words = words.into_iter().flatten().map(Party::last_words);
        let words: Vec<String> = words.filter(|words| !words.is_empty()).collect();
        match words.is_empty() {
            true => what.to_string(),
            false => format!("{what}: {}", words.join(" / ")),
        }
    }

    /// Ends it: the driver first, or the program itself if it has none.
    ///
    /// # Errors
    /// If a program does not end, or not in order.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        let first = self.driver.as_mut().unwrap_or(&mut self.subject);
        first.dismiss();
        let status = first.wait(LONGEST_END);
        let status = status.with_context(|| self.told("it does not end"))?;
        ensure!(
            status.success(),
            "{}",
            self.told(&format!("it ended badly: {}", in_words(status)))
        );
        if self.driver.is_some() {
            self.subject.terminate();
            let status = self.subject.wait(LONGEST_END);
            let status = status.with_context(|| self.told("it does not end when asked to"))?;
            ensure!(
                is_orderly(status),
                "{}",
                self.told(&format!("it ended badly: {}", in_words(status)))
            );
        }
        Ok(())
    }
}
