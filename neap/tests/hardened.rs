//! A Rust program whose allocator is [`neap::Hardened`]: errors in unsafe code end it.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::env;
use std::process::Command;
use std::ptr::write_volatile;

#[global_allocator]
static ALLOCATOR: neap::Hardened = neap::Hardened;

/// The variable that names the error which a child process makes.
const ERROR: &str = "ERROR_TO_MAKE";

/// Makes the error of that name.
fn make(error: &str) {
    let layout = Layout::array::<u8>(100).unwrap();
    // SAFETY: none: each step but the first is an error on purpose.
    unsafe {
        let block = alloc(layout);
        match error {
            "overflow" => write_volatile(block.add(100), 1),
            "twice" => dealloc(block, layout),
            "freed" => {
                dealloc(block, layout);
                write_volatile(block.add(5), 1);
                (0..20_000).for_each(|_| drop(vec![0u8; 100]));
                return;
            }
            _ => {}
        }
        dealloc(block, layout);
    }
}

/// What a child process that makes an error says before it aborts, without addresses.
fn said_by_child(error: &str) -> String {
    let test = ["an_error_ends_the_program", "--exact", "--nocapture"];
    let mut child = Command::new(env::current_exe().unwrap());
    let output = child.args(test).env(ERROR, error).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.success(), error == "none", "{error}: {said}");
    let line = said.lines().find(|line| line.starts_with("neap: "));
    let words = line.unwrap_or_default().split(' ');
    let words = words.map(|word| if word.starts_with("0x") { "ADDR" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn an_error_ends_the_program() {
    if let Ok(error) = env::var(ERROR) {
        return make(&error);
    }
    assert_eq!(said_by_child("none"), "");
    let overflow = said_by_child("overflow");
    assert!(
        overflow.contains("past whose end something was written"),
        "{overflow}"
    );
    let twice = said_by_child("twice");
    assert!(twice.starts_with("neap: double free of ADDR"), "{twice}");
    let freed = said_by_child("freed");
    let by_itself = freed.starts_with("neap: write to ADDR after its free");
    let by_its_neighbour = freed.contains("beside which something was written");
    assert!(by_itself || by_its_neighbour, "{freed}");
}

#[test]
fn blocks_of_every_layout_keep_their_contents() {
    for shift in 0..17 {
        for size in [1, 8, 24, 100, 1000, 4088, 4096, 5000, 32 << 10, 100_000] {
            let layout = Layout::from_size_align(size, 1 << shift).unwrap();
            // SAFETY: a block of that layout, within its bytes.
            unsafe {
                let block = alloc(layout);
                assert!(!block.is_null() && block.addr().is_multiple_of(1 << shift));
                block.write_bytes(7, size);
                let grown = realloc(block, layout, size * 2);
                let longer = Layout::from_size_align(size * 2, 1 << shift).unwrap();
                assert!((0..size).all(|at| *grown.add(at) == 7));
                let shrunk = realloc(grown, longer, size / 2 + 1);
                assert!((0..size / 2 + 1).all(|at| *shrunk.add(at) == 7));
                dealloc(
                    shrunk,
                    Layout::from_size_align(size / 2 + 1, 1 << shift).unwrap(),
                );
            }
        }
    }
}

#[test]
fn threads_free_each_others_blocks() {
    let made: Vec<Vec<Box<u64>>> = std::thread::scope(|scope| {
        let make = |thread: u64| move || (0..20_000).map(|at| Box::new(at ^ thread)).collect();
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(make(thread))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    std::thread::scope(|scope| {
        for (thread, blocks) in made.into_iter().enumerate() {
            scope.spawn(move || {
                for (at, block) in blocks.into_iter().enumerate() {
                    assert_eq!(*block, at as u64 ^ thread as u64);
                }
            });
        }
    });
}
