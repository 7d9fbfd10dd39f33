//! `neap-kv`: an in-memory key-value store that speaks the Redis protocol.

use anyhow::Context as _;
use clap::Parser as _;
use neap_kv::options::Options;
use neap_kv::server::Server;
use neap_kv::{limits, stack};
use std::io::Write as _;

#[global_allocator]
static ALLOCATOR: neap::Neap = neap::Neap;

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    limits::allow(options.maxclients, options.threads)?;
    stack::prepare(&options)?;
    // Unused memory goes back to the kernel even while the server is idle.
    neap::purge::enable_thread();
    Server::run(options, |address| {
        // The process that started the server may have closed its output.
        let _ = writeln!(std::io::stdout(), "neap-kv: ready at {address}");
    })
    .context("the server ended")
}
