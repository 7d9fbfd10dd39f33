//! The ways, the states that they need, and the sizes, as data.

use crate::names::choose;

/// What is populated in a block, in the order of measuring: each state is reached from the one
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holding {
    /// No page, and none ever was.
    Nothing,
    /// The first [`FIRST`] bytes.
    First,
    /// Every page.
    All,
    /// No page: every page was populated and then given back.
    GivenBack,
}

/// The bytes that [`Holding::First`] populates.
pub const FIRST: usize = 64 << 10;

impl Holding {
    /// Its name in tables and records.
    pub fn name(self) -> &'static str {
        match self {
            Holding::Nothing => "nothing",
            Holding::First => "first 64 KiB",
            Holding::All => "all",
            Holding::GivenBack => "given back",
        }
    }

    /// The populated bytes of a block of `bytes`.
    pub fn bytes(self, bytes: usize) -> usize {
        match self {
            Holding::Nothing | Holding::GivenBack => 0,
            Holding::First => FIRST.min(bytes),
            Holding::All => bytes,
        }
    }
}

/// An act on a whole block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// `PAGEMAP_SCAN` for its populated pages.
    Scan,
    /// Reads all its words of the pagemap file, 4 KiB per call.
    ReadWords,
    /// `MADV_DONTNEED`.
    Discard,
    /// Writes one byte of each page.
    Touch,
    /// `memset`.
    Memset,
    /// Zeroing stores that bypass the caches.
    Stream,
}

/// A call to the kernel without a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `getppid`: the lowest cost of a system call.
    ParentId,
    /// `fstat` of the pagemap's descriptor.
    Status,
    /// Opening and closing the pagemap.
    OpenAndClose,
}

/// An act on a block in a given state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub act: Act,
    pub holding: Holding,
}

impl Way {
    /// Its name in tables and records.
    pub fn name(self) -> String {
        format!("{}; {}", self.act.name(), self.holding.name())
    }

    /// Whether the act leaves the block unchanged, so that it can be repeated at once.
    pub fn repeats(self) -> bool {
        match self.act {
            Act::Scan | Act::ReadWords | Act::Memset | Act::Stream => true,
            Act::Discard => self.holding == Holding::Nothing,
            Act::Touch => false,
        }
    }
}

impl Act {
    /// Its name in tables and records.
    pub fn name(self) -> &'static str {
        match self {
            Act::Scan => "PAGEMAP_SCAN",
            Act::ReadWords => "pread of the pagemap",
            Act::Discard => "MADV_DONTNEED",
            Act::Touch => "touch every page",
            Act::Memset => "memset",
            Act::Stream => "streaming stores",
        }
    }
}

impl Call {
    /// Its name in tables and records.
    pub fn name(self) -> &'static str {
        match self {
            Call::ParentId => "getppid",
            Call::Status => "fstat of the pagemap",
            Call::OpenAndClose => "open and close of the pagemap",
        }
    }
}

/// All calls.
pub const CALLS: [Call; 3] = [Call::ParentId, Call::Status, Call::OpenAndClose];

const fn way(act: Act, holding: Holding) -> Way {
    Way { act, holding }
}

/// All ways, in the order of the table.
pub const WAYS: [Way; 11] = [
    way(Act::Scan, Holding::Nothing),
    way(Act::Scan, Holding::GivenBack),
    way(Act::Scan, Holding::First),
    way(Act::Scan, Holding::All),
    way(Act::ReadWords, Holding::Nothing),
    way(Act::ReadWords, Holding::All),
    way(Act::Discard, Holding::Nothing),
    way(Act::Discard, Holding::All),
    way(Act::Touch, Holding::GivenBack),
    way(Act::Memset, Holding::All),
    way(Act::Stream, Holding::All),
];

/// A block's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub name: &'static str,
    pub bytes: usize,
}

/// All sizes.
pub const SIZES: [Size; 7] = [
    size("64K", 64 << 10),
    size("128K", 128 << 10),
    size("256K", 256 << 10),
    size("1M", 1 << 20),
    size("10M", 10 << 20),
    size("100M", 100 << 20),
    size("1000M", 1_000 << 20),
];

const fn size(name: &'static str, bytes: usize) -> Size {
    Size { name, bytes }
}

/// The sizes with these names, or all if none is named.
///
/// # Errors
/// If a name is unknown.
pub fn sizes(names: &[String]) -> anyhow::Result<Vec<Size>> {
    choose("size", names, &SIZES, |size| size.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_chosen_by_name() {
        assert_eq!(sizes(&[]).unwrap(), SIZES);
        assert_eq!(sizes(&["10M".into()]).unwrap()[0].bytes, 10 << 20);
        let error = sizes(&["1M".into(), "11M".into()]).unwrap_err().to_string();
        assert!(
            error.contains("\"11M\"") && error.contains("1000M"),
            "{error}"
        );
    }

    #[test]
    fn only_what_changes_nothing_is_repeated_at_once() {
        let repeated: Vec<Way> = WAYS.into_iter().filter(|way| !way.repeats()).collect();
        let changing = [
            way(Act::Discard, Holding::All),
            way(Act::Touch, Holding::GivenBack),
        ];
        assert_eq!(repeated, changing);
    }
}
