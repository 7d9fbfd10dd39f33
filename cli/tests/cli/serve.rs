//! `neap serve`.

use crate::fake::{Fake, figures};
use crate::profile::Planted;
use crate::skips::skipped;
use crate::stage::{neap, said};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

/// A server and its address.
pub struct Server {
    child: Child,
    pub address: String,
}

impl Server {
    pub fn start(arguments: &[&str]) -> Server {
        Server::start_by(&mut neap(), arguments)
    }

    /// Starts it by this command of `neap`.
    pub fn start_by(neap: &mut Command, arguments: &[&str]) -> Server {
        let mut child = neap
            .args(["serve", "--listen=127.0.0.1:0"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let said = child.stderr.as_mut().unwrap();
        BufReader::new(said).read_line(&mut line).unwrap();
        let address = line
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Server { child, address }
    }

    /// The answer's head and body.
    pub fn get(&self, path: &str) -> (String, String) {
        self.get_as(path, &self.address)
    }

    /// Sends a request and leaves the answer for later.
    pub fn ask(&self, path: &str) -> TcpStream {
        self.ask_as(path, &self.address)
    }

    fn get_as(&self, path: &str, host: &str) -> (String, String) {
        let bytes = self.answer(path, host);
        let answer = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// The raw body of an existing page.
    pub fn get_bytes(&self, path: &str) -> Vec<u8> {
        self.try_bytes(path).expect("the page is not there")
    }

    /// The raw body, if the page exists.
    pub fn try_bytes(&self, path: &str) -> Option<Vec<u8>> {
        let bytes = self.answer(path, &self.address);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let found = bytes.starts_with(b"HTTP/1.1 200 OK");
        found.then(|| bytes[end.unwrap() + 4..].to_vec())
    }

    fn ask_as(&self, path: &str, host: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        stream
    }

    fn answer(&self, path: &str, host: &str) -> Vec<u8> {
        let mut stream = self.ask_as(path, host);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Ends it. What it said, after the first line.
    pub fn ended(mut self) -> String {
        let mut said = self.child.stderr.take().unwrap();
        assert_eq!(self.end(libc::SIGTERM), Some(0));
        let mut text = String::new();
        said.read_to_string(&mut text).unwrap();
        text
    }

    /// Sends a signal and waits for the end.
    fn end(mut self, signal: i32) -> Option<i32> {
        // SAFETY: the child has not been waited for, so the number is its own.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn metrics_are_served_until_a_signal_ends_it() {
    let fake = Fake::with_figures(&figures());
    let server = Server::start(&[&fake.pid().to_string()]);
    let (head, body) = server.get("/metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert_eq!(fake.metric(&body, "requested_bytes"), Some("10485760"));
    assert_eq!(fake.metric(&body, "fresh"), Some("0"));
    assert_eq!(server.end(libc::SIGTERM), Some(0));
    let server = Server::start(&[]);
    let (_, body) = server.get("/metrics");
    assert!(fake.metric(&body, "fresh").is_some(), "{body}");
    assert_eq!(server.end(libc::SIGINT), Some(0));
}

#[test]
fn metrics_of_one_process_are_served_by_its_pid() {
    let (wanted, other) = (
        Fake::with_figures(&figures()),
        Fake::with_figures(&figures()),
    );
    let pids = [wanted.pid(), other.pid()].map(|pid| pid.to_string());
    for server in [Server::start(&[&pids[0], &pids[1]]), Server::start(&[])] {
        let (_, body) = server.get(&format!("/metrics?pid={}", pids[0]));
        assert!(wanted.metric(&body, "fresh").is_some(), "{body}");
        assert!(other.metric(&body, "fresh").is_none(), "{body}");
    }
    let server = Server::start(&[&pids[0]]);
    for (query, expected) in [(format!("pid={}", pids[1]), "404"), ("pid=x".into(), "400")] {
        let (head, _) = server.get(&format!("/metrics?{query}"));
        assert!(head.starts_with(&format!("HTTP/1.1 {expected} ")), "{head}");
    }
}

#[test]
fn the_page_lists_the_processes() {
    let fake = Fake::status_page();
    let server = Server::start(&[]);
    let (head, body) = server.get("/");
    assert!(head.contains("content-type: text/html"), "{head}");
    let link = format!("href=\"/debug/pprof/heap?pid={}\"", fake.pid());
    assert!(body.contains(&link), "{body}");
}

#[test]
fn profiles_are_refused_with_a_sentence_where_nothing_samples() {
    let (fake, other) = (Fake::status_page(), Fake::status_page());
    let pids = [fake.pid().to_string(), other.pid().to_string()];
    let server = Server::start(&[&pids[0], &pids[1]]);
    for path in ["heap", "allocs"] {
        let (head, body) = server.get(&format!("/debug/pprof/{path}?pid={}", pids[0]));
        assert!(head.starts_with("HTTP/1.1 404"), "{head}");
        assert!(body.contains("does not sample"), "{body}");
    }
    let (head, body) = server.get("/debug/pprof/heap");
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    assert!(
        body.contains("say which process") && body.contains(&pids[1]),
        "{body}"
    );
    for wrong in ["1", "0", "-1", "2147483647"] {
        let (head, _) = server.get(&format!("/debug/pprof/heap?pid={wrong}"));
        assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    }
    for wrong in ["pid=x", "seconds=-1", "seconds=1000000"] {
        let (head, _) = server.get(&format!("/debug/pprof/heap?pid={}&{wrong}", pids[0]));
        assert!(head.starts_with("HTTP/1.1 400"), "{wrong}: {head}");
    }
}

#[test]
fn sampling_that_a_request_began_ends_with_it() {
    let fake = Fake::status_page();
    let server = Server::start(&[&fake.pid().to_string()]);
    let (head, body) = server.get("/debug/pprof/heap?seconds=1");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    assert!(body.contains("pending: "), "{body}");
    let control = fake.control();
    assert_eq!((control.sample, control.sample_rate), (2, 0));
}

#[test]
fn pages_of_elsewhere_cannot_read_through_a_browser() {
    let server = Server::start(&[]);
    let (head, _) = server.get_as("/metrics", "evil.example:80");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    let (head, _) = server.get_as("/metrics", "localhost");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

#[test]
fn pages_of_elsewhere_start_nothing_through_a_browser() {
    let fake = Fake::status_page();
    let server = Server::start(&[&fake.pid().to_string()]);
    let answer_from = |site: &str, path: &str| {
        let host = &server.address;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Site: {site}");
        answer_to(&server, format!("{head}\r\n\r\n").as_bytes())
    };
    let answer = answer_from("cross-site", "/debug/pprof/heap?seconds=1");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(fake.control().sample, 0);
    for site in ["same-origin", "none"] {
        let answer = answer_from(site, "/");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[test]
fn scrapes_for_clients_that_have_left_are_not_made() {
    const LEFT: u64 = 20;
    // It does not answer, so that each scrape takes its time.
    let fake = Fake::status_page();
    let server = Server::start(&[&fake.pid().to_string()]);
    for _ in 0..LEFT {
        drop(server.ask("/metrics"));
    }
    let (head, _) = server.get("/metrics");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    // A scrape asks the process once.
    let asked = fake.control().ask;
    assert!(asked < LEFT / 2, "{asked}");
}

/// The answer to these bytes, as text.
fn answer_to(server: &Server, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn requests_that_are_not_served_get_a_sentence() {
    let server = Server::start(&[]);
    let long = format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(20_000));
    for (request, head) in [
        ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
        ("GET /nowhere HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        ("neap?\r\n\r\n", "HTTP/1.1 400 "),
        (&long[..16 << 10], "HTTP/1.1 431 "),
    ] {
        let answer = answer_to(&server, request.as_bytes());
        assert!(answer.starts_with(head), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(body.trim_end().len() > 10, "{answer}");
    }
    let answer = answer_to(&server, b"HEAD / HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn a_request_in_pieces_is_answered() {
    let server = Server::start(&[]);
    let mut stream = TcpStream::connect(&server.address).unwrap();
    for byte in b"GET / HTTP/1.1\r\n\r\n" {
        stream.write_all(&[*byte]).unwrap();
        std::thread::yield_now();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn clients_that_say_nothing_do_not_keep_others_out() {
    let server = Server::start(&[]);
    let silent = || {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(b"GET / HT").unwrap();
        stream
    };
    // More than are served at a time. Each is told that its time is over.
    let mut silent: Vec<TcpStream> = (0..100).map(|_| silent()).collect();
    let (head, _) = server.get("/metrics");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut answer = String::new();
    silent[0].read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn a_signal_ends_the_sessions_in_progress_and_their_sampling() {
    let planted = Planted::start(&["late"], None);
    let server = Server::start(&[&planted.pid()]);
    let _session = server.ask("/debug/pprof/heap?seconds=600");
    // A profile of everything exists while the process samples.
    let samples = |server: &Server| server.try_bytes("/debug/pprof/heap").is_some();
    let wait_for = |server: &Server, expected: bool| {
        (0..600).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            samples(server) == expected
        })
    };
    assert!(wait_for(&server, true), "the session does not begin");
    assert_eq!(server.end(libc::SIGTERM), Some(0));
    let server = Server::start(&[&planted.pid()]);
    assert!(wait_for(&server, false), "the process still samples");
}

#[test]
fn a_wrong_command_line_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--listen={}", taken.local_addr().unwrap());
    let run = |argument: &str| -> Output { neap().args(["serve", argument]).output().unwrap() };
    for (argument, why) in [
        ("2147483647", "there is no process"),
        ("--listen=nowhere", "invalid"),
        (taken.as_str(), "choose another place"),
    ] {
        let output = run(argument);
        assert_eq!(output.status.code(), Some(125), "{argument}");
        assert!(said(&output).contains(why), "{}", said(&output));
    }
}

#[test]
fn promtool_is_content() {
    let found = Command::new("promtool").arg("--version").output();
    if found.is_err() {
        return skipped("no promtool here (Debian: apt install prometheus)");
    }
    let fake = Fake::with_figures(&figures());
    let page = fake
        .answering(&["stat", "--format=prometheus", "--timeout=60s"])
        .stdout;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(&page).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output), "");
    assert!(output.stdout.is_empty());
}
