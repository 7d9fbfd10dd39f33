//! A profile as one line per stack, outermost call first, which flame graph programs read; as a
//! flame graph; and as JSON.

use super::model::{Extent, Figures, Profile, Stack, Value};
use super::summary::amount;
use crate::choice::Choice;
use crate::failure::Failure;
use inferno::flamegraph::{self as drawing, Options};
use serde_json::json;
use std::collections::BTreeMap;

/// `main;make;grow 123`, one line per stack with this value. Sorted; equal stacks share a line.
pub fn collapsed(profile: &Profile, value: Value) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in &profile.stacks {
        let amount = value.of(&stack.figures);
        if amount > 0 {
            let sum = lines.entry(line(stack)).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    let text = (lines.iter()).map(|(stack, amount)| format!("{stack} {amount}\n"));
    text.collect()
}

fn line(stack: &Stack) -> String {
    let names = stack.frames.iter().rev();
    let names: Vec<String> = names
        .map(|frame| frame.function.replace(';', ":"))
        .collect();
    if names.is_empty() {
        "(unknown)".to_owned()
    } else {
        names.join(";")
    }
}

/// The flame graph as SVG with an embedded script: it opens in a browser, offline.
///
/// # Errors
/// All of this value's figures are 0.
pub fn flamegraph(profile: &Profile, value: Value) -> Result<String, Failure> {
    let text = collapsed(profile, value);
    if text.is_empty() {
        return Err(failure!(
            "there is nothing to draw: the profile has no {}; choose another --value",
            value.word()
        ));
    }
    let mut svg = Vec::new();
    drawing::from_lines(&mut options(profile, value), text.lines(), &mut svg)
        .map_err(|error| failure!("the flame graph cannot be drawn: {error}"))?;
    Ok(String::from_utf8_lossy(&svg).into_owned())
}

fn options(profile: &Profile, value: Value) -> Options<'static> {
    let total = amount(value, value.of(&profile.total()));
    let mut options = Options::default();
    options.title = format!("{} {}: {total}", profile.program, value.word());
    options.count_name = match value {
        Value::LiveObjects | Value::AllocObjects => "objects".to_owned(),
        Value::LiveSpace | Value::AllocSpace | Value::Waste => "bytes".to_owned(),
    };
    options.deterministic = true;
    options
}

/// One object, in bytes, objects, and milliseconds since 1970.
pub fn json(profile: &Profile) -> serde_json::Value {
    json!({
        "pid": profile.pid,
        "program": profile.program,
        "rate": profile.rate,
        "began_ms": profile.began_ms,
        "ended_ms": profile.ended_ms,
        // `null`: the figures cover everything sampled.
        "session": match profile.extent {
            Extent::Whole => None,
            Extent::Session { shrunk } => Some(json!({"live": "growth", "shrunk_space": shrunk})),
        },
        "switched": profile.switched,
        "total": figures(&profile.total()),
        "stacks": profile.stacks.iter().map(stack).collect::<Vec<_>>(),
        "mappings": profile.mappings,
    })
}

fn stack(stack: &Stack) -> serde_json::Value {
    let mut object = figures(&stack.figures);
    object["frames"] = stack.frames.iter().map(|frame| json!(**frame)).collect();
    object
}

fn figures(figures: &Figures) -> serde_json::Value {
    json!({
        "alloc_objects": figures.alloc_objects,
        "alloc_space": figures.alloc_bytes,
        "live_objects": figures.live_objects,
        "live_space": figures.live_bytes,
        "live_usable": figures.live_usable,
        "waste": figures.waste(),
    })
}
