//! Builds the C and C++ programs of `tests/` and runs them under the library.
//!
//! The library under test is the one that cargo built with this test, or the
//! file that `LIBRARY_UNDER_TEST` names (the shipped one, in `ci/dist.sh`).
//!
//! With `MACHINE_UNDER_TEST=aarch64` the programs are compiled for AArch64 and run by qemu
//! (`ci/aarch64.sh`). `SYSROOT_UNDER_TEST` names the directory with its C library.
//!
//! With `C_LIBRARY_UNDER_TEST=musl` the C programs are musl's, with `old-glibc` those of Debian
//! 11's glibc (`ci/old-glibc.sh`). The library must be the shipped one then, because cargo's own
//! needs this machine's glibc.

use crate::c_library::{CLibrary, leaves_out};
pub use crate::places::library;
use crate::places::scratch;
use crate::skips::{announce, is_root, needs_root};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Deref;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs};

/// A source language, and the compiler that every machine calls it by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Language {
    C,
    Cxx,
}

impl Language {
    fn of(source: &Path) -> Self {
        if source.extension().is_some_and(|end| end == "cc") {
            Self::Cxx
        } else {
            Self::C
        }
    }

    fn compiler(self) -> &'static str {
        if Machine::under_test() == Machine::Aarch64 {
            return match (self, CLibrary::under_test()) {
                (Self::C, CLibrary::Musl) => "aarch64-musl-gcc",
                (Self::C, _) => "aarch64-linux-gnu-gcc",
                (Self::Cxx, CLibrary::Musl) => "aarch64-musl-g++",
                (Self::Cxx, _) => "aarch64-linux-gnu-g++",
            };
        }
        match (self, CLibrary::under_test()) {
            (Self::C, CLibrary::Glibc) => "cc",
            (Self::C, CLibrary::Musl) => "musl-gcc",
            (Self::Cxx, CLibrary::Glibc) => "c++",
            (Self::Cxx, CLibrary::Musl) => "musl-g++",
            (Self::C, CLibrary::OldGlibc) => "old-glibc-cc",
            (Self::Cxx, CLibrary::OldGlibc) => "old-glibc-c++",
        }
    }

    fn standard(self) -> &'static str {
        match self {
            Self::C => "-std=gnu11",
            Self::Cxx => "-std=c++17",
        }
    }

    /// Whether the compiler starts; if not, says on stderr what was left out and how to get it.
    fn available(self) -> bool {
        let compiler = self.compiler();
        if Command::new(compiler).arg("--version").output().is_ok() {
            return true;
        }
        announce(&format!(
            "no `{compiler}` here (Debian: apt install g++ musl-tools g++-aarch64-linux-gnu; \
             ci/old-glibc.sh makes old-glibc-cc, ci/musl-versions.sh musl-g++, ci/aarch64.sh \
             aarch64-musl-gcc; others are in no package)"
        ));
        false
    }
}

/// The machine that the programs are compiled for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// This one.
    Own,
    /// Run by qemu-user, which translates the program and passes on its system calls.
    Aarch64,
}

impl Machine {
    /// The one that `MACHINE_UNDER_TEST` names; this one if it names none.
    pub fn under_test() -> Self {
        match env::var("MACHINE_UNDER_TEST").as_deref() {
            Err(_) => Self::Own,
            Ok("aarch64") => Self::Aarch64,
            Ok(other) => panic!("MACHINE_UNDER_TEST={other}: say aarch64"),
        }
    }
}

/// Whether tests repeat their steps as often as in `ci/full.sh` (`TEST_TIER=full`).
pub fn is_full() -> bool {
    std::env::var_os("TEST_TIER").is_some_and(|tier| tier == "full")
}

/// Runs programs for AArch64.
const EMULATOR: &str = "qemu-aarch64";

/// A command that runs `program` alone, without the library.
pub fn bare(program: &Path) -> Command {
    if Machine::under_test() == Machine::Own {
        return Command::new(program);
    }
    let mut emulator = Command::new(EMULATOR);
    if let Some(root) = env::var_os("SYSROOT_UNDER_TEST") {
        emulator.env("QEMU_LD_PREFIX", root);
    }
    // qemu 7.2 and 10.0 end a program with SIGSEGV where it zeroes a cache line (`dc zva`) by a
    // pointer with a tag. glibc has a memset without it; under musl the processor has no tags.
    match CLibrary::under_test() {
        CLibrary::Musl => emulator.env("QEMU_CPU", "neoverse-n1"),
        _ => emulator.env("GLIBC_TUNABLES", "glibc.cpu.name=kunpeng920"),
    };
    // For programs that start themselves again (`check.h`).
    emulator.env("EMULATOR_UNDER_TEST", EMULATOR).arg(program);
    emulator
}

/// The directory of the C and C++ sources.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// What a compiler makes of a source.
#[derive(Clone, Copy)]
pub enum Artifact {
    Program,
    Plugin,
}

/// A compiled file, removed when the test is done with it.
pub struct Built(PathBuf);

impl Deref for Built {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        // If it stays behind, it is in the scratch directory.
        let _ = fs::remove_file(&self.0);
    }
}

/// Compiles `source` (below `tests/`) with more `flags`; none if there is no compiler.
pub fn compile(source: &str, artifact: Artifact, flags: &[&OsStr]) -> Option<Built> {
    // The compiler must neither remove nor judge the calls that are the test.
    let lenient = ["-fno-builtin", "-w"].map(OsStr::new);
    compile_strictly(source, artifact, &[&lenient, flags].concat())
}

/// [`compile`], with the compiler's warnings as `flags` say.
pub fn compile_strictly(source: &str, artifact: Artifact, flags: &[&OsStr]) -> Option<Built> {
    if leaves_out(source) {
        return None;
    }
    let source = sources().join(source);
    let language = Language::of(&source);
    if !language.available() {
        return None;
    }
    let made = fresh_path(&source);
    let mut command = Command::new(language.compiler());
    command
        .arg(language.standard())
        .args(["-O1", "-g", "-pthread"]);
    if matches!(artifact, Artifact::Plugin) {
        command.args(["-shared", "-fPIC"]);
    }
    command
        .arg("-I")
        .arg(sources().join("programs"))
        .arg("-o")
        .arg(&made)
        .arg(&source);
    command
        .args(CLibrary::under_test().flags(flags))
        .arg("-ldl");
    let output = command.output().expect("the compiler starts");
    assert!(
        output.status.success(),
        "{command:?}:\n{}",
        text(&output.stderr)
    );
    Some(Built(made))
}

/// A path in the scratch directory that no other test uses.
fn fresh_path(source: &Path) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let stem = source
        .file_stem()
        .expect("a source has a name")
        .to_string_lossy();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{stem}-{}-{number}", std::process::id());
    scratch().join(name)
}

/// Runs `program` under the library, with these variables and no other of Neap's, and no core
/// files.
pub fn run(program: &Path, arguments: &[&OsStr], variables: &[(&str, &str)]) -> Output {
    let mut command = preloaded(program, arguments);
    for (name, value) in variables {
        set_variable(&mut command, name, value.as_ref());
    }
    limit(&mut command, libc::RLIMIT_CORE, 0);
    output_of(&mut command)
}

/// Runs a command to its end. Leaves out what qemu itself says of a program that a signal ended.
pub fn output_of(command: &mut Command) -> Output {
    let mut output = command.output().expect("the program starts");
    if Machine::under_test() != Machine::Own {
        let lines = output.stderr.split_inclusive(|&byte| byte == b'\n');
        let own = lines.filter(|line| !line.starts_with(b"qemu: uncaught target signal"));
        output.stderr = own.flatten().copied().collect();
    }
    output
}

/// Starts `program` under the library, as [`run`] does, and leaves it to the caller; it writes
/// where the test writes.
pub fn start(program: &Path, arguments: &[&OsStr], variables: &[(&str, &str)]) -> Child {
    let mut command = preloaded(program, arguments);
    for (name, value) in variables {
        set_variable(&mut command, name, value.as_ref());
    }
    limit(&mut command, libc::RLIMIT_CORE, 0);
    command.spawn().expect("the program starts")
}

/// Runs `program` under the library, with one resource limited to `most`.
pub fn run_limited(
    program: &Path,
    arguments: &[&OsStr],
    resource: libc::__rlimit_resource_t,
    most: u64,
) -> Output {
    let mut command = preloaded(program, arguments);
    limit(&mut command, resource, most);
    output_of(&mut command)
}

/// The command that runs `program` under the library, without variables of Neap's.
pub fn preloaded(program: &Path, arguments: &[&OsStr]) -> Command {
    let mut command = bare(program);
    command.args(arguments);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("NEAP_") {
            command.env_remove(name);
        }
    }
    command.env("LIBRARY_UNDER_TEST", library());
    set_variable(&mut command, "LD_PRELOAD", library().as_ref());
    command
}

/// Sets a variable for the program alone: qemu itself must not be preloaded.
pub fn set_variable(command: &mut Command, name: &str, value: &OsStr) {
    if Machine::under_test() == Machine::Own || name != "LD_PRELOAD" {
        command.env(name, value);
        return;
    }
    let mut set = OsString::from("LD_PRELOAD=");
    set.push(value);
    command.env("QEMU_SET_ENV", set);
}

/// Limits one resource of `command` to `most`.
pub fn limit(command: &mut Command, resource: libc::__rlimit_resource_t, most: u64) {
    let set = move || {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        // SAFETY: the limit is a valid struct that outlives the call.
        match unsafe { libc::setrlimit(resource, &limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one async-signal-safe call and does not allocate.
    unsafe { command.pre_exec(set) };
}

/// Compiles and runs a program that must exit with 0 and write nothing on stderr.
pub fn passes(source: &str) {
    passes_with(source, &[], &[]);
}

/// [`passes`], linked to the library besides.
pub fn passes_linked(source: &str) {
    passes_with(source, &[library().as_os_str()], &[]);
}

/// [`passes`], with more flags for the compiler, and arguments for the program.
pub fn passes_with(source: &str, flags: &[&OsStr], arguments: &[&OsStr]) {
    if let Some(program) = compile(source, Artifact::Program, flags) {
        succeeds(&run(&program, arguments, &[]), source);
    }
}

/// Asserts that the program exited with 0 and left stderr empty.
pub fn succeeds(output: &Output, name: &str) {
    let stderr = text(&output.stderr);
    assert!(
        output.status.success(),
        "{name}: {}\n{stderr}",
        output.status
    );
    assert_eq!(stderr, "", "{name} wrote on stderr");
}

/// The exit status of a program that the kernel or a missing privilege keeps from its test.
const SKIPPED: i32 = 77;

/// Asserts success, or says on stderr what could not be tested here. What a plain user may not do
/// is left to root. What root cannot do either, the kernel or the machine does not support.
pub fn succeeds_or_skips(output: &Output, name: &str) {
    if output.status.code() != Some(SKIPPED) {
        return succeeds(output, name);
    }
    let said = text(&output.stdout);
    let why = format!("{name}: {}", said.trim().trim_start_matches("SKIPPED: "));
    match is_root() {
        true => announce(&why),
        false => needs_root(&why),
    }
}

/// Asserts that the program died by SIGABRT, and gives what it wrote on stderr, each address as
/// `ADDR`.
pub fn aborted(output: &Output, name: &str) -> String {
    let stderr = text(&output.stderr);
    let signal = output.status.signal();
    assert_eq!(
        signal,
        Some(libc::SIGABRT),
        "{name}: {}\n{stderr}",
        output.status
    );
    without_addresses(&stderr)
}

/// What Neap says of a pointer that is not its own, when `call` gets it.
pub fn foreign(call: &str) -> String {
    format!(
        "neap: {call} of ADDR, which is not inside any Neap arena \
         (stack, static, or another allocator's memory)\n"
    )
}

/// `text` with every `0x…` replaced by `ADDR`.
pub fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        clean.push_str("ADDR");
        clean.push_str(part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    clean
}

/// Bytes that a program wrote, for people.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
