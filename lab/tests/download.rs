//! `neap-lab download` as a user runs it. Tests that need the Python packages use an existing
//! environment and download nothing. Otherwise they show as ignored, with what to do; with
//! `REQUIRE_ALL=1` that is a failure.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

const ADVICE: &str = "no Python packages: neap-lab download --prepare";

/// The exit code of `--offline` without the packages.
const NO_ENVIRONMENT: i32 = 3;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = vec![
        trial("without_python_it_says_what_to_install", no_python),
        trial("without_the_venv_module_it_says_what_to_install", no_venv),
        trial("without_an_index_it_says_so", no_index),
        trial("offline_it_sets_up_nothing", offline),
        trial("wrong_arguments_are_refused", wrong_arguments),
        trial("wrong_and_missing_bytes_are_refused", refused_reports),
        with_packages("a_small_download_comes_whole", small_download),
        with_packages("a_record_and_a_picture_are_kept", record),
        with_packages("quiet_means_quiet", quiet),
        with_packages("another_heap_fails_the_cell", another_heap),
        with_packages("wrong_bytes_fail_the_cell", wrong_bytes),
        with_packages("time_ends_a_download", out_of_time),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

type Check = fn() -> Result<(), Failed>;

fn trial(name: &'static str, check: Check) -> Trial {
    Trial::test(name, check)
}

fn with_packages(name: &'static str, check: Check) -> Trial {
    Trial::ignorable_test(name, move || {
        if packages_are_there() {
            return check().map(|()| Completion::Completed);
        }
        if std::env::var_os("REQUIRE_ALL").is_some_and(|value| value == "1") {
            Err(Failed::from(ADVICE))
        } else {
            Ok(Completion::ignored_with(ADVICE))
        }
    })
}

fn packages_are_there() -> bool {
    let output = run(&mut download(&["--offline", "--prepare"]));
    output.status.code() != Some(NO_ENVIRONMENT)
}

const TINY: &[&str] = &["--rounds", "1", "--mib", "1", "--chunks", "1"];

fn download(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neap-lab"));
    command.arg("download").args(arguments);
    command
}

fn run(command: &mut Command) -> Output {
    command.output().expect("neap-lab does not start")
}

/// A tiny download under the C library, offline.
fn tiny(arguments: &[&str]) -> Output {
    run(download(&["--offline", "--peers", "glibc"])
        .args(TINY)
        .args(arguments))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Fails unless the command ended with `code`; returns its standard error.
fn errors(output: &Output, code: i32) -> Result<String, Failed> {
    let errors = text(&output.stderr);
    if output.status.code() == Some(code) {
        Ok(errors)
    } else {
        Err(format!("{}, not {code}: {errors}", output.status).into())
    }
}

fn ensure(holds: bool, told: &str) -> Result<(), Failed> {
    if holds {
        Ok(())
    } else {
        Err(Failed::from(told))
    }
}

/// An empty directory of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("download-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("cannot make a folder");
    folder
}

/// Runs a set-up in which `python3` is the shell script `script`, or absent, and returns its
/// messages. What it leaves behind must not count as set up.
fn set_up_with(name: &str, script: Option<&str>) -> Result<String, Failed> {
    let home = folder(name);
    let (programs, target) = (home.join("bin"), home.join("packages"));
    fs::create_dir_all(&programs)?;
    fs::create_dir_all(&target)?;
    if let Some(script) = script {
        let python = programs.join("python3");
        fs::write(&python, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755))?;
    }
    let mut command = download(&["--prepare", "--env"]);
    command.arg(target.join("python")).env("PATH", &programs);
    let said = errors(&run(&mut command), 1)?;
    let mut again = download(&["--offline", "--env"]);
    errors(&run(again.arg(target.join("python"))), NO_ENVIRONMENT)?;
    ensure(said.contains("cannot set up the Python packages"), &said)?;
    Ok(said)
}

fn no_python() -> Result<(), Failed> {
    let said = set_up_with("no-python", None)?;
    let told = said.contains("cannot run python3") && said.contains("apt-get install");
    ensure(told, &said)
}

fn no_venv() -> Result<(), Failed> {
    let script = "[ \"$2\" != venv ] || { echo 'ensurepip is not available'; exit 1; }";
    let said = set_up_with("no-venv", Some(script))?;
    let told = said.contains("apt-get install python3-venv") && said.contains("ensurepip");
    ensure(told, &said)
}

/// This Python makes an environment that contains itself, and cannot install.
fn no_index() -> Result<(), Failed> {
    let script = "case \"$2\" in
        venv) /bin/mkdir -p \"$3/bin\" && /bin/cp \"$0\" \"$3/bin/python3\";;
        pip) echo 'No matching distribution found' >&2; exit 1;;
    esac";
    let said = set_up_with("no-index", Some(script))?;
    let told = said.contains("and the package index") && said.contains("No matching");
    ensure(told && said.contains("PIP_FIND_LINKS"), &said)
}

fn offline() -> Result<(), Failed> {
    let home = folder("offline");
    let target = home.join("python");
    let mut command = download(&["--offline", "--env"]);
    let said = errors(&run(command.arg(&target)), NO_ENVIRONMENT)?;
    ensure(said.contains("download --prepare"), &said)?;
    ensure(!target.exists(), "it made something")
}

fn wrong_arguments() -> Result<(), Failed> {
    let unknown = run(&mut download(&["--offline", "--peers", "dlmalloc"]));
    let said = errors(&unknown, 1)?;
    ensure(said.starts_with("neap-lab: no peer"), &said)?;
    for arguments in [["--chunks", "0"], ["--limit", "0"], ["--rounds", "0"]] {
        errors(&run(&mut download(&arguments)), 2)?;
    }
    Ok(())
}

/// What two downloads of two bytes tell, with the CRC-32 of these bytes and of the first.
const REPORT: &str = "download=2:2659403885\ndownload=2:2659403885\nend=body\nreads=9\n\
                      largest_buffer=3\n";

/// What the server says of a report on downloads of the bytes `ab` in chunks of four.
fn judged(report: &str) -> Result<String, Failed> {
    let script = "import sys; sys.path.insert(0, sys.argv[1]); import server\n\
                  print(server.complaint(sys.argv[2], b'ab', 4, 2))";
    let mut python = Command::new("python3");
    python.args(["-B", "-c", script]);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/download");
    let output = run(python.args([folder, report]));
    errors(&output, 0)?;
    Ok(text(&output.stdout))
}

fn refused_reports() -> Result<(), Failed> {
    let is_right = |report: &str| judged(report).map(|said| said.contains("None"));
    ensure(is_right(REPORT)?, "a right report is refused")?;
    for (good, bad, expected) in [
        (":2659403885", ":78", "not those that were sent"),
        ("=2:", "=1:", "of 2 bytes a download came [[1, "),
        ("download=2:2659403885\n", "", "of 2 bytes a download came"),
        ("=2:", "=3:", "[3, "),
        ("buffer=3", "buffer=2", "not the chunk's 4"),
    ] {
        let said = judged(&REPORT.replacen(good, bad, 1))?;
        ensure(said.contains(expected), &format!("{bad}: {said}"))?;
    }
    // When time was up, the last download may be short or empty.
    let (timed, last) = (
        REPORT.replace("end=body", "end=time"),
        "\ndownload=2:2659403885",
    );
    ensure(
        is_right(&timed.replace(last, "\ndownload=0:0"))?,
        "an empty one",
    )?;
    ensure(is_right(&timed.replace(last, ""))?, "only one")?;
    let first = timed.replacen("download=2:2659403885\n", "download=0:0\n", 1);
    ensure(!is_right(&first)?, "the first is short")
}

fn small_download() -> Result<(), Failed> {
    let output = tiny(&["--json", "--control", "--downloads", "2"]);
    let said = errors(&output, 0)?;
    ensure(said.contains("round 1 of 1"), &said)?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let rows = json["figures"].as_array().ok_or("no figures")?;
    let rates = rows.iter().filter(|row| row["figure"] == "MB a second");
    let rates: Vec<_> = rates
        .map(|row| (row["case"].as_str(), &row["value"]))
        .collect();
    let cases: Vec<_> = rates.iter().map(|(case, _)| *case).collect();
    ensure(
        cases == [Some("1 MB zeroed"), Some("1 MB unzeroed")],
        &format!("{rates:?}"),
    )?;
    let fast = |(_, rate): &(_, &serde_json::Value)| rate.as_f64().is_some_and(|r| r > 0.0);
    ensure(rates.iter().all(fast), &format!("{rates:?}"))?;
    let packages = json["head"]["packages"].as_str().ok_or("no packages")?;
    ensure(packages.contains("cffi 2."), packages)
}

fn record() -> Result<(), Failed> {
    let records = folder("records");
    let path = records.to_str().ok_or("a path of text")?;
    let output = tiny(&["--records", path]);
    errors(&output, 0)?;
    let table = text(&output.stdout);
    ensure(
        table.contains("1 MiB chunks") && table.contains("processor: "),
        &table,
    )?;
    let mut files: Vec<PathBuf> = fs::read_dir(&records)?
        .map(|e| Ok(e?.path()))
        .collect::<Result<_, std::io::Error>>()?;
    files.sort();
    let [csv, svg] = &files[..] else {
        return Err(format!("{files:?}").into());
    };
    let mut show = Command::new(env!("CARGO_BIN_EXE_neap-lab"));
    let shown = run(show.arg("show").arg(csv));
    errors(&shown, 0)?;
    let shown = text(&shown.stdout);
    ensure(
        shown.contains("1 MiB chunks") && table.contains(shown.trim()),
        &shown,
    )?;
    let csv = fs::read_to_string(csv)?;
    ensure(
        csv.contains("\n1 MB zeroed,glibc,0,MB a second,") && csv.contains("# packages: "),
        &csv,
    )?;
    ensure(
        fs::read_to_string(svg)?.contains(">glibc</text>"),
        "no glibc in the picture",
    )
}

fn quiet() -> Result<(), Failed> {
    let said = errors(&tiny(&["--quiet"]), 0)?;
    ensure(said.is_empty(), &said)
}

fn another_heap() -> Result<(), Failed> {
    let wrong = folder("wrong").join("libneap.so");
    fs::write(&wrong, "no library")?;
    let mut command = download(&["--offline", "--peers", "neap", "--neap"]);
    let said = errors(&run(command.arg(&wrong).args(TINY)), 1)?;
    ensure(said.contains("the process uses the malloc of"), &said)
}

/// Replaces the C library's functions by wrappers that run given statements first.
const MALLOC: &str = r#"
#include <stddef.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

enum { large = 500000 };

void *malloc(size_t size) { return __libc_malloc(size); }
void free(void *block) { __libc_free(block); }

void *calloc(size_t count, size_t size) {
    if (count > large) BEFORE_LARGE_CALLOC;
    return __libc_calloc(count, size);
}

void *realloc(void *block, size_t size) {
    char *moved = __libc_realloc(block, size);
    if (moved && size > large) AFTER_LARGE_REALLOC;
    return moved;
}
"#;

/// A download of 1 MiB in chunks of 10 under [`MALLOC`] with those statements.
fn download_under(name: &str, calloc: &str, realloc: &str) -> Result<Output, Failed> {
    let home = folder(name);
    let (source, library) = (home.join("malloc.c"), home.join("libneap.so"));
    let text = MALLOC.replace("BEFORE_LARGE_CALLOC", calloc);
    fs::write(&source, text.replace("AFTER_LARGE_REALLOC", realloc))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]);
    let compiled = compiler.args([&library, &source]).output()?;
    let errors = String::from_utf8_lossy(&compiled.stderr);
    ensure(compiled.status.success(), &errors)?;
    let mut command = download(&[
        "--offline",
        "--peers",
        "neap",
        "--rounds",
        "1",
        "--mib",
        "1",
    ]);
    command.args(["--chunks", "10", "--limit", "1", "--neap"]);
    Ok(run(command.arg(&library)))
}

/// The buffered reader shrinks a chunk by realloc to the part that it could fill.
fn wrong_bytes() -> Result<(), Failed> {
    let output = download_under("forgetful", "", "moved[size / 2] += 1")?;
    let said = errors(&output, 1)?;
    ensure(said.contains("are not those that were sent"), &said)
}

/// Every read sleeps for a tenth of the time limit, so only a few of the 64 records arrive.
fn out_of_time() -> Result<(), Failed> {
    let output = download_under("slow", "usleep(100000)", "")?;
    errors(&output, 0)?;
    let table = text(&output.stdout);
    ensure(table.contains("its time was up"), &table)
}
