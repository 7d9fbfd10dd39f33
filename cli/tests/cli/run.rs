//! What a program gets from `neap run`, and hands back.

use crate::stage::{Stage, neap, printed, said};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

#[test]
fn the_exit_status_is_the_programs() {
    for status in [0, 1, 42, 255] {
        for flags in [&["run"][..], &["run", "--stats"]] {
            let ended = neap()
                .args(flags)
                .args(["sh", "-c", &format!("exit {status}")])
                .output()
                .unwrap();
            assert_eq!(ended.status.code(), Some(status));
        }
    }
}

#[test]
fn arguments_arrive_as_they_were() {
    let odd = OsStr::from_bytes(b"\xFF bytes");
    let mut command = neap();
    command
        .args([
            "run",
            "--",
            "printf",
            "[%s]",
            "two words",
            "",
            "--decay",
            "*",
        ])
        .arg(odd);
    let output = command.output().unwrap();
    assert_eq!(output.stdout, b"[two words][][--decay][*][\xFF bytes]");
}

#[test]
fn dashes_before_the_program_may_be_left_out() {
    assert_eq!(
        printed(neap().args(["run", "--decay", "5ms", "echo", "--stats", "-n"])),
        "--stats -n\n"
    );
}

#[test]
fn input_and_output_are_the_programs() {
    let output = neap().args(["run", "--", "true"]).output().unwrap();
    assert_eq!((output.stdout, output.stderr), (vec![], vec![]));
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let input = std::fs::File::open(readme).unwrap();
    let text = printed(
        neap()
            .args(["run", "--stats", "cat"])
            .stdin(Stdio::from(input)),
    );
    assert_eq!(text, std::fs::read_to_string(readme).unwrap());
}

#[test]
fn the_program_takes_the_commands_place() {
    let mut command = neap();
    command
        .args(["run", "sh", "-c", "echo $$"])
        .stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    let number = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("{number}\n")
    );
}

#[test]
fn flags_become_variables() {
    let flags = [
        "run",
        "--decay",
        "500ms",
        "--thread-cache",
        "2M",
        "--check",
        "--deepbind",
        "keep",
    ];
    let lines = printed(neap().args(flags).arg("env"));
    for line in [
        "NEAP_DECAY=500ms",
        "NEAP_THREAD_CACHE=2M",
        "NEAP_CHECK=1",
        "NEAP_DEEPBIND=keep",
    ] {
        assert!(
            lines.lines().any(|found| found == line),
            "{line} is not in {lines}"
        );
    }
    assert!(
        !lines.contains("NEAP_CACHE="),
        "what was not given is not set"
    );
}

#[test]
fn hardened_programs_are_hardened() {
    for (flag, value) in [("--harden", "1"), ("--harden=canary,zero", "canary,zero")] {
        let lines = printed(neap().args(["run", flag, "--", "env"]));
        assert!(lines.contains(&format!("NEAP_HARDEN={value}\n")), "{lines}");
    }
}

#[test]
fn a_flag_overrules_the_variable_and_leaves_the_others() {
    let mut command = neap();
    command
        .env("NEAP_DECAY", "1")
        .env("NEAP_CACHE", "1M")
        .args(["run", "--decay", "2s", "env"]);
    let lines = printed(&mut command);
    assert!(
        lines.contains("NEAP_DECAY=2s\n") && lines.contains("NEAP_CACHE=1M\n"),
        "{lines}"
    );
    assert!(!lines.contains("NEAP_DECAY=1\n"));
}

#[test]
fn wrong_flags_are_refused_before_the_start() {
    let cases: [(&[&str], &str); 6] = [
        (&["--decay", "5x"], "0 to 1h (unit ms, s, m or h)"),
        (&["--cache", "2000G"], "suffix K, M, G or T"),
        (&["--stats=json"], "--format json"),
        (&["--dcay", "5"], "--decay"),
        (&["--deepbind", "strp"], "strip"),
        (&["--check=2"], "--check"),
    ];
    for (flags, hint) in cases {
        let output = neap()
            .arg("run")
            .args(flags)
            .args(["--", "echo", "ran"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125), "{flags:?}");
        assert_eq!(output.stdout, b"", "{flags:?}");
        assert!(said(&output).contains(hint), "{flags:?}: {}", said(&output));
    }
}

#[test]
fn a_command_without_its_program_says_how_it_is_used() {
    for words in [
        vec!["run"],
        vec!["tune"],
        vec!["profile"],
        vec!["report"],
        vec!["report", "--"],
    ] {
        let output = neap().args(&words).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(125),
            "{words:?}: {}",
            said(&output)
        );
        assert!(said(&output).contains("Usage: neap"), "{}", said(&output));
    }
}

#[test]
fn only_the_program_with_no_children() {
    let stage = Stage::new();
    let own = "while read line; do echo \"$line\"; done < /proc/$$/maps";
    assert!(
        printed(stage.neap().args(["run", "--no-children", "sh", "-c", own])).contains("libneap")
    );
    let child = ["sh", "-c", "cat /proc/self/maps; true"];
    assert!(!printed(stage.neap().args(["run", "--no-children"]).args(child)).contains("libneap"));
    assert!(printed(stage.neap().arg("run").args(child)).contains("libneap"));
}

#[test]
fn the_lab_is_told_how_to_be_built() {
    let stage = Stage::new();
    let output = stage
        .neap()
        .args(["lab", "bench", "--help"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(said(&output).contains("cargo build --release -p neap-lab"));
    let lab = stage.library().with_file_name("neap-lab");
    crate::stage::script(lab, "#!/bin/sh\necho \"$@\"\n");
    assert_eq!(
        printed(stage.neap().args(["lab", "bench", "--help"])),
        "bench --help\n"
    );
}

#[test]
fn a_comparison_is_checked_and_given_to_the_lab() {
    let stage = Stage::new();
    let compare = |words: &[&str]| stage.neap().arg("compare").args(words).output().unwrap();
    assert_eq!(compare(&["--", "no-such-program"]).status.code(), Some(127));
    assert!(said(&compare(&["true"])).contains("neap compare needs it"));
    let lab = stage.library().with_file_name("neap-lab");
    crate::stage::script(lab, "#!/bin/sh\nshift 3; echo \"$@\"\n");
    let words = [
        "--load",
        "a load",
        "--rest=1500ms",
        "--within=1m",
        "--allocators=jemalloc",
    ];
    let output = compare(&[&words[..], &["--format=json", "true", "-x"]].concat());
    let expected = "--load a load --rounds 5 --rest 2 --seconds 60 --peers neap,glibc,jemalloc \
                    --json -- true -x\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn completions_know_the_options() {
    for shell in ["bash", "fish", "zsh", "elvish", "powershell"] {
        let script = printed(neap().args(["completions", shell]));
        assert!(
            script.contains("thread-cache") && script.contains("no-children"),
            "{shell}"
        );
    }
}

#[test]
fn a_wrong_value_is_told_by_one_process_of_a_tree() {
    let tree = "sh -c 'true; sh -c :'; sh -c :; echo \"<$NEAP_DECAY><$NEAP_COLOUR>\"";
    let mut command = neap();
    command.env("NEAP_DECAY", "soon").env("NEAP_COLOUR", "red");
    let output = command
        .args(["run", "--", "sh", "-c", tree])
        .output()
        .unwrap();
    let said = said(&output);
    assert_eq!(
        said.matches("NEAP_DECAY=soon is ignored").count(),
        1,
        "{said}"
    );
    // That one may belong to another program, so it is left alone.
    assert!(
        said.matches("unknown option NEAP_COLOUR").count() > 1,
        "{said}"
    );
    assert_eq!(output.stdout, b"<><red>\n");
}

/// The pair of the second one was taken, recorded nothing, and blamed the program for it.
#[test]
fn options_that_turn_off_what_others_need_are_refused() {
    let refused = |command: &mut Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let said = said(&output);
        assert!(said.contains("turns off"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    let queries = [
        "--guard",
        "--guard=all",
        "--sample=1M",
        "--profile",
        "--leaks",
    ];
    let pairs = queries.map(|needing| [needing, "--no-kernel-queries"]);
    for pair in pairs.into_iter().chain([
        ["--record", "--no-status-page"],
        ["--record", "--no-kernel-queries"],
        ["--purge-thread=always", "--no-kernel-queries"],
    ]) {
        refused(neap().arg("run").args(pair).args(["--", "true"]));
        if !["--profile", "--leaks", "--record"].contains(&pair[0]) {
            refused(neap().args(["env", "--library=/l.so"]).args(pair));
        }
    }
    let words = ["env", "--library=/l.so", "--guard", "NEAP_KERNEL_QUERIES=0"];
    refused(neap().args(words));
    let words = ["run", "--record", "--", "true"];
    refused(neap().env("NEAP_STATUS_PAGE", "0").args(words));
    let words = ["tune", "--", "true"];
    refused(neap().env("NEAP_KERNEL_QUERIES", "0").args(words));
    let words = [
        "run",
        "--purge-thread=never",
        "--no-kernel-queries",
        "--",
        "true",
    ];
    assert!(neap().args(words).status().unwrap().success());
}
