//! Profiles of a session: for a process that sampled before, only what the session allocated.

use crate::profile::Planted;
use crate::serve::Server;
use crate::stage::{neap, printed};
use crate::terminal::{PROMPT, Terminal};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

/// Time between two checks.
const LOOK: Duration = Duration::from_millis(50);

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn allocated(profile: &Value) -> u64 {
    profile["total"]["alloc_space"].as_u64().unwrap()
}

#[test]
fn the_second_session_has_nothing_of_the_first() {
    let planted = Planted::start(&["late"], None);
    let session = || {
        json(&printed(&mut planted.profile(&[
            "--for=1s",
            "--sample=4K",
            "--format=json",
            "--quiet",
        ])))
    };
    let (first, second) = (session(), session());
    let whole = json(&printed(
        &mut planted.profile(&["--for=0", "--format=json"]),
    ));
    assert!(first["session"].is_null() && whole["session"].is_null());
    assert_eq!(second["session"]["live"], "growth");
    assert!(allocated(&first) > 0 && allocated(&second) > 0);
    // What is allocated between the last look and the end of sampling is in the whole profile, and
    // in no session.
    assert!(
        allocated(&first) + allocated(&second) <= allocated(&whole),
        "{first:#} {second:#} {whole:#}"
    );
    let (began, ended) = (&second["began_ms"], &first["ended_ms"]);
    assert!(began.as_u64() >= ended.as_u64(), "{began} {ended}");
}

#[test]
fn a_session_of_a_process_that_samples_leaves_out_what_was_there() {
    let planted = Planted::start(&[], Some("4096"));
    let tree = printed(&mut planted.profile(&["--for=1s", "--quiet", "--value=alloc_space"]));
    assert!(
        tree.contains(" allocated in ") && tree.contains("from live (planted.c:"),
        "{tree}"
    );
    assert!(!tree.contains("download"), "{tree}");
    let whole = printed(&mut planted.profile(&["--for=0"]));
    assert!(whole.contains("from download (planted.c:"), "{whole}");
}

/// A server's profile, as JSON.
fn served(planted: &Planted, bytes: &[u8]) -> Value {
    let file = planted.file("served.pb.gz");
    fs::write(&file, bytes).unwrap();
    json(&printed(
        neap().arg("profile").arg(&file).arg("--format=json"),
    ))
}

#[test]
fn the_server_serves_sessions_too() {
    let planted = Planted::start(&[], Some("4096"));
    let server = Server::start(&[&planted.pid()]);
    let profile = |query: &str| {
        let path = format!("/debug/pprof/allocs{query}");
        served(&planted, &server.get_bytes(&path))
    };
    let (whole, session, later) = (profile(""), profile("?seconds=1"), profile(""));
    assert!(allocated(&whole) > 120 << 20 && allocated(&session) < 20 << 20);
    assert_eq!(session["session"]["live"], "growth");
    assert!(session["switched"].is_null());
    // Sampling that was on before the request stays on after it.
    assert_eq!(
        (&later["rate"], &later["session"]),
        (&whole["rate"], &Value::Null)
    );
}

#[test]
fn the_line_of_progress_is_cleared_after_ctrl_c() {
    let planted = Planted::start(&[], Some("4096"));
    let mut shell = Terminal::shell();
    shell.wait_for_bytes(PROMPT);
    shell.resize(40, 200);
    let (neap, pid) = (env!("CARGO_BIN_EXE_neap"), planted.pid());
    shell.press(&format!("'{neap}' profile --for=1000s {pid}\r"));
    shell.wait_for_bytes("Ctrl-C to end early");
    // The line is filled with spaces, and the cursor then goes back to the first column, so `^C`
    // mostly stands on the line that is cleared.
    shell.wait_for_bytes(" \r");
    shell.press("\x03");
    // The line may be drawn again just then.
    shell.wait_for_bytes("^C");
    shell.wait_for_bytes_after("^C", "\r\x1b[2K");
}

/// A `neap profile` that runs until it is interrupted.
struct Going {
    child: Child,
    _said: BufReader<ChildStderr>,
}

impl Going {
    /// Starts it and waits until its session has begun.
    fn start(command: &mut Command) -> Going {
        let command = command.arg("--for=100000s").stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("sampling planted"), "{line}");
        Going { child, _said: said }
    }

    /// Ctrl-C.
    fn end(mut self) -> String {
        // SAFETY: the child has not been waited for, so the number is its own.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGINT) };
        let mut text = String::new();
        let printed = self.child.stdout.as_mut().unwrap();
        printed.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success());
        text
    }
}

#[test]
fn a_session_whose_sampling_another_ends_says_so() {
    let planted = Planted::start(&["late"], None);
    let first = Going::start(&mut planted.profile(&["--sample=64K"]));
    let second = Going::start(&mut planted.profile(&[]));
    let third = Going::start(&mut planted.profile(&["--format=json"]));
    assert!(!first.end().contains("by another"));
    let text = second.end();
    assert!(
        text.contains("every 64.0 KiB on average")
            && text.contains("Sampling was switched off by another neap "),
        "{text}"
    );
    let third = json(&third.end());
    assert_eq!(
        (&third["rate"], &third["switched"]["rate"]),
        (&Value::from(65536), &Value::from(0))
    );
}

/// The index of the first request that is answered, and the answer.
fn first_answered(requests: &mut [TcpStream]) -> (usize, String) {
    for request in requests.iter() {
        request.set_read_timeout(Some(LOOK)).unwrap();
    }
    let mut answers = vec![Vec::new(); requests.len()];
    for _ in 0..200 {
        for (index, request) in requests.iter_mut().enumerate() {
            // Keep what came before the timeout.
            if request.read_to_end(&mut answers[index]).is_ok() {
                return (
                    index,
                    String::from_utf8(answers.swap_remove(index)).unwrap(),
                );
            }
        }
    }
    panic!("none of {} requests is answered", requests.len());
}

#[test]
fn a_session_that_the_server_begins_does_not_take_itself_for_another() {
    let planted = Planted::start(&["late"], None);
    let server = Server::start(&[&planted.pid()]);
    // On a busy machine the process may not answer at once.
    let bytes = (0..20).find_map(|_| server.try_bytes("/debug/pprof/heap?seconds=1"));
    let profile = served(&planted, &bytes.unwrap());
    assert_eq!(
        (&profile["rate"], &profile["switched"]),
        (&Value::from(512 << 10), &Value::Null)
    );
}

#[test]
fn there_are_only_so_many_sessions_at_once() {
    let planted = Planted::start(&["late"], Some("65536"));
    let server = Server::start(&[&planted.pid()]);
    let ask = |_| server.ask("/debug/pprof/heap?seconds=600");
    let mut requests: Vec<_> = (0..5).map(ask).collect();
    let (refused, answer) = first_answered(&mut requests);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: 10\r\n"), "{answer}");
    assert!(
        answer.contains("4 requests with seconds= are in progress"),
        "{answer}"
    );
    requests.remove(refused);
    // The other sessions go on, and requests without a session are served as before.
    let short = "/debug/pprof/heap?seconds=1";
    assert!(server.get(short).0.starts_with("HTTP/1.1 503"));
    assert!(server.get("/debug/pprof/heap").0.contains("HTTP/1.1 200"));
    drop(requests);
    let served = (0..200).any(|_| {
        std::thread::sleep(LOOK);
        server.get(short).0.starts_with("HTTP/1.1 200")
    });
    assert!(served, "the sessions of clients that have gone count still");
}

#[test]
fn a_process_that_was_started_by_a_link_has_one_name_everywhere() {
    let planted = Planted::start_as("other-name", &["late"], Some("4096"));
    let server = Server::start(&[&planted.pid()]);
    let from_server = |path: &str| served(&planted, &server.get_bytes(path));
    let called = [
        json(&printed(&mut planted.profile(&["--format=json"]))),
        from_server("/debug/pprof/heap"),
        from_server("/debug/pprof/heap?seconds=1"),
    ];
    for profile in called {
        assert_eq!(profile["program"], "other-name");
    }
    assert!(server.get("/").1.contains("<td>other-name<td>"));
}

#[test]
fn a_session_over_http_outlives_its_process() {
    let mut planted = Planted::start(&[], Some("4096"));
    let server = Server::start(&[&planted.pid()]);
    let mut request = server.ask("/debug/pprof/heap?seconds=600");
    request.set_read_timeout(Some(LOOK)).unwrap();
    // The session has begun, and no answer has arrived yet.
    let mut answer = Vec::new();
    let early = (0..20).any(|_| request.read_to_end(&mut answer).is_ok());
    assert!(!early && answer.is_empty());
    planted.end();
    request.set_read_timeout(Some(LOOK * 1200)).unwrap();
    request.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.unwrap() + 4);
    assert!(head.starts_with(b"HTTP/1.1 200"));
    let profile = served(&planted, body);
    assert_eq!(profile["session"]["live"], "growth");
    assert!(allocated(&profile) > 0, "{profile:#}");
}
