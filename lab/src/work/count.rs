//! The loops whose instructions are counted under callgrind. They are written so that the
//! compiler makes of them what it makes of the C loop: a call through the global offset table
//! for malloc, one for free, and two to four instructions around them.

use anyhow::Context as _;

use super::heap;
use super::toggle::{self, toggle};

/// A stretch of code whose instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// Malloc and free at once, with its loop.
    Pair { size: usize },
    /// `count` blocks, then freed in the order of allocation, with both loops.
    Fifo { size: usize, count: usize },
    /// Only the call of an entry point.
    Entry(Entry),
}

/// A call that finds what it needs at hand (a *hit*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing: what the counting itself costs, to be subtracted.
    Nothing,
    /// `malloc(64)`.
    Malloc,
    /// `free` of 64 bytes.
    Free,
    /// `calloc(1, 64)`.
    Calloc,
    /// `realloc` from 60 to 64 bytes, the same class everywhere.
    Realloc,
    /// `operator new(64)`.
    New,
    /// `operator delete` of 64 bytes.
    Delete,
}

/// A counted stretch with its name and the loop lengths whose difference is taken.
pub struct Counted {
    /// Its name on the command line and in the records.
    pub name: &'static str,
    /// What it does.
    pub stretch: Stretch,
    /// Loop lengths, in pairs.
    pub lengths: (u64, u64),
}

const fn pair(name: &'static str, size: usize) -> Counted {
    Counted {
        name,
        stretch: Stretch::Pair { size },
        lengths: (2_000, 12_000),
    }
}

const fn fifo(name: &'static str, size: usize) -> Counted {
    Counted {
        name,
        stretch: Stretch::Fifo { size, count: 1_000 },
        lengths: (20_000, 60_000),
    }
}

const fn entry(name: &'static str, entry: Entry) -> Counted {
    Counted {
        name,
        stretch: Stretch::Entry(entry),
        lengths: (100, 1_100),
    }
}

/// What `bench` counts for every peer: a pair of malloc and free, loop included.
pub const PAIRS: &[Counted] = &[
    pair("pair-16", 16),
    pair("pair-64", 64),
    pair("pair-1024", 1_024),
    fifo("fifo-64", 64),
    fifo("fifo-1024", 1_024),
];

/// What the golden file holds for the shipped library.
pub const ENTRIES: &[Counted] = &[
    entry("malloc-64", Entry::Malloc),
    entry("free-64", Entry::Free),
    entry("calloc-64", Entry::Calloc),
    entry("realloc-64", Entry::Realloc),
    entry("new-64", Entry::New),
    entry("delete-64", Entry::Delete),
];

/// The cost of the counting itself, subtracted from every entry.
pub const NOTHING: Counted = entry("nothing", Entry::Nothing);

/// The counted stretch of that name.
pub fn find(name: &str) -> Option<&'static Counted> {
    PAIRS
        .iter()
        .chain(ENTRIES)
        .chain([&NOTHING])
        .find(|c| c.name == name)
}

/// Runs `ops` pairs of the stretch between two toggles of callgrind's counting.
///
/// # Errors
/// When the machine has no such toggle, or the process no C++ operators.
pub fn carry_out(stretch: Stretch, ops: u64) -> anyhow::Result<()> {
    anyhow::ensure!(toggle::SUPPORTED, "instructions are counted on x86-64 only");
    match stretch {
        Stretch::Pair { size } => count_pairs(size, ops),
        Stretch::Fifo { size, count } => count_fifo(size, count, ops),
        Stretch::Entry(entry) => return count_entry(entry, ops),
    }
    Ok(())
}

#[inline(never)]
fn count_pairs(size: usize, ops: u64) {
    toggle();
    let mut left = ops;
    while left != 0 {
        let p = heap::malloc(size);
        // SAFETY: allocated in the line above.
        unsafe { heap::free(p) };
        left -= 1;
    }
    toggle();
}

#[inline(never)]
fn count_fifo(size: usize, count: usize, ops: u64) {
    let mut blocks = vec![std::ptr::null_mut::<u8>(); count];
    toggle();
    for _ in 0..ops / count as u64 {
        for block in &mut blocks {
            *block = heap::malloc(size);
        }
        for &block in &blocks {
            // SAFETY: allocated in the loop above, each freed once.
            unsafe { heap::free(block) };
        }
    }
    toggle();
}

fn count_entry(entry: Entry, ops: u64) -> anyhow::Result<()> {
    let operators = || heap::operators().context("no library here has operator new");
    match entry {
        Entry::Nothing => (0..ops).for_each(|_| counted(|| ())),
        Entry::Malloc => (0..ops).for_each(|_| free(counted(|| heap::malloc(64)))),
        Entry::Calloc => (0..ops).for_each(|_| free(counted(|| heap::calloc(64)))),
        Entry::Free => (0..ops).for_each(|_| {
            let p = heap::malloc(64);
            counted(|| free(p));
        }),
        Entry::Realloc => (0..ops).for_each(|_| {
            let p = heap::malloc(60);
            // SAFETY: `p` is live, and only the result is used after.
            free(counted(|| unsafe { heap::realloc(p, 64) }));
        }),
        Entry::New => count_new(operators()?, ops),
        Entry::Delete => count_delete(operators()?, ops),
    }
    Ok(())
}

fn count_new((new, delete): (heap::OperatorNew, heap::OperatorDelete), ops: u64) {
    for _ in 0..ops {
        // SAFETY: operator new has no precondition.
        let p = counted(|| unsafe { new(64) });
        // SAFETY: `p` came from operator new just now.
        unsafe { delete(p) };
    }
}

fn count_delete((new, delete): (heap::OperatorNew, heap::OperatorDelete), ops: u64) {
    for _ in 0..ops {
        // SAFETY: operator new has no precondition.
        let p = unsafe { new(64) };
        // SAFETY: `p` came from operator new just now.
        counted(|| unsafe { delete(p) });
    }
}

/// Counts the call of `f` and nothing else.
#[inline(always)]
fn counted<T>(f: impl FnOnce() -> T) -> T {
    toggle();
    let result = f();
    toggle();
    result
}

/// Frees what a count of this file allocated.
#[inline(always)]
fn free(p: *mut u8) {
    // SAFETY: callers are in this file and hand over a live block that they then forget.
    unsafe { heap::free(p) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_is_found_by_its_name_and_its_lengths_differ() {
        for counted in PAIRS.iter().chain(ENTRIES) {
            assert_eq!(find(counted.name).unwrap().stretch, counted.stretch);
            assert!(counted.lengths.0 < counted.lengths.1);
        }
    }

    #[test]
    fn the_loops_run_outside_of_valgrind() {
        for counted in PAIRS.iter().chain([&NOTHING]) {
            carry_out(counted.stretch, counted.lengths.0).unwrap();
        }
    }
}
