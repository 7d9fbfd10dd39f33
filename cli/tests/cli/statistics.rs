//! Statistics arrive at the requested destination, after the program's own output.

use crate::skips::needs_root;
use crate::stage::{Stage, is_root, neap, printed, room, said};
use std::fs;
use std::process::Command;

#[test]
fn pages_of_all_processes_are_printed_at_the_end() {
    let stage = Stage::new();
    let program = ["timeout", "10", "sh", "-c", "echo inner >&2; exec true"];
    let output = stage
        .neap()
        .args(["run", "--stats", "--"])
        .args(program)
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = said(&output);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "inner"), "{lines:?}");
    assert!(
        lines[1..].iter().all(|line| line.starts_with("page of ")),
        "{lines:?}"
    );
}

#[test]
fn of_many_processes_the_program_and_the_large_have_pages() {
    let room = room();
    let script = "for i in $(seq 30); do /bin/true; done; dd if=/dev/zero of=/dev/null bs=40M \
                  count=1 status=none; exit 0";
    let run = |flags: &[&str]| {
        let mut command = neap();
        command.current_dir(room.path()).arg("run").args(flags);
        said(&command.args(["--", "sh", "-c", script]).output().unwrap())
    };
    let text = run(&["--stats"]);
    assert!(
        text.starts_with("neap: 33 pages of statistics, 2 below (--stats=FILE has all)."),
        "{text}"
    );
    let pages: Vec<&str> = text
        .lines()
        .filter(|line| line.ends_with("at its end"))
        .collect();
    assert_eq!(pages.len(), 2, "{text}");
    for name in ["neap: dd (process ", "neap: sh (process "] {
        assert!(pages.iter().any(|line| line.starts_with(name)), "{text}");
    }
    // The one of `seq` may be among them.
    assert!(text.matches("  true\n").count() >= 19, "{text}");
    assert!(text.contains("         11 more, of at most "), "{text}");
    // Programs read all of them.
    assert_eq!(run(&["--stats", "--format=json"]).lines().count(), 33);
    assert_eq!(run(&["--stats=pages"]), "");
    let pages = fs::read_to_string(room.path().join("pages")).unwrap();
    assert_eq!(pages.matches(") at its end\n").count(), 33);
}

#[test]
fn json_is_one_object_a_line() {
    let stage = Stage::new();
    let output = stage
        .neap()
        .args(["run", "--stats", "--format=json", "true"])
        .output()
        .unwrap();
    let value: serde_json::Value = serde_json::from_str(&said(&output)).unwrap();
    assert!(value["pid"].is_u64());
}

#[test]
fn the_file_for_them_is_removed() {
    let stage = Stage::new();
    let temporary = room();
    let mut command = stage.neap();
    command.env("TMPDIR", temporary.path()).args([
        "run",
        "--stats",
        "sh",
        "-c",
        "ls \"$TMPDIR\"; kill -9 $$",
    ]);
    let output = command.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("neap-stats-"));
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn a_file_of_the_users_is_appended_to_wherever_the_program_goes() {
    let stage = Stage::new();
    for flags in [&["--stats=pages"][..], &["--stats=pages", "--format=text"]] {
        let mut command = stage.neap();
        command
            .current_dir(stage.path())
            .arg("run")
            .args(flags)
            .args(["sh", "-c", "cd /; exec true"]);
        let output = command.output().unwrap();
        assert_eq!(said(&output), "");
    }
    let pages = fs::read_to_string(stage.path().join("pages")).unwrap();
    assert_eq!(
        pages
            .lines()
            .filter(|line| line.starts_with("page of "))
            .count(),
        2,
        "{pages}"
    );
}

#[test]
fn a_file_named_by_a_variable_is_honoured() {
    let stage = Stage::new();
    let file = stage.path().join("pages");
    printed(stage.neap().env("NEAP_STATS_FILE", &file).args([
        "run",
        "--stats",
        "--format=json",
        "true",
    ]));
    assert!(fs::read_to_string(file).unwrap().starts_with("{\"pid\":"));
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_start() {
    let stage = Stage::new();
    for file in ["/no/such/directory/pages", "/"] {
        let mut command = stage.neap();
        let output = command
            .args(["run", &format!("--stats={file}"), "echo", "ran"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert_eq!(output.stdout, b"");
        assert!(said(&output).contains(&format!("cannot write {file}")));
    }
}

/// `neap` opens neither before the start; a named pipe without a reader is the program's to refuse.
#[test]
fn a_named_pipe_stops_no_start() {
    let room = room();
    let fifo = room.path().join("fifo");
    let path = std::ffi::CString::new(fifo.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the path ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    for (option, code, why) in [
        ("--stats", 0, "cannot write the statistics to"),
        ("--classes", 125, "no regular file"),
    ] {
        let mut command = Command::new("timeout");
        let neap = neap();
        command.args(["-s", "KILL", "60"]).arg(neap.get_program());
        for (name, value) in neap.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let option = format!("{option}={}", fifo.display());
        let output = command.args(["run", &option, "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(said(&output).contains(why), "{output:?}");
    }
}

#[test]
fn a_temporary_directory_that_cannot_be_written_is_named() {
    let stage = Stage::new();
    let mut command = stage.neap();
    let output = command
        .env("TMPDIR", "/no/such")
        .args(["run", "--stats", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(said(&output).contains("/no/such") && said(&output).contains("--stats=FILE"));
}

#[test]
fn silence_is_explained() {
    let stage = Stage::new();
    let output = stage
        .neap()
        .args(["run", "--stats", "sh", "-c", "kill -9 $$"])
        .output()
        .unwrap();
    assert!(
        said(&output).contains("no statistics arrived")
            && said(&output).contains("killed by signal 9")
            && !said(&output).contains("limit")
    );
    let output = stage
        .neap()
        .args(["run", "--limit=64M", "--stats", "sh", "-c", "kill -9 $$"])
        .output()
        .unwrap();
    assert!(said(&output).contains("refused it memory, raise --limit"));
    let program = ["env", "-u", "NEAP_STATS_FILE", "-u", "LD_PRELOAD", "true"];
    let output = stage
        .neap()
        .args(["run", "--stats"])
        .args(program)
        .output()
        .unwrap();
    assert!(
        said(&output).contains("executed something that does not run under Neap"),
        "{}",
        said(&output)
    );
}

#[test]
fn nothing_is_said_when_statistics_are_off() {
    let stage = Stage::new();
    let output = stage
        .neap()
        .env("NEAP_STATS", "off")
        .args(["run", "true"])
        .output()
        .unwrap();
    assert_eq!(said(&output), "");
}

#[test]
fn processes_that_changed_their_user_can_leave_theirs() {
    if !is_root() {
        return needs_root("only root changes the user");
    }
    // The clone may be below a directory that the other user cannot search.
    let stage = Stage::plain("bin");
    let program = ["setpriv", "--reuid=1", "--clear-groups", "true"];
    let output = stage
        .neap()
        .args(["run", "--stats"])
        .args(program)
        .output()
        .unwrap();
    assert!(said(&output).contains("page of "), "{}", said(&output));
}
