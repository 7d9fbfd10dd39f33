//! The very first call of a process reads the options, and its own block is laid out as they say.

use neap_heap::free::{free, usable_size};
use neap_heap::malloc;
use std::env;
use std::process::Command;

/// The variable that names the first call of a child process.
const CALL: &str = "FIRST_CALL";

/// Makes the first call of that name. The test's own allocator is another one.
fn make(call: &str) {
    neap_instruments::install();
    let (block, size, align) = match call {
        "zeroed" => (malloc::allocate_zeroed(50), 50, 16),
        "zeroed long" => (malloc::allocate_zeroed(5000), 5000, 16),
        "zeroed layout" => (malloc::allocate_layout_zeroed(5000, 64), 5000, 64),
        "aligned" => (malloc::allocate_layout(100, 8192), 100, 8192),
        _ => (malloc::allocate_zeroed(0), 0, 16),
    };
    assert!(block.addr().is_multiple_of(align), "{block:?}");
    // SAFETY: a block of this test's, within its bytes, freed once.
    unsafe {
        assert!(call == "aligned" || (0..size).all(|at| *block.add(at) == 0));
        assert!(usable_size(block) >= size);
        block.write_bytes(1, size);
        free(block);
    }
}

/// This test's program. Where an emulator runs it, the kernel cannot, so cargo's runner runs it
/// again.
fn this_program() -> Command {
    let program = env::current_exe().unwrap();
    let runner = match cfg!(target_arch = "aarch64") {
        true => env::var_os("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER"),
        false => None,
    };
    match runner {
        Some(runner) => {
            let mut command = Command::new(runner);
            command.arg(program);
            command
        }
        None => Command::new(program),
    }
}

#[test]
fn the_first_block_is_laid_out_as_the_options_say() {
    if let Ok(call) = env::var(CALL) {
        return make(&call);
    }
    let test = "the_first_block_is_laid_out_as_the_options_say";
    for call in [
        "zeroed",
        "zeroed long",
        "zeroed layout",
        "aligned",
        "nothing",
    ] {
        for measures in ["0", "1", "canary"] {
            let mut child = this_program();
            child.args([test, "--exact"]).env(CALL, call);
            let output = child.env("NEAP_HARDEN", measures).output().unwrap();
            assert!(
                output.status.success(),
                "{call}, NEAP_HARDEN={measures}: {output:?}"
            );
        }
    }
}
