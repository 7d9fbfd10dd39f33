//! A program that takes large blocks only learns that memory is short, too.

use neap_heap::cache::heap::HEAP;
use neap_heap::{free, malloc};

#[test]
fn who_takes_a_large_block_asks_the_group_and_the_machine() {
    assert!(HEAP.pressure.is_outdated(HEAP.now_ms()));
    let block = malloc::allocate(1 << 20);
    assert!(!HEAP.pressure.is_outdated(HEAP.now_ms()));
    // SAFETY: the block, once.
    unsafe { free::free(block) };
}
