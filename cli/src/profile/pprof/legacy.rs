//! The text form of a heap profile, as Go writes it with `?debug=1`. pprof reads it as well.

use crate::profile::model::{Figures, Profile, Stack};
use std::fmt::Write;

/// The profile as text. Its name, unlike Go's, tells pprof that these are totals already.
pub fn legacy(profile: &Profile) -> String {
    let mut out = format!("heap profile: {} heapprofile\n", counts(&profile.total()));
    for stack in &profile.stacks {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}{}", counts(&stack.figures), addresses(stack));
        for frame in &stack.frames {
            let (address, function) = (frame.address, &frame.function);
            let _ = writeln!(
                out,
                "#\t{address:#x}\t{function}\t{}:{}",
                frame.file, frame.line
            );
        }
        out.push('\n');
    }
    out
}

fn counts(figures: &Figures) -> String {
    let Figures {
        live_objects,
        live_bytes,
        alloc_objects,
        alloc_bytes,
        ..
    } = figures;
    format!("{live_objects}: {live_bytes} [{alloc_objects}: {alloc_bytes}] @")
}

/// Inlined calls have the address of the call that contains them.
fn addresses(stack: &Stack) -> String {
    let calls = stack.frames.iter().filter(|frame| !frame.inlined);
    calls.map(|call| format!(" {:#x}", call.address)).collect()
}
