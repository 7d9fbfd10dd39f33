//! A heap profile as plain data, independent of its source.

use crate::failure::Failure;
use indexmap::IndexMap;
use serde::Serialize;
use std::sync::Arc;

/// One process's allocations by stack of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The PID; 0: unknown.
    pub pid: u32,
    /// Its name; empty: unknown.
    pub program: String,
    /// Mean bytes between two samples, for a session at its beginning; 0: unknown.
    pub rate: u64,
    /// When sampling, or the session, began, in ms since 1970; 0: unknown.
    pub began_ms: u64,
    /// When the profile was taken, in ms since 1970; 0: unknown.
    pub ended_ms: u64,
    /// What the figures cover.
    pub extent: Extent,
    /// Whether another observer switched sampling during the session.
    pub switched: Option<Switched>,
    /// Stacks of calls, possibly with duplicates.
    pub stacks: Vec<Stack>,
    /// The files that contain the addresses.
    pub mappings: Vec<Mapping>,
}

/// What the figures of a profile cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// Everything since sampling was first switched on.
    #[default]
    Whole,
    /// One session of a process that had sampled before, or what a profile has more than an
    /// earlier one. "Allocated" is what the session allocated.
    /// "Live" is the growth of live memory at each stack, because the region does not tell which of
    /// the remaining samples are old. A comparison with another process covers no time: it begins
    /// when it ends.
    Session {
        /// The sum of live bytes lost at stacks that shrank; part of no other figure.
        shrunk: u64,
    },
}

/// Another observer switched sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Switched {
    /// Mean bytes between two samples from then on; 0: off.
    pub rate: u64,
    /// When it last did so, in ms after the session began.
    pub after_ms: u64,
}

/// One stack of calls and its allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The calls, innermost first, without the allocator's own. May be empty. Stacks share their
    /// frames, because few are distinct.
    pub frames: Vec<Arc<Frame>>,
    /// The allocations.
    pub figures: Figures,
}

/// One call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Frame {
    /// The function's short name; `module+0xoffset` if it has none.
    pub function: String,
    /// Its source file; empty: unknown.
    pub file: String,
    /// The line in it; 0: unknown.
    pub line: u32,
    /// The path of the file that contains the code; empty: unknown.
    pub module: String,
    /// The call's address in the process. Frames inlined into one function share it.
    pub address: u64,
    /// The compiler inlined this function into the function of the next frame.
    pub inlined: bool,
}

/// Estimated allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Objects, including freed ones.
    pub alloc_objects: u64,
    /// Bytes requested for them.
    pub alloc_bytes: u64,
    /// Usable bytes of them.
    pub alloc_usable: u64,
    /// Objects that were live when the profile was taken.
    pub live_objects: u64,
    /// Bytes requested for them.
    pub live_bytes: u64,
    /// Usable bytes of them.
    pub live_usable: u64,
}

/// A mapped piece of a file with code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
    /// Its offset in the file, in bytes.
    pub offset: u64,
    /// The file's path.
    pub path: String,
    /// The file's build ID in hexadecimal; empty: none, or unknown.
    pub build_id: String,
}

choice! {
    /// A figure to report.
    #[derive(Default)]
    pub enum Value {
        /// Requested bytes of live objects.
        #[default]
        LiveSpace = "live_space",
        /// Live objects.
        LiveObjects = "live_objects",
        /// Requested bytes of all objects so far.
        AllocSpace = "alloc_space",
        /// All objects so far.
        AllocObjects = "alloc_objects",
        /// Usable minus requested bytes of live objects.
        Waste = "waste",
    }
}

impl Value {
    /// A noun phrase for what it counts in a profile of this extent.
    pub fn phrase(self, extent: Extent) -> &'static str {
        match (self, extent) {
            (Self::LiveSpace, Extent::Whole) => "live bytes",
            (Self::LiveObjects, Extent::Whole) => "live objects",
            (Self::Waste, Extent::Whole) => "bytes that size classes add to live objects",
            (Self::LiveSpace, Extent::Session { .. }) => "growth of live bytes",
            (Self::LiveObjects, Extent::Session { .. }) => "growth of live objects",
            (Self::Waste, Extent::Session { .. }) => {
                "growth of the bytes that size classes add to live objects"
            }
            (Self::AllocSpace, _) => "bytes allocated",
            (Self::AllocObjects, _) => "objects allocated",
        }
    }

    /// This value's figure.
    pub fn of(self, figures: &Figures) -> u64 {
        match self {
            Self::LiveSpace => figures.live_bytes,
            Self::LiveObjects => figures.live_objects,
            Self::AllocSpace => figures.alloc_bytes,
            Self::AllocObjects => figures.alloc_objects,
            Self::Waste => figures.waste(),
        }
    }
}

impl Figures {
    /// Usable minus requested bytes of live objects.
    pub fn waste(&self) -> u64 {
        self.live_usable.saturating_sub(self.live_bytes)
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        for (sum, term) in self.with(other) {
            *sum = sum.saturating_add(term);
        }
    }

    /// Reduces each figure to its growth since `before`.
    pub(super) fn subtract(&mut self, before: &Self) {
        let more_waste = self.waste().saturating_sub(before.waste());
        for (figure, less) in self.with(before) {
            *figure = figure.saturating_sub(less);
        }
        self.live_usable = self.live_bytes.saturating_add(more_waste);
    }

    fn with<'a>(&'a mut self, other: &Self) -> [(&'a mut u64, u64); 6] {
        [
            (&mut self.alloc_objects, other.alloc_objects),
            (&mut self.alloc_bytes, other.alloc_bytes),
            (&mut self.alloc_usable, other.alloc_usable),
            (&mut self.live_objects, other.live_objects),
            (&mut self.live_bytes, other.live_bytes),
            (&mut self.live_usable, other.live_usable),
        ]
    }
}

/// The calls of a stack by function, file and line, for a comparison of profiles.
type Path<'a> = Vec<(&'a str, (&'a str, u32))>;

impl Profile {
    /// The sum of all stacks.
    pub fn total(&self) -> Figures {
        let mut total = Figures::default();
        for stack in &self.stacks {
            total.add(&stack.figures);
        }
        total
    }
}

impl Profile {
    /// What this profile has more than `base`, stack by stack. If they are of two processes, by
    /// function and name of the file, because the source may have moved; else by line.
    ///
    /// # Errors
    /// One of the two is itself a session, or `base` is the later one.
    pub fn since(&self, base: &Profile) -> Result<Profile, Failure> {
        let is_same = (self.pid, self.began_ms) == (base.pid, base.began_ms) && self.began_ms != 0;
        if [self.extent, base.extent] != [Extent::Whole; 2] {
            return Err(failure!(
                "a profile of a limited time is a difference already: compare profiles of \
                 everything that a process sampled (neap run --sample, then neap profile --for 0)"
            ));
        }
        if is_same && base.ended_ms > self.ended_ms {
            return Err(failure!("the profile given with --base is the later one"));
        }
        let place: fn(&Frame) -> (&str, u32) = match is_same {
            true => |frame| (&frame.file, frame.line),
            false => |frame| (self::base(&frame.file), 0),
        };
        let (mut later, mut shrunk) = (merged(self, place), 0_u64);
        for (path, (_, before)) in merged(base, place) {
            let now = later.get_mut(&path).map(|(_, now)| now);
            let left = now.as_ref().map_or(0, |now| now.live_bytes);
            shrunk = shrunk.saturating_add(before.live_bytes.saturating_sub(left));
            now.into_iter().for_each(|now| now.subtract(&before));
        }
        let grown = later
            .into_values()
            .filter(|(_, more)| *more != Figures::default());
        let stack = |(stack, figures): (&Stack, Figures)| Stack {
            frames: stack.frames.clone(),
            figures,
        };
        Ok(Profile {
            began_ms: if is_same {
                base.ended_ms
            } else {
                self.ended_ms
            },
            extent: Extent::Session { shrunk },
            stacks: grown.map(stack).collect(),
            ..self.clone()
        })
    }
}

/// The figures of each path, and its first stack.
fn merged<'a>(
    profile: &'a Profile,
    place: fn(&Frame) -> (&str, u32),
) -> IndexMap<Path<'a>, (&'a Stack, Figures)> {
    let mut paths = IndexMap::new();
    for stack in &profile.stacks {
        let frames = stack.frames.iter();
        let calls = frames.map(|frame| (&*frame.function, place(frame)));
        let merged = paths.entry(calls.collect());
        let (_, sum) = merged.or_insert((stack, Figures::default()));
        sum.add(&stack.figures);
    }
    paths
}

/// The last part of a path.
pub fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
