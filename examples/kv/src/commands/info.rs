//! `INFO`: the server, its clients, its memory and its keys, in figures.

use super::refusal::Outcome;
use super::session::Session;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::server::Server;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

/// The version of redis whose commands and errors the server follows.
const REDIS_VERSION: &str = "7.0.15";

/// Writes a section.
type Section = fn(&Server, &mut String);

const SECTIONS: [(&str, Section); 4] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Stats", stats),
];

pub(super) fn info(
    session: &mut Session<'_>,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Outcome {
    let wanted = |name: &str| {
        let asks = |word: &[u8]| word.eq_ignore_ascii_case(name.as_bytes());
        arguments.len() == 1 || arguments.from(1).any(asks)
    };
    let mut text = String::new();
    for (name, section) in SECTIONS.iter().filter(|section| wanted(section.0)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        // Writing into a string cannot fail.
        let _ = write!(text, "# {name}\r\n");
        section(session.server, &mut text);
    }
    reply.bulk(text.as_bytes());
    Ok(())
}

fn figures<const N: usize>(text: &mut String, figures: [(&str, u64); N]) {
    for (name, figure) in figures {
        let _ = write!(text, "{name}:{figure}\r\n");
    }
}

fn server(server: &Server, text: &mut String) {
    let version = env!("CARGO_PKG_VERSION");
    let _ = write!(
        text,
        "redis_version:{REDIS_VERSION}\r\nneap_kv_version:{version}\r\n"
    );
    let all = [
        ("process_id", u64::from(std::process::id())),
        ("tcp_port", u64::from(server.port)),
        ("uptime_in_seconds", server.uptime()),
    ];
    figures(text, all);
}

fn clients(server: &Server, text: &mut String) {
    let all = [
        ("connected_clients", server.clients.load(Relaxed) as u64),
        ("maxclients", u64::from(server.options.maxclients)),
        ("buffered_bytes", server.buffered.load(Relaxed) as u64),
    ];
    figures(text, all);
}

/// `used_memory` is the memory that Neap has allocated. Names that begin with `neap_` and `stacks_`
/// are Neap's own; see the documentation of `neap::stats::Snapshot` and of
/// `neap::stack::StackFigures`.
fn memory(server: &Server, text: &mut String) {
    let version = env!("CARGO_PKG_VERSION");
    let _ = write!(text, "mem_allocator:neap-{version}\r\n");
    let (heap, stacks) = (neap::stats::snapshot(), neap::stack::figures());
    let all = [
        ("used_memory", heap.live),
        ("used_memory_rss", heap.resident),
        ("used_memory_peak_rss", heap.peak_resident),
        ("used_memory_dataset", server.store().bytes() as u64),
        ("maxmemory", server.options.maxmemory as u64),
        ("neap_committed", heap.committed),
        ("neap_free_dirty", heap.free_dirty),
        ("neap_purged_bytes", heap.purged_bytes),
        ("stacks_used", stacks.used),
        ("stacks_idle", stacks.idle),
        (
            "stacks_trimmed_bytes",
            server.stats.trimmed_bytes.load(Relaxed),
        ),
    ];
    figures(text, all);
}

fn stats(server: &Server, text: &mut String) {
    let (stats, (hits, misses)) = (&server.stats, server.store().reads());
    let all = [
        (
            "total_connections_received",
            stats.connections.load(Relaxed),
        ),
        ("total_commands_processed", stats.requests.load(Relaxed)),
        ("rejected_connections", stats.rejected.load(Relaxed)),
        ("protocol_errors", stats.protocol_errors.load(Relaxed)),
        ("keyspace_hits", hits),
        ("keyspace_misses", misses),
    ];
    figures(text, all);
}
