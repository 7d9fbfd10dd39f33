//! `neap doctor` tells the truth about this machine and about programs.

use crate::older_kernel::{self, Kernel};
use crate::skips::{announce, needs_root, skipped};
use crate::stage::{Stage, clean, compile, neap, printed, room, said, script, with_own_mounts};
use serde_json::Value;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn report(program: &[&Path]) -> (Option<i32>, Value) {
    let mut command = neap();
    command.args(["doctor", "--format=json"]);
    if !program.is_empty() {
        command.arg("--").args(program);
    }
    let output = command.output().unwrap();
    (
        output.status.code(),
        serde_json::from_slice(&output.stdout).unwrap(),
    )
}

fn finding<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["name"] == name)
        .unwrap()
}

/// What it says on this kernel.
fn report_on(kernel: Kernel) -> Value {
    let mut command = neap();
    older_kernel::run_on(&mut command, kernel);
    report_of(&mut command)
}

fn report_of(command: &mut Command) -> Value {
    let text = printed(command.args(["doctor", "--format=json"]));
    serde_json::from_str(&text).unwrap()
}

/// The value and what to change, of a promise in this state.
fn promise<'a>(report: &'a Value, name: &str, state: &str) -> (&'a str, &'a str) {
    let found = finding(&report["promises"], name);
    assert_eq!(found["state"], state, "{found}");
    (
        found["value"].as_str().unwrap(),
        found["meaning"].as_str().unwrap(),
    )
}

#[test]
fn json_has_a_state_and_a_meaning_for_everything() {
    let (code, report) = report(&[]);
    assert_eq!(code, Some(0));
    assert_eq!(report["program"], Value::Null);
    let findings = report["kernel"].as_array().unwrap();
    assert!(findings.len() >= 19);
    for finding in findings {
        assert!(
            ["ok", "absent", "is"].contains(&finding["state"].as_str().unwrap()),
            "{finding}"
        );
        assert!(
            !finding["meaning"].as_str().unwrap().is_empty(),
            "{finding}"
        );
    }
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/platforms.md");
const MANY: &str = "50,000 stacks with guards that cost no mapping";
const FORK: &str = "a child of fork has the guards of its parent";
const FILTER: &str = "stacks in a process that starts under a system call filter";
const LOCKED: &str = "stacks in locked memory (mlockall) have guards";
const CALLOC: &str = "calloc touches no page that is zero";
const IDLE: &str = "memory that idle threads cache goes back";
/// So many mappings allow guards that are mappings for all the stacks that the page promises.
const AMPLE_MAPPINGS: usize = 200_000;

/// The cells of the page's first table. The first row is its head.
fn rows_of_the_page() -> Vec<Vec<String>> {
    let page = fs::read_to_string(PAGE).unwrap().replace('`', "");
    let cells = |row: &str| {
        let cells = row.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    let lines = page.lines().skip_while(|line| !line.starts_with('|'));
    let table = lines.take_while(|line| line.starts_with('|'));
    let rows = table.filter(|line| line.starts_with("| "));
    rows.map(cells).collect()
}

fn most_mappings() -> usize {
    let text = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    text.trim().parse().unwrap()
}

#[test]
fn the_promises_are_the_rows_of_the_page() {
    let mut page = rows_of_the_page();
    let head = page.remove(0);
    let state = |cell: &str| cell.split([',', ':']).next().unwrap().to_owned();
    let column = |kernel: &str| {
        let at = head.iter().position(|cell| cell == kernel).unwrap();
        let cells = page.iter().map(|row| (row[0].clone(), state(&row[at])));
        cells.collect::<Vec<_>>()
    };
    let older = column("6.12");
    assert!(
        ["5.10", "6.1"]
            .into_iter()
            .all(|kernel| column(kernel) == older)
    );
    for kernel in [Kernel::Own, Kernel::WithoutAdvice] {
        let report = report_on(kernel);
        let text = |promise: &Value, key: &str| promise[key].as_str().unwrap().to_owned();
        let promises = report["promises"].as_array().unwrap().iter();
        let told: Vec<_> = promises
            .map(|promise| (text(promise, "name"), text(promise, "state")))
            .collect();
        let names = |rows: &[(String, String)]| -> Vec<String> {
            rows.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&told), names(&older));
        let state_of = |name| &finding(&report["kernel"], name)["state"];
        let is_filtered = finding(&report["kernel"], "seccomp")["value"] != "off";
        if is_filtered || most_mappings() >= AMPLE_MAPPINGS || !older_kernel::has_write_guards() {
            announce("the page's columns are for machines without filters, by default");
            continue;
        }
        match state_of("MADV_GUARD_INSTALL") == "ok" {
            true => assert_eq!(told, column("6.18")),
            false => assert_eq!(told, older),
        }
    }
}

/// What a filter refuses, seen or unseen, is named as the cause.
#[test]
fn without_other_guards_there_are_as_many_stacks_as_mappings_allow() {
    for (kernel, cause) in [
        (
            Kernel::WithoutUserfaultfd,
            "userfaultfd: Operation not permitted",
        ),
        (
            Kernel::InSandbox,
            "no userfaultfd under a system call filter",
        ),
    ] {
        let report = report_on(kernel);
        let is_ample = most_mappings() >= AMPLE_MAPPINGS;
        for name in [MANY, FILTER] {
            let state = if is_ample { "slower" } else { "absent" };
            let (value, change) = promise(&report, name, state);
            assert!(name == FILTER || value.contains(cause), "{value}");
            let most = format!("at most {} stacks", most_mappings() / 4);
            assert!(
                is_ample || value.replace(',', "").contains(&most),
                "{value}"
            );
            assert!(
                is_ample || change.contains("raise vm.max_map_count"),
                "{change}"
            );
        }
        assert!(promise(&report, LOCKED, "slower").0.contains(cause));
        assert_eq!(promise(&report, FORK, "full").1, "");
    }
}

#[test]
fn without_proc_the_heap_asks_nothing() {
    let Some(mut command) = with_own_mounts() else {
        return needs_root("no mount namespace can be made here");
    };
    let script = "mount -t tmpfs none /proc && exec \"$0\" \"$@\"";
    let report = report_of(command.args(["sh", "-c", script, env!("CARGO_BIN_EXE_neap")]));
    let (value, change) = promise(&report, CALLOC, "absent");
    assert!(
        value.contains("/proc/self/pagemap: No such file"),
        "{value}"
    );
    assert_eq!(change, "mount /proc");
}

#[test]
fn a_variable_that_forbids_queries_is_a_cause() {
    let report = report_of(neap().env("NEAP_KERNEL_QUERIES", "0"));
    for name in [MANY, FILTER, LOCKED, CALLOC, IDLE] {
        let found = finding(&report["promises"], name);
        assert_ne!(found["state"], "full", "{found}");
        let value = found["value"].as_str().unwrap();
        assert!(value.ends_with("NEAP_KERNEL_QUERIES=0"), "{found}");
        assert_eq!(found["meaning"], "unset NEAP_KERNEL_QUERIES");
    }
}

/// As in the heap.
#[test]
fn an_empty_or_wrong_value_of_a_variable_changes_nothing() {
    let usual = report_of(&mut neap());
    for value in ["1", "", "2"] {
        let report = report_of(neap().env("NEAP_KERNEL_QUERIES", value));
        assert_eq!(report["promises"], usual["promises"]);
    }
}

#[test]
fn a_variable_that_forbids_the_purge_thread_is_a_cause() {
    for value in ["never", "0"] {
        let report = report_of(neap().env("NEAP_PURGE_THREAD", value));
        let line = format!("NEAP_PURGE_THREAD={value}");
        let expected = format!("a program that sleeps keeps it: {line}");
        let told = promise(&report, IDLE, "absent");
        assert_eq!(told, (expected.as_str(), "unset NEAP_PURGE_THREAD"));
    }
    let report = report_of(neap().env("NEAP_PURGE_THREAD", "auto"));
    assert_eq!(report["promises"], report_of(&mut neap())["promises"]);
}

/// As in a container whose seccomp filter kills for a call that the filter does not know.
#[test]
fn a_filter_that_kills_for_a_probe_is_reported() {
    let mut command = neap();
    // SAFETY: only makes system calls.
    unsafe { command.pre_exec(kill_for_membarrier) };
    let report = report_of(&mut command);
    let membarrier = finding(&report["kernel"], "membarrier");
    assert_eq!(membarrier["state"], "absent");
    assert_eq!(membarrier["value"], "a sandbox kills for it");
    let (value, _) = promise(&report, IDLE, "absent");
    assert!(
        value.ends_with("membarrier: a sandbox kills for it"),
        "{value}"
    );
}

fn kill_for_membarrier() -> io::Result<()> {
    let rule = |code: u32, jf, k| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let mut rules = [
        rule(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        rule(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            libc::SYS_membarrier as u32,
        ),
        rule(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_KILL_PROCESS,
        ),
        rule(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: rules.len() as u16,
        filter: rules.as_mut_ptr(),
    };
    let filtering = libc::SECCOMP_MODE_FILTER as usize;
    // SAFETY: the program and its rules outlive the call.
    let is_set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1usize, 0usize, 0usize, 0usize) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, filtering, &program) == 0
    };
    is_set.then_some(()).ok_or_else(io::Error::last_os_error)
}

#[test]
fn values_are_those_of_this_machine() {
    let (_, report) = report(&[]);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(
        finding(&report["kernel"], "kernel")["value"],
        release.trim()
    );
    let mode = fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
    assert_eq!(
        finding(&report["kernel"], "overcommit")["value"],
        mode.trim()
    );
}

#[test]
fn limits_are_those_of_this_process() {
    let script = "ulimit -v 3000000; exec \"$0\" doctor --format json";
    let mut shell = std::process::Command::new("/bin/sh");
    let text = printed(shell.args(["-c", script, env!("CARGO_BIN_EXE_neap")]));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        finding(&report["kernel"], "RLIMIT_AS")["value"],
        "3000000 KiB"
    );
    let space = finding(&report["kernel"], "address space");
    assert_eq!(
        (&space["state"], &space["value"]),
        (&"absent".into(), &"2.0 GiB".into())
    );
}

/// A limit of the heap or, through the shell, of a resource.
struct Limit {
    /// `NEAP_LIMIT`.
    heap: Option<&'static str>,
    /// A command of the shell.
    shell: &'static str,
}

impl Limit {
    fn heap(bytes: &'static str) -> Self {
        let (heap, shell) = (Some(bytes), "true");
        Self { heap, shell }
    }

    fn shell(shell: &'static str) -> Self {
        Self { heap: None, shell }
    }

    /// `neap` under it.
    fn neap(&self) -> Command {
        let mut command = clean(Path::new("/bin/sh"));
        let script = format!("{}; exec \"$0\" \"$@\"", self.shell);
        command.args(["-c", &script, env!("CARGO_BIN_EXE_neap")]);
        command.envs(self.heap.map(|bytes| ("NEAP_LIMIT", bytes)));
        command
    }
}

const STACKS: u64 = 50_000;

/// How many stacks of 64 KiB a process has under a limit, at most somewhat more than the page
/// promises.
fn stacks_made(limit: &Limit, program: &Path) -> u64 {
    let made = printed(limit.neap().args(["run", "--"]).arg(program));
    made.trim().parse().unwrap()
}

/// The promise of many stacks, and the number in it.
fn stacks_told(limit: &Limit) -> (Value, Option<u64>) {
    let report = report_of(&mut limit.neap());
    let found = finding(&report["promises"], MANY).clone();
    let value = found["value"].as_str().unwrap().replace(',', "");
    let number = |words: &str| words.split(' ').find_map(|word| word.parse().ok());
    let told = value.split_once(" stacks").map(|(words, _)| number(words));
    (found, told.flatten())
}

/// Near a limit that just suffices, Neap may say that it does not.
#[test]
fn there_are_as_many_stacks_as_a_limit_allows() {
    let room = room();
    let program = room.path().join("stacks");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/stacks.c");
    compile(["-O1", source, "-ldl", "-o"], &program);
    for limit in [
        Limit::heap("1M"),
        Limit::heap("100M"),
        Limit::heap("390M"),
        Limit::heap("400M"),
        Limit::shell("ulimit -v 100000"),
        Limit::shell("ulimit -v 3000000"),
        Limit::shell("ulimit -v 6400000"),
        Limit::shell("ulimit -v 6900000"),
        Limit::shell("ulimit -d 3000000"),
    ] {
        let made = stacks_made(&limit, &program);
        let (found, told) = stacks_told(&limit);
        assert_eq!(found["state"] == "absent", told.is_some(), "{found}");
        match told {
            Some(told) => assert!(told.abs_diff(made) <= 20 + made / 25, "{made}: {found}"),
            None => assert!(made >= STACKS, "{made}: {found}"),
        }
    }
}

#[test]
fn a_limit_is_a_cause() {
    for (limit, cause, change) in [
        (Limit::heap("100M"), "NEAP_LIMIT=100M", "raise NEAP_LIMIT"),
        (
            Limit::shell("ulimit -v 1000000"),
            "RLIMIT_AS",
            "raise RLIMIT_AS",
        ),
        (
            Limit::shell("ulimit -d 1000000"),
            "RLIMIT_DATA",
            "raise RLIMIT_DATA",
        ),
    ] {
        let report = report_of(&mut limit.neap());
        for name in [MANY, FILTER] {
            let (value, told) = promise(&report, name, "absent");
            let is_told = value.starts_with("about ") && value.ends_with(&format!(": {cause}"));
            assert!(is_told, "{value}");
            assert_eq!(told, change);
        }
    }
}

#[test]
fn tables_in_a_pipe_are_plain() {
    let text = printed(neap().arg("doctor"));
    assert!(text.contains("PAGEMAP_SCAN") && text.contains("max_map_count"));
    assert!(text.contains("\nPromises\n") && text.contains(CALLOC));
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn a_library_without_malloc_is_noticed() {
    let text = printed(Stage::new().neap().arg("doctor"));
    assert!(text.contains("absent: not exported"), "{text}");
}

#[test]
fn variables_are_checked() {
    let mut command = neap();
    command
        .env("NEAP_DECYA", "5")
        .env("NEAP_CACHE", "lots")
        .env("NEAP_CHECK", "1");
    let text = printed(command.arg("doctor"));
    assert!(text.contains("did you mean NEAP_DECAY?"), "{text}");
    assert!(text.contains("expected 0 to 1T bytes"), "{text}");
    assert!(text.contains("OK: NEAP_CHECK=1"), "{text}");
}

#[test]
fn a_program_and_a_script_take() {
    let room = room();
    let file = script(
        room.path().join("script"),
        "#!/usr/bin/env sh\ntouch was-run\n",
    );
    let (code, report) = report(&[&file]);
    assert_eq!((code, &report["program"]["takes"]), (Some(0), &true.into()));
    let files = report["program"]["files"].as_array().unwrap();
    let names: Vec<_> = files
        .iter()
        .map(|file| file["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["named", "interpreter", "found by env"]);
    assert!(
        files[2]["meaning"]
            .as_str()
            .unwrap()
            .starts_with("verified")
    );
    assert!(!room.path().join("was-run").exists());
}

#[test]
fn a_library_that_the_loader_cannot_map_does_not_take() {
    let stage = Stage::new();
    let library = stage.library();
    let data = fs::read(&library).unwrap();
    fs::write(&library, &data[..4096]).unwrap();
    let output = stage
        .neap()
        .args(["doctor", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("the loader left the library out"), "{text}");
}

/// A program that no loader loads, from this text.
fn static_program(room: &Path, text: &str) -> PathBuf {
    let source = room.join("start.c");
    fs::write(&source, text).unwrap();
    let program = room.join("static");
    compile(
        ["-static", "-nostdlib", source.to_str().unwrap(), "-o"],
        &program,
    );
    program
}

#[test]
fn a_static_program_with_neap_inside_is_told_from_others() {
    let (_, here) = report(&[]);
    let library = finding(&here["library"], "libneap.so")["value"]
        .as_str()
        .unwrap();
    let section = "neap_fork";
    let sections = printed(Command::new("readelf").arg("--sections").arg(library));
    assert!(sections.contains(section), "the library has the section");
    let room = room();
    let text = format!(
        "int word __attribute__((section(\"{section}\"))) = 1;\n\
         void _start(void) {{ for (; word;); }}\n"
    );
    let program = static_program(room.path(), &text);
    printed(Command::new("strip").arg(&program));
    let (code, report) = report(&[&program]);
    let verdict = &report["program"];
    assert_eq!(
        (code, &verdict["takes"], &verdict["has_neap"]),
        (Some(0), &false.into(), &true.into())
    );
    let text = printed(neap().args(["doctor", "--"]).arg(&program));
    let end = "This program uses Neap. ";
    assert!(
        text.contains(end) && text.contains("start it without neap run"),
        "{text}"
    );
    assert!(
        text.contains("no tables for unwinding") && text.contains("-Wl,--eh-frame-hdr"),
        "{text}"
    );
    let output = neap().args(["run", "--"]).arg(&program).output().unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert!(said(&output).contains("start it without neap run"));
}

#[test]
fn a_static_program_does_not_take_and_the_reason_is_given() {
    let room = room();
    let program = static_program(room.path(), "void _start(void) { for (;;); }\n");
    let (code, report) = report(&[&program]);
    assert_eq!(
        (code, &report["program"]["takes"]),
        (Some(1), &false.into())
    );
    assert!(
        report["program"]["obstacle"]
            .as_str()
            .unwrap()
            .contains("statically linked")
    );
}

/// An empty program with a sanitizer; `None` if the compiler lacks its library.
fn sanitized(room: &Path, kind: &str) -> Option<PathBuf> {
    let (source, program) = (room.join("empty.c"), room.join(kind));
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let mut compiler = Command::new("cc");
    compiler.arg(format!("-fsanitize={kind}")).arg(source);
    let is_built = compiler.arg("-o").arg(&program).output().unwrap().status;
    if !is_built.success() {
        skipped(&format!(
            "install the C compiler's library for -fsanitize={kind}"
        ));
    }
    is_built.success().then_some(program)
}

#[test]
fn a_program_with_a_sanitizer_does_not_take_and_is_told_what_neap_run_says() {
    let room = room();
    let kinds = ["address", "thread", "leak"];
    for program in kinds.map(|kind| sanitized(room.path(), kind)) {
        let Some(program) = program else { continue };
        // At some random layouts of the address space, ThreadSanitizer finds no room.
        let run = |_| said(&neap().args(["run", "--"]).arg(&program).output().unwrap());
        let mut outputs = (0..20).map(run);
        let said = outputs.find(|said| !said.contains("unexpected memory mapping"));
        let said = said.expect("a layout with room");
        let line = said.lines().next().unwrap_or_default();
        let (_, words) = line.split_once(" is built with ").expect(&said);
        assert!(words.ends_with("it runs without Neap"), "{said}");
        let (code, report) = report(&[&program]);
        let verdict = &report["program"];
        assert_eq!((code, &verdict["takes"]), (Some(1), &false.into()));
        let obstacle = format!("{}: built with {words}", program.display());
        assert_eq!(verdict["obstacle"], obstacle);
    }
}

/// A program in C that waits.
fn waiting(body: &str) -> std::process::Child {
    let room = room();
    let (source, program) = (room.path().join("waits.c"), room.path().join("waits"));
    let head = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
                #include <sys/mman.h>\n#include <pthread.h>\n#include <unistd.h>\n\
                static char *p[100000];\n";
    let tail = "int main(void) { work(); close(1); pause(); }\n";
    fs::write(&source, format!("{head}{body}{tail}")).unwrap();
    compile([Path::new("-pthread"), &source, Path::new("-o")], &program);
    let mut child = clean(&program);
    let mut child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
    // It closes its output when it is ready.
    io::copy(&mut child.stdout.take().unwrap(), &mut io::sink()).unwrap();
    child
}

/// What `neap doctor PID` says of such a program.
fn examined(body: &str) -> (String, Value) {
    let mut child = waiting(body);
    let pid = child.id().to_string();
    let text = printed(neap().args(["doctor", &pid]));
    let json = printed(neap().args(["doctor", "--format", "json", &pid]));
    child.kill().unwrap();
    child.wait().unwrap();
    (text, serde_json::from_str(&json).unwrap())
}

/// Allocates 100,000 blocks of 1,000 bytes, and frees 80,000 below the others.
const HEAP: &str = "static void *fill(void *_) {\n\
    for (int i = 0; i < 100000; i++) memset(p[i] = malloc(1000), 1, 1000);\n\
    for (int i = 100; i < 80000; i++) free(p[i]);\n return 0; }\n";

#[test]
fn free_pages_in_glibcs_heaps_are_counted() {
    if std::env::consts::ARCH != "x86_64" {
        return announce("the layout of glibc's heaps is known for x86-64");
    }
    let main = format!("{HEAP}static void work(void) {{ fill(0); }}\n");
    // The thread stays, so that its heap does.
    let threads = format!(
        "{HEAP}static void *stay(void *_) {{ fill(0); close(1); pause(); return 0; }}\n\
         static void work(void) {{ pthread_t t; pthread_create(&t, 0, stay, 0); pause(); }}\n"
    );
    for (body, place) in [(main, "heap (brk)"), (threads, "glibc's thread heaps")] {
        let (text, json) = examined(&body);
        let held = json["places"][place].as_u64().unwrap() >> 20;
        let free = json["free_in_glibc"].as_u64().unwrap() >> 20;
        assert!((94..100).contains(&held), "{place}: {json}");
        assert!((74..79).contains(&free), "{place}: {json}");
        assert!(
            text.contains(place) && text.contains("of whole free pages"),
            "{text}"
        );
        assert!(text.contains("Next: neap compare -- PROGRAM"), "{text}");
    }
}

#[test]
fn memory_that_a_program_maps_itself_is_no_heap() {
    let (text, json) = examined(
        "static void work(void) {\n\
         memset(mmap(0, 64 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 64 << 20);\n\
         memset(mmap(0, 32 << 20, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0), 1, 32 << 20); }\n",
    );
    let mib = |place: &str| json["places"][place].as_u64().unwrap() >> 20;
    assert_eq!(
        (mib("anonymous memory"), mib("shared memory")),
        (64, 32),
        "{json}"
    );
    assert_eq!(mib("heap (brk)"), 0);
    assert_eq!(
        json["free_in_glibc"].as_u64().map(|bytes| bytes >> 20),
        Some(0)
    );
    assert!(text.contains("At most 64."), "{text}");
}

#[test]
fn a_process_that_cannot_be_examined_is_told_why() {
    let said_of = |words: &[&str]| {
        let output = neap().arg("doctor").args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        said(&output)
    };
    assert!(said_of(&["99999999"]).contains("there is no process 99999999"));
    let said = said_of(&["1", "--format", "json"]);
    assert!(said.contains("options go before the PID"), "{said}");
    // Threads of the kernel have no mappings; in a namespace of its own, there are none.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        assert!(said_of(&["2"]).contains("a thread of the kernel"));
    }
}
