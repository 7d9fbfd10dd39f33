//! Hostile clients: each gets an error and a closed connection, and the server goes on.

use crate::Add;
use crate::world::{Client, Server, request};
use std::io::Write as _;

pub fn all(add: Add<'_>) {
    add("garbage is answered and cut off", garbage);
    add("huge lengths reserve nothing", huge_lengths);
    add("slow half requests hold little", slowloris);
    add("unfinished requests have a common limit", common_limit);
    add("a client that does not read is not served on", unread);
    add("replies have a limit", long_reply);
    add("an HTTP request is cut off", http);
    add("random bytes do no harm", random_bytes);
}

fn still_alive(server: &Server) {
    assert_eq!(server.connect().ask("PING"), "+PONG");
}

fn garbage() {
    let server = Server::start(&[]);
    for (bytes, expected) in [
        (
            "*x\r\n",
            "-ERR Protocol error: invalid multibulk length\r\n",
        ),
        ("*1\r\n:1\r\n", "-ERR Protocol error: expected '$'\r\n"),
        (
            "*1\r\n$x\r\n",
            "-ERR Protocol error: invalid bulk length\r\n",
        ),
        (
            "*1\r\n$2\r\nabcd",
            "-ERR Protocol error: invalid bulk length\r\n",
        ),
        ("*1\r\n\0\r\n", "-ERR Protocol error: expected '$'\r\n"),
    ] {
        let mut client = server.connect();
        client.send(bytes);
        assert_eq!(client.rest(), expected, "{bytes:?}");
    }
    // Requests before the garbage are answered.
    let mut client = server.connect();
    client.send(request("ECHO before") + "*x\r\n");
    assert_eq!(client.reply(), "before");
    assert_eq!(
        client.rest(),
        "-ERR Protocol error: invalid multibulk length\r\n"
    );
    assert_eq!(server.figure("protocol_errors"), 6);
    still_alive(&server);
}

fn huge_lengths() {
    let server = Server::start(&[]);
    let mut clients = Vec::new();
    for claim in ["*1048576\r\n", "*2\r\n$60000000\r\n", "*1048576\r\n$1\r\n"] {
        for _ in 0..50 {
            let mut client = server.connect();
            client.send(claim);
            clients.push(client);
        }
    }
    server.wait_for("connected_clients", |clients| clients == 151);
    assert!(server.figure("buffered_bytes") < 150 * 100);
    assert!(server.figure("used_memory") < 4 << 20);
    for claim in [
        "*1048577\r\n",
        "*1\r\n$67108865\r\n",
        "*1\r\n$9223372036854775807\r\n",
    ] {
        let mut client = server.connect();
        client.send(claim);
        assert!(
            client.rest().starts_with("-ERR Protocol error: invalid"),
            "{claim:?}"
        );
    }
    still_alive(&server);
}

fn slowloris() {
    let server = Server::start(&[]);
    let mut clients: Vec<Client> = (0..300).map(|_| server.connect()).collect();
    for byte in request("ECHO patience").bytes() {
        for client in &mut clients {
            client.send([byte]);
        }
        still_alive(&server);
    }
    for client in &mut clients {
        assert_eq!(client.reply(), "patience");
    }
    server.wait_for("buffered_bytes", |bytes| bytes == 0);
}

fn common_limit() {
    let server = Server::start(&["--client-memory", "1048576"]);
    let mut clients: Vec<Client> = (0..40).map(|_| server.connect()).collect();
    let part = format!("*2\r\n$4\r\nECHO\r\n$1000000\r\n{}", "x".repeat(100_000));
    for client in &mut clients {
        // One that is closed meanwhile does not accept all of it.
        let _ = client.0.write_all(part.as_bytes());
    }
    // Each of the remaining ones holds a tenth of the limit.
    server.wait_for("connected_clients", |clients| clients <= 11);
    assert!(server.figure("buffered_bytes") <= 1 << 20);
    still_alive(&server);
}

fn unread() {
    let server = Server::start(&["--max-requests", "10"]);
    let mut client = server.connect();
    let value = "v".repeat(100_000);
    assert_eq!(client.ask(&format!("SET k {value}")), "+OK");
    let count = 2_000;
    client.send(request("GET k").repeat(count));
    // 200 MB of replies that the client does not read: the server stops producing them.
    server.wait_for("buffered_bytes", |bytes| bytes > 0);
    assert!(server.figure("buffered_bytes") < 4 << 20);
    still_alive(&server);
    for _ in 0..count {
        assert_eq!(client.reply().len(), value.len());
    }
}

fn long_reply() {
    let server = Server::start(&["--max-reply", "100000"]);
    let mut client = server.connect();
    let value = "v".repeat(400_000);
    assert_eq!(client.ask(&format!("SET k {value}")), "+OK");
    client.send(request("GET k") + &request("GET none"));
    assert_eq!(client.reply(), "-ERR the reply exceeds --max-reply");
    assert_eq!(client.reply(), "(nil)");
}

fn http() {
    let server = Server::start(&[]);
    let no_key = "-ERR wrong number of arguments for 'get' command\r\n";
    for (head, expected) in [
        ("POST / HTTP/1.1\r\nHost: x\r\n", ""),
        ("GET / HTTP/1.1\r\nHost: x\r\n", no_key),
    ] {
        let mut client = server.connect();
        client.send(format!("{head}\r\nSET stolen 1\r\n"));
        assert_eq!(client.rest(), expected, "{head}");
    }
    assert_eq!(server.connect().ask("GET stolen"), "(nil)");
}

fn random_bytes() {
    let server = Server::start(&[]);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let letters = b"*$\r\n0123456789-SETGPING xyz\0\xff";
    for _ in 0..300 {
        let length = next() as usize % 400;
        let bytes: Vec<u8> = (0..length)
            .map(|_| letters[next() as usize % letters.len()])
            .collect();
        let mut client = server.connect();
        // The server may cut it off before it has sent everything.
        let _ = client.0.write_all(&bytes);
    }
    server.wait_for("connected_clients", |clients| clients == 1);
    server.wait_for("stacks_used", |stacks| stacks == 1);
    still_alive(&server);
}
