//! The workloads that leave the holes.

use clap::ValueEnum;

use crate::rng::Rng;
use crate::work::scatter::{Blocks, Sizes};

/// How a workload allocates and frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// 16 to 512 bytes, a random half freed.
    #[value(name = "random-50")]
    Random50,
    /// The same, 80 % freed.
    #[value(name = "random-80")]
    Random80,
    /// The same, 90 % freed: the workload of `fragmentation`.
    #[value(name = "random-90")]
    Random90,
    /// The same, 95 % freed.
    #[value(name = "random-95")]
    Random95,
    /// 64 bytes, like a store with entries of one size, a random half freed.
    #[value(name = "one-size-50")]
    OneSize50,
    /// The same, 90 % freed.
    #[value(name = "one-size-90")]
    OneSize90,
    /// 16 to 512 bytes in a hundred phases; 3 % of each phase outlive the next.
    Phases,
    /// 16 to 512 bytes, each replaced three times in random order, then 90 % freed.
    Server,
}

const MIXED: Sizes = Sizes {
    least: 16,
    most: 512,
};
const ENTRY: Sizes = Sizes {
    least: 64,
    most: 64,
};
const PHASES: usize = 100;
/// Of a thousand blocks of a phase, this many end with the next one.
const SHORT_LIVED: usize = 970;
const REPLACED: usize = 3;

impl Workload {
    /// Its name on the command line and in the record.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Random50 => "random-50",
            Workload::Random80 => "random-80",
            Workload::Random90 => "random-90",
            Workload::Random95 => "random-95",
            Workload::OneSize50 => "one-size-50",
            Workload::OneSize90 => "one-size-90",
            Workload::Phases => "phases",
            Workload::Server => "server",
        }
    }

    /// Takes `count` blocks, and frees them in the workload's manner.
    ///
    /// # Panics
    /// If the heap loses or overlaps a block, or has no memory.
    pub fn carry_out(self, count: usize, rng: &mut Rng) -> Blocks {
        let mut blocks = Blocks::with_room(count);
        match self {
            Workload::Random50 => at_random(&mut blocks, MIXED, 500, rng),
            Workload::Random80 => at_random(&mut blocks, MIXED, 800, rng),
            Workload::Random90 => at_random(&mut blocks, MIXED, 900, rng),
            Workload::Random95 => at_random(&mut blocks, MIXED, 950, rng),
            Workload::OneSize50 => at_random(&mut blocks, ENTRY, 500, rng),
            Workload::OneSize90 => at_random(&mut blocks, ENTRY, 900, rng),
            Workload::Phases => in_phases(&mut blocks, count, rng),
            Workload::Server => replaced(&mut blocks, rng),
        }
        blocks
    }
}

fn at_random(blocks: &mut Blocks, sizes: Sizes, permille: usize, rng: &mut Rng) {
    blocks.fill(sizes, rng);
    blocks.free_at_random(permille, rng);
}

fn in_phases(blocks: &mut Blocks, count: usize, rng: &mut Rng) {
    let mut last = 0..0;
    for phase in 0..PHASES {
        let this = count * phase / PHASES..count * (phase + 1) / PHASES;
        this.clone().for_each(|_| blocks.push(MIXED, rng));
        blocks.free_among(last, SHORT_LIVED, rng);
        last = this;
    }
    blocks.free_among(last, SHORT_LIVED, rng);
}

fn replaced(blocks: &mut Blocks, rng: &mut Rng) {
    blocks.fill(MIXED, rng);
    for _ in 0..REPLACED * blocks.len() {
        let number = rng.below(blocks.len());
        blocks.replace(number, MIXED, rng);
    }
    blocks.free_at_random(900, rng);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_leaves_its_share() {
        let shares = [500, 200, 100, 50, 500, 100, 30, 100];
        for (workload, share) in Workload::value_variants().iter().zip(shares) {
            let mut blocks = workload.carry_out(20_000, &mut Rng::new(1));
            let live = blocks.live().count() * 1_000 / 20_000;
            assert_eq!(blocks.len(), 20_000, "{workload:?}");
            assert!(live.abs_diff(share) <= 20, "{workload:?}: {live}");
            blocks.free_all();
        }
    }
}
