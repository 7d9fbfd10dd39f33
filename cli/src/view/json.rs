//! A process at one moment, as one JSON object. Bytes unless a name says otherwise; the names are
//! those of `neap run --stats --format json`.

use super::View;
use crate::choice::Choice;
use neap_shared::ledger::Ledger;
use neap_shared::stats::{Json, Snapshot, SpanFigures, USE_NAMES};
use neap_shared::status_page::Coarse;
use serde_json::{Map, Value, json};

/// The object.
pub fn object(view: &View) -> Value {
    json!({
        "pid": view.pid,
        "program": view.program,
        "state": view.state.word(),
        "age_ms": view.age_ms(),
        "kernel": {
            "arenas_resident": view.kernel.of_arenas(view.kernel.arenas_rss),
            "arenas_swapped": view.kernel.of_arenas(view.kernel.arenas_swap),
            "process_resident": view.kernel.process_rss,
            "process_swapped": view.kernel.process_swap,
            "not_ours": view.kernel.of_arenas(view.kernel.foreign_rss()),
        },
        "ledger": view.figures.as_ref().map(|figures| ledger(&figures.ledger)),
        "figures": view.figures.as_ref().map(figures),
        "guards": view.guarded().json(),
        "page_heap": view.coarse.as_ref().map(page_heap),
    })
}

/// The ledger's lines and their sum.
pub fn lines(ledger: &Ledger) -> Map<String, Value> {
    let lines = ledger.lines();
    let lines = lines.iter().map(|line| (line.name, line.bytes));
    lines
        .chain([("resident", ledger.resident)])
        .map(|(name, bytes)| (name.to_owned(), json!(bytes)))
        .collect()
}

fn ledger(ledger: &Ledger) -> Value {
    let mut object = lines(ledger);
    let requested_by = match ledger.requested_by {
        1 => "samples",
        2 => "counts",
        _ => "guess",
    };
    object.insert("swapped_free".into(), json!(ledger.swapped_free));
    object.insert("requested_by".into(), json!(requested_by));
    object.insert("asked_kernel".into(), json!(ledger.asked_kernel != 0));
    Value::Object(object)
}

/// What the library writes at a process's end ([`Json`]), and more. The ledger stands apart.
fn figures(figures: &Snapshot) -> Value {
    let text = format!("{{{}}}", Json(figures));
    let mut object: Map<_, _> = serde_json::from_str(&text).expect("the library writes JSON");
    object.remove("ledger");
    let stacks = &figures.stacks;
    let stacks = json!({
        "used": stacks.used,
        "idle": stacks.idle,
        "free": stacks.free,
        "created": stacks.created,
        "recycled": stacks.recycled,
        "address": stacks.address,
        "page_tables": stacks.page_tables,
    });
    let more = [
        ("at_ms", json!(figures.at_ms)),
        ("cost_ns", json!(figures.cost_ns)),
        ("minor_faults", json!(figures.minor_faults)),
        ("major_faults", json!(figures.major_faults)),
        ("stacks", stacks),
    ];
    object.extend(more.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(object)
}

fn spans(spans: &[SpanFigures]) -> Value {
    let figures = spans.iter();
    let figures = figures.map(|one| json!({"spans": one.spans, "slices": one.slices}));
    USE_NAMES.into_iter().zip(figures).collect()
}

fn page_heap(coarse: &Coarse) -> Value {
    json!({
        "spans": spans(&coarse.spans),
        "large": coarse.large_bytes,
        "free_spans": coarse.free,
        "free_dirty": coarse.free_dirty,
        "tables": coarse.tables,
        "committed": coarse.committed,
        "reserved": coarse.reserved,
        "purges": coarse.purges,
        "purged": coarse.purged_bytes,
    })
}
