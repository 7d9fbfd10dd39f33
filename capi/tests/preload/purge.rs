//! What is freed goes home by itself, through a thread that large programs have, and that they do
//! not notice.

use crate::c_library::leaves_out;
use crate::places::scratch;
use crate::skips::announce;
use crate::support::{
    Artifact, Built, Machine, compile, compile_strictly, library, run, start, succeeds,
    succeeds_or_skips, text,
};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The thread stays for longer than any test: whatever is done, is done while it lives.
const LONG: (&str, &str) = ("NEAP_DECAY", "600000");
/// It comes and goes.
const SHORT: (&str, &str) = ("NEAP_DECAY", "20");

/// How long a process may take to end, on a machine with much more to do than this.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long the purge thread may sleep when no other thread is left.
const ALONE: Duration = Duration::from_secs(20);

/// Compiles `purge/NAME.c`, with every warning an error.
fn built(name: &str, artifact: Artifact) -> Option<Built> {
    let flags = ["-fno-builtin", "-Wall", "-Wextra", "-Werror"].map(OsStr::new);
    compile_strictly(&format!("programs/purge/{name}.c"), artifact, &flags)
}

/// Runs `purge/NAME.c` once for each of its `ways`.
fn passes(name: &str, ways: &[&str], variables: &[(&str, &str)]) {
    let Some(program) = built(name, Artifact::Program) else {
        return;
    };
    for way in ways {
        let what = format!("{name} {way}");
        if !leaves_out(&what) {
            let output = run(&program, &[OsStr::new(way)], variables);
            succeeds_or_skips(&output, &what);
        }
    }
}

#[test]
fn a_sleeping_process_gives_back_what_its_thread_freed() {
    passes(
        "returns",
        &["own", "large", "later", "served", "shrunk"],
        &[],
    );
}

/// Needs root, for a mount namespace.
#[test]
fn stalls_elsewhere_on_the_machine_are_no_shortage() {
    passes("stalls", &["elsewhere", "scarce", "own"], &[LONG]);
}

#[test]
fn what_is_cached_goes_home_though_the_program_only_allocates() {
    passes(
        "cached",
        &["malloc", "calloc"],
        &[("NEAP_PURGE_THREAD", "0")],
    );
}

/// Each block goes to its slab by itself, and none to a magazine.
#[test]
fn a_sleeping_process_without_magazines_gives_back_what_its_thread_freed() {
    passes("returns", &["own", "later"], &[("NEAP_THREAD_CACHE", "0")]);
}

#[test]
fn a_sleeping_process_gives_back_what_another_thread_freed() {
    passes("returns", &["other", "idle-owner", "idle-freer"], &[]);
}

#[test]
fn what_a_longer_block_left_beyond_a_blocks_end_goes_home() {
    passes("tails", &["idle"], &[]);
    passes("tails", &["trim"], &[LONG]);
}

#[test]
fn no_byte_of_a_block_changes_while_what_is_beyond_its_end_goes_home() {
    passes("tail_race", &[""], &[SHORT]);
}

#[test]
fn what_is_freed_goes_home_whoever_freed_it() {
    passes("anywhere", &["threads", "c-library", "handler"], &[]);
}

/// Runs `purge/NAME.c`, which calls functions of the library's own.
fn passes_linked(name: &str, variables: &[(&str, &str)]) {
    let library = library();
    let source = format!("programs/purge/{name}.c");
    if let Some(program) = compile(&source, Artifact::Program, &[library.as_os_str()]) {
        succeeds(&run(&program, &[], variables), name);
    }
}

#[test]
fn a_sleeping_process_gives_back_its_stacks() {
    passes_linked("stacks", &[]);
}

#[test]
fn free_pages_make_way_for_a_large_block() {
    passes_linked("way", &[LONG]);
}

#[test]
fn memory_in_motion_is_not_faulted_in_again() {
    passes("motion", &[""], &[LONG]);
}

#[test]
fn what_the_c_library_frees_starts_no_thread() {
    passes("callers", &[""], &[LONG]);
}

#[test]
fn a_process_that_grows_gives_back_what_idles() {
    passes("growing", &[""], &[("NEAP_DECAY", "400")]);
}

#[test]
fn privileges_are_given_up_while_the_thread_lives() {
    passes("privileges", &[""], &[LONG]);
}

#[test]
fn namespaces_are_left_while_the_thread_lives() {
    passes(
        "namespaces",
        &[
            "unshare-user",
            "unshare-by-number",
            "unshare-mounts",
            "unshare-files",
        ],
        &[LONG],
    );
}

/// Only the calling thread loses them.
#[test]
fn rights_that_are_given_up_are_not_the_purge_threads_either() {
    passes(
        "rights",
        &["capset", "capset-by-number", "landlock"],
        &[LONG],
    );
}

/// Nothing starts the thread before the next slow path; and each request ended and started one.
#[test]
fn a_call_for_which_the_purge_thread_ends_leaves_no_memory_and_few_threads() {
    passes("held", &["sleeps", "requests"], &[]);
}

#[test]
fn a_namespace_for_children_leaves_the_purge_thread_alone() {
    passes("rights", &["children", "children-by-number"], &[LONG]);
}

/// Chromium's zygote aborts if the process that it begins in has a second thread. Its own `malloc`
/// serves it.
#[test]
fn a_browser_under_guards_opens_a_page() {
    let browser = Path::new("/usr/bin/chromium");
    let is_own = Machine::under_test() == Machine::Own;
    if leaves_out("a browser") || !is_own {
        return;
    }
    if !browser.exists() {
        return announce("no browser here (Debian: apt install chromium)");
    }
    let home = scratch().join(format!("browser-{}", std::process::id()));
    let profile = format!("--user-data-dir={}", home.display());
    for option in [("NEAP_ANSWER", "1"), ("NEAP_GUARD", "20ms")] {
        let page = "data:text/html,<script>document.write(6*7)</script>";
        let flags = ["--headless", "--no-sandbox", "--disable-gpu", &profile];
        let arguments = [&flags[..], &["--dump-dom", page]].concat();
        let arguments: Vec<_> = arguments.into_iter().map(OsStr::new).collect();
        let output = run(browser, &arguments, &[option]);
        assert!(
            text(&output.stdout).contains("42"),
            "{option:?}: {output:?}"
        );
    }
    let _ = fs::remove_dir_all(home);
}

#[test]
fn a_handler_that_interrupted_the_heap_leaves_a_namespace() {
    passes("interrupts", &[""], &[("NEAP_DECAY", "1")]);
}

#[test]
fn namespaces_are_entered_while_the_thread_lives() {
    passes(
        "namespaces",
        &["setns-uts", "setns-mounts", "setns-user"],
        &[LONG],
    );
}

#[test]
fn the_thread_takes_no_number_of_the_programs_descriptors() {
    passes("numbers", &[""], &[]);
}

/// It must not take the start that another thread was refused meanwhile for its own.
#[test]
fn a_starter_that_is_preempted_leaves_later_starts_alone() {
    let flags = ["-fno-builtin", "-rdynamic"].map(OsStr::new);
    if let Some(program) = compile("programs/purge/late.c", Artifact::Program, &flags) {
        succeeds(&run(&program, &[], &[]), "late");
    }
}

/// A signal is raised inside of the window in which the thread is being started.
#[test]
fn a_handler_within_the_start_ends() {
    let flags = ["-fno-builtin", "-rdynamic"].map(OsStr::new);
    let source = "programs/purge/window.c";
    let Some(program) = compile(source, Artifact::Program, &flags) else {
        return;
    };
    for mask in ["masked", "unmasked"] {
        for act in ["forbids", "unshares"] {
            let output = run(&program, &[mask, act].map(OsStr::new), &[]);
            succeeds(&output, &format!("{act} in a handler, {mask}"));
        }
    }
}

#[test]
fn who_waits_for_the_end_of_the_thread_sleeps() {
    passes("realtime", &[""], &[]);
}

#[test]
fn thread_local_variables_may_be_large() {
    for kib in ["64", "120", "1024"] {
        let bytes = format!("-DLOCAL=({kib}<<10)");
        let source = "programs/purge/local.c";
        if let Some(program) = compile(source, Artifact::Program, &[OsStr::new(&bytes)]) {
            succeeds(&run(&program, &[], &[]), &format!("{kib} KiB"));
        }
    }
}

#[test]
fn children_of_a_raw_clone_have_no_thread_and_wait_for_none() {
    passes("clones", &["unshares", "forbids"], &[LONG]);
    passes("clones", &["frees"], &[("NEAP_DECAY", "300")]);
}

#[test]
fn a_sandbox_that_kills_who_starts_threads() {
    let quick = ("NEAP_DECAY", "50");
    passes("sandbox", &["prctl", "late"], &[quick]);
}

/// Past the C library's own functions.
#[test]
fn a_sandbox_that_was_entered_unseen() {
    passes("sandbox", &["syscall"], &[("NEAP_DECAY", "50")]);
}

#[test]
fn a_sandbox_from_before_the_start() {
    // A filter that is there at the start is usually a container's, which kills for nothing: this
    // one must be told of.
    let options = [("NEAP_DECAY", "50"), ("NEAP_KERNEL_QUERIES", "0")];
    passes("sandbox", &["inherited"], &options);
}

/// A kernel without filters, and qemu-user, refuse the question for them. That is no sandbox.
#[test]
fn the_thread_starts_where_filters_are_unknown() {
    passes("sandbox", &["unknown"], &[]);
}

#[test]
fn libraries_are_loaded_and_closed_while_threads_come_and_go() {
    let Some(library) = built("loaded", Artifact::Plugin) else {
        return;
    };
    let Some(program) = built("loading", Artifact::Program) else {
        return;
    };
    // The loader runs the constructor of one file once, so each thread has a file of its own.
    let copies = ["-1", "-2", "-3"].map(|end| {
        let mut copy = library.as_os_str().to_owned();
        copy.push(end);
        fs::copy(&*library, &copy).expect("cannot copy");
        copy
    });
    let arguments = copies.each_ref().map(|copy| copy.as_os_str());
    let output = run(&program, &arguments, &[SHORT]);
    for copy in &copies {
        fs::remove_file(copy).expect("cannot remove");
    }
    succeeds(&output, "loading");
}

#[test]
fn a_storm_of_threads_with_large_stacks() {
    passes("storm", &[""], &[SHORT]);
}

#[test]
fn children_purge_for_themselves() {
    passes("forks", &["generations"], &[]);
}

#[test]
fn forks_while_threads_come_and_go() {
    passes("forks", &["storm", "handlers", "daemon"], &[SHORT]);
}

/// In so short a time, nothing but the thread's end gives back memory.
#[test]
fn a_program_that_counts_its_threads_after_a_fork_finds_its_own() {
    let export = [OsStr::new("-Wl,--export-dynamic")];
    let Some(program) = compile_strictly("programs/purge/apart.c", Artifact::Program, &export)
    else {
        return;
    };
    let plain = ("NEAP_DECAY", "5000");
    succeeds(&run(&program, &[], &[plain]), "apart");
    let options = [
        ("NEAP_GUARD", "20ms"),
        ("NEAP_ANSWER", "1"),
        ("NEAP_PURGE_THREAD", "always"),
        ("NEAP_SAMPLE", "64K"),
        ("NEAP_CHECK", "1"),
    ];
    for option in options {
        let output = run(&program, &[OsStr::new("unmeasured")], &[plain, option]);
        succeeds(&output, option.0);
    }
}

#[test]
fn no_process_lives_on_for_its_purge() {
    let Some(program) = compile("programs/purge/ends.c", Artifact::Program, &[]) else {
        return;
    };
    let ways = ["return", "exit", "pthread-exit", "last-thread", "late-free"];
    let raw = ["raw", "raw-terminated", "raw-last-thread", "raw-stranger"];
    for way in ways.into_iter().chain(raw) {
        ends(&program, way, &[LONG]);
        ends(&program, way, &[("NEAP_PURGE_THREAD", "always")]);
    }
}

/// Runs a program that ends by itself, whatever thread of ours is there. How long it runs depends
/// on the machine: what counts is how long the purge thread then sleeps alone.
fn ends(program: &Built, way: &str, variables: &[(&str, &str)]) {
    let mut child = start(program, &[OsStr::new(way)], variables);
    let begin = Instant::now();
    let mut alone: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            let is_killed = status.signal() == Some(libc::SIGTERM) && way == "raw-terminated";
            assert!(status.success() || is_killed, "{way}: {status}");
            return;
        }
        alone = sleeps_alone(child.id()).then(|| alone.unwrap_or_else(Instant::now));
        if alone.is_some() && way == "raw-terminated" {
            // SAFETY: a child that was not waited for.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        }
        let is_kept = alone.is_some_and(|since| since.elapsed() > ALONE);
        if is_kept || begin.elapsed() > PATIENCE {
            child.kill().expect("a child can be killed");
            child.wait().expect("a child can be waited for");
            panic!("{way}: it lives on, its purge thread alone: {is_kept}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the purge thread of a process sleeps, and all others have ended. (The first thread of a
/// process stays as a zombie.)
fn sleeps_alone(process: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    let stats = tasks.map_while(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let (mut sleeping, mut others) = (0, 0);
    for stat in stats.filter(|stat| !stat.contains(") Z ")) {
        match stat.contains(" (neap-purge) S ") {
            true => sleeping += 1,
            false => others += 1,
        }
    }
    sleeping > 0 && others == 0
}

#[test]
fn activity_purges_where_no_thread_can_be_had() {
    passes("without", &["refused"], &[("NEAP_DECAY", "100")]);
}

#[test]
fn activity_purges_where_no_thread_is_wanted() {
    let off = ("NEAP_PURGE_THREAD", "0");
    passes("without", &["off"], &[("NEAP_DECAY", "100"), off]);
}

#[test]
fn signals_are_the_programs_own() {
    passes("signals", &[""], &[LONG]);
}

/// A small program never has the thread.
#[test]
fn little_is_purged_by_nobody() {
    passes("little", &[""], &[SHORT]);
}

/// An unknown one, or a value that does not fit, would be a line on stderr.
#[test]
fn the_options_are_known() {
    let Some(program) = compile("programs/nothing.c", Artifact::Program, &[]) else {
        return;
    };
    for (name, value) in [
        ("NEAP_PURGE_THREAD", "1"),
        ("NEAP_PURGE_THREAD", "always"),
        ("NEAP_DECAY", "500"),
        ("NEAP_DECAY", "2s"),
        ("NEAP_LIMIT_DIRTY", "64M"),
        ("NEAP_LIMIT_SOFT", "1G"),
        ("NEAP_LIMIT", "2G"),
    ] {
        let output = run(&program, &[], &[(name, value)]);
        succeeds(&output, name);
    }
}

#[test]
fn what_a_program_locks_stays() {
    passes(
        "locked",
        &["all", "on-fault", "raw", "limited"],
        &[("NEAP_DECAY", "100")],
    );
}

#[test]
fn a_locked_page_keeps_no_other_and_goes_when_it_is_unlocked() {
    passes("pinned", &["first", "middle"], &[]);
}

#[test]
fn beside_locked_pages_the_thread_sleeps() {
    passes("locked", &["asleep"], &[("NEAP_DECAY", "100")]);
}

#[test]
fn below_the_threshold_that_a_program_sets_nothing_goes() {
    passes("locked", &["threshold"], &[("NEAP_DECAY", "100")]);
}

/// With `TEST_TIER=full` as much as the bound is stated for.
#[test]
fn a_process_of_split_huge_pages_has_few_mappings() {
    let Some(program) = built("mappings", Artifact::Program) else {
        return;
    };
    let mib = if crate::support::is_full() {
        "6144"
    } else {
        "1024"
    };
    for kind in ["plain", "mixed"] {
        let output = run(&program, &[mib, kind].map(OsStr::new), &[]);
        succeeds(&output, &format!("mappings {mib} {kind}"));
    }
}
