//! The heap's 100 MB: allocated, touched, dropped.

use anyhow::ensure;

use super::sizes::{Blocks, Sizes};
use crate::machine;
use crate::pagemap::page_size;
use crate::work::heap;

/// Allocates and touches everything, then frees it. Returns the resident KiB in between.
pub fn come_and_go(sizes: &Sizes) -> anyhow::Result<u64> {
    match sizes.blocks {
        Blocks::One => one(sizes.heap_bytes),
        Blocks::Of(bytes) => many(sizes.heap_bytes, bytes),
    }
}

fn one(bytes: usize) -> anyhow::Result<u64> {
    let block = heap::malloc(bytes);
    ensure!(!block.is_null(), "malloc({bytes}) failed");
    // SAFETY: the block is live, has `bytes` bytes and is this thread's own.
    unsafe { touch(block, bytes) };
    let full = machine::resident_kib("self")?;
    // SAFETY: allocated above, and no longer in use.
    unsafe { heap::free(block) };
    Ok(full)
}

/// The blocks form a list, because a table of them would take memory of its own.
fn many(total: usize, bytes: usize) -> anyhow::Result<u64> {
    let mut list: *mut u8 = std::ptr::null_mut();
    for _ in 0..total / bytes {
        let block = heap::malloc(bytes);
        ensure!(!block.is_null(), "malloc({bytes}) failed");
        // SAFETY: the block is live, this thread's own, and has room for an address.
        unsafe {
            touch(block, bytes);
            block.cast::<*mut u8>().write(list);
        }
        list = block;
    }
    let full = machine::resident_kib("self")?;
    while !list.is_null() {
        // SAFETY: every block of the list was taken above; its next is read before it is freed.
        unsafe {
            let next = list.cast::<*mut u8>().read();
            heap::free(list);
            list = next;
        }
    }
    Ok(full)
}

/// Writes one byte per page, and the last byte.
///
/// # Safety
/// - `block` has `bytes` writable bytes, at least one, that no other thread uses meanwhile.
unsafe fn touch(block: *mut u8, bytes: usize) {
    for at in (0..bytes).step_by(page_size() as usize) {
        // SAFETY: `at` lies within the block.
        unsafe { block.add(at).write_volatile(1) };
    }
    // SAFETY: the last byte lies within the block.
    unsafe { block.add(bytes - 1).write_volatile(1) };
}
