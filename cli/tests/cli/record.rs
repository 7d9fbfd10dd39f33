//! Recorded and profiled runs, with the real library.

use crate::skips::needs_root;
use crate::stage::{clean, compile, neap, room, said, with_own_mounts};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

fn planted(room: &TempDir) -> PathBuf {
    let program = room.path().join("planted");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/faults.c");
    compile(["-O1", "-g", source, "-o"], &program);
    program
}

fn run(room: &TempDir, flags: &[&str], program: &[&str]) -> Output {
    let mut command = neap();
    command.current_dir(room.path()).arg("run").args(flags);
    command.arg("--").args(program).output().unwrap()
}

/// The lines of a recording, all of which must be whole.
fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn report(file: &Path) -> Output {
    let mut command = neap();
    command.args(["report", "--format=json"]).arg(file);
    command.output().unwrap()
}

fn verdict(file: &Path) -> Value {
    let output = report(file);
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn with<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines
        .iter()
        .map(|line| &line[kind])
        .filter(|line| !line.is_null())
        .collect()
}

#[test]
fn without_a_sample_it_is_said_that_none_fell() {
    let room = room();
    // A program that allocates a few KiB gets a sample once in a hundred thousand runs.
    let output = run(&room, &["--leaks", "--profile=p", "--sample=1G"], &["true"]);
    let said = said(&output);
    for start in ["nothing is known to be live: ", "no profile: "] {
        let none = format!("{start}what ran was sampled every 1.0 GiB on average");
        assert!(said.contains(&none), "{said}");
    }
    let finer = "no sample fell; sample more finely, up to --sample 4K";
    assert!(said.contains(finer), "{said}");
}

#[test]
fn a_program_that_is_killed_leaves_a_recording_that_names_its_faults() {
    let room = room();
    planted(&room);
    let output = run(
        &room,
        &["--record=r", "--profile=p.pb.gz"],
        &["./planted", "die"],
    );
    assert_eq!(output.status.signal(), Some(libc::SIGKILL));
    assert_eq!(output.stdout, b"done\n");
    let said = said(&output);
    for next in [
        "neap report r",
        "neap profile p.pb.gz\n",
        "neap report p.pb.gz",
        "go tool pprof -http=: p.pb.gz",
    ] {
        assert!(said.contains(next), "{said}");
    }
    let lines = lines(&room.path().join("r"));
    let told = with(&lines, "sample")
        .into_iter()
        .filter(|sample| !sample["heap"].is_null());
    assert!(told.count() >= 3);
    let events = with(&lines, "event");
    let ends = events.last().unwrap();
    assert_eq!(
        (&ends["event"], &ends["signal"]),
        (&"killed".into(), &9.into())
    );
    for file in ["r", "p.pb.gz"] {
        let verdict = verdict(&room.path().join(file));
        let findings = verdict["findings"].to_string();
        for site in [
            "plant_waste",
            "plant_leak",
            "plant_buffer",
            "24 bytes in blocks of 32",
        ] {
            assert!(findings.contains(site), "{file}: {findings}");
        }
    }
}

/// The program of the leak in docs/profile.md: one copy in ten stays.
#[test]
fn a_leak_of_one_request_in_ten_names_the_programs_own_function() {
    let room = room();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/requests.c");
    compile(["-g", source, "-o"], &room.path().join("requests"));
    let flags = ["--record=r", "--profile=p.pb.gz", "--sample=64K"];
    run(&room, &flags, &["./requests"]);
    for file in ["r", "p.pb.gz"] {
        let verdict = verdict(&room.path().join(file));
        let finding = &verdict["findings"][0];
        let (kind, site) = (&finding["kind"], &finding["site"]);
        assert!(kind == "leak" && site == "parse", "{file}: {verdict:#}");
        let headline = finding["headline"].as_str().unwrap();
        assert!(headline.contains("`parse` (requests.c:6)"), "{headline}");
        assert!(
            !verdict.to_string().contains("freed, or most were"),
            "{verdict:#}"
        );
    }
}

#[test]
fn the_programs_output_and_status_are_its_own_and_quiet_is_quiet() {
    let room = room();
    planted(&room);
    let flags = ["--record=r", "--profile", "--quiet"];
    let output = run(&room, &flags, &["./planted"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(
        (output.stdout.as_slice(), said(&output)),
        (&b"done\n"[..], String::new())
    );
    let names = fs::read_dir(room.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    let profile = |name: &&String| name.starts_with("neap.planted.") && name.ends_with(".pb.gz");
    assert_eq!(names.iter().filter(profile).count(), 1, "{names:?}");
}

#[test]
fn every_process_of_the_tree_has_a_profile_of_its_own() {
    let room = room();
    planted(&room);
    let output = run(
        &room,
        &["--profile=p"],
        &["sh", "-c", "./planted & ./planted; wait"],
    );
    assert!(output.status.success());
    // The shell has one as well if one of its few allocations happened to be sampled.
    let said = said(&output);
    let wrote: Vec<_> = said
        .lines()
        .filter_map(|line| line.strip_prefix("neap: wrote "))
        .filter_map(|line| line.split_once(" (planted)"))
        .collect();
    assert_eq!(wrote.len(), 2, "{said}");
    for (name, _) in wrote {
        assert!(room.path().join(name).is_file(), "{name}: {said}");
    }
}

#[test]
fn what_is_still_live_is_printed_and_not_among_the_programs_output() {
    let room = room();
    planted(&room);
    let output = run(&room, &["--leaks"], &["./planted"]);
    assert_eq!(output.stdout, b"done\n");
    let said = said(&output);
    assert!(
        said.contains("Still live") && said.contains("plant_leak"),
        "{said}"
    );
    assert!(!said.contains("plant_buffer"), "{said}");
}

#[test]
fn a_program_that_frees_all_at_its_end_is_said_to() {
    let room = room();
    let source = "#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
        int main(void) { fork(); free(malloc(40 << 20)); wait(0); return 0; }\n";
    fs::write(room.path().join("freed.c"), source).unwrap();
    let (source, program) = (room.path().join("freed.c"), room.path().join("freed"));
    compile([source.as_os_str(), "-o".as_ref()], &program);
    let said = said(&run(&room, &["--leaks"], &["./freed"]));
    assert!(said.contains("what a program frees as it ends"), "{said}");
    assert!(said.contains("at most 3 live samples (1; see"), "{said}");
}

#[test]
fn when_neap_is_killed_what_it_recorded_is_readable() {
    let room = room();
    let program = "import time\nx = bytearray(50_000_000)\nprint('ready', flush=True)\n\
                   time.sleep(600)";
    let mut child = neap()
        .current_dir(room.path())
        .args(["run", "--record=r", "--", "/usr/bin/python3", "-c", program])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
    // It has recorded the block, however long that took.
    let is_recorded = || {
        std::thread::sleep(Duration::from_millis(100));
        let verdict = serde_json::from_slice(&report(&room.path().join("r")).stdout);
        verdict.is_ok_and(|verdict: Value| verdict["peak_resident"].as_u64() > Some(50_000_000))
    };
    assert!((0..600).any(|_| is_recorded()), "it does not record");
    child.kill().unwrap();
    child.wait().unwrap();
    let verdict = verdict(&room.path().join("r"));
    assert!(
        verdict["peak_resident"].as_u64().unwrap() > 50_000_000,
        "{verdict}"
    );
    assert!(
        verdict["verdict"]
            .as_str()
            .unwrap()
            .contains("how it ended was not seen")
    );
}

/// The command, but not the program, may not make files larger than the recording is when the
/// program is ready.
#[test]
fn where_no_more_can_be_written_the_program_goes_on_and_that_is_said() {
    let room = room();
    let file = room.path().join("r");
    let mut child = neap()
        .current_dir(room.path())
        .args(["run", "--record=r", "--", "sh", "-c", "read line; exit 7"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while fs::metadata(&file).map_or(0, |about| about.len()) == 0 {
        std::thread::yield_now();
    }
    let most = fs::metadata(&file).unwrap().len() + 10;
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: the limit outlives the call; the old one is not wanted.
    let done = unsafe {
        libc::prlimit(
            child.id().cast_signed(),
            libc::RLIMIT_FSIZE,
            &raw const limit,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(done, 0);
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert!(
        said(&output).contains("could not be written: File too large"),
        "{}",
        said(&output)
    );
    assert!(lines(&file)[0]["head"].is_object());
    verdict(&file);
}

#[test]
fn files_that_are_something_else_are_left_as_they_are_and_nothing_is_started() {
    let room = room();
    for (flags, file) in [
        (["--record=x", "--quiet"], "x"),
        (["--quiet", "--profile=x"], "x"),
    ] {
        fs::write(room.path().join(file), "precious").unwrap();
        let output = run(&room, &flags, &["echo", "ran"]);
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(125), &b""[..])
        );
        assert!(said(&output).contains("left as it is"), "{}", said(&output));
        assert_eq!(
            fs::read_to_string(room.path().join(file)).unwrap(),
            "precious"
        );
    }
    let output = run(&room, &["--record=/no/such/r"], &["echo", "ran"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(said(&output).contains("/no/such/r"));
}

#[test]
fn where_nothing_can_be_written_nothing_is_started() {
    // No user can make a file here, not even root.
    for (verb, flags, hint) in [
        ("run", &["--profile"][..], "--profile=FILE"),
        ("run", &["--profile=p"], "p: "),
        ("run", &["--record=r"], "r: "),
        ("run", &["--record=r", "--profile"], "--profile=FILE"),
        ("report", &[], "-o FILE"),
        ("tune", &[], "echo.classes: "),
    ] {
        let mut command = neap();
        command.current_dir("/proc").arg(verb).args(flags);
        let output = command.args(["--", "echo", "ran"]).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(125), "{verb} {flags:?}: {said}");
        assert_eq!(output.stdout, b"", "{verb} {flags:?}");
        assert!(said.contains(hint) && said.lines().count() == 1, "{said}");
    }
    let room = room();
    let gone = room.path().join("gone");
    fs::create_dir(&gone).unwrap();
    let mut shell = clean(Path::new("/bin/sh"));
    let script = "cd gone && rmdir ../gone && exec \"$NEAP\" run --profile -- /bin/echo ran";
    shell
        .current_dir(room.path())
        .env("NEAP", env!("CARGO_BIN_EXE_neap"));
    let output = shell.args(["-c", script]).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    assert!(
        said(&output).contains("--profile=FILE"),
        "{}",
        said(&output)
    );
}

#[test]
fn where_tmp_is_for_reading_only_a_program_is_recorded_and_reported_all_the_same() {
    let room = room();
    let (folder, program) = (room.path(), Path::new(env!("CARGO_BIN_EXE_neap")));
    let mut script = "mount -t tmpfs -o ro none /tmp && cd \"$1\" && shift && exec \"$@\"";
    if folder.starts_with("/tmp") {
        // The clone may be below /tmp, so what the test needs of it is also mounted elsewhere.
        script = "mount -t tmpfs none /mnt && mkdir /mnt/room /mnt/build && \
                  mount --bind \"$PWD\" /mnt/room && mount --bind \"${2%/*}\" /mnt/build && \
                  mount -t tmpfs -o ro none /tmp && cd /mnt/room && \
                  shift 2 && exec /mnt/build/neap \"$@\"";
    }
    for verb in [
        &["report", "-o", "page.html", "--"][..],
        &["run", "--record=r", "--"],
    ] {
        let Some(mut command) = with_own_mounts() else {
            return needs_root("no mount namespace can be made here");
        };
        command.current_dir(folder).args(["sh", "-c", script, "sh"]);
        command.arg(folder).arg(program).args(verb);
        let output = command.args(["echo", "ran"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(output.stdout.starts_with(b"ran\n"), "{}", said(&output));
    }
    let page = fs::read_to_string(room.path().join("page.html")).unwrap();
    assert!(page.contains("<h1>echo</h1>"));
    assert!(verdict(&room.path().join("r"))["pid"].as_u64() > Some(0));
}

#[test]
fn the_usual_profile_is_where_neap_was_called_and_nothing_else_is() {
    let room = room();
    let output = run(
        &room,
        &["--profile=", "--sample=4K"],
        &["sh", "-c", "cd /; exec ls /"],
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let names = fs::read_dir(room.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names.collect::<Vec<_>>() {
        assert!(
            name.starts_with("neap.") && name.contains(".pb.gz"),
            "{name}"
        );
        assert!(said(&output).contains(&name), "{}", said(&output));
    }
}

#[test]
fn a_report_of_a_run_is_one_command() {
    let room = room();
    planted(&room);
    let mut command = neap();
    let arguments = ["report", "-o", "page.html", "--", "./planted"];
    let output = command
        .current_dir(room.path())
        .args(arguments)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("done\n") && text.contains("plant_leak"),
        "{text}"
    );
    let mut html = String::new();
    fs::File::open(room.path().join("page.html"))
        .unwrap()
        .read_to_string(&mut html)
        .unwrap();
    for part in ["id=\"timeline\"", "id=\"flame\"", "plant_buffer"] {
        assert!(html.contains(part), "{part}");
    }
}
