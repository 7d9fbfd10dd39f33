//! Tests of stacks that run alone in a process, as on other kernels.

#![allow(dead_code)]

use crate::older_kernel::{self, Kernel};
use crate::skips;
use neap::stack::Stack;
use std::fs;
use std::io::Write;
use std::process::Command;

/// Bytes.
pub const KIB: usize = 1 << 10;
/// Stacks of a process that has many.
pub const BURST: usize = 50_000;

/// Runs one test of this file again, alone in a process: the heap and its figures are the
/// process's.
pub fn alone(name: &str) -> bool {
    alone_on(name, &[Kernel::Own]).is_some()
}

/// [`alone`] on each of these kernels. In such a process, the kernel.
pub fn alone_on(name: &str, kernels: &[Kernel]) -> Option<Kernel> {
    const MARK: &str = "STACKS_TEST_ALONE";
    if let Some(mark) = std::env::var_os(MARK) {
        let is_it = |kernel: &&Kernel| *mark == *format!("{kernel:?}");
        return kernels.iter().find(is_it).copied();
    }
    for &kernel in kernels {
        if kernel == Kernel::WithoutAdvice && !older_kernel::has_write_guards() {
            skips::announce("no guards by write protection (userfaultfd) here");
            continue;
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--test-threads=1", "--nocapture"]);
        // However slow the machine is, no page that a test counts goes back meanwhile.
        command.env("NEAP_DECAY", "1h");
        older_kernel::run_on(command.env(MARK, format!("{kernel:?}")), kernel);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kernel:?}: {text}");
        assert!(text.contains("1 passed"), "{text}");
        for line in text.lines().filter(|line| line.starts_with("SKIPPED")) {
            // Not eprintln: the harness would hide it in a test that passes.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
    None
}

/// The largest frame without stack probes of a C library (`docs/stacks.md`).
pub const LARGEST_FRAME: usize = 33_312;

/// Whether the kernel refuses to write to any page that the largest frame reaches below the stack:
/// no process ends for that.
pub fn is_guarded(stack: &Stack) -> bool {
    let mut below = (1..LARGEST_FRAME).step_by(4 * KIB).chain([LARGEST_FRAME]);
    // SAFETY: a pipe of our own. The kernel writes one byte, where no stack has any.
    unsafe {
        let mut ends = [0; 2];
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        assert_eq!(libc::write(ends[1], b"x".as_ptr().cast(), 1), 1);
        let is_refused = |below| {
            let at = stack.limit().as_ptr().wrapping_sub(below);
            libc::read(ends[0], at.cast(), 1) == -1
        };
        let all = below.all(is_refused);
        for end in ends {
            libc::close(end);
        }
        all
    }
}

/// Writes to the page that a stack uses first.
pub fn touch(stack: &Stack) {
    // SAFETY: in a stack that no thread runs on.
    unsafe { stack.top().as_ptr().sub(8).cast::<u64>().write(1) };
}

/// How many mappings the process has.
pub fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}
