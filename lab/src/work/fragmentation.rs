//! Small blocks, most of which are freed at random, then the same bytes in larger ones. The table
//! of the blocks has little more than their addresses, so that it is small compared with them.

use std::time::Duration;
use std::{ptr, thread};

use clap::Args;

use super::heap::{self, Block};
use crate::machine;
use crate::stats::Rng;
use crate::workloads::Sizes;

/// Blocks, some of them freed already. A block is written completely when it is taken, and its
/// stamp is checked when it is freed.
pub struct Blocks {
    /// Null for a freed block.
    starts: Vec<*mut u8>,
    sizes: Vec<u16>,
    bytes: usize,
}

impl Blocks {
    /// No blocks; the table has room for `count`, and is resident.
    pub fn with_room(count: usize) -> Blocks {
        let mut blocks = Blocks {
            starts: vec![ptr::dangling_mut(); count],
            sizes: vec![1; count],
            bytes: 0,
        };
        heap::escape(blocks.starts.as_mut_ptr().cast());
        heap::escape(blocks.sizes.as_mut_ptr().cast());
        blocks.starts.clear();
        blocks.sizes.clear();
        blocks
    }

    /// Requested bytes of the live blocks.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Blocks taken so far, freed or not.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Takes one more block.
    ///
    /// # Panics
    /// If the heap has no memory, or the table no room: moving the table would add fragmentation of
    /// its own.
    pub fn push(&mut self, sizes: Sizes, rng: &mut Rng) {
        let number = self.len();
        assert!(number < self.starts.capacity(), "the table is full");
        self.starts.push(ptr::null_mut());
        self.sizes.push(0);
        self.take(number, sizes.random(rng));
    }

    /// Takes blocks until the table is full.
    pub fn fill(&mut self, sizes: Sizes, rng: &mut Rng) {
        while self.len() < self.starts.capacity() {
            self.push(sizes, rng);
        }
    }

    /// Frees each live block with a probability of `permille` in a thousand.
    pub fn free_at_random(&mut self, permille: usize, rng: &mut Rng) {
        for number in 0..self.len() {
            if rng.below(1_000) < permille {
                self.free(number);
            }
        }
    }

    /// Frees all live blocks.
    pub fn free_all(&mut self) {
        (0..self.len()).for_each(|number| self.free(number));
    }

    fn take(&mut self, number: usize, bytes: usize) {
        let start = Block::take(bytes, number as u64).start();
        // SAFETY: the block has `bytes` bytes; a range between its stamps, which may be empty.
        unsafe { start.add(8).write_bytes(0x5a, bytes.saturating_sub(16)) };
        self.starts[number] = start;
        self.sizes[number] = u16::try_from(bytes).expect("a small block");
        self.bytes += bytes;
    }

    fn free(&mut self, number: usize) {
        let start = std::mem::replace(&mut self.starts[number], ptr::null_mut());
        if start.is_null() {
            return;
        }
        let size = usize::from(self.sizes[number]);
        self.bytes -= size;
        // SAFETY: taken with this size and stamp, and given once: its place in the table is null
        // now.
        unsafe { Block::at(start, size).give(number as u64) };
    }
}

/// The parameters.
#[derive(Debug, Args)]
pub struct Terms {
    /// The number of small blocks.
    pub blocks: usize,
    /// How many milliseconds the process sleeps before it continues.
    pub sleep: u64,
    /// Seeds everything random.
    pub seed: u64,
}

/// Of a thousand small blocks, this many are freed.
const FREED: usize = 900;
const SMALL: Sizes = Sizes(16, 512);
const LARGER: Sizes = Sizes(600, 4_000);

/// Runs the pattern, and prints the resident bytes after each step.
///
/// # Errors
/// If /proc cannot be read.
///
/// # Panics
/// If the heap loses or overlaps a block, or has no memory.
pub fn carry_out(terms: &Terms) -> anyhow::Result<()> {
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
    thread::sleep(Duration::from_millis(terms.sleep));
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
    println!("{step}={}", machine::resident_bytes("self")?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes(16, 48);

    #[test]
    fn bytes_and_addresses_are_those_of_the_live_blocks() {
        let (mut blocks, mut rng) = (Blocks::with_room(1_000), Rng::new(1));
        blocks.fill(SIZES, &mut rng);
        let live = |blocks: &Blocks| {
            blocks
                .starts
                .iter()
                .filter(|start| !start.is_null())
                .count()
        };
        assert_eq!((blocks.len(), live(&blocks)), (1_000, 1_000));
        let mean = blocks.bytes() / 1_000;
        assert!(mean.abs_diff(SIZES.mean()) <= 1, "{mean}");
        blocks.free_at_random(900, &mut rng);
        let left = live(&blocks);
        assert!((50..=150).contains(&left), "{left}");
        assert!((16 * left..=48 * left).contains(&blocks.bytes()));
        blocks.free_all();
        assert_eq!((blocks.bytes(), live(&blocks)), (0, 0));
    }

    #[test]
    #[should_panic(expected = "the table is full")]
    fn a_full_table_takes_no_more() {
        let (mut blocks, mut rng) = (Blocks::with_room(1), Rng::new(3));
        blocks.fill(SIZES, &mut rng);
        blocks.push(SIZES, &mut rng);
    }
}
