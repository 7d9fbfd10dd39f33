//! A Rust program with guarded samples: errors in unsafe code have reports.

use neap::{Neap, purge};
use std::alloc::{Layout, alloc, dealloc};
use std::env;
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::ptr::read_volatile;

#[global_allocator]
static ALLOCATOR: Neap = Neap;

/// The variable that names the error which a child process makes.
const ERROR: &str = "ERROR_TO_MAKE";

/// Makes the error of that name. The use after free happens to many blocks, until one of them is a
/// guarded one.
fn make(error: &str) {
    let layout = Layout::array::<u8>(100).unwrap();
    // It reaches threads that take the fast path.
    purge::enable_thread();
    let rounds = match error {
        "after free" => 1_000_000,
        _ => 1,
    };
    for _ in 0..rounds {
        // SAFETY: none: these are errors on purpose.
        unsafe {
            let blocks: Vec<_> = (0..1000).map(|_| alloc(layout)).collect();
            blocks.iter().for_each(|&block| dealloc(block, layout));
            match error {
                "after free" => blocks.iter().for_each(|&block| _ = read_volatile(block)),
                "no block" => _ = read_volatile(black_box(8) as *const u8),
                _ => {}
            }
        }
    }
}

/// A process of its own that makes an error, with guarded samples.
fn child(error: &str) -> Output {
    let test = ["a_use_after_free_has_a_report", "--exact", "--nocapture"];
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(test).env(ERROR, error).env("NEAP_GUARD", "1ms");
    child.output().unwrap()
}

/// The runtime installs its own handler of SIGSEGV before `main`, after the process's first
/// allocation.
#[test]
fn a_use_after_free_has_a_report() {
    if let Ok(error) = env::var(ERROR) {
        return make(&error);
    }
    assert!(child("none").status.success());
    for (error, is_reported) in [("after free", true), ("no block", false)] {
        let output = child(error);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{said}");
        let has_report =
            said.contains("neap: ") && said.contains("a block of 100 bytes that was freed");
        assert_eq!(has_report, is_reported, "{error}: {said}");
    }
}
