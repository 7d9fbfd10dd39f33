//! Every byte that calloc gives is zero, whatever became of the way to ask the kernel.
//!
//! The short form of `ci/torture.sh`, and proof that the programs can fail: with a byte spoiled,
//! and with a calloc in front of the library that trusts its descriptor (`torture/unguarded.c`).

use crate::support::{
    self, Artifact, Built, aborted, compile_strictly, run, succeeds, succeeds_or_skips, text,
};
use std::ffi::OsStr;
use std::process::Output;

/// Compiles `torture/NAME.c`, with every warning an error.
fn built(name: &str, artifact: Artifact) -> Option<Built> {
    let flags = ["-fno-builtin", "-Wall", "-Wextra", "-Werror"].map(OsStr::new);
    compile_strictly(&format!("programs/torture/{name}.c"), artifact, &flags)
}

/// Runs each mode by several threads, and by one beside the purge thread: it may allocate after a
/// raw clone.
fn survives(modes: &[&str]) -> Vec<Output> {
    let mut outputs = Vec::new();
    let Some(program) = built("torture", Artifact::Program) else {
        return outputs;
    };
    for mode in modes {
        for threads in ["1", "3"] {
            let arguments = ["--rounds", "1500", "--threads", threads, "--mode", mode];
            let output = run(
                &program,
                &arguments.map(OsStr::new),
                &[("NEAP_DECAY", "10")],
            );
            succeeds_or_skips(&output, &format!("torture, {mode}, threads: {threads}"));
            outputs.push(output);
        }
    }
    outputs
}

#[test]
fn nothing_in_the_way() {
    survives(&["plain"]);
}

#[test]
fn descriptors_closed_and_replaced() {
    for mode in ["close", "closefrom", "replace", "close,replace"] {
        for output in survives(&[mode]) {
            let said = text(&output.stdout);
            // The library keeps a descriptor, and the attacks met it.
            let met = said.contains(" descriptors attacked") && !said.contains(" 0 descriptors");
            assert!(met, "{mode}: {said}");
        }
    }
}

#[test]
fn proc_out_of_reach() {
    survives(&["hidden", "hidden-late", "nondumpable", "nondumpable-late"]);
}

#[test]
fn no_descriptors_left() {
    survives(&["nofile", "nofile-late"]);
}

#[test]
fn all_memory_locked() {
    survives(&["locked", "locked-late"]);
}

#[test]
fn questions_kill() {
    survives(&["seccomp-late", "seccomp-call-late"]);
}

/// `NEAP_KERNEL_QUERIES=0`: there is no descriptor to attack, and zeros are zeros.
#[test]
fn nobody_is_asked() {
    let Some(program) = built("torture", Artifact::Program) else {
        return;
    };
    let arguments = ["--rounds", "1500", "--mode", "close"].map(OsStr::new);
    let output = run(&program, &arguments, &[("NEAP_KERNEL_QUERIES", "0")]);
    succeeds(&output, "torture, NEAP_KERNEL_QUERIES=0");
    let said = text(&output.stdout);
    assert!(said.contains(" 0 descriptors attacked"), "{said}");
}

/// From before the first large block on.
#[test]
fn questions_kill_from_the_start() {
    survives(&["seccomp", "seccomp-call"]);
}

#[test]
fn files_mapped_over_freed_pages() {
    let Some(program) = built("torture", Artifact::Program) else {
        return;
    };
    let arguments = ["--rounds", "3000", "--remap"].map(OsStr::new);
    succeeds(&run(&program, &arguments, &[]), "torture, remap");
}

#[test]
fn a_stale_parent_is_not_believed() {
    let Some(program) = built("stale_parent", Artifact::Program) else {
        return;
    };
    for kind in ["fork", "clone", "planted"] {
        succeeds(&run(&program, &[OsStr::new(kind)], &[]), kind);
    }
}

#[test]
fn pages_under_userfaultfd() {
    let Some(program) = built("userfaultfd", Artifact::Program) else {
        return;
    };
    for kind in ["missing", "protected", "kept"] {
        let output = run(&program, &[OsStr::new(kind)], &[]);
        succeeds_or_skips(&output, &format!("userfaultfd, {kind}"));
    }
}

#[test]
fn a_spoiled_byte_is_found() {
    let Some(program) = built("torture", Artifact::Program) else {
        return;
    };
    for number in ["1", "40", "400"] {
        let arguments = ["--rounds", "3000", "--plant", number].map(OsStr::new);
        let message = aborted(&run(&program, &arguments, &[]), number);
        assert!(
            message.starts_with("torture: wrong byte ADDR, not ADDR, at ADDR: offset "),
            "{message}"
        );
    }
}

/// Runs the program under a calloc that trusts its descriptor, which stands before the library.
fn unguarded(name: &str, arguments: &[&str]) -> Option<Output> {
    let plugin = built("unguarded", Artifact::Plugin)?;
    let program = built(name, Artifact::Program)?;
    let mut preload = plugin.as_os_str().to_owned();
    preload.push(":");
    preload.push(support::library());
    let preload = preload.to_str().expect("cargo's target directory is UTF-8");
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    Some(run(&program, &arguments, &[("LD_PRELOAD", preload)]))
}

/// Asserts that the program, run so, dies of a wrong byte.
fn fails_unguarded(name: &str, arguments: &[&str]) {
    if let Some(output) = unguarded(name, arguments) {
        let message = aborted(&output, name);
        assert!(
            message.contains(": wrong byte "),
            "{arguments:?}: {message}"
        );
    }
}

#[test]
fn a_trusting_calloc_fails() {
    for kind in ["fork", "clone", "planted"] {
        fails_unguarded("stale_parent", &[kind]);
    }
    fails_unguarded("torture", &["--rounds", "20000"]);
    let replaced = ["--rounds", "20000", "--no-children", "--mode", "replace"];
    fails_unguarded("torture", &replaced);
}

/// What the attacks find and meet, while every answer is an honest one.
#[test]
fn attacks_reach_the_descriptor() {
    let arguments = ["--rounds", "3000", "--no-children", "--mode", "close"];
    let Some(output) = unguarded("torture", &arguments) else {
        return;
    };
    succeeds(&output, "torture, close, unguarded");
    let said = text(&output.stdout);
    assert!(
        said.contains(" descriptors attacked") && !said.contains(" 0 descriptors attacked"),
        "{said}"
    );
}
