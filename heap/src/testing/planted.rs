//! Errors on purpose. `ci/sanitizers.sh` runs each of these tests alone and compares which tool
//! reports it with a table, so that a tool that sees nothing is noticed. Without a tool they pass.

use crate::base::sync::UnsafeCell;
use crate::base::sync::plain::{AtomicBool, Ordering};
use crate::os::Os;
use crate::os::fake::{Conditions, Fake};
use crate::slab::class::Class;
use crate::testing::own_cache;
use core::hint::black_box;
use std::alloc::{Layout, alloc, dealloc};
use std::thread::spawn;

/// A word that threads share without a lock.
struct Bare(UnsafeCell<u64>);

// SAFETY: it is not, which is what a tool reports. A word is written as a whole on every machine.
unsafe impl Sync for Bare {}

impl Bare {
    const fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn set(&self, value: u64) {
        // SAFETY: as above.
        unsafe { self.0.get().write_volatile(value) };
    }

    fn get(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.get().read_volatile() }
    }
}

#[test]
#[ignore = "an error for ci/sanitizers.sh"]
fn memory_that_is_not_committed_is_read() {
    let system = Fake::new(Conditions::default());
    let base = system.reserve(1 << 16, 1 << 16).expect("a reservation");
    // SAFETY: to the machine, the memory of a fake system is an ordinary allocation.
    assert_eq!(unsafe { base.as_ptr().read_volatile() }, 0);
}

#[test]
#[ignore = "an error for ci/sanitizers.sh"]
fn two_threads_write_without_a_lock() {
    static SHARED: Bare = Bare::new();
    let threads = [1, 2].map(|value| spawn(move || SHARED.set(value)));
    for thread in threads {
        thread.join().expect("no panic");
    }
}

#[test]
#[ignore = "an error for ci/sanitizers.sh"]
fn a_value_is_published_without_an_order() {
    static VALUE: Bare = Bare::new();
    static PUBLISHED: AtomicBool = AtomicBool::new(false);
    // Joined at the end: ThreadSanitizer forgets a thread that has ended and has no handle.
    let thread = spawn(|| {
        VALUE.set(1);
        PUBLISHED.store(true, Ordering::Relaxed);
    });
    while !PUBLISHED.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    black_box(VALUE.get());
    thread.join().expect("no panic");
}

#[test]
#[ignore = "an error for ci/sanitizers.sh"]
fn a_decision_depends_on_what_was_not_written() {
    let layout = Layout::new::<u64>();
    // SAFETY: the layout is not empty, and the block is given back once. The machine can read it.
    let byte = unsafe {
        let block = alloc(layout);
        let byte = block.read_volatile();
        dealloc(block, layout);
        byte
    };
    if byte == 77 {
        std::eprintln!("77");
    }
}

/// By the cache, because the first `malloc` runs on a stack of its own. memcheck confuses it with
/// another function's.
#[test]
#[ignore = "an error for ci/sanitizers.sh"]
fn a_freed_block_of_the_heap_is_read() {
    let class = Class::of_size(100);
    let cache = own_cache::enter().expect("a cache");
    let block = own_cache::refill(cache, class);
    own_cache::put(cache, class, block);
    // SAFETY: the block's slab stays mapped.
    black_box(unsafe { block.read_volatile() });
}
