//! A program's test, as data.

use crate::bench::Bench;
use crate::installed::find;
use crate::ledger::Audit;
use crate::outcome::Outcome;
use crate::world::{Allocator, World};
use std::time::Duration;

/// A prerequisite of a program's test.
pub struct Need {
    /// A command in `PATH`, or an absolute path whose parts may be `*`.
    pub command: &'static str,
    /// The Debian package that contains it.
    pub package: &'static str,
}

impl Need {
    /// Whether the command is installed.
    pub fn is_met(&self) -> bool {
        find(self.command).is_some()
    }
}

/// One real program and the work it does.
pub struct Program {
    /// The test's name.
    pub name: &'static str,
    /// Its prerequisites.
    pub needs: &'static [Need],
    /// The time limit of one world in the quick tier.
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

    /// Runs the program in both worlds and compares the transcripts; returns the observations of
    /// the ledgers.
    ///
    /// # Errors
    /// If a world fails, the transcripts differ, or a ledger is wrong.
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
