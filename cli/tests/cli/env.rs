//! `neap env`, checked with a shell.

use crate::stage::{Stage, neap, printed, said};
use std::process::Command;

#[test]
fn a_line_for_a_dockerfile() {
    let line = printed(neap().args([
        "env",
        "--library",
        "/usr/lib/libneap.so",
        "--decay",
        "5ms",
        "--check",
    ]));
    assert_eq!(
        line,
        "ENV LD_PRELOAD=/usr/lib/libneap.so NEAP_DECAY=5ms NEAP_CHECK=1\n"
    );
    let line = printed(neap().args(["env", "--library", "/l.so", "--stats=a \"b\" $c\\"]));
    assert_eq!(
        line,
        "ENV LD_PRELOAD=/l.so NEAP_STATS=text NEAP_STATS_FILE=\"a \\\"b\\\" \\$c\\\\\"\n"
    );
}

#[test]
fn without_a_path_it_is_the_library_that_is_there() {
    let stage = Stage::plain("bin");
    assert_eq!(
        printed(stage.neap().arg("env")),
        format!("ENV LD_PRELOAD={}\n", stage.library().display())
    );
}

#[test]
fn a_library_of_a_build_is_not_what_to_install() {
    let stage = Stage::plain("bin");
    let built = stage.library().with_file_name("libneap_c.so");
    std::fs::rename(stage.library(), built).unwrap();
    let output = stage.neap().arg("env").output().unwrap();
    let said = said(&output);
    assert!(
        output.status.success() && said.contains("ci/dist.sh"),
        "{said}"
    );
    assert!(!said.contains("install -m 755"), "{said}");
}

#[test]
fn a_shell_gets_back_what_was_given() {
    let odd = "it's \"a\" $HOME `b` \\ file";
    let lines = printed(neap().args([
        "env",
        "--format=shell",
        "--library",
        "/l'b.so",
        &format!("--stats={odd}"),
        "NEAP_STATS=json",
        "TERM=dumb",
    ]));
    assert_eq!(exported(&lines, None, "NEAP_STATS"), "json");
    assert_eq!(exported(&lines, None, "TERM"), "dumb");
    assert_eq!(exported(&lines, None, "NEAP_STATS_FILE"), odd);
    assert_eq!(exported(&lines, None, "LD_PRELOAD"), "/l'b.so");
    assert_eq!(
        exported(&lines, Some("/other.so"), "LD_PRELOAD"),
        "/l'b.so:/other.so"
    );
}

/// The value that a shell gives the variable after these lines.
fn exported(lines: &str, before: Option<&str>, name: &str) -> String {
    let mut shell = Command::new("/bin/sh");
    shell.env_remove("LD_PRELOAD").arg("-c").arg(format!(
        "{}\n{lines}\nvalue=${name}; unset LD_PRELOAD; printf %s \"$value\"",
        before.map_or(String::new(), |before| format!("LD_PRELOAD={before}"))
    ));
    printed(&mut shell)
}

#[test]
fn paths_that_cannot_be_preloaded_are_refused() {
    for path in [
        "/a b/libneap.so",
        "/a:b.so",
        "/$LIB/l.so",
        "relative.so",
        "/a\nb",
    ] {
        let output = neap().args(["env", "--library", path]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{path}");
        assert_eq!(output.stdout, b"");
        assert!(said(&output).starts_with("neap: error: "));
    }
    let stage = Stage::named("with space");
    let output = stage
        .neap()
        .args(["env", "--format=shell"])
        .output()
        .unwrap();
    assert!(said(&output).contains("--library"), "{}", said(&output));
}
