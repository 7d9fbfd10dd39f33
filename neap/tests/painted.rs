//! How much stack the Rust allocator's entry points take, the process's first allocation among
//! them. Each runs on a painted stack of its own, because coroutines have small stacks.
//! `capi/tests/programs/entry_points.c` does the same for the C names.
#![cfg(target_arch = "x86_64")]

use std::alloc::{GlobalAlloc, Layout};
use std::arch::asm;
use std::sync::atomic::{AtomicUsize, Ordering};

#[global_allocator]
static ALLOCATOR: neap::Neap = neap::Neap;

/// Most bytes of stack that an entry point may take.
const MOST_BYTES: usize = 3 << 10;
const STACK_BYTES: usize = 256 << 10;
const PAINT: u8 = 0xA5;

#[repr(align(4096))]
struct Stack(std::cell::UnsafeCell<[u8; STACK_BYTES]>);

// SAFETY: each is used by one thread.
unsafe impl Sync for Stack {}

/// Bytes of stack that the process's first allocation took, before `main`.
static FIRST: AtomicUsize = AtomicUsize::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    static STACK: Stack = Stack(std::cell::UnsafeCell::new([0; STACK_BYTES]));
    FIRST.store(painted(&STACK, first), Ordering::Relaxed);
}

extern "C" fn first() {
    round(100, 8);
}

/// Calls `work` on the stack, painted, and counts the bytes that are no longer.
fn painted(stack: &Stack, work: extern "C" fn()) -> usize {
    let bytes = stack.0.get();
    // SAFETY: the stack is this thread's; its top is aligned; `work` does not unwind and needs less
    // than there is.
    unsafe {
        (*bytes).fill(PAINT);
        asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {work}",
            "mov rsp, r12",
            top = in(reg) bytes.add(1),
            work = in(reg) work,
            out("r12") _,
            clobber_abi("C"),
        );
        STACK_BYTES - (*bytes).iter().take_while(|&&byte| byte == PAINT).count()
    }
}

/// Allocates, fills, grows and frees a block.
fn round(bytes: usize, align: usize) {
    let layout = Layout::from_size_align(bytes, align).unwrap();
    // SAFETY: the layout is that of the block each time, and no size is 0.
    unsafe {
        let block = ALLOCATOR.alloc(layout);
        assert!(!block.is_null());
        block.write_bytes(1, bytes);
        let grown = ALLOCATOR.realloc(block, layout, 3 * bytes);
        let layout = Layout::from_size_align(3 * bytes, align).unwrap();
        ALLOCATOR.dealloc(grown, layout);
        let zeroed = ALLOCATOR.alloc_zeroed(layout);
        assert_eq!(*zeroed.add(3 * bytes - 1), 0);
        ALLOCATOR.dealloc(zeroed, layout);
    }
}

extern "C" fn every_size() {
    for _ in 0..5 {
        let mut bytes = 1;
        while bytes < 16 << 20 {
            for align in [1, 8, 16, 64, 4096, 1 << 20] {
                round(bytes, align);
            }
            bytes = bytes * 3 / 2 + 1;
        }
    }
}

#[test]
fn the_first_allocation_of_the_process_takes_little_stack() {
    let first = FIRST.load(Ordering::Relaxed);
    assert!((1..=MOST_BYTES).contains(&first), "{first} bytes");
    println!("{first} bytes of stack");
}

#[test]
fn later_ones_and_those_of_a_new_thread_take_little_stack() {
    static STACKS: [Stack; 2] = [const { Stack(std::cell::UnsafeCell::new([0; STACK_BYTES])) }; 2];
    let first = std::thread::spawn(|| painted(&STACKS[0], first))
        .join()
        .unwrap();
    let all = painted(&STACKS[1], every_size);
    assert!(
        first <= MOST_BYTES && all <= MOST_BYTES,
        "{first} and {all} bytes"
    );
    println!("{first} and {all} bytes of stack");
}
