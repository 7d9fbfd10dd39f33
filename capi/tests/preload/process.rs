//! What a process does around an allocator: fork, threads, loading, start and end.

use crate::support::{self, Artifact, compile, passes, passes_with, succeeds_or_skips};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn fork_with_threads_running() {
    passes("programs/fork_threads.c");
}

/// `ci/kernels.sh` runs it in a machine with two nodes.
#[test]
fn blocks_lie_on_the_numa_nodes_of_their_threads() {
    if let Some(program) = compile("programs/nodes.c", Artifact::Program, &[]) {
        let output = support::run(&program, &[], &[]);
        print!("{}", support::text(&output.stdout));
        succeeds_or_skips(&output, "programs/nodes.c");
    }
}

/// What the C library allocates, loads and starts by itself, and its locks around a fork.
#[test]
fn the_c_library_runs_on_the_heap() {
    if let Some(plugin) = compile("programs/plugin.c", Artifact::Plugin, &[]) {
        passes_with("programs/c_library.c", &[], &[plugin.as_os_str()]);
    }
}

/// The compiler's runtime library replaces `malloc`, too.
#[test]
fn sanitized_programs_run_without_the_library() {
    for (flag, name) in [
        ("-fsanitize=address", "AddressSanitizer"),
        ("-fsanitize=thread", "ThreadSanitizer"),
        ("-fsanitize=leak", "LeakSanitizer"),
    ] {
        let flags = [OsStr::new(flag)];
        let Some(program) = compile("programs/sanitized.c", Artifact::Program, &flags) else {
            return;
        };
        // At some random layouts of the address space, ThreadSanitizer finds no room.
        let run = |_| support::run(&program, &["a b", ""].map(OsStr::new), &[]);
        let has_room = |stderr: &str| !stderr.contains("unexpected memory mapping");
        let mut outputs = (0..20).map(run);
        let output = outputs.find(|output| has_room(&support::text(&output.stderr)));
        let output = output.expect("a layout with room");
        let stderr = support::text(&output.stderr);
        assert!(
            output.status.success(),
            "{flag}: {}\n{stderr}",
            output.status
        );
        let end = format!(
            " is built with {name}, which needs a malloc of its own: it runs without Neap\n"
        );
        assert!(
            stderr.starts_with("neap: ") && stderr.ends_with(&end),
            "{stderr}"
        );
    }
}

/// Without the preload: opened, used and closed by the program.
#[test]
fn a_closed_library_stays() {
    let Some(program) = compile("programs/unload.c", Artifact::Program, &[]) else {
        return;
    };
    let output = support::bare(&program)
        .arg(support::library())
        .output()
        .expect("the program starts");
    support::succeeds(&output, "unload");
}

/// The library is linked to the program, so its constructor would run first if the order were the
/// loader's usual one.
#[test]
fn fork_handlers_of_libraries_allocate() {
    let Some(library) = compile("programs/atfork_library.c", Artifact::Plugin, &[]) else {
        return;
    };
    let flags = [OsStr::new("-Wl,--no-as-needed"), library.as_os_str()];
    passes_with("programs/atfork.c", &flags, &[]);
}

#[test]
fn thread_end() {
    passes("programs/thread_end.c");
}

/// Caches that no destructor ends go back, and the process ends.
#[test]
fn threads_that_end_unnoticed_leave_no_cache() {
    let Some(program) = compile("programs/unnoticed_ends.c", Artifact::Program, &[]) else {
        return;
    };
    for mode in [
        ("NEAP_DECAY", "1s"),
        ("NEAP_HARDEN", "1"),
        ("NEAP_CHECK", "1"),
    ] {
        for (way, end) in [
            ("0", "returns"),
            ("1", "returns"),
            ("0", "exits"),
            ("1", "exits"),
        ] {
            let output = support::run(&program, &[way, end].map(OsStr::new), &[mode]);
            support::succeeds(&output, &format!("unnoticed_ends {way} {end} {mode:?}"));
        }
    }
}

/// Loads the plugin in `mode` and trades blocks with it.
fn plugin(mode: &str) {
    if let Some(plugin) = compile("programs/plugin.c", Artifact::Plugin, &[]) {
        passes_with(
            "programs/plugin_host.c",
            &[],
            &[plugin.as_os_str(), OsStr::new(mode)],
        );
    }
}

#[test]
fn a_plugin_allocates() {
    plugin("now");
    plugin("lazy");
}

#[test]
fn a_deepbind_plugin_allocates_from_the_same_heap() {
    plugin("deepbind");
}

#[test]
fn a_kept_deepbind_reaches_the_c_library() {
    if crate::c_library::leaves_out("deepbind keep") {
        return;
    }
    let Some(plugin) = compile("programs/plugin.c", Artifact::Plugin, &[]) else {
        return;
    };
    let Some(host) = compile("programs/plugin_host.c", Artifact::Program, &[]) else {
        return;
    };
    let arguments = [plugin.as_os_str(), OsStr::new("deepbind")];
    let output = support::run(&host, &arguments, &[("NEAP_DEEPBIND", "keep")]);
    let message = support::aborted(&output, "deepbind kept");
    assert_eq!(message, support::foreign("realloc"));
}

#[test]
fn dlopen_keeps_its_callers_runpath() {
    let Some(plugin) = compile("programs/plugin.c", Artifact::Plugin, &[]) else {
        return;
    };
    let name = plugin.file_name().expect("a plugin has a name");
    let mut runpath = OsString::from("-Wl,--enable-new-dtags,-rpath,");
    runpath.push(plugin.parent().unwrap_or(Path::new("/")));
    passes_with("programs/runpath_host.c", &[&runpath], &[name]);
}

#[test]
fn constructors_and_exit_handlers_allocate() {
    let Some(program) = compile("programs/early_and_late.c", Artifact::Program, &[]) else {
        return;
    };
    let output = support::run(&program, &[], &[]);
    support::succeeds(&output, "early_and_late");
    assert_eq!(support::text(&output.stdout), "exited\ndestroyed\n");
}

/// Preloads are initialised from last to first: a second one allocates before the library's own
/// constructors.
#[test]
fn the_first_call_comes_before_any_constructor() {
    let Some(second) = compile("programs/first_call.c", Artifact::Plugin, &[]) else {
        return;
    };
    let Some(program) = compile("programs/nothing.c", Artifact::Program, &[]) else {
        return;
    };
    let mut preload = support::library().into_os_string();
    preload.push(":");
    preload.push(second.as_os_str());
    let preload = preload.to_str().expect("cargo's target directory is UTF-8");
    let output = support::run(&program, &[], &[("LD_PRELOAD", preload)]);
    support::succeeds(&output, "first_call");
    assert_eq!(support::text(&output.stdout), "first\n");
}

#[test]
fn blocks_that_were_mapped_over() {
    passes("programs/mapped_over.c");
    let Some(program) = compile("programs/mapped_over.c", Artifact::Program, &[]) else {
        return;
    };
    let output = support::run(&program, &[], &[("NEAP_GUARD", "all")]);
    support::succeeds(&output, "mapped_over, NEAP_GUARD=all");
}

/// Not in quarantine: the program waits for the addresses of the block that it freed.
fn passes_with_blocks_of_each_kind(source: &str) {
    let Some(program) = compile(source, Artifact::Program, &[]) else {
        return;
    };
    for measures in ["0", "zero", "random,canary,zero,nullpage,guards"] {
        for bytes in ["8192", "20000", "8388608"] {
            // Where blocks are sampled, the addresses may come back much later.
            for (sampling, way) in [(&[][..], "met"), (&[("NEAP_SAMPLE", "4K")], "may-miss")] {
                let variables = [&[("NEAP_HARDEN", measures)], sampling].concat();
                let output = support::run(&program, &[bytes, way].map(OsStr::new), &variables);
                support::succeeds(&output, &format!("{source} {bytes}, {variables:?}"));
            }
        }
    }
}

#[test]
fn advice_ends_with_the_block() {
    passes_with_blocks_of_each_kind("programs/advised.c");
}

#[test]
fn pages_that_the_program_took_out_of_a_block_are_there_for_the_next_owner() {
    passes_with_blocks_of_each_kind("programs/holes.c");
}

#[test]
fn blocks_that_were_mapped_over_when_no_mapping_is_left() {
    passes("programs/no_mapping_left.c");
}

#[test]
fn a_child_with_an_empty_thread_area_leaves_the_statistics_to_its_parent() {
    let Some(program) = compile("programs/thread_area.c", Artifact::Program, &[]) else {
        return;
    };
    let output = support::run(&program, &[], &[("NEAP_STATS", "text")]);
    let stderr = support::text(&output.stderr);
    assert!(output.status.success(), "{}\n{stderr}", output.status);
    let live = stderr.lines().find(|line| line.starts_with("  live "));
    assert!(
        live.is_some_and(|line| line.contains("64.0 MiB")),
        "{stderr}"
    );
}

#[test]
fn generations_leave_no_descriptors() {
    passes("programs/generations.c");
}

#[test]
fn statistics_that_a_full_disk_refuses_are_reported() {
    let Some(program) = compile("programs/control.c", Artifact::Program, &[]) else {
        return;
    };
    let full = [("NEAP_STATS", "text"), ("NEAP_STATS_FILE", "/dev/full")];
    let output = support::run(&program, &[], &full);
    assert!(output.status.success(), "{output:?}");
    let said = support::text(&output.stderr);
    assert_eq!(said, "neap: cannot write the statistics to /dev/full\n");
}

/// A named pipe, removed at the end.
struct Fifo(PathBuf);

impl Fifo {
    fn new() -> Fifo {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fifo-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        Fifo(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("cargo's target directory is UTF-8")
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        // One that stays behind is in cargo's scratch directory.
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs a program that does nothing, and kills it if it does not end.
fn ends(program: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = support::preloaded(program, &[]);
    for (name, value) in variables {
        support::set_variable(&mut command, name, value.as_ref());
    }
    let (out, errors) = (Stdio::piped(), Stdio::piped());
    let mut child = command.stdout(out).stderr(errors).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn a_pipe_as_file_stops_no_program() {
    let Some(program) = compile("programs/nothing.c", Artifact::Program, &[]) else {
        return;
    };
    let (fifo, full) = (Fifo::new(), Fifo::new());
    let mut open = OpenOptions::new();
    open.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    // It has a reader, who reads nothing.
    let mut end = open.open(full.path()).unwrap();
    while end.write(&[0; 4096]).is_ok() {}
    let classes = "is ignored: it is no regular file, or cannot be read";
    for (variables, said) in [
        (
            vec![("NEAP_CLASSES", fifo.path())],
            format!("neap: NEAP_CLASSES={} {classes}\n", fifo.path()),
        ),
        (
            vec![("NEAP_STATS", "text"), ("NEAP_STATS_FILE", fifo.path())],
            format!("neap: cannot write the statistics to {}\n", fifo.path()),
        ),
        (
            vec![("NEAP_STATS", "text"), ("NEAP_STATS_FILE", full.path())],
            format!("neap: cannot write the statistics to {}\n", full.path()),
        ),
    ] {
        let output = ends(&program, &variables);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(support::text(&output.stderr), said);
    }
}

#[test]
fn statistics_go_into_pipes_and_devices() {
    let Some(program) = compile("programs/nothing.c", Artifact::Program, &[]) else {
        return;
    };
    for (file, out, errors) in [
        ("/dev/stdout", true, false),
        ("/proc/self/fd/1", true, false),
        ("/dev/stderr", false, true),
        ("/dev/null", false, false),
    ] {
        let output = ends(
            &program,
            &[("NEAP_STATS", "text"), ("NEAP_STATS_FILE", file)],
        );
        let filled = [&output.stdout, &output.stderr].map(|text| text.starts_with(b"neap: "));
        assert_eq!(filled, [out, errors], "{file}: {output:?}");
        assert!(output.status.success(), "{output:?}");
    }
}
