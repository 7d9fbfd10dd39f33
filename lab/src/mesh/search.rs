//! Finds pairs of units that do not overlap: Mesh's SplitMesher.

use super::occupancy::{Group, Unit};
use crate::rng::Rng;

/// How many comparisons each unit gets before the search gives it up, as in Mesh.
const PROBES: usize = 64;

/// The result of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Units merged into others.
    pub merges: usize,
    /// Live bytes that would be copied.
    pub copied: usize,
}

/// One round over all groups.
pub fn round(groups: &mut [Group], rng: &mut Rng) -> Round {
    let mut all = Round::default();
    for group in groups {
        let Round { merges, copied } = pair_off(group, rng);
        all.merges += merges;
        all.copied += copied;
    }
    all
}

/// Shuffles the group and compares its first half with its second, each unit with up to [`PROBES`]
/// others.
fn pair_off(group: &mut Group, rng: &mut Rng) -> Round {
    rng.shuffle(group);
    let second = group.split_off(group.len() / 2);
    let mut first: Vec<Option<Unit>> = group.drain(..).map(Some).collect();
    let mut second: Vec<Option<Unit>> = second.into_iter().map(Some).collect();
    let mut round = Round::default();
    for probe in 0..PROBES.min(second.len()) {
        for (number, unit) in first.iter_mut().enumerate() {
            let other = (number + probe) % second.len();
            round.add(pair(unit, &mut second[other], group));
        }
    }
    group.extend(first.into_iter().chain(second).flatten());
    round
}

/// Merges two units that fit into one unit of `merged`; returns the copied bytes.
fn pair(a: &mut Option<Unit>, b: &mut Option<Unit>, merged: &mut Group) -> Option<usize> {
    if !a.as_ref()?.fits(b.as_ref()?) {
        return None;
    }
    let (mut kept, given) = (a.take()?, b.take()?);
    let copied = kept.merge(given);
    merged.push(kept);
    Some(copied)
}

impl Round {
    fn add(&mut self, merged: Option<usize>) {
        if let Some(copied) = merged {
            self.merges += 1;
            self.copied += copied;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(address: usize, bits: u64) -> Unit {
        Unit {
            mapped: vec![address],
            bits: vec![bits],
        }
    }

    #[test]
    fn two_that_fit_become_one_and_nothing_is_lost() {
        let mut groups = [(0..8).map(|n| unit(n, 1 << (n % 2))).collect::<Group>()];
        let mut rng = Rng::new(1);
        let mut merges = 0;
        loop {
            let round = round(&mut groups, &mut rng);
            merges += round.merges;
            assert_eq!(round.copied, 16 * round.merges);
            if round.merges == 0 {
                break;
            }
        }
        let left = &groups[0];
        assert_eq!(left.len() + merges, 8);
        assert!(merges >= 1 && left.len() >= 4, "{left:?}");
        let mut addresses: Vec<usize> = left.iter().flat_map(|unit| unit.mapped.clone()).collect();
        addresses.sort_unstable();
        assert_eq!(addresses, (0..8).collect::<Vec<_>>());
        assert!(
            left.iter()
                .all(|unit| unit.bits[0].count_ones() as usize == unit.mapped.len())
        );
    }

    #[test]
    fn what_overlaps_stays_apart() {
        let mut groups = [
            (0..6).map(|n| unit(n, 5)).collect::<Group>(),
            vec![unit(9, 0)],
        ];
        assert_eq!(round(&mut groups, &mut Rng::new(1)), Round::default());
        assert_eq!((groups[0].len(), groups[1].len()), (6, 1));
    }
}
