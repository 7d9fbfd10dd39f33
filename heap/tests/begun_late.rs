//! Measures against memory errors that are taken after the first blocks were handed out, as in a
//! static program, whose C library allocates before Neap reads its options.

use neap_heap::free::{free, usable_size};
use neap_heap::watched::harden::Measures;
use neap_heap::{init, malloc};

/// Slices of a block from before the measures, which is freed: slabs are carved from them later.
const EARLY_BYTES: usize = 10 << 16;

#[test]
fn only_slabs_where_the_heap_was_before_the_measures_go_without() {
    neap_instruments::install();
    let early = malloc::allocate(100);
    // SAFETY: a block of this test's; each is freed once.
    unsafe { free(malloc::allocate(EARLY_BYTES)) };
    init::take_measures(Measures::ALL);

    // SAFETY: as above, within its bytes.
    unsafe {
        early.write_bytes(1, usable_size(early));
        let nothing = malloc::allocate_zeroed(0);
        let grown = malloc::reallocate_layout(nothing, 100, 16);
        grown.write_bytes(1, 100);
        [early, grown].into_iter().for_each(|block| free(block));
    }
    let count_of = |size: usize| {
        let blocks: Vec<_> = (0..20_000).map(|_| malloc::allocate(size)).collect();
        // SAFETY: as above.
        let exact = |&&block: &&*mut u8| unsafe { usable_size(block) } == size;
        let sealed = blocks.iter().filter(exact).count();
        // SAFETY: as above.
        blocks.iter().for_each(|&block| unsafe { free(block) });
        sealed
    };
    for size in [100, 0] {
        let sealed = count_of(size);
        assert!(sealed > 10_000, "{sealed} of 20,000 blocks of {size} bytes");
    }
}
