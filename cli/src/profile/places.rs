//! The call tree, the functions by their share, and the places with the most live memory, as text.

use super::calls::{Grouping, Node, Place, Share, Tree, functions, places};
use super::model::{Extent, Frame, Profile, Value, base};
use super::summary::{amount, described, live, percent, phrase, rounding, sentence, summary};
use neap_shared::stats::ending;
use std::cmp::Reverse;
use std::fmt::Write;

/// Calls below this part of the whole are left out of the tree.
const LEAST_PART: u64 = 200;
/// Functions in each list.
const TOP: usize = 15;
/// A line's prefixes by depth, which help the eye to follow a column.
const MARKS: [&str; 8] = ["+ ", "  ", "! ", "  ", ": ", "  ", "| ", "  "];

/// The summary, the tree, and the functions by their allocations.
pub fn tree(profile: &Profile, value: Value) -> String {
    let mut text = summary(profile, value);
    let tree = Tree::of(profile, value);
    if tree.nodes[0].total > 0 {
        text += &calls(&tree, value, phrase(profile, value));
        text += &tops(profile, value);
    }
    text
}

fn calls(tree: &Tree<'_>, value: Value, phrase: &str) -> String {
    let whole = tree.nodes[0].total;
    let mut text = format!("\nCalls by {phrase}\n");
    let mut left_out = 0;
    let mut open: Vec<(usize, usize)> = vec![(0, 0)];
    while let Some((at, depth)) = open.pop() {
        let node = &tree.nodes[at];
        if node.total < whole / LEAST_PART {
            left_out += 1;
            continue;
        }
        line(&mut text, node, depth, whole, value);
        let children = node.children.iter().rev();
        open.extend(children.map(|&child| (child, depth + 1)));
    }
    if left_out > 0 {
        let (calls, part) = (ending(left_out, "s"), percent(1, LEAST_PART));
        let _ = writeln!(
            text,
            "  ({left_out} call{calls} with less than {part} left out)"
        );
    }
    text
}

fn line(text: &mut String, node: &Node<'_>, depth: usize, whole: u64, value: Value) {
    text.push_str("  ");
    for level in 1..depth {
        text.push_str(MARKS[(level - 1) % MARKS.len()]);
    }
    let (amount, part) = (amount(value, node.total), percent(node.total, whole));
    let who = node.frame.map_or("all".to_owned(), |frame| {
        let line = node.line;
        described(&Frame {
            line,
            ..frame.clone()
        })
    });
    let _ = writeln!(text, "{amount}  {part}  {who}");
}

fn tops(profile: &Profile, value: Value) -> String {
    type Part = fn(&Share) -> u64;
    const ORDERS: [(&str, Part); 2] = [
        ("By what a function allocates itself", |share| share.flat),
        ("By what a function and those it calls allocate", |share| {
            share.cumulative
        }),
    ];
    let whole = value.of(&profile.total());
    let mut all = functions(profile, value);
    let mut text = String::new();
    for (title, by) in ORDERS {
        // By name as well, so that the same profile gives the same text.
        let rest = |share: Share| (Reverse(share.flat), Reverse(share.cumulative));
        all.sort_by_key(|&(name, share)| (Reverse(by(&share)), rest(share), name));
        let _ = writeln!(
            text,
            "\n{title}\n  {:>10} {:>8}  {:>10} {:>8}  function",
            "flat", "", "cumulative", ""
        );
        for ((function, module), share) in all.iter().filter(|(_, share)| by(share) > 0).take(TOP) {
            let place = match base(module) {
                "" => String::new(),
                name => format!(" (in {name})"),
            };
            let _ = writeln!(
                text,
                "  {:>10} {:>8}  {:>10} {:>8}  {function}{place}",
                amount(value, share.flat),
                percent(share.flat, whole),
                amount(value, share.cumulative),
                percent(share.cumulative, whole),
            );
        }
    }
    text
}

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
    text += &sentence(profile, &places[0]).unwrap_or_default();
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

fn one(text: &mut String, place: &Place<'_>, extent: Extent, value: Value, whole: u64) {
    let figures = &place.figures;
    let what = match value {
        Value::Waste => rounding(figures, extent),
        _ => live(figures),
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
