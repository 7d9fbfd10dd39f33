//! Merges stacks into a call tree, into functions, and into places.

use super::frames::own;
use super::model::{Figures, Frame, Profile, Value};
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

/// Functions are distinguished by name and module.
pub type Name<'a> = (&'a str, &'a str);

/// The name of a frame's function.
pub fn name(frame: &Frame) -> Name<'_> {
    (&frame.function, &frame.module)
}

/// A call tree, merged from the outermost call inwards.
pub struct Tree<'a> {
    /// The first node is the root, which has no frame.
    pub nodes: Vec<Node<'a>>,
    children: HashMap<(usize, Name<'a>), usize>,
}

/// A function on one path of calls.
pub struct Node<'a> {
    /// One of its frames; `None` for the root.
    pub frame: Option<&'a Frame>,
    /// Allocated by it and its callees.
    pub total: u64,
    /// The line, if all its frames share one; else 0.
    pub line: u32,
    /// Its callees, as indices.
    pub children: Vec<usize>,
}

/// Deeper calls are attributed to the call at this depth.
const DEEPEST: usize = 512;

impl<'a> Tree<'a> {
    /// The tree of all stacks.
    pub fn of(profile: &'a Profile, value: Value) -> Self {
        let mut tree = Self {
            nodes: vec![Node::of(None)],
            children: HashMap::new(),
        };
        for stack in &profile.stacks {
            tree.add(&stack.frames, value.of(&stack.figures));
        }
        tree.sort();
        tree
    }

    fn add(&mut self, frames: &'a [Arc<Frame>], amount: u64) {
        if amount == 0 {
            return;
        }
        let mut at = 0;
        self.nodes[at].gain(amount);
        for frame in frames.iter().rev().take(DEEPEST) {
            at = self.child(at, frame);
            self.nodes[at].gain(amount);
        }
    }

    fn child(&mut self, parent: usize, frame: &'a Frame) -> usize {
        let next = self.nodes.len();
        let child = *self.children.entry((parent, name(frame))).or_insert(next);
        if child == next {
            self.nodes.push(Node::of(Some(frame)));
            self.nodes[parent].children.push(child);
        } else if self.nodes[child].line != frame.line {
            self.nodes[child].line = 0;
        }
        child
    }

    fn sort(&mut self) {
        let totals: Vec<u64> = self.nodes.iter().map(|node| node.total).collect();
        for node in &mut self.nodes {
            node.children
                .sort_by_key(|&child| std::cmp::Reverse(totals[child]));
        }
    }
}

impl<'a> Node<'a> {
    fn of(frame: Option<&'a Frame>) -> Self {
        Self {
            frame,
            line: frame.map_or(0, |frame| frame.line),
            total: 0,
            children: Vec::new(),
        }
    }

    fn gain(&mut self, amount: u64) {
        self.total = self.total.saturating_add(amount);
    }
}

/// The amounts that a function allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// By the function itself.
    pub flat: u64,
    /// By the function and its callees. Recursion counts once.
    pub cumulative: u64,
}

/// The share of each function, unsorted.
pub fn functions(profile: &Profile, value: Value) -> Vec<(Name<'_>, Share)> {
    let shares = shares(profile, value, |frame| Some(name(frame)));
    shares.into_iter().collect()
}

/// The share of each group that `group` puts frames into. A stack counts once for a group, even if
/// it passes through it repeatedly.
pub fn shares<'a, G: Copy + Eq + Hash>(
    profile: &'a Profile,
    value: Value,
    group: impl Fn(&'a Frame) -> Option<G>,
) -> HashMap<G, Share> {
    let mut shares: HashMap<G, Share> = HashMap::new();
    for stack in &profile.stacks {
        let amount = value.of(&stack.figures);
        let mut seen = HashSet::new();
        for (index, frame) in stack.frames.iter().enumerate().filter(|_| amount > 0) {
            if let Some(group) = group(frame).filter(|group| seen.insert(*group)) {
                let share = shares.entry(group).or_default();
                share.cumulative = share.cumulative.saturating_add(amount);
                if index == 0 {
                    share.flat = share.flat.saturating_add(amount);
                }
            }
        }
    }
    shares
}

/// A path through the source that allocates.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The calls, innermost first.
    pub frames: &'a [Arc<Frame>],
    /// What this path allocated.
    pub figures: Figures,
}

/// A line of a function, for comparison. If lines are unknown, the address of the call.
pub type Line<'a> = (&'a str, &'a str, &'a str, u64);

/// The line of a frame.
pub fn line(frame: &Frame) -> Line<'_> {
    let line = match frame.line {
        0 => frame.address,
        line => u64::from(line),
    };
    (&frame.function, &frame.module, &frame.file, line)
}

/// Merges stacks that pass through the same lines into one place. The largest come first; places
/// without this value are left out.
pub fn places(profile: &Profile, value: Value, by: Grouping) -> Vec<Place<'_>> {
    let mut places: IndexMap<Vec<Line>, Place> = IndexMap::new();
    let mut stacks: Vec<_> = profile.stacks.iter().collect();
    stacks.sort_by_key(|stack| std::cmp::Reverse(value.of(&stack.figures)));
    for stack in stacks {
        let (frames, depth) = match by {
            Grouping::Stack => (&stack.frames[..], usize::MAX),
            Grouping::Own => (&stack.frames[own(&stack.frames)..], 1),
        };
        let lines = frames.iter().take(depth);
        let place = places.entry(lines.map(|frame| line(frame)).collect());
        let place = place.or_insert_with(|| Place {
            frames,
            figures: Figures::default(),
        });
        place.figures.add(&stack.figures);
    }
    let mut places: Vec<Place> = places.into_values().collect();
    places.retain(|place| value.of(&place.figures) > 0);
    places.sort_by_key(|place| std::cmp::Reverse(value.of(&place.figures)));
    places
}

/// Which stacks are the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Those with the same calls.
    Stack,
    /// Those with the same innermost call outside of libraries. The place shows it and the calls
    /// around it, of its largest stack.
    Own,
}
