//! A program's test, as data.

use crate::Outcome;
use crate::bench::Bench;
use crate::ledger::Audit;
use crate::world::{Allocator, World};
use std::path::PathBuf;
use std::time::Duration;

/// Something that must be installed before a program's test can run.
pub struct Need {
    /// A command in `PATH`, or an absolute path whose parts may be `*`.
    pub command: &'static str,
    /// The Debian package that brings it.
    pub package: &'static str,
}

impl Need {
    /// Whether the command is there.
    pub fn is_met(&self) -> bool {
        find(self.command).is_some()
    }
}

/// One real program and the work it does.
pub struct Program {
    /// The test's name.
    pub name: &'static str,
    /// What must be installed.
    pub needs: &'static [Need],
    /// How long one world may take in the quick tier.
    pub limit: Duration,
    /// Does the work and returns what must be the same under every allocator.
    pub transcript: fn(&World) -> Outcome<String>,
}

impl Program {
    /// The packages to install before this test can run, in the order of the needs.
    pub fn missing(&self) -> Vec<&'static str> {
        let unmet = self.needs.iter().filter(|need| !need.is_met());
        unmet.map(|need| need.package).collect()
    }

    /// Runs the program in both worlds and compares the transcripts; gives what was seen of the ledgers.
    ///
    /// # Errors
    /// When a world fails, when the transcripts differ, or when a ledger is wrong.
    pub fn check(&self, bench: &Bench) -> Outcome<Audit> {
        let (reference, _) = self.run_in(bench, Allocator::System)?;
        let (observed, audit) = self.run_in(bench, Allocator::Library)?;
        if let Some(difference) = first_difference(&reference, &observed) {
            return Err(difference.into());
        }
        audit.judge(bench.tier)?;
        Ok(audit)
    }

    fn run_in(&self, bench: &Bench, allocator: Allocator) -> Outcome<(String, Audit)> {
        let world = World::open(bench, self.name, allocator, self.limit)?;
        let transcript = (self.transcript)(&world);
        let transcript = transcript.map_err(|e| format!("with {allocator}: {e}"))?;
        if transcript.is_empty() {
            return Err(format!("with {allocator}: an empty transcript compares nothing").into());
        }
        Ok((transcript, world.close()?))
    }
}

fn first_difference(reference: &str, observed: &str) -> Option<String> {
    if reference == observed {
        return None;
    }
    let pairs = reference.lines().zip(observed.lines());
    let same = pairs.take_while(|(a, b)| a == b).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(ends here)").to_owned();
    Some(format!(
        "the transcripts differ from line {}:\n  system:  {}\n  library: {}",
        same + 1,
        line(reference),
        line(observed)
    ))
}

/// The directories commands are looked for in: the distribution's first, so that a
/// version manager's shims do not stand in for them.
pub fn search_path() -> String {
    let users = std::env::var("PATH").unwrap_or_default();
    format!("/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:{users}")
}

/// Where a command is: `command` as in [`Need::command`]. Of several the last in the
/// order of names.
pub fn find(command: &str) -> Option<PathBuf> {
    match command.strip_prefix('/') {
        Some(pattern) => pattern
            .split('/')
            .fold(vec![PathBuf::from("/")], descend)
            .pop(),
        None => {
            let path = search_path();
            let mut places = path
                .split(':')
                .map(|place| PathBuf::from(place).join(command));
            places.find(|file| file.is_file())
        }
    }
}

/// What one part of a pattern matches in these places.
fn descend(places: Vec<PathBuf>, part: &str) -> Vec<PathBuf> {
    if part != "*" {
        let nexts = places.iter().map(|place| place.join(part));
        return nexts.filter(|next| next.exists()).collect();
    }
    let entries = places
        .iter()
        .filter_map(|place| std::fs::read_dir(place).ok());
    let mut found: Vec<_> = entries
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}
