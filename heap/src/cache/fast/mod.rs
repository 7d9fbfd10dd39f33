//! The fast path, the algorithm once and a file a machine: [`pop_sized`] takes a block for a size
//! from its magazine, [`pop`] from a magazine that the caller knows, [`pop_counted`] while the
//! profiler counts; [`release`] finds a freed block's magazine and pushes it.
//!
//! Compilers do not fold the atomic loads of the portable form into compares, which costs six
//! instructions a pair, so x86-64 has its own. Both run in the tests below.

#[cfg(any(test, not(target_arch = "x86_64")))]
pub mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub use portable::{pop, pop_counted, pop_sized, release};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{pop, pop_counted, pop_sized, release};

#[cfg(test)]
mod tests {
    use super::portable;
    use crate::base::units::SLICE_BYTES;
    use crate::cache::heap::HEAP;
    use crate::cache::magazine::Tag;
    use crate::cache::slot;
    use crate::cache::thread::Cache;
    use crate::slab::class::{Class, TABLE_BYTES};
    use std::vec::Vec;

    fn popped(cache: &Cache, tag: Tag, size: usize) -> [Option<*mut u8>; 4] {
        [
            portable::pop(cache, tag),
            super::pop(cache, tag),
            portable::pop_sized(cache, size),
            super::pop_sized(cache, size),
        ]
    }

    #[test]
    fn both_forms_refuse_a_block_that_lies_two_below() {
        let (class, size) = (Class::of_size(264), 264);
        let tag = Tag::of(class);
        let cache = HEAP.enter().expect("a cache");
        let [p, q] = [HEAP.refill(cache, class), HEAP.refill(cache, class)];
        let frees = [p, q, p];
        // SAFETY: blocks of the heap; the second copy of `p` is taken out below.
        assert!(frees.iter().all(|&block| unsafe { super::release(block) }));
        assert_eq!(popped(cache, tag, size), [None; 4]);
        let mut open = cache.open();
        assert_eq!(open.repeated(class), Some(p));
        assert!(open.is_newest(class, p) && open.is_newest(class, q));
        assert_eq!(open.pop(class), Some(p));
        assert_eq!(open.repeated(class), None);
        drop(open);
        assert_eq!(super::pop_sized(cache, size), Some(q));
        assert_eq!(portable::pop_sized(cache, size), Some(p));
    }

    #[test]
    fn a_class_without_an_array_and_a_size_past_the_table_are_refused() {
        let cache = HEAP.enter().expect("a cache");
        let class = Class::of_size(1016);
        assert_eq!(popped(cache, Tag::of(class), 1016), [None; 4]);
        for size in [TABLE_BYTES + 1, usize::MAX] {
            assert_eq!(popped(cache, Tag::of(class), size), [None; 4]);
        }
    }

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
            let next = match blocks.len() % 4 {
                0 => portable::pop(cache, tag),
                1 => super::pop(cache, tag),
                2 => portable::pop_sized(cache, 200),
                _ => super::pop_sized(cache, 200),
            };
            let Some(block) = next else { break };
            assert!(!blocks.contains(&block));
            blocks.push(block);
        }
        assert!(blocks.len() > 4);
        assert_eq!(popped(cache, tag, 200), [None; 4]);
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
