//! Limits how much of a file is kept, because a few bytes can refer to the same large object
//! repeatedly.

use crate::failure::Failure;

/// The remaining budget.
pub struct Budget {
    entries: usize,
    text: usize,
    frames: usize,
}

/// Samples, locations, lines, functions, strings and mappings.
const ENTRIES: usize = 4 << 20;
/// Bytes of names.
const TEXT: usize = 256 << 20;
/// Frames of all stacks.
const FRAMES: usize = 16 << 20;

impl Default for Budget {
    fn default() -> Self {
        Self {
            entries: ENTRIES,
            text: TEXT,
            frames: FRAMES,
        }
    }
}

impl Budget {
    /// Spends `count` objects of the budget.
    pub fn entries(&mut self, count: usize) -> Result<(), Failure> {
        spend(&mut self.entries, count, "entries")
    }

    /// Spends `bytes` bytes of names.
    pub fn text(&mut self, bytes: usize) -> Result<(), Failure> {
        spend(&mut self.text, bytes, "text")
    }

    /// Spends `count` frames.
    pub fn frames(&mut self, count: usize) -> Result<(), Failure> {
        spend(&mut self.frames, count, "frames")
    }
}

fn spend(left: &mut usize, count: usize, what: &str) -> Result<(), Failure> {
    *left = left.checked_sub(count).ok_or_else(|| {
        failure!("the profile has more {what} than neap reads: it is damaged, or meant to do harm")
    })?;
    Ok(())
}
