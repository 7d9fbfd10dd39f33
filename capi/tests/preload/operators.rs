//! Hardened mode with libraries that have C++ operators of their own. Then the forms of `new` and
//! `delete` tell nothing, because the library's `new` is a `malloc`.

use crate::c_library::leaves_out;
use crate::places::scratch;
use crate::skips::announce;
use crate::support::{Artifact, compile, preloaded, run, succeeds};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn a_library_may_have_operators_of_its_own() {
    let names = scratch().join(format!("own_operators-{}.map", std::process::id()));
    fs::write(&names, "{ global: _Z4makem; local: *; };").expect("the directory is writable");
    let hidden = format!("-Wl,--version-script={}", names.display());
    let source = "programs/own_operators.cc";
    for flags in [
        &["-DOWN", "-Wl,-Bsymbolic-functions"][..],
        &["-DOWN", &hidden],
        &["-static-libstdc++", "-Wl,--exclude-libs,ALL"],
        &[],
    ] {
        let all: Vec<_> = ["-DPLUGIN"].iter().chain(flags).map(OsStr::new).collect();
        let plugin = compile(source, Artifact::Plugin, &all);
        let (Some(plugin), Some(program)) = (plugin, compile(source, Artifact::Program, &[]))
        else {
            break;
        };
        for measures in ["1", "canary,deletes"] {
            let variables = [("NEAP_HARDEN", measures)];
            let output = run(&program, &[plugin.as_os_str()], &variables);
            succeeds(&output, &format!("own_operators {flags:?}, {measures}"));
        }
    }
    fs::remove_file(names).expect("it was written");
}

/// Compilers whose LLVM has operators of its own.
#[test]
fn compilers_run_hardened() {
    if leaves_out("compilers") {
        return;
    }
    let folder = scratch().join(format!("compilers-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the directory is writable");
    let source = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("the directory is writable");
        path
    };
    let rust = source("hello.rs", "fn main() { println!(\"{:?}\", vec![1, 2]); }");
    let cxx = source(
        "hello.cc",
        "#include <string>\nint main() { return std::string().size(); }",
    );
    compiles(&rustc(), &rust, &folder);
    compiles(Path::new("clang++"), &cxx, &folder);
    fs::remove_dir_all(folder).expect("it was made above");
}

/// The compiler itself, which may be behind a program that chooses one.
fn rustc() -> PathBuf {
    let root = Command::new("rustc").args(["--print", "sysroot"]).output();
    let root = root.map_or(Vec::new(), |output| output.stdout);
    Path::new(String::from_utf8_lossy(&root).trim()).join("bin/rustc")
}

/// Compiles and links a source, or says that there is no such compiler.
fn compiles(compiler: &Path, source: &Path, folder: &Path) {
    if Command::new(compiler).arg("--version").output().is_err() {
        return announce(&format!("no {} here", compiler.display()));
    }
    let made = folder.join("made");
    let arguments = [
        OsStr::new("-O"),
        source.as_os_str(),
        OsStr::new("-o"),
        made.as_os_str(),
    ];
    let mut command = preloaded(compiler, &arguments);
    let output = command.env("NEAP_HARDEN", "1").current_dir(folder).output();
    succeeds(
        &output.expect("the compiler starts"),
        &format!("{compiler:?}"),
    );
    let made = Command::new(made).status().expect("the program starts");
    assert!(made.success());
}
