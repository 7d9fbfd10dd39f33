//! Two versions of the heap serve one thread, each from its own slot and its own memory.

fn main() {
    let slots = [now::cache::machine::slot_address(), next::cache::machine::slot_address()];
    assert_ne!(slots[0], slots[1]);
    for _ in 0..1000 {
        let blocks = [now::malloc::allocate(64), next::malloc::allocate(64)];
        assert!(blocks.iter().all(|block| !block.is_null()));
        // SAFETY: blocks of these heaps, which nothing else uses.
        unsafe {
            assert_eq!(now::free::usable_size(blocks[0]), 64);
            assert_eq!(next::free::usable_size(blocks[1]), 64);
            now::free::free(blocks[0]);
            next::free::free(blocks[1]);
        }
    }
}
