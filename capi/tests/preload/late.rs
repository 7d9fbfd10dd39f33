//! Programs in which the library starts later than its constructor would, or finds no `dlsym`: as
//! with glibc before 2.34, where libpthread and libdl are libraries of their own.
//!
//! `ci/old-glibc.sh` runs these with such a glibc.

use crate::places;
use crate::support::{Artifact, Built, compile, preloaded, run, succeeds, text};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;

/// `programs/start/late.c`, whose library is initialised before the library under test.
struct Late {
    program: Built,
    _libraries: [Built; 2],
}

fn late(flags: &[&OsStr]) -> Option<Late> {
    let early = compile("programs/start/early_library.c", Artifact::Plugin, flags)?;
    let first = OsStr::new("-Wl,-z,initfirst");
    let first = compile("programs/start/first_library.c", Artifact::Plugin, &[first])?;
    let needed = OsStr::new("-Wl,--no-as-needed");
    let flags = [needed, early.as_os_str(), first.as_os_str()];
    Some(Late {
        program: compile("programs/start/late.c", Artifact::Program, &flags)?,
        _libraries: [early, first],
    })
}

/// A path in the scratch directory.
fn scratch(name: &str) -> PathBuf {
    places::scratch().join(format!("{name}-{}", std::process::id()))
}

#[test]
fn handlers_of_libraries_that_come_first_run_before_the_heap_is_closed() {
    if let Some(late) = late(&[]) {
        succeeds(&run(&late.program, &[], &[]), "late.c");
    }
}

#[test]
fn options_count_although_a_library_allocates_first() {
    let Some(late) = late(&["-DALLOCATES".as_ref()]) else {
        return;
    };
    let [classes, report] = ["late-classes", "late-report"].map(scratch);
    fs::write(&classes, "neap classes 1\n128\n1024\n32768\n").expect("the directory is writable");
    let [classes, report] = [&classes, &report].map(|path| path.to_str().expect("UTF-8"));
    let variables = [
        ("NEAP_CLASSES", classes),
        ("NEAP_STATS", "json"),
        ("NEAP_STATS_FILE", report),
    ];
    succeeds(&run(&late.program, &[], &variables), "late.c");
    let statistics = fs::read_to_string(report).expect("statistics were written");
    for path in [classes, report] {
        fs::remove_file(path).expect("both were written");
    }
    assert!(statistics.contains("\"bytes\":128"), "{statistics}");
    assert!(!statistics.contains("\"bytes\":112"), "{statistics}");
}

/// Flags of a program that needs no library but the C library, if that has all it calls.
const ALONE: &str = "-Wl,--as-needed";

#[test]
fn a_fork_without_an_environment_runs_handlers() {
    let Some(program) = compile(
        "programs/start/cleared.c",
        Artifact::Program,
        &[ALONE.as_ref()],
    ) else {
        return;
    };
    let report = scratch("cleared-report");
    let name = report.to_str().expect("UTF-8");
    let variables = [("NEAP_STATS", "json"), ("NEAP_STATS_FILE", name)];
    succeeds(&run(&program, &[], &variables), "cleared.c");
    let statistics = fs::read_to_string(&report).expect("statistics were written");
    fs::remove_file(&report).expect("it was written");
    assert_eq!(statistics.matches("\"program\"").count(), 2, "{statistics}");
}

#[test]
fn a_module_of_the_c_library_opens_libraries() {
    let flags = [ALONE.as_ref()];
    let (Some(program), Some(module)) = (
        compile("programs/start/name_service.c", Artifact::Program, &flags),
        compile("programs/start/name_module.c", Artifact::Plugin, &[]),
    ) else {
        return;
    };
    let directory = scratch("modules");
    fs::create_dir_all(&directory).expect("cargo's scratch directory is writable");
    fs::copy(&*module, directory.join("libnss_neaptest.so.2")).expect("it is writable");
    let mut path = OsString::from(&directory);
    if let Some(before) = env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(before);
    }
    let mut command = preloaded(&program, &[]);
    let output = command.env("LD_LIBRARY_PATH", path).output();
    fs::remove_dir_all(&directory).expect("it was made");
    let output = output.expect("the program starts");
    succeeds(&output, "name_service.c");
    assert_eq!(text(&output.stdout), "42\n");
}

#[test]
fn a_program_has_a_variable_of_its_own_called_environ() {
    let Some(program) = compile("programs/start/own_environ.c", Artifact::Program, &[]) else {
        return;
    };
    let output = run(&program, &[], &[]);
    succeeds(&output, "own_environ.c");
    assert_eq!(text(&output.stdout), "ok\n");
}
