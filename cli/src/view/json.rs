//! A process at one moment, as one JSON object. Bytes unless a name says otherwise; the names are
//! those of `neap run --stats --format json`.

use super::{View, live, used};
use neap_shared::ledger::Ledger;
use neap_shared::stats::{ClassFigures, Snapshot, SpanFigures, USE_NAMES};
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

fn figures(figures: &Snapshot) -> Value {
    let lines = figures.lines();
    let mut object: Map<String, Value> = lines
        .iter()
        .map(|(name, bytes, _)| ((*name).to_owned(), json!(bytes)))
        .collect();
    let more = json!({
        "at_ms": figures.at_ms,
        "cost_ns": figures.cost_ns,
        "minor_faults": figures.minor_faults,
        "major_faults": figures.major_faults,
        "purges": figures.purges,
        "questions": figures.questions,
        "unanswered": figures.unanswered,
        "refused": figures.refused,
        "threads": figures.threads,
        "stacks": {
            "used": figures.stacks.used,
            "idle": figures.stacks.idle,
            "free": figures.stacks.free,
            "created": figures.stacks.created,
            "recycled": figures.stacks.recycled,
            "address": figures.stacks.address,
            "page_tables": figures.stacks.page_tables,
        },
        "calls": calls(figures),
        "spans": spans(&figures.spans),
        "classes": classes(figures),
    });
    if let Value::Object(more) = more {
        object.extend(more);
    }
    Value::Object(object)
}

fn calls(figures: &Snapshot) -> Value {
    let counted = &figures.counted;
    match counted.known {
        0 => Value::Null,
        _ => json!({
            "allocations": counted.allocations,
            "frees": counted.frees,
            "requested": counted.requested,
        }),
    }
}

fn spans(spans: &[SpanFigures]) -> Value {
    let entry = |(name, figure): (&&str, &SpanFigures)| {
        let figure = json!({"spans": figure.spans, "slices": figure.slices});
        ((*name).to_owned(), figure)
    };
    Value::Object(USE_NAMES.iter().zip(spans).map(entry).collect())
}

fn classes(figures: &Snapshot) -> Value {
    let entry = |class: &ClassFigures| {
        json!({
            "bytes": class.bytes,
            "slabs": class.slabs,
            "blocks": class.blocks,
            "free": class.free,
            "cached": class.cached,
            "live": live(class),
            "refills": class.refills,
            "flushes": class.flushes,
        })
    };
    used(figures).map(entry).collect()
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
