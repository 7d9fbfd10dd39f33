//! Lists live memory by the place that allocated it.

use super::calls::{Grouping, Place, places};
use super::model::{Extent, Figures, Profile, Value};
use super::summary::{amount, apart, objects, percent, phrase, rounding, summary};
use super::tree::described;
use super::uncertainty;
use neap_shared::stats::{Bytes, ending};
use std::fmt::Write;

/// Most places printed.
const PLACES: usize = 20;
/// Most calls printed of each.
const CALLS: usize = 24;

/// The places with the most live memory (or live objects, or waste, depending on the value). The
/// reader decides whether one is a leak: it is if the program should hold nothing, as at its end,
/// or if it grows from one profile to the next.
pub fn leaks(profile: &Profile, value: Value) -> String {
    let places = places(profile, value, Grouping::Stack);
    let whole = value.of(&profile.total());
    let mut text = summary(profile, value);
    if places.is_empty() {
        return text;
    }
    text += &uncertainty::sentence(profile, &places[0]).unwrap_or_default();
    let shown = places.len().min(PLACES);
    let _ = writeln!(
        text,
        "\n{}, sorted by {}: {} place{}, {shown} shown",
        title(profile.extent),
        phrase(profile, value),
        places.len(),
        ending(places.len() as u64, "s")
    );
    for place in &places[..shown] {
        one(&mut text, place, profile.extent, value, whole);
    }
    text
}

fn title(extent: Extent) -> &'static str {
    match extent {
        Extent::Whole => "Still live",
        Extent::Session { .. } => "More live than before",
    }
}

fn contents(figures: &Figures, extent: Extent) -> String {
    let (bytes, count) = (figures.live_bytes, figures.live_objects);
    match extent {
        Extent::Whole => format!("{} in {}", Bytes(bytes), objects(count)),
        Extent::Session { .. } => apart(bytes, count),
    }
}

fn one(text: &mut String, place: &Place<'_>, extent: Extent, value: Value, whole: u64) {
    let figures = &place.figures;
    let what = match value {
        Value::Waste => rounding(figures, extent),
        _ => contents(figures, extent),
    };
    let part = value.of(figures);
    let _ = writeln!(
        text,
        "\n  {}, {}: {what}",
        amount(value, part),
        percent(part, whole)
    );
    for frame in place.frames.iter().take(CALLS) {
        let _ = writeln!(text, "      {}", described(frame));
    }
    if let Some(more @ 1..) = place.frames.len().checked_sub(CALLS) {
        let _ = writeln!(text, "      ({more} more)");
    }
}
