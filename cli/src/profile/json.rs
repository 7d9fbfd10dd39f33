//! The profile as JSON.

use super::model::{Extent, Figures, Frame, Mapping, Profile, Stack, Switched};
use serde_json::{Value, json};
use std::sync::Arc;

/// One object, in bytes, objects, and milliseconds since 1970.
pub fn json(profile: &Profile) -> Value {
    json!({
        "pid": profile.pid,
        "program": profile.program,
        "rate": profile.rate,
        "began_ms": profile.began_ms,
        "ended_ms": profile.ended_ms,
        "session": session(profile.extent),
        "switched": profile.switched.map(switched),
        "total": figures(&profile.total()),
        "stacks": profile.stacks.iter().map(stack).collect::<Vec<_>>(),
        "mappings": profile.mappings.iter().map(mapping).collect::<Vec<_>>(),
    })
}

/// `null`: the figures cover everything sampled.
fn session(extent: Extent) -> Value {
    match extent {
        Extent::Whole => Value::Null,
        Extent::Session { shrunk } => json!({ "live": "growth", "shrunk_space": shrunk }),
    }
}

fn switched(switched: Switched) -> Value {
    json!({ "rate": switched.rate, "after_ms": switched.after_ms })
}

fn stack(stack: &Stack) -> Value {
    let mut object = figures(&stack.figures);
    object["frames"] = stack.frames.iter().map(frame).collect();
    object
}

fn figures(figures: &Figures) -> Value {
    json!({
        "alloc_objects": figures.alloc_objects,
        "alloc_space": figures.alloc_bytes,
        "live_objects": figures.live_objects,
        "live_space": figures.live_bytes,
        "live_usable": figures.live_usable,
        "waste": figures.waste(),
    })
}

fn frame(frame: &Arc<Frame>) -> Value {
    json!({
        "function": frame.function,
        "file": frame.file,
        "line": frame.line,
        "module": frame.module,
        "address": frame.address,
        "inlined": frame.inlined,
    })
}

fn mapping(mapping: &Mapping) -> Value {
    json!({
        "start": mapping.start,
        "end": mapping.end,
        "offset": mapping.offset,
        "path": mapping.path,
        "build_id": mapping.build_id,
    })
}
