//! Small blocks, most of which are freed at random, then the same bytes in larger ones.

use std::thread;
use std::time::Duration;

use super::scatter::{Blocks, Sizes};
use crate::machine;
use crate::rng::Rng;

/// The parameters.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The number of small blocks.
    pub blocks: usize,
    /// How long the process sleeps before it continues.
    pub sleep: Duration,
    /// Seeds everything random.
    pub seed: u64,
}

/// Of a thousand small blocks, this many are freed.
const FREED: usize = 900;
const SMALL: Sizes = Sizes {
    least: 16,
    most: 512,
};
const LARGER: Sizes = Sizes {
    least: 600,
    most: 4_000,
};

/// Runs the pattern, and prints the resident bytes after each step.
///
/// # Errors
/// If /proc cannot be read.
///
/// # Panics
/// If the heap loses or overlaps a block, or has no memory.
pub fn carry_out(terms: Terms) -> anyhow::Result<()> {
    let mut rng = Rng::new(terms.seed);
    let mut small = Blocks::with_room(terms.blocks);
    // More than are needed: the mean is over half of the largest.
    let bytes = SMALL.mean() * terms.blocks;
    let mut larger = Blocks::with_room(2 * bytes / LARGER.mean() + 1);
    tell("start")?;
    small.fill(SMALL, &mut rng);
    let peak = small.bytes();
    tell("filled")?;
    small.free_at_random(FREED, &mut rng);
    println!("live={}", small.bytes());
    tell("freed")?;
    thread::sleep(terms.sleep);
    tell("slept")?;
    while small.bytes() + larger.bytes() < peak {
        larger.push(LARGER, &mut rng);
    }
    tell("filled again")?;
    println!("live again={}", small.bytes() + larger.bytes());
    let most = machine::peak_resident_kib(std::process::id())?;
    println!("peak={}", most * 1_024);
    small.free_all();
    larger.free_all();
    Ok(())
}

fn tell(step: &str) -> anyhow::Result<()> {
    println!("{step}={}", machine::resident_bytes()?);
    Ok(())
}
