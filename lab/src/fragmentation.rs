//! The cost of holes between blocks: resident memory after each step of one pattern.

use std::process::Command;
use std::time::Duration;

use crate::figures::{Figure, Results};
use crate::peers::Ready;
use crate::run;

/// What to run.
pub struct Plan {
    /// The allocators.
    pub peers: Vec<Ready>,
    /// The number of rounds.
    pub rounds: u32,
    /// The number of small blocks.
    pub blocks: usize,
    /// How long the process sleeps after the frees.
    pub sleep: Duration,
    /// Seeds everything random in the pattern; the same for all.
    pub seed: u64,
}

/// The name of the only case in the record.
pub const CASE: &str = "fragmentation";

/// The worker's key, and the figure's name.
const STEPS: [(&str, &str); 8] = [
    ("start", "resident before"),
    ("filled", "resident with all small blocks"),
    ("freed", "resident when 90 % are freed"),
    ("live", "asked for and live then"),
    ("slept", "resident after the sleep"),
    ("filled again", "resident with the larger blocks"),
    ("live again", "asked for and live at the end"),
    ("peak", "resident at the peak"),
];

/// Runs the pattern under every peer, one process after the other.
pub fn carry_out(plan: &Plan, advance: impl Fn()) -> Results {
    let mut results = Results::default();
    for round in 0..plan.rounds {
        for peer in &plan.peers {
            results.note((CASE, peer.name, round), once(plan, peer));
            advance();
        }
    }
    results
}

/// One process under one peer.
///
/// # Errors
/// If it fails, or used another malloc.
pub fn once(plan: &Plan, peer: &Ready) -> anyhow::Result<Vec<Figure>> {
    let numbers = [plan.blocks as u64, plan.sleep.as_millis() as u64, plan.seed];
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["worker", "fragmentation"]);
    command.args(numbers.map(|number| number.to_string()));
    let report = run::output(command.env("LD_PRELOAD", &peer.library))?;
    run::ensure_heap(&report, &peer.library)?;
    let figure = |(key, name): (&str, &str)| {
        let value: f64 = run::needed(&report, key)?.parse()?;
        Ok(Figure::bytes(name, value))
    };
    STEPS.into_iter().map(figure).collect()
}
