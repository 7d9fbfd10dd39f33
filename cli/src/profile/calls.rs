//! Stacks merged: into a tree of calls, into functions, into places.

use super::model::{Figures, Frame, Profile, Value};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A function is told from others by its name and its module.
pub type Name<'a> = (&'a str, &'a str);

/// The name of a frame's function.
pub fn name(frame: &Frame) -> Name<'_> {
    (&frame.function, &frame.module)
}

/// Calls, merged from the outermost inwards.
pub struct Tree<'a> {
    /// The first one is the root, which stands for nobody.
    pub nodes: Vec<Node<'a>>,
    children: HashMap<(usize, Name<'a>), usize>,
}

/// A function, called in one way.
pub struct Node<'a> {
    /// One of its frames; none: the root.
    pub frame: Option<&'a Frame>,
    /// What it and those that it calls allocated.
    pub total: u64,
    /// The line, where all of its frames are at the same one; else 0.
    pub line: u32,
    /// Those that it calls.
    pub children: Vec<usize>,
}

/// Calls deeper than this are counted to the last one that is not.
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

/// What a function allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// By itself.
    pub flat: u64,
    /// By itself and those that it calls; a function that calls itself counts once.
    pub cumulative: u64,
}

impl Share {
    /// Adds what one stack allocated, of which this is the innermost part or not.
    pub fn gain(&mut self, amount: u64, innermost: bool) {
        self.cumulative = self.cumulative.saturating_add(amount);
        if innermost {
            self.flat = self.flat.saturating_add(amount);
        }
    }
}

/// The share of each function, in no order.
pub fn functions(profile: &Profile, value: Value) -> Vec<(Name<'_>, Share)> {
    let mut shares: HashMap<Name, Share> = HashMap::new();
    for stack in &profile.stacks {
        let amount = value.of(&stack.figures);
        let mut seen = HashSet::new();
        for (index, frame) in stack.frames.iter().enumerate() {
            if amount > 0 && seen.insert(name(frame)) {
                shares
                    .entry(name(frame))
                    .or_default()
                    .gain(amount, index == 0);
            }
        }
    }
    shares.into_iter().collect()
}

/// A way through the source that allocates.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The calls, innermost first.
    pub frames: &'a [Arc<Frame>],
    /// What was allocated in this way.
    pub figures: Figures,
}

/// Line of a function, for comparing; where lines are not known, the address of the call.
pub type Line<'a> = (&'a str, &'a str, &'a str, u64);

/// The line of a frame.
pub fn line(frame: &Frame) -> Line<'_> {
    let line = match frame.line {
        0 => frame.address,
        line => u64::from(line),
    };
    (&frame.function, &frame.module, &frame.file, line)
}

/// Stacks that lead through the same lines are one place; the largest come first. Places without this value are left out.
pub fn places(profile: &Profile, value: Value, by: Grouping) -> Vec<Place<'_>> {
    let mut index: HashMap<Vec<Line>, usize> = HashMap::new();
    let mut places: Vec<Place> = Vec::new();
    for stack in &profile.stacks {
        let frames = stack.frames.iter().take(by.depth());
        let at = *index
            .entry(frames.map(|frame| line(frame)).collect())
            .or_insert(places.len());
        if at == places.len() {
            places.push(Place {
                frames: &stack.frames,
                figures: Figures::default(),
            });
        }
        places[at].figures.add(&stack.figures);
    }
    places.retain(|place| value.of(&place.figures) > 0);
    places.sort_by_key(|place| std::cmp::Reverse(value.of(&place.figures)));
    places
}

/// What makes two stacks the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// All calls are the same.
    Stack,
    /// The innermost one is; the others are those of the first stack.
    Innermost,
}

impl Grouping {
    fn depth(self) -> usize {
        match self {
            Self::Stack => usize::MAX,
            Self::Innermost => 1,
        }
    }
}
