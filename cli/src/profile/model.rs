//! A heap profile as plain data, wherever it came from.

use std::sync::Arc;

/// What one process allocated, by the stacks of calls that did it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The process; 0: not known.
    pub pid: u32,
    /// Its name; empty: not known.
    pub program: String,
    /// Mean bytes between two samples, of a session at its beginning; 0: not known.
    pub rate: u64,
    /// When sampling, or the session, began, in ms since 1970; 0: not known.
    pub began_ms: u64,
    /// When the profile was taken, in ms since 1970; 0: not known.
    pub ended_ms: u64,
    /// Whether the figures are of all that was sampled.
    pub extent: Extent,
    /// Whether somebody else switched sampling during the session.
    pub switched: Option<Switched>,
    /// Stacks of calls. Two may be equal.
    pub stacks: Vec<Stack>,
    /// The files whose code the addresses lie in.
    pub mappings: Vec<Mapping>,
}

/// What was sampled while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// Since sampling was first switched on.
    #[default]
    Whole,
    /// In one session of a process that had sampled before. Allocated is what the session allocated; live is by how much
    /// what is live has grown, stack by stack: nobody knows which of the samples that are left are old ones.
    Session {
        /// Live bytes that there are fewer of, at the stacks where there are fewer; they are in no figure.
        shrunk: u64,
    },
}

/// Sampling was switched by somebody else than the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switched {
    /// Mean bytes between two samples from then on; 0: it is off.
    pub rate: u64,
    /// When last, in ms after the session began.
    pub after_ms: u64,
}

/// One stack of calls and what was allocated there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The calls, innermost first; the allocator's own are not among them. May be empty. Stacks share their frames:
    /// there are few distinct ones.
    pub frames: Vec<Arc<Frame>>,
    /// What was allocated.
    pub figures: Figures,
}

/// One call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// The function's name, demangled; `module+0xoffset` where there is no name.
    pub function: String,
    /// Its source file; empty: not known.
    pub file: String,
    /// The line in it; 0: not known.
    pub line: u32,
    /// The file with the code, by its path; empty: not known.
    pub module: String,
    /// The call's address in the process. Frames inlined into one function have the same.
    pub address: u64,
    /// This function has no frame of its own: the compiler put it into the function of the next frame.
    pub inlined: bool,
}

/// Estimates of what was allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Objects, freed ones too.
    pub alloc_objects: u64,
    /// Bytes asked for, for all of these.
    pub alloc_bytes: u64,
    /// Usable bytes of all of these.
    pub alloc_usable: u64,
    /// Objects live when the profile was taken.
    pub live_objects: u64,
    /// Bytes asked for, for these.
    pub live_bytes: u64,
    /// Usable bytes of these.
    pub live_usable: u64,
}

/// A piece of a file with code, as it stood in the process's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// The file's path.
    pub path: String,
    /// The file's build id in hexadecimal digits; empty: none, or not known.
    pub build_id: String,
}

/// Which of the figures is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Value {
    /// Bytes asked for that are live.
    #[default]
    LiveSpace,
    /// Objects that are live.
    LiveObjects,
    /// Bytes asked for so far.
    AllocSpace,
    /// Objects allocated so far.
    AllocObjects,
    /// Usable bytes beyond what was asked for, of live objects.
    Waste,
}

impl Value {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::LiveSpace,
        Self::LiveObjects,
        Self::AllocSpace,
        Self::AllocObjects,
        Self::Waste,
    ];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::LiveSpace => "live_space",
            Self::LiveObjects => "live_objects",
            Self::AllocSpace => "alloc_space",
            Self::AllocObjects => "alloc_objects",
            Self::Waste => "waste",
        }
    }

    /// What it counts in such a profile, in the middle of a sentence.
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

    /// The value that this word means.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.word() == word)
    }

    /// This value of these figures.
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
    /// Usable bytes beyond what was asked for, of live objects.
    pub fn waste(&self) -> u64 {
        self.live_usable.saturating_sub(self.live_bytes)
    }

    /// Adds others to these.
    pub fn add(&mut self, other: &Self) {
        for (sum, term) in [
            (&mut self.alloc_objects, other.alloc_objects),
            (&mut self.alloc_bytes, other.alloc_bytes),
            (&mut self.alloc_usable, other.alloc_usable),
            (&mut self.live_objects, other.live_objects),
            (&mut self.live_bytes, other.live_bytes),
            (&mut self.live_usable, other.live_usable),
        ] {
            *sum = sum.saturating_add(term);
        }
    }
}

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
