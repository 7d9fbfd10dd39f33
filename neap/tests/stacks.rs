//! Stacks on the real system: their sizes, the pages that the heap reuses, threads and fork.

#[path = "support/alone.rs"]
mod alone;
#[path = "../../ci/older_kernel.rs"]
mod older_kernel;
#[path = "../../ci/skips.rs"]
mod skips;

use alone::{BURST, KIB, alone, alone_on, is_guarded, touch};
use neap::Neap;
use neap::stack::{self, Stack, StackError};
use neap::stats::snapshot;
use neap_heap::cache::heap::HEAP;
use older_kernel::Kernel;
use std::alloc::{GlobalAlloc, Layout};

#[test]
fn sizes_are_checked_and_rounded() {
    for (asked, address) in [(8, 8), (9, 16), (32, 32), (33, 64), (65, 128), (8192, 8192)] {
        let stack = Stack::new(asked * KIB).unwrap();
        // The guard is one OS page: the rounded sizes hold on machines with pages of 4 KiB.
        let page = address * KIB - stack.bytes();
        assert!(page.is_power_of_two() && page >= 4 * KIB);
        assert_eq!(stack.top().addr().get() % page, 0);
        assert_eq!(
            stack.limit().addr().get() + stack.bytes(),
            stack.top().addr().get()
        );
        // SAFETY: the stack's own bytes.
        unsafe { stack.limit().as_ptr().write_bytes(1, stack.bytes()) };
    }
    for asked in [0, 1, 8 * KIB - 1, 8192 * KIB + 1, usize::MAX] {
        assert_eq!(Stack::new(asked).unwrap_err(), StackError::Size);
    }
}

#[test]
fn the_heap_gets_the_pages_of_ended_stacks() {
    let kernels = [Kernel::Own, Kernel::WithoutAdvice];
    if alone_on("the_heap_gets_the_pages_of_ended_stacks", &kernels).is_none() {
        return;
    }
    let stacks: Vec<_> = (0..BURST).map(|_| Stack::new(64 * KIB).unwrap()).collect();
    stacks.iter().for_each(touch);
    drop(stacks);
    let page = 4 * KIB as u64;
    let figures = snapshot();
    let dirty = figures.free_dirty / page;
    assert!(
        (BURST as u64 - 64..=BURST as u64 + 64).contains(&dirty),
        "one dirty page a stack, not all of them: {dirty}"
    );
    // What was a stack is a block now.
    let committed = figures.committed;
    let layout = Layout::from_size_align(256 << 20, 16).unwrap();
    // SAFETY: the size is not 0.
    let block = unsafe { Neap.alloc(layout) };
    assert!(!block.is_null());
    assert_eq!(
        snapshot().committed,
        committed,
        "nothing new from the kernel"
    );
    // SAFETY: a live block.
    unsafe {
        block.write_bytes(1, 256 << 20);
        Neap.dealloc(block, layout);
    }
}

#[test]
fn trimming_keeps_what_is_above_the_stack_pointer() {
    let stack = Stack::new(256 * KIB).unwrap();
    // SAFETY: no thread runs on the stack; all addresses are in it.
    unsafe {
        stack.limit().as_ptr().write_bytes(7, stack.bytes());
        let pointer = stack.top().as_ptr().sub(10_000);
        let given = stack.trim(pointer);
        let below = stack.bytes() - 10_000;
        assert!(
            given <= below && given > below - 8 * KIB,
            "{given} of {below}"
        );
        // The red zone and everything above are what they were; the rest reads as zero.
        let kept = std::slice::from_raw_parts(pointer.sub(128), 10_128);
        assert!(kept.iter().all(|&byte| byte == 7));
        let gone = std::slice::from_raw_parts(stack.limit().as_ptr(), given);
        assert!(gone.iter().all(|&byte| byte == 0));
        assert_eq!(stack.trim(pointer), 0, "nothing left");
        assert_eq!(stack.trim(stack.limit().as_ptr()), 0);
    }
}

#[test]
fn ownership_goes_through_a_pointer() {
    let stack = Stack::new(64 * KIB).unwrap();
    let limit = stack.limit();
    let top = stack.into_raw();
    // SAFETY: from `into_raw` just above.
    let again = unsafe { Stack::from_raw(top) };
    assert_eq!((again.limit(), again.top()), (limit, top));
}

#[test]
fn stacks_end_on_other_threads() {
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            std::thread::spawn(move || {
                let (sender, receiver) = std::sync::mpsc::channel::<Stack>();
                let ender = std::thread::spawn(move || receiver.into_iter().for_each(drop));
                for round in 0..2000 {
                    let stack = Stack::new((8 << ((round + seed) % 6)) * KIB).unwrap();
                    touch(&stack);
                    sender.send(stack).unwrap();
                }
                drop(sender);
                ender.join().unwrap();
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(HEAP.pages.check(), Ok(()));
}

/// A child of a process whose other threads are busy with stacks finds a pool that works.
#[test]
fn forked_children_have_stacks() {
    let kernels = [Kernel::Own, Kernel::WithoutAdvice];
    if alone_on("forked_children_have_stacks", &kernels).is_none() {
        return;
    }
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let busy = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let stacks: Vec<_> = (0..200).map(|_| Stack::new(64 * KIB).unwrap()).collect();
                stacks.iter().for_each(touch);
            }
        })
    };
    let kept = Stack::new(64 * KIB).unwrap();
    touch(&kept);
    for _ in 0..100 {
        // SAFETY: the child uses stacks, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let new = [8, 64, 64, 1024].map(|kib| Stack::new(kib * KIB));
            let works = new.iter().all(|stack| {
                stack.as_ref().is_ok_and(|stack| {
                    touch(stack);
                    true
                })
            });
            drop(new);
            stack::free_cached();
            // SAFETY: the parent's word was copied; ends the child.
            unsafe {
                let whole = works && is_guarded(&kept);
                let copied = kept.top().as_ptr().sub(8).cast::<u64>().read() == 1;
                libc::_exit(i32::from(!(whole && copied)));
            }
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    busy.join().unwrap();
}

/// Short of address space, there is an error and not a crash, and what was had is usable.
#[test]
fn out_of_memory_is_an_error() {
    if !alone("out_of_memory_is_an_error") {
        return;
    }
    let limit = libc::rlimit {
        rlim_cur: 1 << 30,
        rlim_max: 1 << 30,
    };
    // SAFETY: reads a structure of ours.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    let mut stacks = Vec::with_capacity(1000);
    let error = loop {
        match Stack::new(8192 * KIB) {
            Ok(stack) => stacks.push(stack),
            Err(error) => break error,
        }
    };
    assert_eq!(error, StackError::OutOfMemory);
    assert!(stacks.len() > 10 && stacks.len() < 128, "{}", stacks.len());
    stacks.iter().for_each(touch);
    stacks.truncate(stacks.len() / 2);
    assert!(Stack::new(1024 * KIB).is_ok());
}
