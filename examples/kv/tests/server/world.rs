//! A server on a free port, and plain connections to it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// After this a test has failed; no test measures time with it.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    pub child: Child,
    pub address: SocketAddr,
}

pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neap-kv"));
    command.args(words).stdin(Stdio::null());
    if !words.contains(&"--maxclients") {
        // The usual ten thousand may be more than the hard limit on open files allows.
        command.arg("--maxclients").arg(connections().to_string());
    }
    command
}

impl Server {
    /// A ready server with these options.
    pub fn start(words: &[&str]) -> Server {
        let mut command = command(words);
        command.args(["--port", "0"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line
            .trim()
            .rsplit(' ')
            .next()
            .and_then(|word| word.parse().ok());
        let address = address.unwrap_or_else(|| panic!("the server says {line:?}"));
        Server { child, address }
    }

    pub fn connect(&self) -> Client {
        Client(connect(self.address))
    }

    /// The figures of `INFO`.
    pub fn info(&self) -> BTreeMap<String, String> {
        let text = self.connect().ask("INFO");
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs
            .map(|(key, value)| (key.to_string(), value.trim().to_string()))
            .collect()
    }

    pub fn figure(&self, name: &str) -> u64 {
        let info = self.info();
        let figure = info
            .get(name)
            .unwrap_or_else(|| panic!("no {name} in {info:?}"));
        figure.parse().expect("a number")
    }

    /// Waits until a figure meets the expectation.
    pub fn wait_for(&self, name: &str, expected: impl Fn(u64) -> bool) {
        let mut last = 0;
        for _ in 0..3_000 {
            last = self.figure(name);
            if expected(last) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{name} stays {last}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test may have ended it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// A connection.
pub struct Client(pub TcpStream);

impl Client {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0
            .write_all(bytes.as_ref())
            .expect("the server takes it");
    }

    /// Sends words as a request, and reads the reply.
    pub fn ask(&mut self, words: &str) -> String {
        self.send(request(words));
        self.reply()
    }

    /// Reads `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).expect("enough bytes");
        bytes
    }

    /// Reads one reply that is no array; a bulk string without its framing.
    pub fn reply(&mut self) -> String {
        let line = self.line();
        let Some(length) = line.strip_prefix('$') else {
            return line;
        };
        match length.parse::<i64>().expect("a length") {
            -1 => "(nil)".into(),
            length => {
                let bytes = self.bytes(length as usize + 2);
                String::from_utf8_lossy(&bytes[..length as usize]).into_owned()
            }
        }
    }

    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(self.bytes(1));
        }
        String::from_utf8_lossy(&line[..line.len() - 2]).into_owned()
    }

    /// Reads everything until the server closes in any manner.
    pub fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        // A reset counts as an end; a timeout does not.
        if let Err(error) = self.0.read_to_end(&mut bytes) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Words as a request.
pub fn request(words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let bulks = words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), bulks.collect::<String>())
}

/// Two thousand, or half of this user's hard limit on open files: other tests run in this process
/// meanwhile. Raises the soft limit.
pub fn connections() -> usize {
    let limits = getrlimit(Resource::Nofile);
    let most = limits.maximum.map_or(2_000, |most| most / 2);
    let raised = Rlimit {
        current: limits.maximum,
        ..limits
    };
    setrlimit(Resource::Nofile, raised).expect("a soft limit may be raised to the hard one");
    assert!(most >= 100, "raise the limit on open files (ulimit -n)");
    most.min(2_000) as usize
}
