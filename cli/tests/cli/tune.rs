//! `neap tune`: from sizes to classes, with and without a run.

use crate::stage::{compile, neap, printed, room, said};
use std::fs;
use std::path::Path;

const SIZES: &str = "neap sizes 1\nprogram crunch\n8 500 1500\n1000 1000 1000000\nlarge 2 100000\n";

/// A file of sizes with known contents.
fn saved(room: &Path) -> std::path::PathBuf {
    let file = room.join("crunch.sizes");
    fs::write(&file, SIZES).unwrap();
    file
}

#[test]
fn saved_sizes_become_classes_and_the_next_command() {
    let room = room();
    let file = saved(room.path());
    let mut command = neap();
    command
        .current_dir(room.path())
        .args(["tune", "--from"])
        .arg(&file);
    let page = printed(&mut command);
    for part in [
        "usable over requested: 1.0305 with 72 classes built in, 1.0105 with ",
        "not counted here: 2 allocations of 97.6 KiB that no slab serves",
        "wrote crunch.classes; next: neap run --classes crunch.classes -- PROGRAM\n",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let classes = fs::read(room.path().join("crunch.classes")).unwrap();
    let sizes = neap_shared::classes::parse(&classes).unwrap();
    assert!(sizes.list().starts_with(&[8, 16]) && sizes.list().contains(&1008));
}

#[test]
fn json_says_the_same() {
    let room = room();
    let file = saved(room.path());
    let mut command = neap();
    command
        .current_dir(room.path())
        .args([
            "tune",
            "--format=json",
            "--max-classes",
            "60",
            "-o",
            "own",
            "--from",
        ])
        .arg(&file);
    let object: serde_json::Value = serde_json::from_str(&printed(&mut command)).unwrap();
    assert_eq!(object["before"]["usable"], 1_000 * 1_024 + 500 * 16);
    assert_eq!(object["after"]["usable"], 1_000 * 1_008 + 500 * 8);
    assert_eq!(object["after"]["requested"], 1_001_500);
    assert!(object["sizes"].as_array().unwrap().len() <= 60);
    assert_eq!(object["next"], "neap run --classes own -- PROGRAM");
    assert!(room.path().join("own").exists());
}

#[test]
fn a_program_is_counted_and_runs_with_its_classes() {
    let room = room();
    let source = room.path().join("crunch.c");
    let text = "#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\nvoid *volatile sink;\n\
                static void ask(int count, size_t size) { while (count--) sink = malloc(size); }\n\
                int main(void) { if (fork() == 0) { ask(100, 2100); exit(0); }\n\
                ask(1000, 1000); wait(0); return 3; }\n";
    fs::write(&source, text).unwrap();
    let program = room.path().join("crunch");
    compile([source.as_os_str(), "-o".as_ref()], &program);
    let output = neap()
        .current_dir(room.path())
        .args(["tune", "--save-sizes", "kept", "--", "./crunch"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(said(&output), "neap: crunch exited with 3\n");
    let kept = fs::read_to_string(room.path().join("kept")).unwrap();
    // Of the program, and of the process that it forked.
    for line in ["\n1000 1000 1000000\n", "\n2104 100 210000\n"] {
        assert!(kept.contains(line), "{kept}");
    }
    let output = neap()
        .current_dir(room.path())
        .args([
            "run",
            "--classes=crunch.classes",
            "--stats",
            "--format=json",
            "--",
            "./crunch",
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let page = said(&output) + &String::from_utf8_lossy(&output.stdout);
    assert!(page.contains("\"bytes\":1008,"), "{page}");
}

#[test]
fn where_nothing_can_be_written_the_option_is_named() {
    let room = room();
    let file = saved(room.path());
    // No user can make a file there, not even root.
    let tune = |arguments: &[&str]| {
        let mut command = neap();
        command.current_dir("/proc").arg("tune").args(arguments);
        command.output().unwrap()
    };
    let file = file.to_str().unwrap();
    for arguments in [["--from", file], ["--", "true"]] {
        let output = tune(&arguments);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        let said = said(&output);
        assert!(
            said.contains("cannot write ") && said.contains("elsewhere with -o FILE"),
            "{arguments:?}: {said}"
        );
    }
    let named = said(&tune(&["-o", "here", "--from", file]));
    assert!(named.contains("cannot write here: "), "{named}");
    assert!(!named.contains("elsewhere"), "{named}");
}

#[test]
fn what_cannot_be_is_one_line() {
    let room = room();
    let file = saved(room.path());
    let broken = room.path().join("broken");
    fs::write(&broken, "neap sizes 1\nlots\n").unwrap();
    let empty = room.path().join("empty");
    fs::write(&empty, "neap sizes 1\nprogram x\nlarge 1 1\n").unwrap();
    let of = |path: &Path| path.to_str().unwrap().to_owned();
    for (arguments, why) in [
        (vec!["--from".into(), of(&broken)], "line 2 makes no sense"),
        (
            vec!["--from".into(), of(&room.path().join("none"))],
            "cannot read",
        ),
        (vec!["--from".into(), of(&empty)], "nothing to tune"),
        (
            vec![
                "--max-classes".into(),
                "20".into(),
                "--from".into(),
                of(&file),
            ],
            "the library holds 80, and fewer than ",
        ),
        (
            vec![
                "-o".into(),
                "/nonexistent/x".into(),
                "--from".into(),
                of(&file),
            ],
            "/nonexistent/x",
        ),
        (
            vec!["--".into(), "/nonexistent/program".into()],
            "/nonexistent/program",
        ),
    ] {
        let output = neap()
            .current_dir(room.path())
            .arg("tune")
            .args(&arguments)
            .output()
            .unwrap();
        let said = said(&output);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(
            said.contains(why) && said.lines().count() == 1,
            "{arguments:?}: {said}"
        );
    }
    let output = neap()
        .args(["run", "--classes"])
        .arg(&broken)
        .args(["--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(said(&output).contains("its first line is not `neap classes 1`"));
}
