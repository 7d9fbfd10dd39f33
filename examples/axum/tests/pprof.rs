//! Starts the server, opens sessions, and reads its profile with Go's pprof.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// 64 MiB, so 128 samples on average: the estimate is within half with near certainty.
const SESSIONS: u64 = 1024;

struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start() -> Server {
        let mut process = Command::new(env!("CARGO_BIN_EXE_axum-with-neap"))
            .arg("127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server does not start");
        let mut line = String::new();
        let output = process.stdout.take().expect("its output is a pipe");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("the server says where it is");
        let address = line.trim().strip_prefix("http://").expect("an address");
        Server {
            process,
            address: address.to_owned(),
        }
    }

    fn answer(&self, request: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .expect("the server reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the server answers");
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{request}");
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The output of `pprof`, or of Go's. It keeps what it fetched in a directory.
fn pprof(arguments: &[&str]) -> Option<String> {
    let run = |program: &str, first: &[&str]| {
        Command::new(program)
            .args(first)
            .args(arguments)
            .env("PPROF_TMPDIR", env!("CARGO_TARGET_TMPDIR"))
            .output()
    };
    let output = run("pprof", &[]).or_else(|_| run("go", &["tool", "pprof"]));
    let Ok(output) = output else {
        assert!(
            std::env::var_os("REQUIRE_ALL").is_none(),
            "install golang-go"
        );
        eprintln!("SKIPPED: reading the profile: install golang-go");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The megabytes in front of a row of `-top -unit=MB`: of the function, and of all that it calls.
fn cumulative(top: &str, function: &str) -> f64 {
    let row = top.lines().find(|line| line.contains(function));
    let row = row.unwrap_or_else(|| panic!("no {function} in\n{top}"));
    let word = row.split_whitespace().nth(3).expect("a row has columns");
    let number = word.strip_suffix("MB").expect("a number of megabytes");
    number.parse().expect("a number")
}

#[test]
fn the_profile_names_the_function_that_keeps_the_memory() {
    let server = Server::start();
    for _ in 0..SESSIONS {
        server.answer("POST /sessions");
    }
    let url = format!("http://{}/debug/pprof/heap", server.address);
    let Some(top) = pprof(&["-top", "-cum", "-unit=MB", &url]) else {
        server.answer("GET /debug/pprof/heap");
        return;
    };
    assert!(top.contains("Type: inuse_space"), "{top}");
    let live = cumulative(&top, "axum_with_neap::new_session");
    assert!((32.0..96.0).contains(&live), "{top}");
    // The allocator's own frames are dropped.
    for own in ["neap_heap::", "neap_instruments::", "__rust_alloc"] {
        assert!(!top.contains(own), "{top}");
    }
    // By their files as well: with `debug = "line-tables-only"` they have short names.
    let lines = pprof(&["-top", "-lines", "-unit=MB", &url]).expect("pprof was there");
    for own in ["/heap/src/", "-heap/src/", "instruments/src/", "neap/src/"] {
        assert!(!lines.contains(own), "{lines}");
    }
    // The function's own lines, from the program's debugging information.
    let list = pprof(&["-list", "new_session", &url]).expect("pprof was there");
    assert!(list.contains("vec![1; 64 << 10]"), "{list}");
}

/// If `NEAP` is the command's path, its profile begins with the function too.
#[test]
fn the_command_names_it_as_well() {
    let Some(neap) = std::env::var_os("NEAP") else {
        return;
    };
    let server = Server::start();
    for _ in 0..SESSIONS {
        server.answer("POST /sessions");
    }
    let pid = server.process.id().to_string();
    let output = Command::new(neap).args(["profile", &pid]).output();
    let text = String::from_utf8(output.expect("neap runs").stdout).expect("it is text");
    let largest = text
        .lines()
        .find(|line| line.starts_with("The largest part"));
    let largest = largest.unwrap_or_else(|| panic!("no largest part in\n{text}"));
    assert!(largest.contains("new_session"), "{largest}");
    assert!(largest.contains("main.rs:"), "{largest}");
}
