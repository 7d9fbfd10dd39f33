//! `neap-kv`: an in-memory key-value store that speaks the Redis protocol.

use anyhow::Context as _;
use clap::Parser as _;
use neap_kv::options::Options;
use neap_kv::{limits, stack, worker};
use std::io::Write as _;

#[global_allocator]
static ALLOCATOR: neap::Neap = neap::Neap;

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    limits::allow(options.maxclients)?;
    stack::prepare(&options)?;
    // Unused memory goes back to the kernel even while the server is idle.
    neap::purge::enable_thread();
    let ended = worker::run(options, |address| {
        // The process that started the server may have closed its output.
        let _ = writeln!(std::io::stdout(), "neap-kv: ready at {address}");
    });
    ended
        .context("the server ended")
        .map(|never| match never {})
}
