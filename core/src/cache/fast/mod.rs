//! The fast path, the algorithm once and a file a machine: [`pop`] takes a block from a magazine,
//! [`pop_counted`] does while the profiler counts, [`release`] finds a freed block's magazine and pushes it.
//!
//! Compilers do not fold the atomic loads of the portable form into compares, which costs six
//! instructions a pair, so x86-64 has its own. Both run in the tests below.

#[cfg(any(test, not(target_arch = "x86_64")))]
pub mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub use portable::{pop, pop_counted, release};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{pop, pop_counted, release};

#[cfg(test)]
mod tests {
    use super::portable;
    use crate::base::units::SLICE_BYTES;
    use crate::cache::heap::HEAP;
    use crate::cache::magazine::Tag;
    use crate::cache::slot;
    use crate::slab::class::Class;
    use std::vec::Vec;

    /// Fills, by the machine's form and the portable form in turn, until both miss.
    #[test]
    fn both_forms_see_the_same_magazine() {
        let class = Class::of_size(200);
        let tag = Tag::of(class);
        let cache = HEAP.enter().expect("a cache");
        let first = HEAP.refill(cache, class);
        assert!(core::ptr::eq(slot::get(), cache));
        let mut blocks: Vec<*mut u8> = std::vec![first];
        loop {
            let next = if blocks.len().is_multiple_of(2) {
                portable::pop(cache, tag)
            } else {
                super::pop(cache, tag)
            };
            let Some(block) = next else { break };
            assert!(!blocks.contains(&block));
            blocks.push(block);
        }
        assert!(blocks.len() > 4);
        assert_eq!(
            (portable::pop(cache, tag), super::pop(cache, tag)),
            (None, None)
        );
        for (number, &block) in blocks.iter().enumerate() {
            // SAFETY: blocks of the heap, each given back once.
            let pushed = unsafe {
                if number.is_multiple_of(2) {
                    super::release(block)
                } else {
                    portable::release(block)
                }
            };
            assert!(pushed);
        }
        // The block that was pushed last.
        if let Some(&newest) = blocks.last() {
            // SAFETY: refused before anything is written.
            assert!(unsafe { !super::release(newest) && !portable::release(newest) });
        }
        let middle = (blocks[0].addr() + 8) as *mut u8;
        let outside = (&raw const middle).cast_mut().cast::<u8>();
        // Past the slab's last block, at a multiple of the block's size.
        let slab = blocks[0].addr() / SLICE_BYTES * SLICE_BYTES;
        let tail = (slab + class.blocks() * class.bytes()) as *mut u8;
        for refused in [middle, outside, tail, core::ptr::null_mut()] {
            // SAFETY: refused before anything is written.
            assert!(unsafe { !super::release(refused) && !portable::release(refused) });
        }
    }
}
