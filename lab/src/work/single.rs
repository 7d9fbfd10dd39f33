//! Shapes of one thread: blocks of one size, one block that grows by realloc, and the resident
//! memory of live blocks.

use std::time::{Duration, Instant};

use super::Outcome;
use super::heap::{self, Block};
use crate::machine;
use crate::stats::Rng;
use crate::workloads::{Growth, HUGE_KEY, IDLE_KEY, Order, PER_BLOCK_KEY, Sizes};

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
pub(super) fn permutation(count: usize, order: Order) -> Vec<u32> {
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

/// Allocates `count` blocks of `size` bytes, writes all of them, and reads the resident size before
/// and after. The table of addresses is resident before.
pub fn live(size: usize, count: u64) -> anyhow::Result<Outcome> {
    let mut blocks = vec![std::ptr::null_mut::<u8>(); count as usize];
    blocks.fill(std::ptr::dangling_mut());
    heap::escape(blocks.as_mut_ptr().cast());
    let before = machine::resident_bytes("self")?;
    let start = Instant::now();
    for (number, block) in blocks.iter_mut().enumerate() {
        *block = filled(size, number as u8);
    }
    let elapsed = start.elapsed();
    let after = machine::resident_bytes("self")?;
    for (number, &block) in blocks.iter().enumerate() {
        free_filled(block, size, number as u8);
    }
    let bytes = after.saturating_sub(before) as f64 / count as f64;
    let also = vec![(PER_BLOCK_KEY, bytes)];
    Ok(Outcome {
        also,
        ..Outcome::timed(count, elapsed)
    })
}

/// From one burst to the next.
const PAUSE: Duration = Duration::from_secs(2);

/// Blocks of `bytes` in all, freed in random order, then a pause; once, and then `ops` times whose
/// processor time counts. Reads, at the top of the last burst, what huge pages hold, and at the end
/// of the last pause, what is resident.
pub fn burst(sizes: Sizes, bytes: usize, ops: u64) -> anyhow::Result<Outcome> {
    let count = bytes / usize::midpoint(sizes.0, sizes.1);
    let (mut blocks, turns) = (Vec::new(), permutation(count, Order::Random));
    blocks.resize_with(count, || Block::at(std::ptr::dangling_mut(), 0));
    let (mut before, mut huge) = (Duration::ZERO, 0);
    let tables = machine::resident_bytes("self")?;
    for round in 0..=ops {
        let mut rng = Rng::new(1);
        for (stamp, block) in blocks.iter_mut().enumerate() {
            *block = Block::written(sizes.random(&mut rng), stamp as u64);
        }
        huge = machine::kib_of("/proc/self/smaps_rollup", "AnonHugePages").unwrap_or(0);
        for &turn in &turns {
            // SAFETY: every block was taken above, and `turns` names each once.
            unsafe { blocks[turn as usize].give(u64::from(turn)) };
        }
        std::thread::sleep(PAUSE);
        if round == 0 {
            before = machine::processor_time(&machine::own_usage());
        }
    }
    let elapsed = machine::processor_time(&machine::own_usage()) - before;
    let idle = machine::resident_bytes("self")?.saturating_sub(tables) / 1_024;
    let also = vec![(IDLE_KEY, idle as f64), (HUGE_KEY, huge as f64)];
    Ok(Outcome {
        also,
        ..Outcome::timed(ops, elapsed)
    })
}

/// `ops` forks of a process with `bytes` of live blocks of 1 KiB; the child ends at once.
pub fn fork(bytes: usize, ops: u64) -> Outcome {
    let blocks: Vec<Block> = (0..bytes as u64 >> 10)
        .map(|stamp| Block::written(1 << 10, stamp))
        .collect();
    let start = Instant::now();
    for _ in 0..ops {
        // SAFETY: the child makes one system call, which ends it; the parent waits for that child.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(0);
            }
            assert!(
                libc::waitpid(child, std::ptr::null_mut(), 0) == child,
                "no fork"
            );
        }
    }
    let elapsed = start.elapsed();
    for (stamp, block) in blocks.iter().enumerate() {
        // SAFETY: every block was taken above, and each is given once.
        unsafe { block.give(stamp as u64) };
    }
    Outcome::timed(ops, elapsed)
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
