//! The profile as JSON.

use super::model::{Extent, Figures, Profile, Stack};
use serde_json::{Value, json};

/// One object, in bytes, objects, and milliseconds since 1970.
pub fn json(profile: &Profile) -> Value {
    json!({
        "pid": profile.pid,
        "program": profile.program,
        "rate": profile.rate,
        "began_ms": profile.began_ms,
        "ended_ms": profile.ended_ms,
        "session": session(profile.extent),
        "switched": profile.switched,
        "total": figures(&profile.total()),
        "stacks": profile.stacks.iter().map(stack).collect::<Vec<_>>(),
        "mappings": profile.mappings,
    })
}

/// `null`: the figures cover everything sampled.
fn session(extent: Extent) -> Value {
    match extent {
        Extent::Whole => Value::Null,
        Extent::Session { shrunk } => json!({ "live": "growth", "shrunk_space": shrunk }),
    }
}

fn stack(stack: &Stack) -> Value {
    let mut object = figures(&stack.figures);
    object["frames"] = stack.frames.iter().map(|frame| json!(**frame)).collect();
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
