//! What `neap serve` pushes, to servers of the tests' own.

use crate::engine::free_port;
use crate::fleet::{OFTEN, now};
use crate::profile::Planted;
use crate::serve::Server;
use crate::stage::{neap, printed};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// How long to wait for a request.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that takes profiles, one by one, with an answer of the test's choice.
struct Taker(TcpListener);

impl Taker {
    fn start() -> Taker {
        Taker(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    /// The head and the body of the next request.
    fn take(&self, status: &str) -> (String, Vec<u8>) {
        self.0.set_nonblocking(true).unwrap();
        let since = Instant::now();
        let mut stream = loop {
            match self.0.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
            assert!(since.elapsed() < PATIENCE, "neap pushes nothing");
            std::thread::sleep(Duration::from_millis(10));
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            let count = stream.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "{}", String::from_utf8_lossy(&request));
            request.extend(&bytes[..count]);
            let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8(request[..end].to_vec())
                .unwrap()
                .to_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            if request.len() == end + 4 + length {
                let why = "why it is so\nand more";
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{why}",
                    why.len()
                );
                stream.write_all(answer.as_bytes()).unwrap();
                return (head, request.split_off(end + 4));
            }
        }
    }
}

/// The lines of a pushed profile, by one of its values.
fn collapsed(planted: &Planted, body: &[u8], value: &str) -> String {
    let file = planted.file("pushed.pb.gz");
    fs::write(&file, body).unwrap();
    let mut profile = neap();
    let profile = profile.arg("profile").arg(&file).arg("--format=collapsed");
    printed(profile.args(["--value", value]))
}

#[test]
fn pushed_profiles_have_what_was_allocated_since_the_last_and_all_that_is_live() {
    let planted = Planted::start(&[], OFTEN);
    let taker = Taker::start();
    let url = taker.url().replace("http://", "http://me:secret@");
    let server = Server::start(&["--push", &url, "--interval=1s", &planted.pid()]);
    let collapsed = |body: &[u8], value: &str| collapsed(&planted, body, value);
    // The second attempt has the same profile; a failure that passes loses nothing.
    let (_, first) = taker.take("503 Service Unavailable");
    let (head, again) = taker.take("200 OK");
    assert_eq!(first, again);
    assert!(
        head.starts_with("post /ingest?name=planted&from="),
        "{head}"
    );
    assert!(
        head.contains("&format=pprof&spyname=neap http/1.1"),
        "{head}"
    );
    assert!(
        head.contains("\r\nauthorization: basic bwu6c2vjcmv0"),
        "{head}"
    );
    let times: Vec<u64> = ["from=", "until="]
        .map(|name| head.split(name).nth(1).unwrap().split('&').next().unwrap())
        .map(|time| time.parse().unwrap())
        .to_vec();
    assert!(
        times[0] <= times[1] && times[1].abs_diff(now()) < 600,
        "{head}"
    );
    let (_, second) = taker.take("200 OK");
    for body in [&first, &second] {
        assert!(collapsed(body, "live_space").contains(";download 104857600\n"));
        // It was allocated before neap looked for the first time.
        assert!(!collapsed(body, "alloc_space").contains("download"));
    }
    let allocated = collapsed(&second, "alloc_space");
    assert!(
        !allocated.is_empty() && allocated.lines().all(|line| line.contains("live ")),
        "{allocated}"
    );
    drop(server);
}

#[test]
fn a_profile_goes_to_the_server_whatever_the_environment_says_of_proxies() {
    let planted = Planted::start(&[], OFTEN);
    let taker = Taker::start();
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let mut neap = neap();
    for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"] {
        neap.env(name, &nowhere).env(name.to_lowercase(), &nowhere);
    }
    neap.env("NO_PROXY", "").env("no_proxy", "");
    let arguments = ["--push", &taker.url(), &planted.pid()];
    let server = Server::start_by(&mut neap, &arguments);
    taker.take("200 OK");
    drop(server);
}

#[test]
fn what_is_allocated_while_the_server_is_down_is_pushed_later() {
    let first = Planted::start_as("first", &["late"], OFTEN);
    let second = Planted::start_as("second", &["late"], OFTEN);
    let taker = Taker::start();
    let url = taker.url();
    let arguments = ["--push", &url, "--interval=1s", &first.pid(), &second.pid()];
    let server = Server::start(&arguments);
    // Three attempts, after which the round sends nothing more.
    for _ in 0..3 {
        let (head, _) = taker.take("503 Service Unavailable");
        assert!(head.starts_with("post /ingest?name=first&"), "{head}");
    }
    for (name, planted) in [("first", &first), ("second", &second)] {
        let (head, body) = taker.take("200 OK");
        let place = format!("post /ingest?name={name}&");
        assert!(head.starts_with(&place), "{head}");
        let allocated = collapsed(planted, &body, "alloc_space");
        assert!(allocated.contains(";leak "), "{name}: {allocated}");
    }
    drop(server);
}

#[test]
fn a_process_whose_profile_is_refused_keeps_no_other_from_the_server() {
    let refused = Planted::start_as("refused", &["late"], OFTEN);
    let taken = Planted::start_as("taken", &["late"], OFTEN);
    let taker = Taker::start();
    let url = taker.url();
    let arguments = [
        "--push",
        &url,
        "--interval=1s",
        &refused.pid(),
        &taken.pid(),
    ];
    let server = Server::start(&arguments);
    for answers in [["413 Too Large", "200 OK"], ["400 Bad Request", "200 OK"]] {
        for (name, answer) in ["refused", "taken"].iter().zip(answers) {
            let (head, _) = taker.take(answer);
            let place = format!("post /ingest?name={name}&");
            assert!(head.starts_with(&place), "{head}");
        }
    }
    let (_, body) = taker.take("400 Bad Request");
    // It has what the refused ones had.
    let allocated = collapsed(&refused, &body, "alloc_space");
    assert!(allocated.contains(";leak "), "{allocated}");
    let said = server.ended();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("413"), "{said}");
}

#[test]
fn a_server_that_takes_no_profiles_is_told_once() {
    let planted = Planted::start(&[], OFTEN);
    let taker = Taker::start();
    let url = taker.url().replace("http://", "http://me:secret@");
    let server = Server::start(&["--push", &url, "--interval=1s", &planted.pid()]);
    // A refusal is final: each of these is of another round.
    for _ in 0..3 {
        taker.take("400 Bad Request");
    }
    taker.take("200 OK");
    taker.take("200 OK");
    let said = server.ended();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    let why = "cannot push a profile to http://127.0.0.1:";
    assert!(
        lines[0].contains(why) && lines[0].contains(": 400 Bad Request: why it is so;"),
        "{said}"
    );
    assert!(lines[1].contains("takes profiles again"), "{said}");
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn servers_that_neap_cannot_reach_are_refused_at_the_start() {
    for (url, why) in [
        ("https://me:secret@a", "does not speak TLS"),
        ("me:secret@a:4040", "http://HOST:PORT"),
        ("http://me:se cret@a", "http://HOST:PORT"),
    ] {
        let output = neap().args(["serve", "--push", url]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(!said.contains("cret"), "{said}");
    }
}
