//! `neap profile`: a program with known allocations, the texts about it, and the files for other
//! tools.

use crate::skips::{needs_root, skipped};
use crate::stage::{clean, compile, neap, printed, room, said, with_own_mounts};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The program with known places, running under Neap until this value is dropped.
pub struct Planted {
    room: TempDir,
    child: Child,
}

impl Planted {
    /// Starts it and waits until its initial allocations are done.
    pub fn start(words: &[&str], sample: Option<&str>) -> Self {
        Self::start_as("planted", words, sample)
    }

    /// Starts it through a link of this name.
    pub fn start_as(name: &str, words: &[&str], sample: Option<&str>) -> Self {
        let room = room();
        let program = room.path().join("planted");
        let link = room.path().join("links").join(name);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/planted.c");
        compile(["-O1", "-g", "-fno-builtin", source, "-o"], &program);
        fs::create_dir(room.path().join("links")).unwrap();
        std::os::unix::fs::symlink(&program, &link).unwrap();
        let mut command = neap();
        command.arg("run");
        command.args(sample.map(|rate| format!("--sample={rate}")));
        command.arg("--").arg(&link).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { room, child }
    }

    /// A `neap profile` command for it.
    pub fn profile(&self, arguments: &[&str]) -> Command {
        let mut command = neap();
        command.arg("profile").arg(self.pid());
        command.args(arguments);
        command
    }

    /// Its PID.
    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.room.path().join(name)
    }

    /// Closes its input, which ends it.
    pub fn end(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }

    /// The profile as a file for other tools.
    fn pprof(&self) -> PathBuf {
        let file = self.file("profile.pb.gz");
        printed(self.profile(&["--format=pprof", "-o"]).arg(&file));
        file
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        self.end();
    }
}

/// The sentence of the first paragraph that begins with `start`.
fn sentence<'a>(text: &'a str, start: &str) -> &'a str {
    let paragraph = text.split("\n\n").next().unwrap();
    let found = paragraph.lines().find(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no {start:?} in {paragraph}"))
}

/// A sample every 4 KiB: the estimates are within a few percent of the truth.
const OFTEN: Option<&str> = Some("4096");

#[test]
fn what_was_planted_is_named_first() {
    let planted = Planted::start(&[], OFTEN);
    let tree = printed(&mut planted.profile(&[]));
    let largest = sentence(&tree, "The largest part of the live bytes");
    assert!(
        largest.contains("100.0 MiB") && largest.contains("download (planted.c:"),
        "{largest}"
    );
    let waste = sentence(&tree, "Size classes add");
    assert!(waste.contains("add_node (planted.c:"), "{waste}");
    assert!(waste.contains("24 bytes asked for, 32 usable"), "{waste}");
    let leaks = printed(&mut planted.profile(&["--format=leaks", "--value", "live_space"]));
    let places: Vec<&str> = leaks
        .lines()
        .filter(|line| line.contains(" (planted.c:"))
        .collect();
    assert!(places[0].contains("download"), "{leaks}");
    assert!(leaks.contains("leak (planted.c:"), "{leaks}");
}

#[test]
fn sampling_is_switched_on_and_off_again() {
    let planted = Planted::start(&["late"], None);
    let output = planted
        .profile(&["--for", "1s", "--sample", "4096", "--format=leaks"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("every 4.0 KiB on average, for 1.0 s"),
        "{}",
        said(&output)
    );
    assert!(
        sentence(&text, "The largest part").contains("from leak (planted.c:"),
        "{text}"
    );
    // The samples remain although sampling is off. A profile without a time needs them.
    let json = printed(&mut planted.profile(&["--for", "0", "--format=json", "--quiet"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["rate"], 0);
    assert!(json["total"]["live_space"].as_u64().unwrap() > 0);
}

#[test]
fn another_rate_is_refused_while_it_samples() {
    let planted = Planted::start(&[], OFTEN);
    let output = planted.profile(&["--sample", "8192"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(
        said(&output).contains("samples already, every 4.0 KiB"),
        "{}",
        said(&output)
    );
}

#[test]
fn every_form_comes_from_a_file_as_from_the_process() {
    let planted = Planted::start(&[], OFTEN);
    let file = planted.pprof();
    let of_file = |arguments: &[&str]| printed(neap().arg("profile").arg(&file).args(arguments));
    assert!(of_file(&[]).contains("download (planted.c:"));
    assert!(of_file(&["--format=tree", "--value=waste"]).contains("from add_node (planted.c:"));
    assert!(of_file(&["--format=collapsed"]).contains(";download 104857600\n"));
    assert!(of_file(&["--list=^add_node$"]).contains("struct node *node = malloc(sizeof *node);"));
    let pprof = neap()
        .arg("profile")
        .arg(&file)
        .arg("--format=pprof")
        .output();
    let (in_a_pipe, rewritten) = (pprof.unwrap().stdout, planted.file("again.pb.gz"));
    fs::write(&rewritten, &in_a_pipe).unwrap();
    assert!(printed(neap().arg("profile").arg(&rewritten)).contains("download (planted.c:"));
    let svg = planted.file("flame.svg");
    assert_eq!(
        of_file(&["--format=flamegraph", "-o", svg.to_str().unwrap()]),
        ""
    );
    assert!(fs::read_to_string(&svg).unwrap().contains("download"));
    let lines = planted.file("collapsed");
    assert_eq!(
        of_file(&["--format=collapsed", "-o", lines.to_str().unwrap()]),
        ""
    );
    assert!(lines.metadata().unwrap().len() > 0);
}

#[test]
fn two_profiles_of_a_process_show_what_it_allocated_between_them() {
    let planted = Planted::start(&["late"], Some("4K"));
    let first = planted.pprof();
    std::thread::sleep(Duration::from_millis(300));
    let base = format!("--base={}", first.display());
    let more = printed(&mut planted.profile(&["--format=leaks", &base]));
    assert!(more.contains("more objects are live than before"), "{more}");
    assert!(more.contains("leak (planted.c:18)"), "{more}");
    let same = printed(
        neap()
            .arg("profile")
            .arg(&first)
            .args(["--format=leaks", &base]),
    );
    assert!(same.contains("no place holds more live bytes"), "{same}");
    let refused = planted.profile(&["--for=100ms", &base]).output().unwrap();
    assert!(
        said(&refused).contains("is a difference already"),
        "{}",
        said(&refused)
    );
    assert_eq!(refused.status.code(), Some(125));
}

#[test]
fn a_program_that_is_gone_from_the_disk_gives_offsets_or_names() {
    let planted = Planted::start(&[], OFTEN);
    fs::remove_file(planted.file("planted")).unwrap();
    let tree = printed(&mut planted.profile(&[]));
    // A user who may follow the kernel's link to the file still gets its names.
    assert!(
        tree.contains("download") || tree.contains("planted+0x"),
        "{tree}"
    );
}

/// The descendant of a process with this name.
#[cfg(target_arch = "x86_64")]
fn descendant(pid: u32, name: &str) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let mut children = children
        .split_whitespace()
        .map(|child| child.parse().unwrap());
    let is_it =
        |pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    children.find_map(|child| {
        if is_it(child) {
            Some(child)
        } else {
            descendant(child, name)
        }
    })
}

/// In a container, a program names the file after its number there.
#[cfg(target_arch = "x86_64")]
#[test]
fn code_made_at_run_time_has_its_name_in_a_pid_namespace() {
    let Some(mut command) = with_own_mounts() else {
        return needs_root("no mount namespace can be made here");
    };
    let room = room();
    let program = room.path().join("made");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/jit.c");
    compile(["-O1", source, "-o"], &program);
    let script = "mount -t tmpfs none /dev/shm && mount --bind /dev/shm /tmp && exec \"$@\"";
    command.args(["--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"]);
    command
        .arg(env!("CARGO_BIN_EXE_neap"))
        .args(["run", "--sample", "64K", "--"])
        .arg(&program);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
    let pid = descendant(child.id(), "made").expect("the program runs");
    let text = printed(neap().args(["profile", "--format=leaks", &pid.to_string()]));
    assert!(text.contains("      made_at_run_time\n"), "{text}");
    drop(child.stdin.take());
    let _ = child.wait();
}

#[test]
fn debugging_information_beside_the_program_is_found() {
    let room = room();
    let (program, debug) = (room.path().join("beside"), room.path().join(".debug"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/planted.c");
    compile(["-O1", "-g", "-fno-builtin", source, "-o"], &program);
    fs::create_dir(&debug).unwrap();
    let link = debug.join("beside.debug");
    let objcopy = |arguments: &[&std::ffi::OsStr]| {
        printed(clean(Path::new("objcopy")).args(arguments));
    };
    objcopy(&[
        "--only-keep-debug".as_ref(),
        program.as_ref(),
        link.as_ref(),
    ]);
    objcopy(&["--strip-all".as_ref(), program.as_ref()]);
    let added = format!("--add-gnu-debuglink={}", link.display());
    objcopy(&[added.as_ref(), program.as_ref()]);
    let text = said(
        &neap()
            .args(["run", "--leaks", "--"])
            .arg(&program)
            .stdin(Stdio::null())
            .output()
            .unwrap(),
    );
    assert!(text.contains("download (planted.c:29)"), "{text}");
}

/// As gdb's manual makes the section, with functions that the program does not export.
#[test]
fn what_a_distribution_left_in_a_stripped_program_is_found() {
    let room = room();
    let at = |name: &str| room.path().join(name);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/planted.c");
    compile(["-O1", "-g", "-fno-builtin", source, "-o"], &at("planted"));
    let script = "objcopy --only-keep-debug planted debug && \
        nm planted --format=posix --defined-only | awk '$2 ~ /[tT]/ { print $1 }' >keep && \
        objcopy --strip-all --remove-section .comment --keep-symbols=keep debug left && \
        strip --strip-all planted && xz left && \
        objcopy --add-section .gnu_debugdata=left.xz planted";
    if Command::new("xz").arg("--version").output().is_err() {
        return skipped("xz is not installed: install xz-utils");
    }
    printed(
        clean(Path::new("sh"))
            .args(["-c", script])
            .current_dir(room.path()),
    );
    let ran = neap()
        .args(["run", "--leaks", "--"])
        .arg(at("planted"))
        .stdin(Stdio::null())
        .output();
    let text = said(&ran.unwrap());
    assert!(text.contains("      download (in planted)\n"), "{text}");
}

#[test]
fn outputs_that_cannot_be_written_are_refused_before_the_wait() {
    let planted = Planted::start(&[], None);
    for (file, why) in [
        ("/no/such/place/file", "no directory /no/such/place"),
        ("/", "directory"),
    ] {
        let output = planted
            .profile(&["--for=100000s", "--format=pprof", "-o", file])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(said(&output).contains(why), "{}", said(&output));
    }
    let output = planted
        .profile(&["--for=100000s", "--list", "((("])
        .output()
        .unwrap();
    assert!(
        said(&output).contains("found open group"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_full_disk_is_an_error_and_the_file_stays() {
    let planted = Planted::start(&[], OFTEN);
    let output = planted
        .profile(&["--format=pprof", "-o", "/dev/full"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(
        said(&output).contains("/dev/full: No space left"),
        "{}",
        said(&output)
    );
    assert!(Path::new("/dev/full").exists());
}

#[test]
fn what_is_no_profile_is_named() {
    let room = room();
    let noise = room.path().join("noise");
    fs::write(&noise, [7; 1000]).unwrap();
    let program = room.path().join("script");
    fs::write(&program, "#!/bin/sh\nexit 0\n").unwrap();
    let recording = room.path().join("true.neap");
    fs::write(
        &recording,
        "{\"head\":{\"format\":\"neap-recording\",\"version\":1}}\n",
    )
    .unwrap();
    let cut = room.path().join("cut");
    fs::write(&cut, [0x0a, 9, 1]).unwrap();
    let report = format!(
        "{0} is a recording of `neap run --record`: use `neap report {0}`",
        recording.display()
    );
    for (arguments, why) in [
        (
            vec![noise.to_str().unwrap()],
            "noise: this is not a pprof profile",
        ),
        (
            vec![program.to_str().unwrap()],
            "script: this is not a pprof profile",
        ),
        (vec![recording.to_str().unwrap()], &report),
        (vec![cut.to_str().unwrap()], "or it is damaged"),
        (vec!["/dev/zero"], "64 MiB"),
        (vec!["/no/such/file"], "No such file"),
        (vec!["/"], "directory"),
        (vec![noise.to_str().unwrap(), "--for", "1s"], "leave --for"),
        (
            vec![
                noise.to_str().unwrap(),
                "--format=leaks",
                "--value=alloc_space",
            ],
            "--format leaks shows what is live",
        ),
        (vec!["1", "--for=-1"], "unit ms, s, m or h"),
        (
            vec!["1", "--list=a", "--format=json"],
            "cannot be used with",
        ),
        (vec!["no-such-process-anywhere"], "no process"),
    ] {
        let output = neap().arg("profile").args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(
            said(&output).contains(why),
            "{arguments:?}: {}",
            said(&output)
        );
    }
}

/// A program that some tests need. Without it they are skipped; with `REQUIRE_ALL=1` that is a
/// failure.
pub fn tool(name: &str) -> Option<Command> {
    let found = Command::new(name)
        .arg("-h")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_err() {
        crate::skips::skipped(&format!("no {name} here (README.md, \"Tests\")"));
        return None;
    }
    Some(clean(Path::new(name)))
}

/// google/pprof.
fn pprof(room: &Path, arguments: &[&str]) -> Option<String> {
    let mut pprof = tool("pprof")?;
    pprof
        .env("PPROF_TMPDIR", room)
        .env("PPROF_BINARY_PATH", room);
    Some(printed(pprof.args(arguments)))
}

#[test]
fn pprof_opens_the_file() {
    let planted = Planted::start(&[], OFTEN);
    let file = planted.pprof();
    let file = file.to_str().unwrap();
    let Some(top) = pprof(planted.room.path(), &["-top", file]) else {
        return;
    };
    assert!(top.contains("Type: inuse_space"), "{top}");
    let first = top.lines().find(|line| line.contains("download"));
    assert!(first.unwrap().trim_start().starts_with("100MB"), "{top}");
    let pprof =
        |arguments: &[&str]| pprof(planted.room.path(), &[arguments, &[file]].concat()).unwrap();
    let raw = pprof(&["-raw"]);
    let types = "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt] \
                 waste_space/bytes";
    assert!(
        raw.contains(types) && raw.contains("PeriodType: space bytes\nPeriod: 4096\n"),
        "{raw}"
    );
    let waste = pprof(&["-sample_index=waste_space", "-top"]);
    assert!(waste.contains("add_node"), "{waste}");
    let list = pprof(&["-list=add_node"]);
    assert!(
        list.contains("struct node *node = malloc(sizeof *node);"),
        "{list}"
    );
    let difference = pprof(&["-top", "-diff_base", file]);
    assert!(difference.contains("accounting for 0, 0%"), "{difference}");
}

/// pprof's pages over HTTP on a port that it chooses, until this value is dropped.
struct Pages {
    child: Child,
    /// Kept open, because pprof dies if its output has no reader.
    _said: Box<dyn Read>,
    address: String,
}

impl Pages {
    fn of(file: &Path, room: &Path) -> Option<Self> {
        let mut pprof = tool("pprof")?;
        pprof
            .env("PPROF_TMPDIR", room)
            .args(["-no_browser", "-http=127.0.0.1:"]);
        let mut child = pprof.arg(file).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("http://") {
            line.clear();
            assert!(
                said.read_line(&mut line).unwrap() > 0,
                "pprof told no address"
            );
        }
        let (_, address) = line.trim_end().split_once("http://").unwrap();
        Some(Self {
            child,
            _said: Box::new(said),
            address: address.to_owned(),
        })
    }

    /// pprof prints its address a moment before it listens there.
    fn connect(&self) -> TcpStream {
        let start = Instant::now();
        loop {
            match TcpStream::connect(&self.address) {
                Ok(stream) => return stream,
                Err(error) => assert!(start.elapsed() < Duration::from_secs(60), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn get(&self, page: &str) -> String {
        let mut stream = self.connect();
        write!(
            stream,
            "GET {page} HTTP/1.0\r\nHost: {}\r\n\r\n",
            self.address
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        answer
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn pprof_shows_the_file_in_a_browser() {
    let planted = Planted::start(&[], OFTEN);
    let Some(pages) = Pages::of(&planted.pprof(), planted.room.path()) else {
        return;
    };
    for (page, expected) in [
        ("/ui/top", "download"),
        ("/ui/flamegraph", "add_node"),
        ("/ui/peek?f=add_node", "plant"),
    ] {
        let text = pages.get(page);
        assert!(text.contains(expected), "{page}: {text}");
    }
}

/// A heap profile by Go's own runtime.
#[test]
fn go_s_profiles_are_read() {
    let Some(mut go) = tool("go") else { return };
    let room = room();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/heap.go");
    let file = room.path().join("go.pb.gz");
    go.env("GOCACHE", room.path().join("cache"))
        .env("GOFLAGS", "-mod=mod");
    printed(go.args(["run", source]).arg(&file));
    let tree = printed(neap().arg("profile").arg(&file));
    let largest = sentence(&tree, "The largest part of the live bytes");
    assert!(largest.contains("main.download (heap.go:"), "{largest}");
    let list = printed(
        neap()
            .arg("profile")
            .arg(&file)
            .args(["--list", "main.download"]),
    );
    assert!(list.contains("return make([]byte, size)"), "{list}");
}
