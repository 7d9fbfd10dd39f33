//! Measures a heap's blocks: the usable bytes of each size, the distance between blocks, and values
//! of 24 bytes in boxes, like `Box<String>` or a boxed `Vec`. Part of two programs: the lab's
//! worker, whose heap is the C library's or a preloaded one, and `neap-lab-rust`, whose heap is the
//! crate.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A heap to measure.
pub trait Heap {
    /// A block of `size` bytes; null if memory is short.
    fn take(&self, size: usize) -> *mut u8;

    /// The usable bytes of a block.
    ///
    /// # Safety
    /// - `block` came from [`Heap::take`] and is live.
    unsafe fn usable(&self, block: *mut u8) -> usize;

    /// Frees a block.
    ///
    /// # Safety
    /// - `block` came from [`Heap::take`], is live, and is no longer in use.
    /// - `size` is the requested size.
    unsafe fn give(&self, block: *mut u8, size: usize);
}

/// Blocks tried per size: a heap that splits blocks may leave a remainder with one of them.
const ASKED: usize = 4;

/// Lines `usable=SIZE BYTES` up to `largest`, one for each size whose bytes differ from those of
/// the size before.
///
/// # Panics
/// If memory is short.
pub fn steps(heap: &impl Heap, largest: usize) -> String {
    let mut text = String::new();
    let mut last = 0;
    for size in 1..=largest {
        let usable = least_usable(heap, size);
        if usable != last {
            // Writing into a string cannot fail.
            let _ = writeln!(text, "usable={size} {usable}");
            last = usable;
        }
    }
    text
}

/// The least usable bytes of a few live blocks of `size` bytes.
fn least_usable(heap: &impl Heap, size: usize) -> usize {
    let blocks: [*mut u8; ASKED] = std::array::from_fn(|_| take(heap, size));
    // SAFETY: the blocks are live until the next line but one.
    let usable = blocks.map(|block| unsafe { heap.usable(block) });
    for block in blocks {
        // SAFETY: each block is live and freed once.
        unsafe { heap.give(block, size) };
    }
    usable.into_iter().fold(usize::MAX, usize::min)
}

fn take(heap: &impl Heap, size: usize) -> *mut u8 {
    let block = heap.take(size);
    assert!(!block.is_null(), "no memory for {size} bytes");
    block
}

/// The median distance of neighbours among `count` live blocks of `size` bytes: what one more
/// takes.
///
/// # Panics
/// If memory is short.
pub fn distance(heap: &impl Heap, size: usize, count: usize) -> usize {
    let mut blocks: Vec<*mut u8> = (0..count).map(|_| take(heap, size)).collect();
    blocks.sort_unstable();
    let mut apart: Vec<usize> = blocks
        .windows(2)
        .map(|pair| pair[1] as usize - pair[0] as usize)
        .collect();
    apart.sort_unstable();
    for &block in &blocks {
        // SAFETY: each block is live and freed once.
        unsafe { heap.give(block, size) };
    }
    apart[apart.len() / 2]
}

/// The contents of a box: three words.
type Value = [u64; 3];

/// The cost of the boxes.
pub struct Cost {
    /// Resident bytes added per value.
    pub bytes: f64,
    /// Nanoseconds per box made and dropped at once, one entry per clock reading.
    pub pair: Vec<f64>,
    /// Nanoseconds per box among [`BATCH`] that are made, then dropped in the same order.
    pub batch: Vec<f64>,
}

/// Boxes per batch.
pub const BATCH: usize = 1_000;
/// Boxes between two readings of the clock.
const OPERATIONS: usize = 200_000;

/// Makes `count` boxes and keeps them, then reads the clock `readings` times for each kind.
/// `resident` returns the resident bytes of this process.
///
/// # Panics
/// If a value changed in its box.
pub fn measure(count: usize, readings: usize, resident: impl Fn() -> u64) -> Cost {
    let bytes = resident_bytes(count, resident);
    let warm_up = (pairs(), batches());
    black_box(warm_up);
    let (pair, batch) = (0..readings).map(|_| (pairs(), batches())).unzip();
    Cost { bytes, pair, batch }
}

fn resident_bytes(count: usize, resident: impl Fn() -> u64) -> f64 {
    let mut boxes: Vec<Option<Box<Value>>> = Vec::with_capacity(count);
    // Written before the first reading, so that the table itself is resident then.
    boxes.resize_with(count, || black_box(None));
    black_box(boxes.as_mut_ptr());
    let before = resident();
    for (number, place) in boxes.iter_mut().enumerate() {
        *place = Some(Box::new([number as u64; 3]));
    }
    let after = resident();
    let intact = boxes.iter().flatten().enumerate();
    assert!(
        intact.fold(true, |all, (number, value)| all
            && **value == [number as u64; 3]),
        "a value changed in its box"
    );
    after.saturating_sub(before) as f64 / count as f64
}

fn pairs() -> f64 {
    each(|| {
        for number in 0..OPERATIONS as u64 {
            drop(black_box(Box::new([number; 3])));
        }
    })
}

fn batches() -> f64 {
    let mut boxes: Vec<Box<Value>> = Vec::with_capacity(BATCH);
    each(|| {
        for _ in 0..OPERATIONS / BATCH {
            boxes.extend((0..BATCH as u64).map(|number| black_box(Box::new([number; 3]))));
            boxes.clear();
        }
    })
}

/// Nanoseconds per operation of [`OPERATIONS`].
fn each(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    let elapsed: Duration = start.elapsed();
    elapsed.as_nanos() as f64 / OPERATIONS as f64
}

/// The report for the harness: the medians of the readings.
pub fn report(cost: &mut Cost) -> String {
    let Cost { bytes, pair, batch } = cost;
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (pair, batch) = (median(pair), median(batch));
    format!("bytes_per_value={bytes}\nns_per_pair={pair}\nns_in_batch={batch}\n")
}
