//! Bursts of connections: the server survives, and all memory is given back.

use crate::Add;
use crate::world::{Client, Server, connections};

pub fn all(add: Add<'_>) {
    add("bursts of connections come and go", come_and_go);
    add("parked connections hold no buffers", parked);
}

fn come_and_go() {
    let many = connections();
    let server = Server::start(&["--maxclients", &(many + 100).to_string()]);
    for round in 0..2 {
        let mut clients: Vec<Client> = (0..many).map(|_| server.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let expected = format!(":{}", round * many + number + 1);
            assert_eq!(client.ask("INCR requests"), expected);
        }
        assert!(server.figure("stacks_used") >= many as u64);
        drop(clients);
        // The connection that asks counts as one.
        server.wait_for("connected_clients", |clients| clients == 1);
        server.wait_for("stacks_used", |stacks| stacks == 1);
    }
    let answered = server.connect().ask("GET requests");
    assert_eq!(answered, (2 * many).to_string());
}

fn parked() {
    let server = Server::start(&[]);
    let mut clients: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    for client in &mut clients {
        let value = "v".repeat(50_000);
        assert_eq!(client.ask(&format!("SET k {value}")), "+OK");
        assert_eq!(client.ask("GET k").len(), 50_000);
    }
    server.wait_for("buffered_bytes", |bytes| bytes == 0);
    for client in &mut clients {
        client.send("*2\r\n$4\r\nECHO\r\n$10\r\nhal");
    }
    server.wait_for("buffered_bytes", |bytes| {
        (50 * 20..50 * 200).contains(&bytes)
    });
    for client in &mut clients {
        client.send("f a wor\r\n");
        assert_eq!(client.reply(), "half a wor");
    }
}
