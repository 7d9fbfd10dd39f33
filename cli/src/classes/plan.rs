//! The best table of a given number of classes for a histogram, by dynamic programming, and the
//! file of a table.
//!
//! The waste of a table is what its blocks have beyond the requested bytes, summed over all
//! allocations. The waste between two neighbouring classes depends on these two alone. So the best
//! table of `k` classes whose last one is `c` consists of `c` and the best table of `k - 1`
//! classes whose last one is `b`, for some class `b` below `c`.
//!
//! The plan also bounds the waste of sizes that the histogram lacks. Between two neighbouring
//! classes, no size may waste more than it may with the built-in classes ([`usual`]). The powers
//! of two from 512 bytes on are always included, because aligned requests need them.

use super::histogram::Histogram;
use crate::failure::{Failure, shown};
use crate::files;
use neap_shared::classes::{BUILT_IN, CLASSES, MAX_BLOCK, MOST_BYTES};
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

/// The most classes that the library holds.
pub const MOST: usize = CLASSES;

/// Bytes between neighbouring candidates.
const STEP: usize = 16;
const CANDIDATES: usize = MAX_BLOCK / STEP;
/// The least power of two that every table must include, in bytes.
const LEAST_POWER: usize = 512;

/// The built-in classes for C callers, smallest first.
pub fn built_in() -> Vec<u16> {
    let serves_c = |size: &u16| usize::from(*size).is_multiple_of(STEP);
    BUILT_IN[1..].iter().copied().filter(serves_c).collect()
}

/// Whether a class of `class` bytes after one of `before` keeps the waste of any size between them
/// within the bound of the built-in classes: 15 bytes, or an eighth of the block.
fn usual(before: usize, class: usize) -> bool {
    let most_wasted = class - (before + 1);
    most_wasted < STEP || most_wasted * 8 <= class
}

/// The smallest candidate that `class` may follow.
fn earliest(class: usize) -> usize {
    let mut before = class - 1;
    while before > 0 && !is_fixed(before) && usual((before - 1) * STEP, class * STEP) {
        before -= 1;
    }
    before
}

fn is_fixed(candidate: usize) -> bool {
    let bytes = candidate * STEP;
    bytes >= LEAST_POWER && bytes.is_power_of_two()
}

/// The fewest classes that bound the waste of every size.
pub fn least() -> usize {
    let mut class = CANDIDATES;
    let mut count = 0;
    while class > 0 {
        class = earliest(class);
        count += 1;
    }
    count
}

/// The table of at most `most` classes with the least waste for `histogram`. Among equals, the one
/// with the fewest classes.
///
/// # Errors
///
/// `most` is fewer than [`least`] or more than [`MOST`].
pub fn best(histogram: &Histogram, most: usize) -> Result<Vec<u16>, Failure> {
    let least = least();
    if !(least..=MOST).contains(&most) {
        return Err(failure!(
            "--max-classes {most}: the library holds {MOST}, and fewer than {least} would waste \
             more on other \
             sizes than the built-in classes"
        ));
    }
    let plain = Search::new(histogram, Smallest::Sixteen).run(most);
    // Requests of up to 8 bytes need no 16-byte alignment.
    let eight = Search::new(histogram, Smallest::Eight).run(most - 1);
    let (waste, mut sizes) = plain;
    match eight {
        (less, rest) if less < waste && !rest.is_empty() => {
            sizes = vec![8];
            sizes.extend(rest);
        }
        _ => {}
    }
    Ok(sizes)
}

/// The class that serves requests of up to 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Smallest {
    Eight,
    Sixteen,
}

struct Search {
    /// Allocations up to each candidate.
    below: Vec<u128>,
    /// Bytes of the blocks that a class of 8 serves.
    apart: u128,
    earliest: Vec<usize>,
}

impl Search {
    fn new(histogram: &Histogram, smallest: Smallest) -> Self {
        let mut below = vec![0; CANDIDATES + 1];
        let mut apart = 0;
        for (size, figure) in histogram.steps() {
            if size <= 8 && smallest == Smallest::Eight {
                apart += u128::from(figure.count) * 8
            } else {
                below[size.div_ceil(STEP).max(1)] += u128::from(figure.count)
            }
        }
        for candidate in 1..=CANDIDATES {
            below[candidate] += below[candidate - 1];
        }
        let earliest = (0..=CANDIDATES).map(|class| match class {
            0 => 0,
            _ => earliest(class),
        });
        Self {
            below,
            apart,
            earliest: earliest.collect(),
        }
    }

    /// The table and the usable bytes of all allocations under it; an empty table if `most` is too
    /// few.
    fn run(&self, most: usize) -> (u128, Vec<u16>) {
        let mut costs = vec![None; CANDIDATES + 1];
        costs[0] = Some(0);
        let mut paths: Vec<Vec<u16>> = Vec::new();
        let mut best: Option<(u128, usize)> = None;
        for round in 0..most {
            let (next, path) = self.round(&costs);
            costs = next;
            paths.push(path);
            if let Some(cost) = costs[CANDIDATES]
                && best.is_none_or(|(least, _)| cost < least)
            {
                best = Some((cost, round));
            }
        }
        match best {
            Some((cost, round)) => (cost + self.apart, trace(&paths[..=round])),
            None => (u128::MAX, Vec::new()),
        }
    }

    /// The costs with one more class, and for each candidate its predecessor.
    fn round(&self, costs: &[Option<u128>]) -> (Vec<Option<u128>>, Vec<u16>) {
        let mut next = vec![None; CANDIDATES + 1];
        let mut path = vec![0; CANDIDATES + 1];
        for class in 1..=CANDIDATES {
            let bytes = (class * STEP) as u128;
            let cost_after = |before: usize| {
                let served = self.below[class] - self.below[before];
                costs[before].map(|cost| (cost + served * bytes, before))
            };
            let found = (self.earliest[class]..class).filter_map(cost_after).min();
            if let Some((cost, before)) = found {
                next[class] = Some(cost);
                path[class] = before as u16;
            }
        }
        (next, path)
    }
}

/// Traces back the table that leads to the largest class.
fn trace(paths: &[Vec<u16>]) -> Vec<u16> {
    let mut class = CANDIDATES;
    let mut sizes = Vec::new();
    for path in paths.iter().rev() {
        sizes.push((class * STEP) as u16);
        class = usize::from(path[class]);
    }
    sizes.reverse();
    sizes
}

/// The file of a table, in the format that the library reads.
pub fn file(sizes: &[u16], program: &str) -> String {
    let program = program.replace(char::is_control, "?");
    let sizes: String = sizes.iter().map(|size| format!("{size}\n")).collect();
    let first = neap_shared::classes::FIRST_LINE;
    format!("{first}\n# for {program}, by neap tune\n{sizes}")
}

/// The absolute name of a file of classes, for `neap run --classes`, because the program's
/// processes may run in other directories.
///
/// # Errors
///
/// The file cannot be read, or the library would not accept it.
pub fn absolute(file: &Path) -> Result<OsString, Failure> {
    let refused = |why: &dyn std::fmt::Display| {
        failure!(
            "--classes {}: {why}; neap tune writes such files",
            shown(file)
        )
    };
    let mut text = Vec::new();
    files::regular(file)
        .and_then(|open| open.take(MOST_BYTES as u64 + 1).read_to_end(&mut text))
        .map_err(|error| refused(&error))?;
    neap_shared::classes::parse(&text).map_err(|error| refused(&error))?;
    let absolute = std::path::absolute(file).map_err(|error| refused(&error))?;
    Ok(absolute.into_os_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_shared::status_page::{SIZES, SizeFigure};

    fn histogram(entries: &[(usize, u64)]) -> Histogram {
        let mut status_page = vec![SizeFigure::default(); SIZES];
        for &(size, count) in entries {
            let figure = &mut status_page[size.div_ceil(8)];
            figure.count += count;
            figure.bytes += count * size as u64;
        }
        let mut histogram = Histogram::new("test");
        histogram.add(&status_page);
        histogram
    }

    fn usable(entries: &[(usize, u64)], sizes: &[u16]) -> u64 {
        let block = |size: usize| {
            let serves = |&&class: &&u16| usize::from(class) >= size.next_multiple_of(8);
            u64::from(*sizes.iter().find(serves).unwrap())
        };
        entries
            .iter()
            .map(|&(size, count)| count * block(size))
            .sum()
    }

    fn check(sizes: &[u16], most: usize) {
        assert!(sizes.len() <= most && usize::from(*sizes.last().unwrap()) == MAX_BLOCK);
        let text = crate::classes::file(sizes, "x");
        let read = neap_shared::classes::parse(text.as_bytes()).unwrap();
        assert_eq!(read.list(), sizes);
        let mut before = 0;
        for &class in sizes {
            let class = usize::from(class);
            assert!(usual(before, class), "{before} {class}");
            before = class;
        }
        for power in 9..=15 {
            assert!(sizes.contains(&(1 << power)), "{power}");
        }
    }

    #[test]
    fn the_built_in_table_is_one_that_is_allowed() {
        let sizes = built_in();
        assert_eq!(sizes.len(), 72);
        check(&sizes, MOST);
        assert!(least() < sizes.len() && least() > 40);
    }

    #[test]
    fn sizes_that_are_asked_for_get_classes_of_their_own() {
        let entries = [(5, 9), (1000, 100), (2320, 50), (4400, 7), (11_000, 1)];
        let sizes = best(&histogram(&entries), MOST).unwrap();
        check(&sizes, MOST);
        for own in [8, 1008, 2320, 4400, 11_008] {
            assert!(sizes.contains(&own), "{own}");
        }
        let few = best(&histogram(&entries), least()).unwrap();
        check(&few, least());
        assert!(usable(&entries, &few) >= usable(&entries, &sizes));
    }

    #[test]
    fn nothing_asked_for_is_served_by_the_fewest_classes() {
        let sizes = best(&histogram(&[]), MOST).unwrap();
        check(&sizes, MOST);
        assert_eq!(sizes.len(), least());
        assert!(best(&histogram(&[]), least() - 1).is_err());
        assert!(best(&histogram(&[]), MOST + 1).is_err());
    }

    /// Exchanging one class for another never improves the plan, nor is it worse than the built-in
    /// table.
    #[test]
    fn a_plan_cannot_be_improved_by_moving_one_class() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for _ in 0..3 {
            let entries: Vec<(usize, u64)> = (0..60)
                .map(|_| {
                    let bits = 3 + random(12);
                    (1 + random(1 << bits) as usize, random(1000))
                })
                .collect();
            let histogram = histogram(&entries);
            let sizes = best(&histogram, 75).unwrap();
            check(&sizes, 75);
            let cost = usable(&entries, &sizes);
            assert!(cost <= usable(&entries, &built_in()));
            for at in 1..sizes.len() - 1 {
                for moved in [sizes[at] - 16, sizes[at] + 16] {
                    let mut other = sizes.clone();
                    other[at] = moved;
                    let sound = other.is_sorted_by(|a, b| a < b)
                        && (1..=15 - 9).all(|n| other.contains(&(512 << n)))
                        && other.contains(&512)
                        && (1..other.len()).all(|n| usual(other[n - 1].into(), other[n].into()));
                    assert!(!sound || usable(&entries, &other) >= cost);
                }
            }
        }
    }

    #[test]
    fn a_file_without_an_end_or_too_long_is_refused() {
        let long = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(long.path(), [b'#'; MOST_BYTES + 1]).unwrap();
        for (file, because) in [
            (Path::new("/dev/zero"), "it is no regular file"),
            (long.path(), "longer than 16384 bytes"),
        ] {
            let why = absolute(file).unwrap_err().to_string();
            assert!(why.contains(because), "{why}");
        }
    }
}
