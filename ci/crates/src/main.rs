//! Checks that Rust's blocks are in the heap of the crate, and C's are not.
//!
//! With the word `preloaded`, libneap.so serves C: the process has two heaps, each with its own
//! blocks, and the crate's figures count the crate's. With `rusts-to-c` or `cs-to-rust`, it gives a
//! block to the wrong heap.

use neap::stack::Stack;
use neap::stats::{snapshot, Text};
use std::ffi::{c_char, c_void, CStr};
use std::ptr::NonNull;
use std::thread::sleep;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: neap::Neap = neap::Neap;

extern "C" {
    fn malloc(bytes: usize) -> *mut c_void;
    fn free(block: *mut c_void);
    fn malloc_usable_size(block: *mut c_void) -> usize;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const MIB: usize = 1 << 20;

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse::<usize>().ok());
    pages.expect("a number") * 4096
}

/// The crate's heap has Rust's blocks.
fn identity() {
    let before = snapshot().live;
    let kept: Vec<Box<[u8; 1000]>> = (0..10_000).map(|_| Box::new([1; 1000])).collect();
    let grown = snapshot().live - before;
    assert!((10_000_000..14_000_000).contains(&grown), "{grown} bytes");
    let block = NonNull::from(&*kept[0]).cast();
    // SAFETY: a live block of this allocator.
    assert_eq!(unsafe { neap::usable_size(block) }, 1024);
}

/// Blocks of C's `malloc` are not in the crate's heap, whoever serves them.
fn blocks_of_c() {
    let before = snapshot().live;
    // SAFETY: each block is freed once.
    unsafe {
        let blocks: Vec<_> = (0..1000).map(|_| malloc(10_000)).collect();
        let grown = snapshot().live - before;
        assert!(
            grown < 1_000_000,
            "{grown} bytes of C's are in the crate's heap"
        );
        assert!(malloc_usable_size(blocks[0]) >= 10_000);
        blocks.into_iter().for_each(|block| free(block));
    }
}

/// Gives one heap's block to the other: a misuse, which ends the process.
fn mix(how: &str) {
    match how {
        // SAFETY: none; the heap of C ends the process.
        "rusts-to-c" => unsafe { free(Box::into_raw(Box::new([0u8; 40])).cast()) },
        // SAFETY: none; the heap of Rust ends the process.
        "cs-to-rust" => drop(unsafe { Box::from_raw(malloc(40).cast::<[u8; 40]>()) }),
        _ => {}
    }
}

/// Whether libneap.so is there.
fn is_preloaded() -> bool {
    const NAME: &CStr = c"neap_version";
    // SAFETY: RTLD_DEFAULT and a string.
    !unsafe { dlsym(std::ptr::null_mut(), NAME.as_ptr()) }.is_null()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    neap::purge::enable_thread();
    std::env::args().for_each(|word| mix(&word));
    identity();
    blocks_of_c();
    assert_eq!(
        is_preloaded(),
        std::env::args().any(|word| word == "preloaded")
    );

    let stack = Stack::new(64 << 10)?;
    assert!(stack.bytes() > 32 << 10);
    neap::profile::start(64 << 10)?;
    let kept = vec![1u8; 100 * MIB];
    assert!(neap::profile::pprof()?.len() > 100);
    println!("{}", Text(&snapshot()));

    // The process sleeps, and its memory goes back.
    assert!(resident() > 100 * MIB);
    drop(kept);
    let mut rounds = 0;
    while resident() > 50 * MIB {
        rounds += 1;
        assert!(rounds < 600, "the memory does not go back");
        sleep(Duration::from_millis(100));
    }
    Ok(())
}
