//! Values of 24 bytes in boxes, like `Box<String>` or a boxed `Vec`: the memory and the time that
//! one takes. Part of two programs, like [`super::usable`].

use std::hint::black_box;
use std::time::{Duration, Instant};

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
