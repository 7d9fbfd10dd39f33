//! Fabricated recordings and profiles, whose names try to inject code.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fmt::Write;

/// A name that would run as code if the page contained it unescaped.
pub const HOSTILE: &str =
    "<script>window.hacked=1</script><img src=x onerror=window.hacked=2>\"'`--></style></title>";

/// A profile: stacks, the outermost call first, with live objects, live bytes and wasted bytes.
pub type Stack<'a> = (&'a [&'a str], u64, u64, u64);

/// In pprof's format, uncompressed.
pub fn pprof(stacks: &[Stack]) -> Vec<u8> {
    let mut strings = vec![String::new()];
    let mut out = Vec::new();
    for (kind, unit) in [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
        ("waste_space", "bytes"),
    ] {
        let mut value = Vec::new();
        number(&mut value, 1, string(&mut strings, kind));
        number(&mut value, 2, string(&mut strings, unit));
        message(&mut out, 1, &value);
    }
    let mut functions: Vec<&str> = Vec::new();
    for (frames, objects, bytes, waste) in stacks {
        let mut sample = Vec::new();
        for frame in frames.iter().rev() {
            let known = functions.iter().position(|name| name == frame);
            let at = known.unwrap_or_else(|| {
                functions.push(frame);
                functions.len() - 1
            });
            number(&mut sample, 1, at as u64 + 1);
        }
        for value in [objects, bytes, objects, bytes, waste] {
            number(&mut sample, 2, *value);
        }
        message(&mut out, 2, &sample);
    }
    for (index, name) in functions.iter().enumerate() {
        let id = index as u64 + 1;
        let mut line = Vec::new();
        number(&mut line, 1, id);
        number(&mut line, 2, 10 + id);
        let mut location = Vec::new();
        number(&mut location, 1, id);
        message(&mut location, 4, &line);
        message(&mut out, 4, &location);
        let mut function = Vec::new();
        number(&mut function, 1, id);
        number(&mut function, 2, string(&mut strings, name));
        number(&mut function, 4, string(&mut strings, "/src/<b>main.c"));
        message(&mut out, 5, &function);
    }
    strings
        .iter()
        .for_each(|text| message(&mut out, 6, text.as_bytes()));
    let mut period = Vec::new();
    number(&mut period, 1, string(&mut strings, "space"));
    number(&mut out, 12, 512 << 10);
    out
}

fn string(strings: &mut Vec<String>, text: &str) -> u64 {
    strings.push(text.to_owned());
    strings.len() as u64 - 1
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn number(out: &mut Vec<u8>, tag: u64, value: u64) {
    varint(out, tag << 3);
    varint(out, value);
}

fn message(out: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    varint(out, tag << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A recording of a program that leaks, wastes memory, and has a hostile name.
pub fn recording() -> String {
    let mut lines = vec![head(), came()];
    for step in 0..100_u64 {
        lines.push(sample(step * 100, step));
        if step % 20 == 19 {
            lines.push(json!({"event": {"t_ms": step * 100, "pid": 77, "event": "purge", "bytes": 5 << 20}}));
        }
    }
    lines.push(classes());
    lines.push(json!({"sample": {"t_ms": 5000, "pid": 78, "rss": 1 << 20}}));
    lines.push(json!({"event": {"t_ms": 9950, "pid": 77, "event": "killed", "signal": 9}}));
    let stacks: [Stack; 3] = [
        (
            &["main", "serve", HOSTILE, "plant_leak"],
            40_000,
            40 << 20,
            1 << 20,
        ),
        (
            &["main", "serve", "plant_waste"],
            2_000_000,
            48_000_000,
            16_000_000,
        ),
        (&["main", "load"], 10, 4 << 20, 0),
    ];
    let base64 = STANDARD.encode(pprof(&stacks));
    lines.push(json!({"profile": {"pid": 77, "program": HOSTILE, "pprof": base64}}));
    text(&lines)
}

/// The lines of a recording as text.
pub fn text(lines: &[Value]) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        writeln!(text, "{line}").unwrap();
        text
    })
}

/// The first line.
pub fn head() -> Value {
    // In the order in which `neap` writes it: a recording is recognised by its first bytes.
    let head = json!({
        "format": "neap-recording", "version": 1, "written_by": "neap 0.1.0",
        "program": HOSTILE, "arguments": ["--name", HOSTILE], "pid": 77,
        "started_ms": 1_795_266_900_000_u64, "interval_ms": 100,
        "machine": {"kernel": "6.18.0", "cpus": 2, "memory": 24_u64 << 30, "page_bytes": 4096, "huge_pages": "madvise"},
        "options": {"NEAP_DECAY": HOSTILE},
    });
    json!({ "head": head })
}

fn came() -> Value {
    json!({"event": {"t_ms": 1, "pid": 77, "event": "came", "program": HOSTILE}})
}

/// A small heap, which grows with `step`.
pub fn sample(t_ms: u64, step: u64) -> Value {
    let kib = 1024 * (step + 1);
    let ledger = json!({
        "requested": 1000 * kib, "rounding": 300 * kib, "untouched": 200 * kib, "swapped": 0, "tails": kib,
        "slab_free": 40 * kib, "magazines": 20 * kib, "quarantine": 0, "free_dirty": 100 * kib * (step % 3),
        "huge_excess": 10 * kib, "stacks_used": 30 * kib, "stacks_idle": 10 * kib, "stacks_free": kib,
        "metadata": 12 * kib, "sampling": 5 * kib, "resident": 1229 * kib + 100 * kib * (step % 3),
        "requested_by": 1, "asked_kernel": 1, "swapped_free": 0,
    });
    let heap = json!({
        "age_ms": 0, "rss": 1500 * kib, "ledger": ledger, "minor_faults": 1000 * step, "major_faults": 1, "purges": step,
        "purged_bytes": step << 20, "zeroed": 1 << 20, "zero_spared": 5 << 20, "zero_purged": 0, "threads": 4,
        "large_bytes": 3 << 20, "large_blocks": 2, "committed": 2000 * kib,
        "stacks": {"used": 3, "idle": 1, "free": 9, "address": 1 << 20},
    });
    json!({"sample": {"t_ms": t_ms, "pid": 77, "rss": 1500 * kib, "heap": heap}})
}

fn classes() -> Value {
    let row = |bytes: u64| json!({"bytes": bytes, "slabs": 3, "live": 100_000 / bytes, "free": 1000 / bytes, "cached": 7});
    let rows: Vec<Value> = [16, 32, 48, 64, 1024].map(row).into();
    json!({"classes": {"t_ms": 9900, "pid": 77, "classes": rows}})
}
