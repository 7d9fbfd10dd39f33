//! Memory that is allocated, written, freed, and then left alone. At every moment of interest the
//! process stops and sleeps until its standard input says to go on, so that it can be observed from
//! outside.

use std::io::{self, Write as _};
use std::sync::{Barrier, Mutex};
use std::thread;

use clap::ValueEnum;

use super::heap::{self, Block};
use crate::names::named;

named! {
    /// Which threads allocate and free.
    #[derive(ValueEnum)]
    pub enum Pattern {
        /// Blocks of 1 KiB, freed by the thread that allocated them.
        Own = "own",
        /// Blocks of 1 KiB, allocated by a thread that has since ended, freed by another.
        Other = "other",
        /// Blocks of 1 KiB, freed by another thread while the allocating thread lives and stays
        /// idle.
        IdleOwner = "idle-owner",
        /// Blocks of 1 KiB of eight threads, each of which frees its share and then stays idle.
        Eight = "eight",
        /// Blocks of 10 MiB.
        Large = "large",
    }
}

const SMALL: usize = 1 << 10;
const LARGE: usize = 10 << 20;
const THREADS: usize = 8;

impl Pattern {
    fn block_bytes(self) -> usize {
        match self {
            Pattern::Large => LARGE,
            _ => SMALL,
        }
    }
}

/// The moments at which the process stops, in order.
pub const MOMENTS: [&str; 3] = ["before", "filled", "freed"];

/// Reports the moment, then sleeps until a line or the end of standard input.
fn stop_at(moment: &str) {
    println!("moment={moment}");
    io::stdout().flush().expect("the harness is gone");
    io::stdin()
        .read_line(&mut String::new())
        .expect("the harness is gone");
}

/// Allocates, writes and frees about `bytes` bytes, at least a few blocks.
///
/// # Panics
/// If the heap loses or overlaps a block or has no memory, or the harness has ended.
pub fn carry_out(pattern: Pattern, bytes: usize) {
    let size = pattern.block_bytes();
    let count = match pattern {
        Pattern::Large => (bytes / size).max(1),
        _ => (bytes / size).next_multiple_of(THREADS).max(THREADS),
    };
    // Written before the first moment, so that the table itself is resident then.
    let mut blocks = vec![Block::NONE; count];
    heap::escape(blocks.as_mut_ptr().cast());
    blocks.fill(Block::NONE);
    stop_at(MOMENTS[0]);
    match pattern {
        Pattern::Own | Pattern::Large => own(&mut blocks, size),
        Pattern::Other => other(&mut blocks, size),
        Pattern::IdleOwner => idle_owner(&mut blocks, size),
        Pattern::Eight => eight(&mut blocks, size),
    }
}

fn own(blocks: &mut [Block], size: usize) {
    fill(blocks, size);
    stop_at(MOMENTS[1]);
    empty(blocks);
    stop_at(MOMENTS[2]);
}

fn other(blocks: &mut [Block], size: usize) {
    thread::scope(|scope| {
        scope.spawn(|| fill(blocks, size));
    });
    stop_at(MOMENTS[1]);
    empty(blocks);
    stop_at(MOMENTS[2]);
}

fn idle_owner(blocks: &mut [Block], size: usize) {
    let (blocks, turn) = (Mutex::new(blocks), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            fill(&mut blocks.lock().expect("no thread panics"), size);
            turn.wait();
            turn.wait();
        });
        turn.wait();
        stop_at(MOMENTS[1]);
        empty(&blocks.lock().expect("no thread panics"));
        stop_at(MOMENTS[2]);
        turn.wait();
    });
}

fn eight(blocks: &mut [Block], size: usize) {
    let turn = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        for share in blocks.chunks_mut(blocks.len() / THREADS) {
            let turn = &turn;
            scope.spawn(move || {
                fill(share, size);
                turn.wait();
                turn.wait();
                empty(share);
                turn.wait();
                turn.wait();
            });
        }
        turn.wait();
        stop_at(MOMENTS[1]);
        turn.wait();
        turn.wait();
        stop_at(MOMENTS[2]);
        turn.wait();
    });
}

/// Takes and writes every block; its place in the table is its stamp.
fn fill(blocks: &mut [Block], size: usize) {
    for (number, block) in blocks.iter_mut().enumerate() {
        *block = Block::written(size, number as u64);
    }
}

fn empty(blocks: &[Block]) {
    for (number, block) in blocks.iter().enumerate() {
        // SAFETY: `fill` took every block with this stamp, and each is given once.
        unsafe { block.give(number as u64) };
    }
}
