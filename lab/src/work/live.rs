//! The resident memory of a live block.

use std::time::Instant;

use super::heap;
use super::outcome::Outcome;
use crate::machine;

/// Allocates `count` blocks of `size` bytes, writes all of them, and reads the resident size before
/// and after. The table of addresses is resident before.
pub fn live(size: usize, count: u64) -> anyhow::Result<Outcome> {
    let mut blocks = vec![std::ptr::null_mut::<u8>(); count as usize];
    blocks.fill(std::ptr::dangling_mut());
    heap::escape(blocks.as_mut_ptr().cast());
    let before = machine::resident_bytes()?;
    let start = Instant::now();
    for (number, block) in blocks.iter_mut().enumerate() {
        *block = filled(size, number as u8);
    }
    let elapsed = start.elapsed();
    let after = machine::resident_bytes()?;
    for (number, &block) in blocks.iter().enumerate() {
        free_filled(block, size, number as u8);
    }
    let bytes = after.saturating_sub(before) as f64 / count as f64;
    Ok(Outcome {
        ops: count,
        elapsed,
        bytes_per_block: Some(bytes),
    })
}

fn filled(size: usize, byte: u8) -> *mut u8 {
    let p = heap::malloc(size);
    assert!(!p.is_null(), "malloc({size}) failed");
    // SAFETY: the block has `size` bytes.
    unsafe { p.write_bytes(byte, size) };
    p
}

fn free_filled(p: *mut u8, size: usize, byte: u8) {
    // SAFETY: `p` is one of the live blocks and freed once.
    unsafe {
        let intact = p.read() == byte && p.add(size - 1).read() == byte;
        assert!(intact, "a live block was overwritten");
        heap::free(p);
    }
}
