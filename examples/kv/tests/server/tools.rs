//! Debian's redis-cli and redis-benchmark.

use crate::world::Server;
use libtest_mimic::{Completion, Failed, Trial};
use std::process::Command;

pub fn all() -> Vec<Trial> {
    let tests: [(&str, &'static str, fn()); 2] = [
        ("redis-cli talks to it", "redis-cli", cli),
        ("redis-benchmark drives it", "redis-benchmark", benchmark),
    ];
    tests
        .map(|(name, tool, test)| trial(name, tool, test))
        .into()
}

fn trial(name: &str, tool: &'static str, test: fn()) -> Trial {
    Trial::ignorable_test(name, move || {
        if Command::new(tool).arg("--version").output().is_ok() {
            test();
            return Ok(Completion::Completed);
        }
        let text = format!("{tool} is absent (Debian: redis-tools)");
        match std::env::var_os("REQUIRE_ALL").is_some_and(|value| value == "1") {
            true => Err(Failed::from(text)),
            false => Ok(Completion::ignored_with(text)),
        }
    })
}

fn run(tool: &str, server: &Server, words: &[&str]) -> String {
    let port = server.address.port().to_string();
    let output = Command::new(tool).args(["-p", &port]).args(words).output();
    let output = output.expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert_eq!(errors, "", "{text}");
    text
}

fn cli() {
    let server = Server::start(&[]);
    for (words, expected) in [
        (&["ping"][..], "PONG\n"),
        (&["set", "a", "1"], "OK\n"),
        (&["incr", "a"], "2\n"),
        (&["get", "b"], "\n"),
        (&["config", "get", "save"], "save\n\n"),
        (
            &["nope"],
            "ERR unknown command 'nope', with args beginning with: \n\n",
        ),
    ] {
        assert_eq!(run("redis-cli", &server, words), expected, "{words:?}");
    }
    let info = run("redis-cli", &server, &["info", "stats"]);
    assert!(info.contains("keyspace_misses:1"), "{info}");
}

fn benchmark() {
    let server = Server::start(&[]);
    let tests = "ping_inline,ping_mbulk,set,get,incr";
    let words = [
        "-t", tests, "-n", "2000", "-c", "20", "-P", "4", "-r", "100", "--csv",
    ];
    let text = run("redis-benchmark", &server, &words);
    // A heading, and one line per test.
    assert_eq!(text.lines().count(), 6, "{text}");
    assert!(server.figure("total_commands_processed") >= 10_000);
    assert_eq!(server.figure("protocol_errors"), 0);
}
