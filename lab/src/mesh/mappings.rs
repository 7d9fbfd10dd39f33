//! Counts the mappings that the kernel would have to keep.

use std::collections::{BTreeMap, BTreeSet};

use super::occupancy::Group;

/// Mappings that merging adds to those of an arena on one file, in which every address first had
/// its own place. One mapping extends as far as addresses and file offsets increase together.
pub fn added(groups: &[Group], grain: usize) -> usize {
    let places: BTreeMap<usize, usize> = groups
        .iter()
        .flatten()
        .flat_map(|unit| unit.mapped.iter().map(|&at| (at, unit.mapped[0])))
        .collect();
    let place = |at: usize| places.get(&at).copied().unwrap_or(at);
    let breaks = |at: &usize| place(*at) != place(at - grain) + grain;
    let moved = places.iter().filter(|(at, place)| at != place);
    let edges = moved.flat_map(|(&at, _)| [at, at + grain]);
    let edges: BTreeSet<usize> = edges.filter(breaks).collect();
    edges.len()
}

#[cfg(test)]
mod tests {
    use super::super::occupancy::Unit;
    use super::*;

    fn group(units: &[&[usize]]) -> Group {
        let unit = |mapped: &&[usize]| Unit {
            mapped: mapped.to_vec(),
            bits: vec![0],
        };
        units.iter().map(unit).collect()
    }

    #[test]
    fn a_page_apart_splits_a_mapping_in_three_and_neighbours_may_go_together() {
        assert_eq!(added(&[group(&[&[10], &[20]])], 1), 0);
        assert_eq!(added(&[group(&[&[10, 20]])], 1), 2);
        // 20 and 21 go to 10 and 11: one mapping for both.
        assert_eq!(added(&[group(&[&[10, 20], &[11, 21]])], 1), 2);
        // To 10 and 15: one each.
        assert_eq!(added(&[group(&[&[10, 20]]), group(&[&[15, 21]])], 1), 3);
    }
}
