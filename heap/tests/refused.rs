//! Threads that are refused capacity, because the process's bound is used up.

use neap_heap::cache::heap::HEAP;
use neap_heap::slab::class::Class;
use neap_heap::{free, malloc};

/// The capacity granted to the calling thread's cache, and how often its magazine of `class` was
/// refilled.
fn own(class: Class) -> (usize, u32) {
    let own = neap_heap::cache::machine::slot();
    let mut found = (0, 0);
    HEAP.registry.for_each(|cache| {
        if std::ptr::eq(cache, own) {
            let open = cache.open();
            let [refills, _] = open.countdown(class).refills_and_flushes();
            found = (open.granted(), refills);
        }
    });
    found
}

#[test]
fn a_thread_that_is_refused_capacity_has_a_first_magazine() {
    HEAP.budget.set_process(0);
    for size in [16, 100, 1000, 4096] {
        let class = Class::of_size(size);
        let thread = std::thread::spawn(move || {
            let (nothing, _) = own(class);
            for _ in 0..1000 {
                let block = malloc::allocate(size);
                assert!(!block.is_null());
                // SAFETY: just allocated, freed once.
                unsafe { free::free(block) };
            }
            (nothing, own(class))
        });
        let (nothing, (granted, refills)) = thread.join().unwrap();
        let first = 4096 / class.bytes();
        assert_eq!(granted - nothing, first.min(16) * class.bytes(), "{size}");
        // Those before a class has a magazine count, too.
        assert!(refills <= 5, "{size}: {refills} refills");
    }
}
