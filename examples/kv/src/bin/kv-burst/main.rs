//! `kv-burst`: the cost of a burst of connections in `neap-kv` and redis-server, and their
//! throughput.
//!
//! One command of less than five minutes that prints a table and writes a dated record.

mod burst;
mod peer;
mod record;
mod throughput;

use clap::Parser;
use record::Record;
use std::path::PathBuf;

/// Measures neap-kv beside redis-server: resident memory around a burst of connections, and
/// requests per second.
#[derive(Debug, Parser)]
struct Options {
    /// Keys in the store before the burst
    #[arg(long, default_value_t = 1_000_000)]
    keys: usize,
    /// Bytes of each value
    #[arg(long, default_value_t = 1_024)]
    value: usize,
    /// Connections of the burst; fewer if the limit on open files is lower
    #[arg(long, default_value_t = 20_000)]
    connections: usize,
    /// Rounds of the throughput; the servers alternate in each
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Requests per command, server and round; ten times as many with pipelining
    #[arg(long, default_value_t = 100_000)]
    requests: usize,
    /// The server (default: the one beside this program)
    #[arg(long)]
    server: Option<PathBuf>,
    /// Where to write the record, as DATE-kv.csv
    #[arg(long)]
    record: Option<PathBuf>,
    /// A small run that shows that everything works; its figures mean nothing
    #[arg(long)]
    quick: bool,
}

impl Options {
    fn shortened(mut self) -> Options {
        if self.quick {
            self.keys = self.keys.min(20_000);
            self.connections = self.connections.min(500);
            self.rounds = self.rounds.min(2);
            self.requests = self.requests.min(5_000);
        }
        self
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse().shortened();
    let peers = peer::Peer::both(options.server.clone())?;
    let mut record = Record::new(&peers, &options)?;
    burst::measure(&peers, &options, &mut record)?;
    throughput::measure(&peers, &options, &mut record)?;
    print!("{}", record.tables());
    if let Some(folder) = &options.record {
        println!("written: {}", record.write(folder)?.display());
    }
    Ok(())
}
