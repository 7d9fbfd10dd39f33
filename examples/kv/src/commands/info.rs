//! `INFO`: the server, its clients, its memory and its keys, in figures.

use super::{Outcome, Session};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::server::Server;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

/// The version of redis whose commands and errors the server follows.
pub(super) const REDIS_VERSION: &str = "7.0.15";

/// Writes a section.
type Section = fn(&Server, &mut String);

const SECTIONS: [(&str, Section); 5] = [
    ("server", server),
    ("clients", clients),
    ("memory", memory),
    ("stats", stats),
    ("keyspace", keyspace),
];

pub(super) fn info(
    session: &mut Session<'_>,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Outcome {
    let wanted = |name: &str| {
        let asks = |word: &[u8]| {
            let word = word.to_ascii_lowercase();
            word == name.as_bytes() || [&b"all"[..], b"default", b"everything"].contains(&&*word)
        };
        arguments.len() == 1 || arguments.from(1).any(asks)
    };
    let mut text = String::new();
    for (name, section) in SECTIONS.iter().filter(|section| wanted(section.0)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let title = name[..1].to_uppercase() + &name[1..];
        line(&mut text, format_args!("# {title}"));
        section(session.server, &mut text);
    }
    reply.bulk(text.as_bytes());
    Ok(())
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    let _ = write!(text, "{line}\r\n");
}

fn figures<const N: usize>(text: &mut String, figures: [(&str, u64); N]) {
    for (name, figure) in figures {
        line(text, format_args!("{name}:{figure}"));
    }
}

fn server(server: &Server, text: &mut String) {
    line(text, format_args!("redis_version:{REDIS_VERSION}"));
    line(
        text,
        format_args!("neap_kv_version:{}", env!("CARGO_PKG_VERSION")),
    );
    line(text, format_args!("redis_mode:standalone"));
    figures(
        text,
        [
            ("process_id", u64::from(std::process::id())),
            ("tcp_port", u64::from(server.port)),
            ("threads", u64::from(server.options.threads)),
            ("uptime_in_seconds", server.uptime()),
        ],
    );
}

fn clients(server: &Server, text: &mut String) {
    figures(
        text,
        [
            ("connected_clients", server.clients.load(Relaxed) as u64),
            ("maxclients", u64::from(server.options.maxclients)),
            ("buffered_bytes", server.buffered.load(Relaxed) as u64),
            (
                "max_requests_per_client",
                u64::from(server.options.max_requests),
            ),
        ],
    );
}

/// `used_memory` is the memory that Neap has allocated. Names that begin with `neap_` and `stacks_`
/// are Neap's own; see the documentation of `neap::stats::Snapshot` and of
/// `neap::stack::StackFigures`.
fn memory(server: &Server, text: &mut String) {
    let (store, heap) = (server.store().bytes(), neap::stats::snapshot());
    figures(
        text,
        [
            ("used_memory", heap.live),
            ("used_memory_rss", heap.resident),
            ("used_memory_peak_rss", heap.peak_resident),
            ("used_memory_dataset", store as u64),
            ("maxmemory", server.options.maxmemory.0 as u64),
            ("neap_committed", heap.committed),
            ("neap_magazines", heap.magazines),
            ("neap_slab_free", heap.slab_free),
            ("neap_free_spans", heap.free_spans),
            ("neap_free_dirty", heap.free_dirty),
            ("neap_metadata", heap.metadata),
            ("neap_purged_bytes", heap.purged_bytes),
        ],
    );
    stacks(server, text);
}

fn stacks(server: &Server, text: &mut String) {
    let stacks = neap::stack::figures();
    figures(
        text,
        [
            ("stacks_used", stacks.used),
            ("stacks_idle", stacks.parked),
            ("stacks_created", stacks.created),
            ("stacks_recycled", stacks.recycled),
            ("stacks_address", stacks.address),
            ("stacks_page_tables", stacks.page_tables),
            (
                "stacks_trimmed_bytes",
                server.stats.trimmed_bytes.load(Relaxed),
            ),
        ],
    );
    if server.options.measure_depth {
        figures(
            text,
            [("stacks_deepest", server.depth.load(Relaxed) as u64)],
        );
    }
}

fn stats(server: &Server, text: &mut String) {
    let counts = server.store().counts();
    let stats = &server.stats;
    figures(
        text,
        [
            (
                "total_connections_received",
                stats.connections.load(Relaxed),
            ),
            ("total_commands_processed", stats.requests.load(Relaxed)),
            ("rejected_connections", stats.rejected.load(Relaxed)),
            ("protocol_errors", stats.protocol_errors.load(Relaxed)),
            ("expired_keys", counts.expired),
            ("keyspace_hits", counts.hits),
            ("keyspace_misses", counts.misses),
        ],
    );
}

fn keyspace(server: &Server, text: &mut String) {
    let store = server.store();
    if !store.is_empty() {
        let (keys, timed) = (store.len(), store.timed());
        line(
            text,
            format_args!("db0:keys={keys},expires={timed},avg_ttl=0"),
        );
    }
}
