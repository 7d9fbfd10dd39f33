//! The C++ operators, and what they do when memory runs out.

use crate::c_library::leaves_out;
use crate::support::{Artifact, compile, passes, passes_with};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;

#[test]
fn operators() {
    passes("programs/operators.cc");
}

/// Exceptions, `thread_local` objects, `std::pmr` and threads, as the C++ runtime makes them.
#[test]
fn the_runtime_lives_on_the_heap() {
    passes("programs/cxx_runtime.cc");
}

#[test]
fn out_of_memory() {
    passes("programs/out_of_memory.cc");
}

#[test]
fn a_program_may_replace_the_base_operators_alone() {
    passes("programs/replaced.cc");
}

/// All sets of them.
#[test]
fn a_program_may_replace_any_base_operators() {
    let source = "programs/partial.cc";
    let Some(plugin) = compile(source, Artifact::Plugin, &[OsStr::new("-DPLUGIN")]) else {
        return;
    };
    for set in 0..16 {
        let set = format!("-DSET={set}");
        let flags = ["-rdynamic", &set].map(OsStr::new);
        passes_with(source, &flags, &[plugin.as_os_str()]);
    }
}

#[test]
fn operators_wait_for_no_library_that_is_being_loaded() {
    let flags = ["-DPLUGIN"].map(OsStr::new);
    if let Some(plugin) = compile("programs/cxx_locks.cc", Artifact::Plugin, &flags) {
        let flags = ["-rdynamic"].map(OsStr::new);
        passes_with("programs/cxx_locks.cc", &flags, &[plugin.as_os_str()]);
    }
}

#[test]
fn a_cxx_plugin_of_a_c_program_catches_bad_alloc() {
    if let Some(plugin) = compile("programs/cxx_plugin.cc", Artifact::Plugin, &[]) {
        passes_with("programs/cxx_plugin_host.c", &[], &[plugin.as_os_str()]);
    }
}

/// The loader knows such a runtime by its soname alone.
#[test]
fn a_runtime_of_another_file_name_throws_bad_alloc() {
    if leaves_out("runtime's file name") {
        return;
    }
    let Some(plugin) = compile("programs/cxx_plugin.cc", Artifact::Plugin, &[]) else {
        return;
    };
    let found = Command::new("c++")
        .arg("-print-file-name=libstdc++.so.6")
        .output();
    let path = found.unwrap().stdout;
    let runtime = plugin.with_extension("runtime");
    fs::copy(OsString::from_vec(path.trim_ascii_end().to_vec()), &runtime).unwrap();
    let arguments = [plugin.as_os_str(), runtime.as_os_str()];
    passes_with("programs/cxx_plugin_host.c", &[], &arguments);
    fs::remove_file(runtime).unwrap();
}
