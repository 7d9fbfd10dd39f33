//! `kv-burst`: the cost of a burst of connections in `neap-kv` and redis-server, and their
//! throughput.
//!
//! One command of less than five minutes that prints a table and writes a dated record.

mod burst;
mod options;
mod peer;
mod record;
mod throughput;

use clap::Parser as _;
use options::Options;
use record::Record;

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
