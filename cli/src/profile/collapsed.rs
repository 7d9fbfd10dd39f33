//! One line per stack, outermost call first, in the format of flame graph programs; and the flame
//! graph.

use super::model::{Profile, Stack, Value};
use super::summary::amount;
use crate::failure::Failure;
use inferno::flamegraph::{self as drawing, Options};
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
    match names.is_empty() {
        true => "(unknown)".to_owned(),
        false => names.join(";"),
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
