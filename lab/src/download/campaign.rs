//! The cells in interleaved rounds.

use crate::peers::Ready;
use crate::rng::Rng;

use super::MB;
use super::cell::{self, Buffers, Cell, Sample, Terms};
use super::environment::Environment;
use super::server::Server;

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The chunk in MB.
    pub chunk_mb: u64,
    /// The allocator.
    pub peer: String,
    /// The receive buffers.
    pub buffers: Buffers,
    /// The round, from 0.
    pub round: u32,
    /// The result.
    pub sample: Sample,
}

/// What to run.
pub struct Plan {
    /// The terms that all cells share.
    pub terms: Terms,
    /// The chunks in MB.
    pub chunks_mb: Vec<u64>,
    /// The allocators.
    pub peers: Vec<Ready>,
    /// The receive buffers.
    pub buffers: Vec<Buffers>,
    /// The number of rounds.
    pub rounds: u32,
    /// Seeds the order within a round.
    pub seed: u64,
}

impl Plan {
    /// Number of clients in total.
    pub fn cells(&self) -> u64 {
        let of_a_round = self.chunks_mb.len() * self.peers.len() * self.buffers.len();
        of_a_round as u64 * u64::from(self.rounds)
    }
}

/// The results of a campaign.
#[derive(Default)]
pub struct Results {
    /// The measurements.
    pub runs: Vec<Run>,
    /// Cells that failed, each reported once.
    pub failures: Vec<String>,
}

/// Observes the campaign's progress.
pub trait Watch {
    /// Called when a client begins.
    fn begin(&self, what: &str);
    /// Called when it has ended.
    fn end(&self, result: &anyhow::Result<Sample>);
}

/// Carries out the plan.
///
/// # Errors
/// If the server does not start. A failed cell is a result.
pub fn carry_out(
    plan: &Plan,
    environment: &Environment,
    watch: &dyn Watch,
) -> anyhow::Result<Results> {
    let server = Server::start(environment, plan.terms.body / MB)?;
    let mut campaign = Campaign {
        plan,
        environment,
        server,
        watch,
        results: Results::default(),
    };
    let usable = campaign.usable_peers();
    let mut rng = Rng::new(plan.seed);
    for round in 0..plan.rounds {
        for &chunk_mb in &plan.chunks_mb {
            let mut cells = cells_of(&usable, &plan.buffers, chunk_mb);
            rng.shuffle(&mut cells);
            cells
                .iter()
                .for_each(|&cell| campaign.one_cell(cell, round));
        }
    }
    Ok(campaign.results)
}

/// Every peer with every kind of buffer.
fn cells_of<'a>(peers: &[&'a Ready], buffers: &[Buffers], chunk_mb: u64) -> Vec<Cell<'a>> {
    let of_peer = |&peer: &&'a Ready| {
        let cell = move |&buffers: &Buffers| Cell {
            peer,
            chunk_mb,
            buffers,
        };
        buffers.iter().map(cell)
    };
    peers.iter().flat_map(of_peer).collect()
}

struct Campaign<'a> {
    plan: &'a Plan,
    environment: &'a Environment,
    server: Server,
    watch: &'a dyn Watch,
    results: Results,
}

impl<'a> Campaign<'a> {
    /// The peers whose preload works in the client; the others become failures.
    fn usable_peers(&mut self) -> Vec<&'a Ready> {
        let mut usable = Vec::new();
        for peer in &self.plan.peers {
            match cell::ensure_preload_takes(self.environment, peer) {
                Ok(()) => usable.push(peer),
                Err(error) => self.fail(format!("{}: {error:#}", peer.name)),
            }
        }
        usable
    }

    fn one_cell(&mut self, cell: Cell, round: u32) {
        let Cell {
            peer,
            chunk_mb,
            buffers,
        } = cell;
        let what = format!("{chunk_mb} MB, {}, {}", peer.name, buffers.name());
        let (now, of) = (round + 1, self.plan.rounds);
        self.watch.begin(&format!("round {now} of {of}: {what}"));
        let result = cell::once(self.environment, &mut self.server, &self.plan.terms, cell);
        self.watch.end(&result);
        match result {
            Ok(sample) => self.results.runs.push(Run {
                chunk_mb,
                peer: peer.name.to_string(),
                buffers,
                round,
                sample,
            }),
            Err(error) => self.fail(format!("{what}: {error:#}")),
        }
    }

    fn fail(&mut self, failure: String) {
        if !self.results.failures.contains(&failure) {
            self.results.failures.push(failure);
        }
    }
}
