//! Measures a heap's blocks of each size: their usable bytes, and the distance between them. Part
//! of two programs: the lab's worker, whose heap is the C library's or a preloaded one, and
//! `neap-lab-rust`, whose heap is the crate.

use std::fmt::Write as _;

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
