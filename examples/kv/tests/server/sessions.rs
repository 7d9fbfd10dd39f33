//! A single well-behaved client.

use crate::Add;
use crate::world::{Client, Server, command, request};
use std::process::Stdio;

pub fn all(add: Add<'_>) {
    add("one session", one_session);
    add("pipelined requests are answered in order", pipelined);
    add(
        "requests sent while replies wait are answered",
        sent_meanwhile,
    );
    add("a large value comes back as it was", large_value);
    add("INFO names the allocator", allocator);
    add("connections above the limit are refused", too_many);
    add("a full store refuses writes", full_store);
    add("a port in use is told", port_in_use);
    add("too few descriptors are told", descriptors);
}

fn one_session() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for (words, expected) in [
        ("PING", "+PONG"),
        ("ping hello", "hello"),
        ("ECHO x", "x"),
        ("SET a 5", "+OK"),
        ("INCR a", ":6"),
        ("GET a", "6"),
        ("GET none", "(nil)"),
        ("DBSIZE", ":1"),
        (
            "CONFIG NONE x",
            "-ERR unknown subcommand 'NONE'. Try CONFIG HELP.",
        ),
        ("DEL a b", ":1"),
        ("FLUSHALL", "+OK"),
        ("QUIT", "+OK"),
    ] {
        assert_eq!(client.ask(words), expected, "{words}");
    }
    assert_eq!(client.rest(), "");
}

fn pipelined() {
    let server = Server::start(&["--max-requests", "7"]);
    let mut client = server.connect();
    let requests: String = (0..5_000).map(|n| request(&format!("ECHO {n}"))).collect();
    let mut writer = Client(client.0.try_clone().expect("another descriptor"));
    let writer = std::thread::spawn(move || writer.send(requests));
    for number in 0..5_000 {
        assert_eq!(client.reply(), number.to_string());
    }
    writer.join().expect("all was sent");
}

fn sent_meanwhile() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let value = "v".repeat(10_000_000);
    assert_eq!(client.ask(&format!("SET k {value}")), "+OK");
    client.send(request("GET k"));
    // The reply does not fit the sockets, so the connection waits for room.
    server.wait_for("buffered_bytes", |bytes| bytes > 0);
    client.send(request("ECHO later"));
    // The server notices its arrival before it replies to this.
    assert_eq!(server.connect().ask("PING"), "+PONG");
    assert_eq!(client.reply().len(), value.len());
    assert_eq!(client.reply(), "later");
}

fn large_value() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let value: String = (0..5_000_000)
        .map(|n| char::from(b'a' + (n % 23) as u8))
        .collect();
    assert_eq!(client.ask(&format!("SET big {value}")), "+OK");
    assert!(client.ask("GET big") == value);
    drop(client);
    server.wait_for("buffered_bytes", |bytes| bytes == 0);
}

fn allocator() {
    let info = Server::start(&[]).info();
    let allocator = &info["mem_allocator"];
    assert!(allocator.starts_with("neap-"), "{allocator}");
}

fn too_many() {
    let server = Server::start(&["--maxclients", "2"]);
    let mut clients = [server.connect(), server.connect()];
    for client in &mut clients {
        assert_eq!(client.ask("PING"), "+PONG");
    }
    assert_eq!(
        server.connect().rest(),
        "-ERR max number of clients reached\r\n"
    );
    let [first, mut second] = clients;
    drop(first);
    while !second
        .ask("INFO clients")
        .contains("connected_clients:1\r\n")
    {}
    assert_eq!(server.connect().ask("PING"), "+PONG");
}

fn full_store() {
    let server = Server::start(&["--maxmemory", "102400"]);
    let mut client = server.connect();
    let value = "v".repeat(1_000);
    let mut stored = 0;
    let refusal = loop {
        match client.ask(&format!("SET k{stored} {value}")) {
            reply if reply == "+OK" => stored += 1,
            refusal => break refusal,
        }
    };
    assert_eq!(
        refusal,
        "-OOM command not allowed when used memory > 'maxmemory'."
    );
    assert!((80..=102).contains(&stored), "{stored}");
    assert_eq!(client.ask("GET k0"), value);
    assert_eq!(client.ask("DEL k0 k1"), ":2");
    assert_eq!(client.ask("SET k0 small"), "+OK");
}

/// The error of a server that does not start.
fn complaint(words: &[&str]) -> String {
    let output = command(words)
        .stdout(Stdio::null())
        .output()
        .expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn port_in_use() {
    let server = Server::start(&[]);
    let port = server.address.port().to_string();
    let text = complaint(&["--port", &port]);
    assert!(
        text.contains(&format!("cannot listen at 127.0.0.1:{port}. Is another")),
        "{text}"
    );
}

fn descriptors() {
    let text = complaint(&["--maxclients", "4000000000"]);
    let advice = "Either start with --maxclients";
    assert!(
        text.contains("hard limit is") && text.contains(advice),
        "{text}"
    );
}
