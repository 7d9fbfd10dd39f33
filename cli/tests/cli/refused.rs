//! Programs that cannot run under Neap are refused before anything runs.

use crate::skips::needs_root;
use crate::stage::{compile, copy_program, executable, is_root, neap, printed, room, said, script};
use std::fs;
use std::path::{Path, PathBuf};

/// Checks the exit code and the one line on standard error.
fn refuses(program: impl AsRef<Path>, code: i32, reason: &str) {
    let output = neap()
        .args(["run", "--"])
        .arg(program.as_ref())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    assert_eq!(output.stdout, b"");
    assert!(said(&output).contains(reason), "{}", said(&output));
    assert_eq!(said(&output).lines().count(), 1);
}

/// A program that is never executed.
fn built(room: &Path, flags: &[&str]) -> PathBuf {
    let source = room.join("start.c");
    fs::write(
        &source,
        "void _start(void) { for (;;); }\nint main(void) { return 0; }\n",
    )
    .unwrap();
    let program = room.join("program");
    compile(
        flags
            .iter()
            .copied()
            .chain([source.to_str().unwrap(), "-o"]),
        &program,
    );
    program
}

/// A copy of a real program with some bytes of its headers changed.
fn patched(room: &Path, at: usize, bytes: &[u8]) -> PathBuf {
    let mut data = fs::read("/bin/true").unwrap();
    data[at..at + bytes.len()].copy_from_slice(bytes);
    let file = room.join("patched");
    fs::write(&file, data).unwrap();
    executable(&file, 0o755);
    file
}

#[test]
fn a_missing_program() {
    refuses("no-such-program-anywhere", 127, "no such program on PATH");
    refuses("/no/such/program", 127, "/no/such/program: no such program");
    refuses("", 127, "no such program");
    refuses(
        "Cargo.toml",
        127,
        "for the file in this directory, write ./Cargo.toml",
    );
}

#[test]
fn the_value_of_an_option_is_not_taken_for_the_program_in_silence() {
    for (option, value) in [
        ("--record", "out.neap"),
        ("--profile", "out.pb.gz"),
        ("--stats", "pages"),
    ] {
        let output = neap()
            .args(["run", option, value, "--", "true"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(127), "{}", said(&output));
        let tip = format!("write {option}={value}");
        assert!(said(&output).contains(&tip), "{}", said(&output));
    }
}

#[test]
fn a_closed_standard_output_is_an_error() {
    for arguments in [
        "env --library /usr/lib/libneap.so",
        "doctor",
        "top --times=1",
        "completions bash",
        "--help",
    ] {
        let script = format!("exec \"$0\" {arguments} >&-");
        let output = std::process::Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_neap")])
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(125),
            "{arguments}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains("standard output"),
            "{}",
            said(&output)
        );
    }
}

#[test]
fn a_program_finds_its_streams_closed_as_the_caller_left_them() {
    let check = "test ! -e /proc/$$/fd/0 && test ! -e /proc/$$/fd/1";
    let script = format!("exec \"$0\" run -- sh -c '{check}' >&- <&-");
    let output = std::process::Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_neap")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn a_time_below_zero_is_told_its_range() {
    for arguments in [
        ["stat", "1", "--timeout", "-1"],
        ["top", "1", "--interval", "-1"],
    ] {
        let output = neap().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", said(&output));
        assert!(said(&output).contains("expected 0 to"), "{}", said(&output));
    }
}

#[test]
fn a_directory() {
    refuses("/", 126, "is a directory");
}

#[test]
fn a_file_that_is_not_executable() {
    let room = room();
    let file = script(room.path().join("text"), "#!/bin/sh\n");
    executable(&file, 0o644);
    refuses(&file, 126, "chmod +x");
}

#[test]
fn a_file_of_no_known_kind() {
    let room = room();
    refuses(
        script(room.path().join("data"), "\u{1}\0\u{2}"),
        126,
        "neither a program nor a script",
    );
}

#[test]
fn a_static_program() {
    let room = room();
    refuses(
        built(room.path(), &["-static", "-nostdlib", "-Wno-main"]),
        126,
        "statically linked",
    );
}

#[test]
fn a_program_of_another_c_library() {
    let room = room();
    let program = built(
        room.path(),
        &[
            "-nostartfiles",
            "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1",
        ],
    );
    refuses(program, 126, "another C library");
}

#[test]
fn a_program_whose_loader_is_not_there() {
    let room = room();
    let program = built(
        room.path(),
        &["-nostartfiles", "-Wl,--dynamic-linker=/lib/ld-nowhere.so"],
    );
    refuses(program, 126, "/lib/ld-nowhere.so does not exist");
}

#[test]
fn a_program_of_another_machine() {
    const MACHINE: usize = 18;
    let room = room();
    refuses(
        patched(room.path(), MACHINE, &22_u16.to_ne_bytes()),
        126,
        "built for s390",
    );
    refuses(
        patched(room.path(), MACHINE, &0xFACE_u16.to_ne_bytes()),
        126,
        "machine type 64206",
    );
}

#[test]
fn a_program_of_another_word_size() {
    let room = room();
    let file = room.path().join("small");
    let mut header = [0; 52];
    header[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
    header[16..24].copy_from_slice(&[2, 0, 3, 0, 1, 0, 0, 0]);
    fs::write(&file, header).unwrap();
    executable(&file, 0o755);
    refuses(&file, 126, "built for x86 (32 bit)");
}

#[test]
fn damaged_headers() {
    const PROGRAM_HEADERS: usize = 32;
    let room = room();
    refuses(
        patched(room.path(), PROGRAM_HEADERS, &[0xFF; 8]),
        126,
        "damaged ELF headers",
    );
}

#[test]
fn a_program_that_takes_another_users_rights() {
    let room = room();
    let file = room.path().join("program");
    copy_program("/bin/true", &file);
    executable(&file, 0o4755);
    printed(neap().args(["run", "--"]).arg(&file));
    if !is_root() {
        return needs_root("half of it: only root makes a file of another user");
    }
    for (user, group, mode, kind) in [
        (1, 0, 0o4755, "set-user-ID"),
        (0, 1, 0o2755, "set-group-ID"),
    ] {
        std::os::unix::fs::chown(&file, Some(user), Some(group)).unwrap();
        executable(&file, mode);
        refuses(&file, 126, kind);
    }
}
