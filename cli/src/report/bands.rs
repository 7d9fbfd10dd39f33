//! The resident memory of a process, divided into a few distinguishable bands.

use crate::recording::format::Told;
use neap_shared::ledger::Ledger;

/// How many bands there are.
pub const BANDS: usize = 9;
/// Resident memory outside the heap.
const REST: usize = 8;

/// A band's name, CSS colour and meaning.
#[derive(Debug)]
pub struct Band {
    /// Also the class of its elements on the page.
    pub key: &'static str,
    /// The name for people.
    pub name: &'static str,
    /// One sentence without its full stop.
    pub meaning: &'static str,
}

/// From the bottom up.
#[rustfmt::skip]
pub const ALL: [Band; BANDS] = [
    band("used", "In use", "blocks that the program holds and has touched"),
    band("rounding", "Rounding", "what size classes add to what was asked for"),
    band("slabs", "Free in slabs", "free blocks, and ends where none fits, between blocks in use"),
    band("magazines", "Magazines", "free blocks that threads keep at hand"),
    band("free", "Free pages", "free memory that was used before and is not yet given back"),
    band("huge", "Huge-page excess", "free memory that is resident because a huge page brought it"),
    band("stacks", "Coroutine stacks", "in use, idle, and what else is in their spans"),
    band("own", "Neap's own", "tables and caches, and pages around sampled blocks"),
    band("rest", "Not the heap", "code, files, thread stacks, the program's own mappings"),
];

const fn band(key: &'static str, name: &'static str, meaning: &'static str) -> Band {
    Band { key, name, meaning }
}

/// The bands at the time of one set of figures, in bytes, and the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// In the order of [`ALL`].
    pub bytes: [u64; BANDS],
    /// Resident bytes of the whole process.
    pub rss: u64,
}

impl Cut {
    /// Divides the process as it was at the time of the figures. The kernel counts at a slightly
    /// different time. If the heap's figures exceed its count, the whole becomes larger.
    pub fn of(told: &Told) -> Self {
        let mut bytes = heap_bands(&told.heap.ledger);
        let heap = sum(&bytes);
        bytes[REST] = told.rss.saturating_sub(heap);
        Self {
            bytes,
            rss: told.rss.max(heap),
        }
    }
}

fn sum(parts: &[u64]) -> u64 {
    (parts.iter()).fold(0, |sum: u64, part| sum.saturating_add(*part))
}

fn heap_bands(ledger: &Ledger) -> [u64; BANDS] {
    let touched = sum(&[ledger.requested, ledger.rounding])
        .saturating_sub(sum(&[ledger.untouched, ledger.swapped]));
    let rounding = ledger.rounding.min(touched);
    [
        touched - rounding,
        rounding,
        sum(&[ledger.tails, ledger.slab_free]),
        sum(&[ledger.magazines, ledger.quarantine]),
        ledger.free_dirty,
        ledger.huge_excess,
        sum(&[ledger.stacks_used, ledger.stacks_idle, ledger.stacks_free]),
        sum(&[ledger.metadata, ledger.sampling]),
        0,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::format::Heap;

    fn cut(rss: u64, ledger: Ledger) -> Cut {
        let heap = Heap {
            ledger,
            ..Heap::default()
        };
        Cut::of(&Told {
            at_ms: 0,
            until_ms: 0,
            rss,
            heap: &heap,
        })
    }

    #[test]
    fn bands_add_up_to_the_process() {
        let mut ledger = Ledger {
            requested: 1000,
            rounding: 100,
            untouched: 300,
            swapped: 50,
            tails: 1,
            slab_free: 2,
            magazines: 3,
            quarantine: 4,
            free_dirty: 5,
            huge_excess: 6,
            stacks_used: 7,
            stacks_idle: 8,
            stacks_free: 9,
            metadata: 10,
            sampling: 11,
            ..Ledger::default()
        };
        ledger.resident = u64::try_from(ledger.sum()).unwrap();
        let cut = cut(2000, ledger);
        assert_eq!(cut.bytes.iter().sum::<u64>(), 2000);
        assert_eq!(cut.bytes[REST], 2000 - ledger.resident);
        assert_eq!(cut.bytes[..2], [650, 100]);
    }

    #[test]
    fn figures_that_make_no_sense_are_survived() {
        let ledger = Ledger {
            requested: u64::MAX,
            rounding: u64::MAX,
            slab_free: u64::MAX,
            tails: 1,
            ..Ledger::default()
        };
        assert_eq!(cut(5, ledger).rss, u64::MAX);
        assert_eq!(cut(0, Ledger::default()), Cut::default());
    }
}
