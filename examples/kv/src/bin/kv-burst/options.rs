//! The command line.

use clap::Parser;
use std::path::PathBuf;

/// Measures neap-kv beside redis-server: resident memory around a burst of connections, and
/// requests per second.
#[derive(Debug, Parser)]
pub struct Options {
    /// Keys in the store before the burst
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: usize,
    /// Bytes of each value
    #[arg(long, default_value_t = 1_024)]
    pub value: usize,
    /// Connections of the burst; fewer if the limit on open files is lower
    #[arg(long, default_value_t = 20_000)]
    pub connections: usize,
    /// Rounds of the throughput; the servers alternate in each
    #[arg(long, default_value_t = 7)]
    pub rounds: u32,
    /// Requests per command, server and round; ten times as many with pipelining
    #[arg(long, default_value_t = 100_000)]
    pub requests: usize,
    /// The server (default: the one beside this program)
    #[arg(long)]
    pub server: Option<PathBuf>,
    /// Where to write the record, as DATE-kv.csv
    #[arg(long)]
    pub record: Option<PathBuf>,
    /// A small run that shows that everything works; its figures mean nothing
    #[arg(long)]
    pub quick: bool,
}

impl Options {
    /// With `--quick`, small figures.
    pub fn shortened(mut self) -> Options {
        if self.quick {
            self.keys = self.keys.min(20_000);
            self.connections = self.connections.min(500);
            self.rounds = self.rounds.min(2);
            self.requests = self.requests.min(5_000);
        }
        self
    }
}
