//! One block that grows by realloc, written as it grows.

use std::time::Instant;

use super::heap;
use super::outcome::Outcome;
use crate::workloads::Growth;

const FIRST: usize = 1_024;

/// Grows a block from 1 KiB to `limit` bytes, `ops` times.
pub fn grow(limit: usize, growth: Growth, ops: u64) -> Outcome {
    let start = Instant::now();
    for _ in 0..ops {
        grow_once(limit, growth);
    }
    Outcome::timed(ops, start.elapsed())
}

fn grow_once(limit: usize, growth: Growth) {
    let mut size = FIRST;
    let mut p = heap::malloc(size);
    assert!(!p.is_null(), "malloc({size}) failed");
    write_tail(p, 0, size);
    while size < limit {
        let larger = next_size(size, growth).min(limit);
        // SAFETY: `p` is live, and from here on only the new address is used.
        p = unsafe { heap::realloc(p, larger) };
        assert!(!p.is_null(), "realloc to {larger} failed");
        write_tail(p, size, larger);
        size = larger;
    }
    check(p, size);
    // SAFETY: `p` is the last address that realloc gave.
    unsafe { heap::free(p) };
}

fn next_size(size: usize, growth: Growth) -> usize {
    match growth {
        Growth::Double => size * 2,
        Growth::Eighth => size + size / 8,
    }
}

/// The byte at `offset`: the same within a 4 KiB stretch, another one in the next.
fn pattern(offset: usize) -> u8 {
    (offset >> 12) as u8 ^ 0x5a
}

/// Writes the pattern into the bytes from `from` to `to`.
fn write_tail(p: *mut u8, from: usize, to: usize) {
    let mut at = from;
    while at < to {
        let end = to.min((at | 4_095) + 1);
        // SAFETY: the block has `to` bytes.
        unsafe { p.add(at).write_bytes(pattern(at), end - at) };
        at = end;
    }
}

/// Checks one byte in every 512.
fn check(p: *mut u8, size: usize) {
    for offset in (0..size).step_by(512) {
        // SAFETY: `offset` is inside the block.
        let byte = unsafe { p.add(offset).read() };
        assert!(byte == pattern(offset), "realloc lost the byte at {offset}");
    }
}
