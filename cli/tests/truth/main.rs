//! Programs that record what they hold at each moment, and pages about them that must agree.
//!
//! Every program writes its live bytes and its resident bytes to a file every few milliseconds.
//! Each number of the page is compared with that of the same moment: it must be within a twentieth,
//! or be marked as not known.

mod answers;
mod page;
mod server;
#[path = "../../../ci/skips.rs"]
mod skips;

use page::{Page, Truth};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The tests themselves do not need it; the server does.
#[global_allocator]
static ALLOCATOR: neap::Neap = neap::Neap;

const MIB: u64 = 1 << 20;

fn neap() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neap"));
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.as_encoded_bytes().starts_with(b"NEAP_")) {
        command.env_remove(name);
    }
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}

/// Records a program, and reads the page about it and the truth.
struct Run {
    room: TempDir,
}

impl Run {
    fn new() -> Self {
        let room = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { room }
    }

    fn truth(&self) -> PathBuf {
        self.room.path().join("truth")
    }

    fn of(&self, program: &[&str], variables: &[(&str, &str)]) -> (Page, Truth) {
        let recording = self.room.path().join("recording");
        let mut command = neap();
        let record = format!("--record={}", recording.display());
        command.args(["run", "--quiet", &record]);
        command.args(["--sample=64K", "--"]).args(program);
        command.envs(variables.iter().copied());
        command.stdout(Stdio::null()).status().unwrap();
        if let Some(folder) = std::env::var_os("TRUTH_KEEP") {
            for file in ["recording", "truth"] {
                let _ = std::fs::copy(self.room.path().join(file), Path::new(&folder).join(file));
            }
        }
        let page = Page::of(neap(), &recording);
        (page, Truth::read(&self.truth()))
    }
}

fn compiled(source: &str, room: &Path) -> PathBuf {
    let program = room.join("threads");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O1", "-pthread"])
        .arg(source)
        .arg("-o")
        .arg(&program);
    assert!(
        compiler.status().unwrap().success(),
        "the C compiler failed"
    );
    program
}

/// Runs a program until it answered at a moment when it held most; on a busy machine it may not.
/// Each page must be true in any case.
fn known_at_its_peak(mut run: impl FnMut() -> (Page, Truth)) -> Page {
    let mut last = None;
    for _ in 0..TRIES {
        let (page, truth) = run();
        page.agrees(&truth);
        if page.knows(110 * MIB) {
            return page;
        }
        last = Some(page);
    }
    panic!("{}", last.unwrap().opening());
}

const TRIES: usize = 10;

/// The server of threads, started by a shell through `script`, in which `"$@"` stands for it.
fn threads(script: &str, ends: &str) -> (Page, Truth) {
    let run = Run::new();
    let program = compiled("tests/truth/threads.c", run.room.path());
    let truth = run.truth();
    let words = [
        "sh",
        "-c",
        script,
        "sh",
        program.to_str().unwrap(),
        truth.to_str().unwrap(),
        ends,
    ];
    run.of(&words, &[])
}

/// A child of fork executes it; the page is about the child.
#[test]
fn a_server_of_a_thousand_threads() {
    let page = known_at_its_peak(|| threads("\"$@\"; exit 0", "exit"));
    assert!(page.opening().starts_with("`threads` ran"));
}

/// The shell becomes the server; the shell's figures are not the server's.
#[test]
fn a_server_of_a_thousand_threads_that_is_killed() {
    let (page, truth) = threads("exec \"$@\"", "kill");
    page.agrees(&truth);
    let opening = page.opening();
    assert!(
        opening.contains("`threads` ran") && opening.contains("killed by signal 9"),
        "{opening}"
    );
}

#[test]
fn a_python_service() {
    let Some(python) = ["/usr/bin/python3", "/usr/local/bin/python3"]
        .into_iter()
        .find(|file| Path::new(file).exists())
    else {
        return skips::skipped("no python3 here (Debian: apt install python3)");
    };
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/truth/service.py");
    known_at_its_peak(|| {
        let run = Run::new();
        let truth = run.truth();
        run.of(&[python, program, truth.to_str().unwrap()], &[])
    });
}

/// The server is this test binary: the test below.
fn server(variables: &[(&str, &str)]) -> (Page, Truth) {
    let run = Run::new();
    let program = std::env::current_exe().unwrap();
    let truth = run.truth();
    let mut all = vec![(server::TRUTH, truth.to_str().unwrap())];
    all.extend(variables);
    let words = [
        program.to_str().unwrap(),
        "--exact",
        "an_asynchronous_server",
        "--ignored",
        "--test-threads=1",
    ];
    run.of(&words, &all)
}

#[test]
#[ignore = "a program of the other tests"]
fn an_asynchronous_server() {
    if let Some(file) = std::env::var_os(server::TRUTH) {
        server::serve(Path::new(&file));
    }
}

#[test]
fn a_rust_server_with_a_purge_thread() {
    known_at_its_peak(|| server(&[(server::THREAD, "1")]));
}

#[test]
fn a_rust_server_that_cannot_answer() {
    let (page, truth) = server(&[]);
    page.agrees(&truth);
}
