//! The amounts of memory, and the lines between the harness and a worker: an action in, its result
//! out.

use std::str::FromStr;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::machine;
use crate::names::named;
use crate::pagemap::page_size;

pub const MIB: u64 = 1 << 20;

/// The smallest block: it holds the next block's address.
const SMALLEST: usize = 16;

/// The blocks that make up the heap's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// One block.
    One,
    /// Blocks of this many bytes.
    Of(usize),
}

impl FromStr for Blocks {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Blocks> {
        if text == "one" {
            return Ok(Blocks::One);
        }
        let (digits, unit) = match text.strip_suffix(['K', 'k']) {
            Some(digits) => (digits, 1_024),
            None => (text, 1),
        };
        let number: usize = digits
            .parse()
            .context("not `one`, nor bytes, nor KiB like 4K")?;
        let bytes = number.saturating_mul(unit);
        ensure!(
            (SMALLEST..=1 << 20).contains(&bytes),
            "not from {SMALLEST} bytes to 1024K"
        );
        Ok(Blocks::Of(bytes))
    }
}

impl std::fmt::Display for Blocks {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Blocks::One => out.write_str("one"),
            Blocks::Of(bytes) => write!(out, "{bytes}"),
        }
    }
}

/// The sizes of a run.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Sizes {
    /// Bytes that the heap allocates and drops.
    pub heap_bytes: usize,
    /// Their blocks.
    pub blocks: Blocks,
    /// Coroutines.
    pub coroutines: usize,
    /// Address space per stack, including its guard page.
    pub stack_bytes: usize,
}

impl Sizes {
    /// The arguments that pass these sizes to a worker.
    pub fn arguments(&self) -> [String; 4] {
        [
            self.heap_bytes.to_string(),
            self.blocks.to_string(),
            self.coroutines.to_string(),
            self.stack_bytes.to_string(),
        ]
    }

    /// Peak resident bytes of a run: never everything twice, but a heap and stacks that do not
    /// share, and page tables (one table page for up to 512 pages; in the worst case one for each
    /// stack of 2 MiB or more).
    pub fn most_bytes(&self) -> u64 {
        const SPARE: u64 = 256 << 20;
        let page = page_size();
        let tables = page * (self.stack_bytes as u64).min(2 * MIB) / (2 * MIB);
        let coroutine = page + tables + page / 16;
        SPARE + 2 * self.heap_bytes as u64 + self.coroutines as u64 * coroutine
    }

    /// Fails if the machine has too little memory.
    ///
    /// # Errors
    /// If so, or if /proc cannot be read.
    pub fn ensure_room(&self) -> anyhow::Result<()> {
        let (needed, available) = (self.most_bytes(), machine::available_bytes()?);
        ensure!(
            needed <= available,
            "{} coroutines and {} MiB need {} MiB of memory, and {} MiB are available: {} MiB are \
                missing",
            self.coroutines,
            self.heap_bytes as u64 / MIB,
            needed / MIB,
            available / MIB,
            (needed - available).div_ceil(MIB)
        );
        Ok(())
    }
}

named! {
    /// An action of a worker.
    pub enum Action {
        /// Allocate the heap's bytes, touch them, drop them.
        Allocate = "allocate",
        /// Create the coroutines; each touches its stack and parks.
        Create = "create",
        /// End all coroutines.
        Close = "close",
    }
}

/// The result of an action, from the worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Minor faults.
    pub faults: u64,
    /// Nanoseconds.
    pub ns: u64,
    /// Resident KiB when everything was allocated and nothing dropped; 0 for other actions.
    pub full_kib: u64,
    /// KiB that the program needs now, beyond what it began with.
    pub live_kib: u64,
    /// Coroutines parked.
    pub coroutines: u64,
    /// An error that the program survived.
    pub note: String,
}

impl Done {
    /// The line that a worker prints.
    ///
    /// # Errors
    /// None that is known.
    pub fn line(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// Reads what [`Done::line`] wrote.
    ///
    /// # Errors
    /// If a figure is missing.
    pub fn parse(line: &str) -> anyhow::Result<Done> {
        serde_json::from_str(line).with_context(|| format!("no result: {line:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(coroutines: usize) -> Sizes {
        Sizes {
            heap_bytes: 100 << 20,
            blocks: Blocks::Of(4_096),
            coroutines,
            stack_bytes: 64 << 10,
        }
    }

    #[test]
    fn blocks_are_read_and_written() {
        let blocks = |text: &str| text.parse::<Blocks>();
        assert_eq!(blocks("one").unwrap(), Blocks::One);
        assert_eq!(blocks("4K").unwrap(), Blocks::Of(4_096));
        assert_eq!(blocks("100").unwrap(), Blocks::Of(100));
        for wrong in ["two", "4M", "8", "2000K", ""] {
            assert!(blocks(wrong).is_err(), "{wrong}");
        }
        for any in [Blocks::One, Blocks::Of(1_024)] {
            assert_eq!(blocks(&any.to_string()).unwrap(), any);
        }
    }

    #[test]
    fn a_million_coroutines_need_over_four_gb_and_a_trillion_do_not_fit() {
        let million = sizes(1_000_000).most_bytes();
        assert!((4 << 30..6 << 30).contains(&million), "{million}");
        let told = sizes(1_000_000_000_000).ensure_room().unwrap_err();
        assert!(told.to_string().contains("are missing"), "{told}");
        assert!(sizes(10).ensure_room().is_ok());
    }

    #[test]
    fn actions_are_found_by_their_words() {
        for action in Action::ALL {
            assert_eq!(Action::find(action.name()), Some(action));
        }
        assert_eq!(Action::find("sing"), None);
    }

    #[test]
    fn what_was_done_comes_back_as_it_was() {
        let done = Done {
            faults: 1,
            ns: 2,
            full_kib: 3,
            live_kib: 4,
            coroutines: 5,
            note: "5 coroutines, then: Cannot allocate memory".into(),
        };
        let line = done.line().unwrap();
        assert_eq!(Done::parse(&line).unwrap(), done);
        assert!(Done::parse(&line.replace("ns", "ms")).is_err());
    }
}
