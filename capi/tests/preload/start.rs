//! What a small and short-lived process costs under the library, in counts.

use crate::c_library::CLibrary;
use crate::places::scratch;
use crate::skips::{announce, is_root, needs_root};
use crate::support::{
    Artifact, Machine, aborted, bare, compile, library, limit, output_of, preloaded, run,
    set_variable, succeeds, succeeds_or_skips, text,
};
use neap_shared::control::{Kind, OPTIONS};
use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

/// What `programs/start/small.c` prints.
#[derive(Debug)]
struct Small {
    mappings: u64,
    writable_kib: u64,
    faults: u64,
    written_kib: u64,
}

/// The least of some runs: where the kernel puts things differs from one to the next.
fn least(runs: impl Fn() -> Output) -> Small {
    let one = || {
        let output = runs();
        succeeds(&output, "small.c");
        let said = text(&output.stdout);
        let numbers = said
            .split_whitespace()
            .map(|word| word.parse().expect("a number"));
        let numbers: Vec<u64> = numbers.collect();
        Small {
            mappings: numbers[0],
            writable_kib: numbers[1],
            faults: numbers[2],
            written_kib: numbers[3],
        }
    };
    (0..20).map(|_| one()).fold(one(), |least, small| Small {
        mappings: least.mappings.min(small.mappings),
        writable_kib: least.writable_kib.min(small.writable_kib),
        faults: least.faults.min(small.faults),
        written_kib: least.written_kib.min(small.written_kib),
    })
}

#[test]
fn a_small_process_costs_little_more_than_without() {
    let Some(program) = compile("programs/start/small.c", Artifact::Program, &[]) else {
        return;
    };
    // Both are started in the same way: what happens before `exec` counts.
    let plain = least(|| bare(&program).output().expect("it starts"));
    let neap = least(|| preloaded(&program, &[]).output().expect("it starts"));
    println!("{neap:?} under {}, {plain:?} without", library().display());
    // The tests' own library is not optimised as a whole, so its code and data are spread over more
    // pages, and it loads one more library. What a process writes hardly varies: 108 KiB more, and
    // with the tests' own library 156 or 164, as its data happen to lie. How many pages of files a
    // fault maps depends on what the kernel keeps of the file: 36 to 38 more faults were counted,
    // and 52.
    let (mappings, faults, written_kib) = match env::var_os("LIBRARY_UNDER_TEST") {
        Some(_) => (7, 48, 112),
        None => (12, 80, 168),
    };
    assert!(neap.mappings <= plain.mappings + mappings, "mappings");
    assert!(neap.faults <= plain.faults + faults, "page faults");
    assert!(
        neap.written_kib <= plain.written_kib + written_kib,
        "written memory"
    );
    assert!(
        neap.writable_kib <= plain.writable_kib + 2200,
        "writable memory"
    );
}

/// A program that gains privileges has the library if it is linked to it, or if
/// `/etc/ld.so.preload` names it. The loader ignores most of `LD_PRELOAD` there. Only root can make
/// such a program.
#[test]
fn a_program_that_gains_privileges_ignores_all_options() {
    const NOBODY: u32 = 65534;
    if Machine::under_test() != Machine::Own {
        return announce("an emulator gives its program no privileges");
    }
    let library = library();
    let folder = library.parent().expect("a directory").display();
    let flags = [
        library.clone().into(),
        format!("-Wl,-rpath,{folder}").into(),
    ];
    let flags = flags.each_ref().map(OsString::as_os_str);
    let source = "programs/start/privileged.c";
    let Some(program) = compile(source, Artifact::Program, &flags) else {
        return;
    };
    if !is_root() {
        return needs_root("only root makes a program of another user");
    }
    fs::set_permissions(&*program, Permissions::from_mode(0o4755)).expect("a file of root's");
    let room = scratch().join(format!("privileged-{}", std::process::id()));
    fs::create_dir_all(&room).expect("a directory");
    fs::set_permissions(&room, Permissions::from_mode(0o777)).expect("a directory of root's");
    let mut command = preloaded(&program, &[]);
    command.uid(NOBODY).gid(NOBODY).current_dir(&room);
    for (name, value) in OPTIONS.iter().map(|option| (option.env, option.kind)) {
        match value {
            Kind::Path => command.env(name, room.join(name)),
            Kind::Socket => command.env(name, "neap-test-monitor"),
            Kind::Bytes { .. } => command.env(name, "1M"),
            Kind::Choice(words) => command.env(name, words[words.len() - 1]),
            Kind::Names(_) | Kind::Time { .. } | Kind::Interval { .. } => command.env(name, "1ms"),
        };
    }
    command.env("NEAP_UNKNOWN", "1");
    let ran = command.output();
    let written = fs::read_dir(&room).expect("a directory").count();
    fs::remove_dir_all(&room).expect("a directory");
    match ran {
        Ok(output) => succeeds_or_skips(&output, source),
        Err(why) => return announce(&format!("for another user: {}: {why}", program.display())),
    }
    assert_eq!(written, 0, "it wrote files");
}

/// A process of several threads that registers for `membarrier` waits for a grace period of RCU:
/// for 6 to 30 ms, or seconds on an overloaded machine, in a `malloc_trim` or before an answer.
#[test]
fn the_first_drain_of_a_process_with_threads_waits_for_no_grace_period() {
    let flags = [std::ffi::OsStr::new("-pthread")];
    if let Some(program) = compile("programs/start/barrier.c", Artifact::Program, &flags) {
        succeeds_or_skips(&run(&program, &[], &[]), "barrier.c");
    }
}

/// An option that the library does not know: it says so if it starts.
const UNKNOWN: (&str, &str) = ("NEAP_TEST_OF_THE_START", "1");

/// A failing `dlsym` in the constructor had libc allocate its error's text there, and free it.
#[test]
fn a_program_with_its_own_malloc_is_left_alone() {
    let flags = ["-rdynamic".as_ref()];
    if let Some(program) = compile("programs/start/own_malloc.c", Artifact::Program, &flags) {
        succeeds(&run(&program, &[], &[UNKNOWN]), "own_malloc.c");
    }
}

/// In such a program the address of `malloc` is one of the program's own.
#[test]
fn a_program_that_is_not_position_independent_is_served_from_its_start() {
    let flags = ["-fno-pie".as_ref(), "-no-pie".as_ref()];
    if let Some(program) = compile("programs/start/not_pie.c", Artifact::Program, &flags) {
        let output = run(&program, &[], &[("NEAP_PURGE_THREAD", "always")]);
        succeeds(&output, "not_pie.c");
    }
}

#[test]
fn the_start_leaves_no_error_to_dlerror() {
    let Some(program) = compile("programs/start/dlerror.c", Artifact::Program, &[]) else {
        return;
    };
    let settings: [&[(&str, &str)]; 5] = [
        &[],
        &[("NEAP_PURGE_THREAD", "never")],
        &[("NEAP_PURGE_THREAD", "always")],
        &[("NEAP_PURGE_THREAD", "never"), ("NEAP_SAMPLE", "64K")],
        &[("NEAP_PURGE_THREAD", "never"), ("NEAP_GUARD", "20ms")],
    ];
    for variables in settings {
        let output = run(&program, &[], variables);
        assert_eq!(text(&output.stdout), "", "{variables:?}");
        succeeds(&output, "dlerror.c");
    }
    if CLibrary::under_test() == CLibrary::Musl {
        // It opens no library late that needs thread-local memory at a fixed place.
        return;
    }
    let mut alone = bare(&program);
    let output = alone.arg(library()).output().expect("it starts");
    assert_eq!(text(&output.stdout), "");
    succeeds(&output, "dlerror.c, opened late");
}

/// The names that the shipped library takes from others. Variables are not called.
const IMPORTS: &str = include_str!("../imports.golden");
const VARIABLES: [&str; 3] = [
    "__environ",
    "program_invocation_short_name",
    "__libc_single_threaded",
];

/// Names that the library asks whether they are there, and does not call. A program has the
/// sanitizers' only with their runtimes.
const ASKED_FOR: [&str; 5] = ["_init", "_ITM_", "__gmon_start__", "_ZSt", "gnu_get_libc"];

/// The compiler calls these for what the language does, also while the heap makes a thread's cache.
const COPYING: [&str; 5] = ["bcmp", "memcpy", "memmove", "memset", "strlen"];

/// Names of functions that the library wraps, and of calls to the kernel that it makes.
const WRAPPED_AND_NUMBERED: [&str; 34] = [
    "_Fork",
    "__register_atfork",
    "clock_gettime",
    "clone",
    "dlopen",
    "fork",
    "fstatfs",
    "ftruncate",
    "getpid",
    "getrusage",
    "ioctl",
    "kill",
    "madvise",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "open",
    "pread",
    "prctl",
    "prlimit",
    "read",
    "readlink",
    "sched_getaffinity",
    "setrlimit",
    "sigaction",
    "sigaltstack",
    "signal",
    "socket",
    "syscall",
    "sysconf",
    "sysinfo",
    "unshare",
    "write",
];

/// Each function that the library calls is another library's, which allocates in every call. When
/// the heap called `munmap` or `clock_gettime` by name, it called itself without end.
#[test]
fn functions_of_other_libraries_may_allocate() {
    let Some(program) = compile("programs/start/interposed.c", Artifact::Program, &[]) else {
        return;
    };
    let lines = IMPORTS.lines().filter(|line| !line.starts_with('#'));
    let imported = lines.filter_map(|line| line.split_whitespace().nth(1));
    let is_called = |name: &&str| {
        let is_asked_for = ASKED_FOR.iter().any(|part| name.contains(part));
        // In musl the other library would find the next function of this name by itself.
        let is_finder = *name == "dlsym" && CLibrary::under_test() == CLibrary::Musl;
        !is_finder && !VARIABLES.contains(name) && !COPYING.contains(name) && !is_asked_for
    };
    let names = imported.filter(is_called).chain(WRAPPED_AND_NUMBERED);
    for name in names {
        let define = format!("-DNAME={name}");
        let flags = [define.as_ref()];
        let Some(other) = compile("programs/start/interposer.c", Artifact::Plugin, &flags) else {
            return;
        };
        works_beside(&program, &other, name);
    }
}

/// Runs `interposed.c` with the other library before the one under test, and after it.
fn works_beside(program: &Path, other: &Path, name: &str) {
    let own = library();
    let [own, other] = [&own, other].map(|path| path.to_str().expect("UTF-8"));
    let settings: [&[(&str, &str)]; 3] = [
        &[],
        &[("NEAP_HARDEN", "1"), ("NEAP_PURGE_THREAD", "always")],
        &[
            ("NEAP_GUARD", "all"),
            ("NEAP_SAMPLE", "16K"),
            ("NEAP_STATUS_PAGE", "1"),
        ],
    ];
    // In musl, stack traces take both: a trace for each block would need a block for each trace.
    let is_of_traces = ["__errno_location", "dl_iterate_phdr"].contains(&name);
    let without_traces = usize::from(is_of_traces && CLibrary::under_test() == CLibrary::Musl);
    let settings = &settings[..settings.len() - without_traces];
    for order in [[other, own].join(":"), [own, other].join(":")] {
        for variables in settings {
            let mut command = preloaded(program, &[]);
            ends_in_time(command.envs(variables.iter().copied()));
            set_variable(&mut command, "LD_PRELOAD", order.as_ref());
            succeeds(
                &output_of(&mut command),
                &format!("{name} of another library"),
            );
        }
        let mut command = preloaded(program, &["twice".as_ref()]);
        ends_in_time(&mut command);
        limit(&mut command, libc::RLIMIT_CORE, 0);
        set_variable(&mut command, "LD_PRELOAD", order.as_ref());
        aborted(
            &output_of(&mut command),
            &format!("{name} of another library"),
        );
    }
}

/// `__libc_realloc` called `realloc`, which in turn was the other library's.
#[test]
fn a_library_in_front_may_call_the_internal_names_of_glibc() {
    let other = compile("programs/start/old_wrapper.c", Artifact::Plugin, &[]);
    let program = compile("programs/start/interposed.c", Artifact::Program, &[]);
    let (Some(other), Some(program)) = (other, program) else {
        return;
    };
    let own = library();
    let [own, other] = [&own, &*other].map(|path| path.to_str().expect("UTF-8"));
    let mut command = preloaded(&program, &[]);
    set_variable(&mut command, "LD_PRELOAD", [other, own].join(":").as_ref());
    succeeds(
        &output_of(&mut command),
        "interposed.c behind old_wrapper.c",
    );
}

/// A process that hangs ends as SIGALRM.
fn ends_in_time(command: &mut Command) {
    let set = || {
        // SAFETY: takes a number.
        unsafe { libc::alarm(120) };
        Ok(())
    };
    // SAFETY: the closure makes one async-signal-safe call and does not allocate.
    unsafe { command.pre_exec(set) };
}
