//! The program that `neap-lab classes` runs beside the peers: a Rust program whose allocator is the
//! crate `neap`. Rust passes the alignment of every block, so the crate has classes that C cannot
//! use.

#[path = "../work/classes.rs"]
mod classes;

use std::alloc::{GlobalAlloc as _, Layout};
use std::process::ExitCode;
use std::ptr::NonNull;

use neap::Neap;

#[global_allocator]
static ALLOCATOR: Neap = Neap;

/// The crate, with an alignment of 8.
struct Words;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("a size of the experiment fits")
}

impl classes::Heap for Words {
    fn take(&self, size: usize) -> *mut u8 {
        // SAFETY: no size of the experiment is 0.
        unsafe { ALLOCATOR.alloc(layout(size)) }
    }

    unsafe fn usable(&self, block: *mut u8) -> usize {
        let block = NonNull::new(block).expect("a block");
        // SAFETY: the caller's promise.
        unsafe { neap::usable_size(block) }
    }

    unsafe fn give(&self, block: *mut u8, size: usize) {
        // SAFETY: the caller's promise; the layout is that of `take`.
        unsafe { ALLOCATOR.dealloc(block, layout(size)) }
    }
}

fn resident() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map_or(0, |kib: u64| kib * 1_024)
}

/// The report that the arguments request.
fn answer(arguments: &[&str]) -> Option<String> {
    let number = |text: &str| text.parse::<usize>().ok();
    match arguments {
        ["usable", largest] => Some(classes::steps(&Words, number(largest)?)),
        ["distances", count, sizes @ ..] => {
            let count = number(count)?;
            let line = |size: &&str| {
                let distance = classes::distance(&Words, number(size)?, count);
                Some(format!("distance_{size}={distance}\n"))
            };
            sizes.iter().map(line).collect()
        }
        ["boxed", count, readings] => {
            let mut cost = classes::measure(number(count)?, number(readings)?, resident);
            Some(classes::report(&mut cost))
        }
        _ => None,
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match answer(&words) {
        Some(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!(
                "neap-lab-rust: run by neap-lab classes: usable N | distances N SIZE… | \
                 boxed N READINGS"
            );
            ExitCode::FAILURE
        }
    }
}
