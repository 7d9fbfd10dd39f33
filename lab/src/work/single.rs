//! Shapes of one thread with blocks of one size.

use std::time::Instant;

use super::heap::{self, Block};
use super::outcome::Outcome;
use crate::rng::Rng;
use crate::workloads::Order;

/// Malloc, then free at once, `ops` times.
pub fn pair(size: usize, ops: u64) -> Outcome {
    let start = Instant::now();
    for stamp in 0..ops {
        let block = Block::take(size, stamp);
        // SAFETY: taken in the line above, given once.
        unsafe { block.give(stamp) };
    }
    Outcome::timed(ops, start.elapsed())
}

/// `count` blocks, then all freed in `order`, until `ops` pairs are done.
pub fn batch(size: usize, count: usize, order: Order, ops: u64) -> Outcome {
    let turns = permutation(count, order);
    let mut blocks = vec![Block::NONE; count];
    let rounds = (ops / count as u64).max(1);
    one_batch(&mut blocks, &turns, size);
    let start = Instant::now();
    for _ in 0..rounds {
        one_batch(&mut blocks, &turns, size);
    }
    Outcome::timed(rounds * count as u64, start.elapsed())
}

fn one_batch(blocks: &mut [Block], turns: &[u32], size: usize) {
    for (stamp, block) in blocks.iter_mut().enumerate() {
        *block = Block::take(size, stamp as u64);
    }
    for &turn in turns {
        // SAFETY: every block was taken above, and `turns` names each once.
        unsafe { blocks[turn as usize].give(u64::from(turn)) };
    }
}

/// The order in which `count` blocks are freed.
fn permutation(count: usize, order: Order) -> Vec<u32> {
    let mut turns: Vec<u32> = (0..count as u32).collect();
    match order {
        Order::Fifo => {}
        Order::Lifo => turns.reverse(),
        Order::Random => Rng::new(1).shuffle(&mut turns),
    }
    turns
}

/// The head of a list node; the rest of the block is unused.
struct Node {
    next: *mut Node,
    number: u64,
}

/// A list built in order, then freed in order by walking it, until `ops` nodes are done.
pub fn list(size: usize, length: usize, ops: u64) -> Outcome {
    assert!(
        size >= size_of::<Node>(),
        "a node needs {} bytes",
        size_of::<Node>()
    );
    let rounds = (ops / length as u64).max(1);
    let start = Instant::now();
    for _ in 0..rounds {
        free_list(build_list(size, length as u64), length as u64);
    }
    Outcome::timed(rounds * length as u64, start.elapsed())
}

fn build_list(size: usize, length: u64) -> *mut Node {
    let mut head = std::ptr::null_mut();
    let mut tail: *mut *mut Node = &raw mut head;
    for number in 0..length {
        let node: *mut Node = heap::malloc(size).cast();
        assert!(!node.is_null(), "malloc({size}) failed");
        // SAFETY: the block has room for a node and malloc aligns it; `tail` is the local
        // head or the `next` field of the node before, which is live.
        unsafe {
            node.write(Node {
                next: std::ptr::null_mut(),
                number,
            });
            *tail = node;
            tail = &raw mut (*node).next;
        }
    }
    head
}

fn free_list(head: *mut Node, length: u64) {
    let mut node = head;
    for number in 0..length {
        // SAFETY: the list has `length` live nodes, and `next` is read before the free.
        unsafe {
            assert!((*node).number == number, "a live block was overwritten");
            let next = (*node).next;
            heap::free(node.cast());
            node = next;
        }
    }
    assert!(node.is_null(), "the list did not end where it was ended");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_permutations() {
        assert_eq!(permutation(3, Order::Fifo), [0, 1, 2]);
        assert_eq!(permutation(3, Order::Lifo), [2, 1, 0]);
        let mut random = permutation(100, Order::Random);
        random.sort_unstable();
        assert_eq!(random, permutation(100, Order::Fifo));
    }
}
