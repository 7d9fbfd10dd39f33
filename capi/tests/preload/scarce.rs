//! Where address space, mappings or writable memory are scarce, programs go on as they do under the
//! C library's own `malloc`.

use crate::skips::skipped;
use crate::support::{
    Artifact, Machine, compile, library, limit, run, run_limited, succeeds, succeeds_or_skips,
};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Nothing on a clock: no thread, no decay.
const STILL: [(&str, &str); 2] = [("NEAP_PURGE_THREAD", "0"), ("NEAP_DECAY", "3600000")];

/// Whether `program` is here; if not, says so, and which package has it.
fn is_here(program: &str, package: &str) -> bool {
    let here = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !here {
        skipped(&format!(
            "no `{program}` here (Debian: apt install {package})"
        ));
    }
    here
}

#[test]
fn a_program_that_uses_up_its_mappings_first_is_served() {
    if let Some(program) = compile("programs/scarce/mappings.c", Artifact::Program, &[]) {
        for when in ["program", "grown"] {
            succeeds(&run(&program, &[OsStr::new(when)], &STILL), when);
        }
    }
}

#[test]
fn a_block_is_resized_when_the_address_space_is_used_up() {
    if let Some(program) = compile("programs/scarce/moved.c", Artifact::Program, &[]) {
        let output = run(&program, &[OsStr::new("program")], &STILL);
        succeeds(&output, "moved.c");
    }
}

#[test]
fn a_realloc_survives_a_limit_that_becomes_lower_meanwhile() {
    if let Some(program) = compile("programs/scarce/remap.c", Artifact::Program, &[]) {
        for how in ["lowered", "raised", "taken"] {
            succeeds_or_skips(&run(&program, &[OsStr::new(how)], &STILL), how);
        }
    }
}

#[test]
fn a_library_that_uses_up_the_mappings_before_the_heap_is_opened_changes_nothing() {
    let program = compile("programs/scarce/mappings.c", Artifact::Program, &[]);
    let mapper = compile("programs/scarce/mapper.c", Artifact::Plugin, &[]);
    let (Some(program), Some(mapper)) = (program, mapper) else {
        return;
    };
    // Constructors of what is loaded later run earlier.
    let both = format!("{}:{}", library().display(), mapper.display());
    let variables = [("LD_PRELOAD", both.as_str()), STILL[0], STILL[1]];
    let output = run(&program, &[OsStr::new("library")], &variables);
    succeeds(&output, "mapper.c");
}

#[test]
fn threads_start_after_the_limit_on_address_space_is_lowered() {
    let Some(program) = compile("programs/scarce/lowered.c", Artifact::Program, &[]) else {
        return;
    };
    for how in ["setrlimit", "setrlimit64", "prlimit", "raw", "other"] {
        for meanwhile in ["busy", "idle"] {
            let arguments = [OsStr::new(how), OsStr::new(meanwhile)];
            succeeds(&run(&program, &arguments, &[]), how);
        }
    }
}

#[test]
fn a_limit_on_address_space_that_is_set_later_holds() {
    if let Some(program) = compile("programs/scarce/limited.c", Artifact::Program, &[]) {
        succeeds(&run(&program, &[], &[]), "limited.c");
    }
}

#[test]
fn a_limit_taken_from_the_size_of_the_process_leaves_what_was_added() {
    let Some(program) = compile("programs/scarce/derived.c", Artifact::Program, &[]) else {
        return;
    };
    for mib in ["0", "2", "64", "500"] {
        succeeds(&run(&program, &[OsStr::new(mib)], &[]), mib);
    }
}

#[test]
fn vain_requests_gather_nothing() {
    let Some(program) = compile("programs/scarce/refusals.c", Artifact::Program, &[]) else {
        return;
    };
    for threads in ["6", "20"] {
        let arguments = [OsStr::new(threads)];
        let output = run_limited(&program, &arguments, libc::RLIMIT_AS, 1 << 30);
        succeeds_or_skips(&output, "refusals.c");
    }
}

#[test]
fn a_long_span_that_was_hardly_touched_is_purged_by_few_calls() {
    if let Some(program) = compile("programs/scarce/long_span.c", Artifact::Program, &[]) {
        succeeds_or_skips(&run(&program, &[], &STILL), "long_span.c");
    }
}

/// Runs a program with one resource limited, in KiB.
fn runs_within(program: &str, arguments: &[&str], resource: libc::__rlimit_resource_t, kib: u64) {
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    let output = run_limited(Path::new(program), &arguments, resource, kib << 10);
    succeeds(&output, &format!("{program} within {kib} KiB"));
}

#[test]
fn perl_and_sh_run_with_little_writable_memory() {
    for kib in [900, 1200, 1500, 2000, 3000] {
        runs_within("/bin/sh", &["-c", ":"], libc::RLIMIT_DATA, kib);
    }
    if is_here("perl", "perl") {
        for kib in [1700, 2000, 2400, 2600, 2800, 3000, 3500, 4000, 6000] {
            runs_within("/usr/bin/perl", &["-e", "1"], libc::RLIMIT_DATA, kib);
        }
    }
}

#[test]
fn perl_and_sh_run_in_little_address_space() {
    for kib in [7000, 8000, 10_000] {
        runs_within("/bin/sh", &["-c", ":"], libc::RLIMIT_AS, kib);
    }
    if is_here("perl", "perl") {
        for kib in [12_500, 13_000, 16_000] {
            runs_within("/usr/bin/perl", &["-e", "1"], libc::RLIMIT_AS, kib);
        }
    }
}

/// Reserving a TiB took qemu half a minute of processor time, and gigabytes.
#[test]
fn a_guest_of_qemu_ends() {
    const QEMU: &str = "qemu-x86_64";
    let is_guests = cfg!(target_arch = "x86_64") && Machine::under_test() == Machine::Own;
    if !is_guests || !is_here(QEMU, "qemu-user") {
        return;
    }
    let preload = format!("LD_PRELOAD={}", library().display());
    let mut guest = Command::new(QEMU);
    guest.args(["-E", &preload, "/bin/ls", "/"]);
    limit(&mut guest, libc::RLIMIT_CPU, 20);
    limit(&mut guest, libc::RLIMIT_DATA, 4 << 30);
    let output = guest.stdout(Stdio::null()).output().expect("qemu starts");
    succeeds(&output, QEMU);
}
