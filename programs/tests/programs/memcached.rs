//! memcached with four threads, driven over the text protocol by several clients.

use neap_programs::{Need, Outcome, Program, World, net};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::net::TcpStream;
use std::time::Duration;

pub const MEMCACHED: Program = Program {
    name: "memcached",
    needs: &[Need {
        command: "memcached",
        package: "memcached",
    }],
    limit: Duration::from_secs(60),
    transcript,
};

const CLIENTS: usize = 4;

fn transcript(world: &World) -> Outcome<String> {
    let address = net::free_address()?;
    let mut command = world.command("memcached");
    command.args([
        "-l",
        "127.0.0.1",
        "-p",
        &address.port().to_string(),
        "-U",
        "0",
    ]);
    command.args(["-t", "4", "-m", "256", "-u", "root"]);
    let mut server = world.serve(command)?;
    server.ready(|| net::connect(address))?;
    server.assert_identity(0)?;
    let items = world.size(3_000, 20_000);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|id| scope.spawn(move || Client::new(address, id)?.work(items)))
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().map_err(|_| "a client panicked")?)
    })?;
    let answers = totals(address)?;
    server.stop(libc::SIGTERM)?;
    Ok(answers)
}

struct Client {
    stream: BufReader<TcpStream>,
    id: usize,
}

impl Client {
    fn new(address: SocketAddr, id: usize) -> Outcome<Self> {
        Ok(Self {
            stream: BufReader::new(net::connect(address)?),
            id,
        })
    }

    /// Stores, reads back, grows and deletes items of many sizes.
    fn work(mut self, items: usize) -> Outcome<()> {
        for n in 0..items {
            let value = self.value(n);
            self.store("set", n, &value)?;
        }
        for n in (0..items).step_by(3) {
            self.store("append", n, "+")?;
        }
        for n in 0..items {
            let mut expected = self.value(n);
            if n % 3 == 0 {
                expected.push('+');
            }
            self.expect_value(n, &expected)?;
        }
        for n in (0..items).step_by(2) {
            let command = format!("delete {}", self.key(n));
            self.ask(&command, "DELETED")?;
        }
        Ok(())
    }

    fn key(&self, n: usize) -> String {
        format!("client{}:{n}", self.id)
    }

    fn value(&self, n: usize) -> String {
        format!("{}-{n};", self.id).repeat(n % 1500 / 3 + 1)
    }

    fn store(&mut self, verb: &str, n: usize, value: &str) -> Outcome<()> {
        let command = format!("{verb} {} 0 0 {}\r\n{value}", self.key(n), value.len());
        self.ask(&command, "STORED")
    }

    fn expect_value(&mut self, n: usize, expected: &str) -> Outcome<()> {
        let key = self.key(n);
        self.ask(
            &format!("get {key}"),
            &format!("VALUE {key} 0 {}", expected.len()),
        )?;
        let mut value = vec![0; expected.len()];
        self.stream.read_exact(&mut value)?;
        if value != expected.as_bytes() {
            return Err(format!("{key} has a changed value").into());
        }
        self.answer("")?;
        self.answer("END")
    }

    fn ask(&mut self, command: &str, expected: &str) -> Outcome<()> {
        self.stream
            .get_mut()
            .write_all(format!("{command}\r\n").as_bytes())?;
        self.answer(expected)
    }

    fn answer(&mut self, expected: &str) -> Outcome<()> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.trim_end() {
            answer if answer == expected => Ok(()),
            answer => Err(format!("answered {answer:?}, not {expected:?}").into()),
        }
    }
}

/// The server's counters, as far as they are reproducible.
fn totals(address: SocketAddr) -> Outcome<String> {
    let mut stream = net::connect(address)?;
    stream.write_all(b"stats\r\nquit\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let kept = [
        "curr_items",
        "total_items",
        "get_hits",
        "delete_hits",
        "evictions",
        "threads",
    ];
    let is_kept = |line: &&str| kept.iter().any(|name| line.contains(&format!(" {name} ")));
    Ok(answer
        .lines()
        .filter(is_kept)
        .map(|line| format!("{line}\n"))
        .collect())
}
