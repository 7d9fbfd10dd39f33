//! A profile's call tree, as data for the page's script.

use crate::profile::{Extent, Figures, Frame, Profile, Stack};
use crate::report::sites::place;
use indexmap::IndexMap;
use serde::Serialize;
use std::path::Path;

/// A node's values, in the order of [`MEASURES`].
type Values = [u64; KINDS];
const KINDS: usize = 6;

/// Name, and unit.
type Measures = [(&'static str, &'static str); KINDS];

/// The selectable values.
const MEASURES: Measures = [
    ("live bytes", "bytes"),
    ("live objects", "objects"),
    ("all bytes allocated", "bytes"),
    ("all objects allocated", "objects"),
    ("bytes lost to rounding", "bytes"),
    ("live bytes when most was held", "bytes"),
];

/// The same for the profile of a session.
const OF_SESSION: Measures = [
    ("growth of live bytes", "bytes"),
    ("growth of live objects", "objects"),
    ("bytes allocated in that time", "bytes"),
    ("objects allocated in that time", "objects"),
    ("growth of bytes lost to rounding", "bytes"),
    ("live bytes when most was held", "bytes"),
];

/// A node below this part of the whole in every measure is left out, because it would be too small
/// to see or click.
const LEAST_PART: u64 = 2000;
/// Deepest call drawn: the page uses one row per call.
const DEEPEST: usize = 160;

/// The tree, and the names that its nodes share.
#[derive(Debug, Serialize)]
pub struct Flame {
    /// Each function and its location.
    names: Vec<[String; 2]>,
    /// [`MEASURES`].
    measures: Measures,
    /// The process.
    root: Node,
}

#[derive(Debug, Default, Serialize)]
struct Node {
    /// Index of its name.
    n: usize,
    /// Values.
    v: Values,
    /// Callees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    c: Vec<Node>,
}

impl Flame {
    /// The tree of `profile`, with `title` as its root, and with the live memory of `peak`, the
    /// profile of the peak.
    pub fn of(profile: &Profile, peak: Option<&Profile>, title: &str) -> Self {
        // No function has the root's key.
        let named = [title.to_owned(), String::new()];
        let mut names = Names::from([((String::new(), String::new()), named)]);
        let mut root = Node::default();
        for stack in &profile.stacks {
            root.put(stack, &values(&stack.figures), &mut names);
        }
        for stack in peak.iter().flat_map(|peak| &peak.stacks) {
            root.put(stack, &values_at_peak(&stack.figures), &mut names);
        }
        let least = root.v.map(|value| value / LEAST_PART);
        root.prune(&least);
        Self {
            names: names.into_values().collect(),
            measures: match profile.extent {
                Extent::Whole => MEASURES,
                Extent::Session { .. } => OF_SESSION,
            },
            root,
        }
    }
}

impl Node {
    fn put(&mut self, stack: &Stack, values: &Values, names: &mut Names) {
        let mut node = self;
        node.add(values);
        for frame in stack.frames.iter().rev().take(DEEPEST) {
            node = node.callee(index_of(names, frame));
            node.add(values);
        }
    }

    fn add(&mut self, values: &Values) {
        for (sum, value) in self.v.iter_mut().zip(values) {
            *sum = sum.saturating_add(*value);
        }
    }

    fn callee(&mut self, name: usize) -> &mut Node {
        let at = self.c.iter().position(|node| node.n == name);
        let at = at.unwrap_or_else(|| {
            self.c.push(Node {
                n: name,
                ..Node::default()
            });
            self.c.len() - 1
        });
        &mut self.c[at]
    }

    fn prune(&mut self, least: &Values) {
        self.c
            .retain(|node| node.v.iter().zip(least).any(|(value, least)| value > least));
        self.c
            .sort_by_key(|node| std::cmp::Reverse(node.v[0].max(node.v[2])));
        self.c.iter_mut().for_each(|node| node.prune(least));
    }
}

fn values(figures: &Figures) -> Values {
    [
        figures.live_bytes,
        figures.live_objects,
        figures.alloc_bytes,
        figures.alloc_objects,
        figures.waste(),
        0,
    ]
}

fn values_at_peak(figures: &Figures) -> Values {
    [0, 0, 0, 0, 0, figures.live_bytes]
}

/// Functions and their files, with the name and the location of each.
type Names = IndexMap<(String, String), [String; 2]>;

/// Calls of one function from several lines share a node.
fn index_of(names: &mut Names, frame: &Frame) -> usize {
    let file = Path::new(match frame.file.as_str() {
        "" => frame.module.as_str(),
        file => file,
    });
    let key = (frame.function.clone(), file.to_string_lossy().into_owned());
    let entry = names.entry(key);
    let index = entry.index();
    entry.or_insert_with(|| [frame.function.clone(), place(frame)]);
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn stack(functions: &[&str], bytes: u64) -> Stack {
        let frame = |name: &&str| {
            Arc::new(Frame {
                function: (*name).to_owned(),
                ..Frame::default()
            })
        };
        Stack {
            frames: functions.iter().rev().map(frame).collect(),
            figures: Figures {
                live_bytes: bytes,
                ..Figures::default()
            },
        }
    }

    fn tree(stacks: Vec<Stack>) -> Flame {
        let profile = Profile {
            stacks,
            ..Profile::default()
        };
        Flame::of(&profile, None, "all")
    }

    #[test]
    fn stacks_share_their_beginnings() {
        let flame = tree(vec![
            stack(&["main", "a"], 3000),
            stack(&["main", "b"], 5000),
            stack(&["main"], 1000),
            stack(&["main", "speck"], 1),
        ]);
        let main = &flame.root.c[0];
        assert_eq!((flame.root.v[0], main.v[0]), (9001, 9001));
        let callees: Vec<_> = main
            .c
            .iter()
            .map(|node| (flame.names[node.n][0].as_str(), node.v[0]))
            .collect();
        assert_eq!(callees, [("b", 5000), ("a", 3000)]);
    }

    #[test]
    fn endless_recursion_is_cut() {
        let flame = tree(vec![stack(&["again"; 10_000], 1000)]);
        assert!(serde_json::to_string(&flame).unwrap().len() < 100 * DEEPEST);
    }
}
