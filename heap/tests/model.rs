//! The whole API against a naive model: a map from addresses to blocks.

use neap_heap::cache::heap::HEAP;
use neap_heap::reclaim::round;
use neap_heap::{free, malloc};
use neap_instruments::survey::snapshot;
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;

/// Operations a run: enough to go through every class and many large blocks. `MODEL_OPERATIONS`
/// overrides.
fn operations() -> usize {
    std::env::var("MODEL_OPERATIONS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1_000_000)
}

/// xorshift64*: the runs are the same every time.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    /// Mostly small, sometimes up to 1 MiB.
    fn size(&mut self) -> usize {
        let bits = match self.below(100) {
            0..70 => 9,
            70..95 => 13,
            95..99 => 17,
            _ => 20,
        };
        self.below(1 << bits) as usize
    }
}

/// One block: requested size and the seed of its contents. Only the ends are filled, and checked.
#[derive(Clone, Copy, Debug)]
struct Block {
    address: usize,
    size: usize,
    align: usize,
    seed: u8,
}

const EDGE: usize = 64;

impl Block {
    fn edges(&self) -> impl Iterator<Item = usize> + use<> {
        let size = self.size;
        (0..size.min(EDGE)).chain(size.saturating_sub(EDGE)..size)
    }

    fn byte(&self, offset: usize) -> u8 {
        self.seed.wrapping_add(offset as u8)
    }

    fn fill(&self) {
        for offset in self.edges() {
            // SAFETY: the block is live and `size` bytes long.
            unsafe { *((self.address + offset) as *mut u8) = self.byte(offset) };
        }
    }

    fn check_first(&self, bytes: usize) {
        for offset in self.edges().filter(|&offset| offset < bytes) {
            // SAFETY: the block is live (or just moved) and longer than `offset`.
            let found = unsafe { *((self.address + offset) as *const u8) };
            assert_eq!(found, self.byte(offset), "byte {offset} of {self:?}");
        }
    }
}

/// Frees a block that a model has given up.
fn free(block: Block) {
    block.check_first(block.size);
    // SAFETY: live until now, and in no model any more.
    unsafe { free::free(block.address as *mut u8) };
}

/// The naive heap: no overlap, alignment, contents.
#[derive(Default)]
struct Model {
    blocks: BTreeMap<usize, Block>,
}

impl Model {
    fn add(&mut self, block: Block) {
        assert_ne!(block.address, 0, "out of memory");
        assert_eq!(block.address % block.align, 0, "{block:?} is not aligned");
        // SAFETY: a block just handed out.
        let usable = unsafe { free::usable_size(block.address as *mut u8) };
        assert!(usable >= block.size, "{block:?} has {usable} usable bytes");
        let before = self.blocks.range(..=block.address).next_back();
        if let Some((_, before)) = before {
            assert!(
                before.address + before.size.max(1) <= block.address,
                "{before:?} overlaps {block:?}"
            );
        }
        let after = self.blocks.range(block.address..).next();
        if let Some((_, after)) = after {
            assert!(
                block.address + block.size <= after.address,
                "{block:?} overlaps {after:?}"
            );
        }
        block.fill();
        self.blocks.insert(block.address, block);
    }

    fn remove_any(&mut self, rng: &mut Rng) -> Option<Block> {
        let (&first, _) = self.blocks.first_key_value()?;
        let (&last, _) = self.blocks.last_key_value()?;
        let at = first + rng.below((last - first + 1) as u64) as usize;
        let (&address, _) = self.blocks.range(at..).next()?;
        let block = self.blocks.remove(&address)?;
        block.check_first(block.size);
        Some(block)
    }
}

fn allocate(rng: &mut Rng) -> Block {
    let (size, seed) = (rng.size(), rng.next() as u8);
    let align = 1 << if rng.below(10) == 0 { rng.below(17) } else { 4 };
    let (address, align) = match rng.below(4) {
        0 => (malloc::allocate_zeroed(size), 16),
        1 => (malloc::allocate_layout(size, align), align),
        2 => (malloc::allocate_layout_zeroed(size, 8), 8),
        _ => (malloc::allocate(size), 16),
    };
    Block {
        address: address.addr(),
        size,
        align,
        seed,
    }
}

fn check_zero(rng: &mut Rng, model: &mut Model) {
    let size = rng.size();
    let address = malloc::allocate_zeroed(size);
    // SAFETY: a block just handed out, `size` bytes long (asserted not null by `add` below).
    let bytes = unsafe { std::slice::from_raw_parts(address, size) };
    assert!(
        bytes.iter().all(|&byte| byte == 0),
        "a calloc of {size} bytes is not zero"
    );
    model.add(Block {
        address: address.addr(),
        size,
        align: 16,
        seed: rng.next() as u8,
    });
}

fn resize(rng: &mut Rng, model: &mut Model) {
    let Some(old) = model.remove_any(rng) else {
        return;
    };
    let size = rng.size().max(1);
    // SAFETY: the model held the block as live and has let go of it.
    let address = unsafe { malloc::reallocate_layout(old.address as *mut u8, size, old.align) };
    let block = Block {
        address: address.addr(),
        size,
        ..old
    };
    // The common part's front edge moved along.
    Block {
        size: old.size,
        ..block
    }
    .check_first(size.min(old.size));
    model.add(block);
}

fn step(rng: &mut Rng, model: &mut Model) {
    match rng.below(20) {
        0..8 => {
            let block = allocate(rng);
            model.add(block);
        }
        8 => check_zero(rng, model),
        9..11 => resize(rng, model),
        _ => {
            if let Some(block) = model.remove_any(rng) {
                free(block);
            }
        }
    }
}

fn free_all(model: &mut Model) {
    std::mem::take(&mut model.blocks)
        .into_values()
        .for_each(free);
}

/// Nothing is live, so all memory must be free again. The two tests share one heap, so they run in
/// turn.
fn check_at_rest() {
    round::purge_all();
    HEAP.pages.check().unwrap();
    let figures = snapshot();
    assert_eq!(figures.large_bytes, 0, "large blocks stayed");
    assert_eq!(
        figures.live,
        0,
        "blocks were lost: {:?}",
        figures.classes.iter().find(|c| c.live() > 0)
    );
    assert_eq!(figures.free_dirty, 0, "trim left dirty pages");
}

fn one_thread() {
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    let mut model = Model::default();
    for round in 0..operations() {
        step(&mut rng, &mut model);
        if round % 1000 == 0 {
            HEAP.pages.check().unwrap();
        }
    }
    assert!(!model.blocks.is_empty());
    free_all(&mut model);
    check_at_rest();
}

/// Four threads, each with a model of its own; one free in four happens in another thread.
fn four_threads() {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| mpsc::channel::<Block>()).unzip();
    let threads: Vec<_> = receivers
        .into_iter()
        .enumerate()
        .map(|(number, inbox)| {
            let outbox = senders[(number + 1) % 4].clone();
            thread::spawn(move || one_of_four(number as u64, inbox, outbox))
        })
        .collect();
    drop(senders);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    check_at_rest();
}

fn one_of_four(number: u64, inbox: mpsc::Receiver<Block>, outbox: mpsc::Sender<Block>) {
    let mut rng = Rng(number + 1);
    let mut model = Model::default();
    for _ in 0..operations() / 4 {
        step(&mut rng, &mut model);
        if rng.below(8) == 0
            && let Some(block) = model.remove_any(&mut rng)
        {
            // The receiver may have finished already: then the block is ours to free.
            if let Err(unsent) = outbox.send(block) {
                free(unsent.0);
            }
        }
        inbox.try_iter().for_each(free);
    }
    drop(outbox);
    free_all(&mut model);
    inbox.into_iter().for_each(free);
}

#[test]
fn behaves_as_the_naive_heap() {
    one_thread();
    four_threads();
    threads_come_and_go();
}

/// Bytes of metadata that may come and go: some slices.
const METADATA_SLACK: u64 = 4 << 16;

/// A thread's end gives everything back: the figures do not grow with the number of threads.
fn threads_come_and_go() {
    let round = || {
        let blocks: Vec<usize> = thread::spawn(|| {
            let block = |size: usize| malloc::allocate(size % 3000).addr();
            (0..200).map(block).collect()
        })
        .join()
        .unwrap();
        // Freed by another thread than the one that allocated, which is gone.
        blocks
            .into_iter()
            // SAFETY: handed over by the thread that allocated them, which is gone.
            .for_each(|block| unsafe { free::free(block as *mut u8) });
    };
    (0..50).for_each(|_| round());
    round::purge_all();
    let before = snapshot();
    (0..2_000).for_each(|_| round());
    check_at_rest();
    let after = snapshot();
    // Which slab a cache comes from depends on what was free; 2,000 threads have 2,000 caches.
    assert!(
        after.metadata <= before.metadata + METADATA_SLACK,
        "metadata grew with the threads: {} bytes, then {}",
        before.metadata,
        after.metadata
    );
    assert_eq!(before.threads, after.threads);
}
