//! Other projects' servers that read what `neap serve` gives.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long to wait for a condition.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running server, ended when this value is dropped.
pub struct Engine {
    child: Child,
    /// Where it listens.
    pub address: String,
    room: TempDir,
}

impl Engine {
    /// Starts a server that writes into `room`; `None` if it is not installed.
    pub fn start(command: &mut Command, room: TempDir, address: String) -> Option<Engine> {
        let log = File::create(room.path().join("log")).unwrap();
        let command = command.current_dir(room.path()).stdin(Stdio::null());
        let child = command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = child.spawn().ok()?;
        Some(Engine {
            child,
            address,
            room,
        })
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.room.path().join("log")).unwrap_or_default()
    }

    pub fn wait_for<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(seen) = look(self) {
                return seen;
            }
            assert!(since.elapsed() < PATIENCE, "{what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The body of the response to a GET; `None` if it does not listen yet.
    pub fn get(&self, path: &str) -> Option<String> {
        let body = self.ask(format!("GET {path} HTTP/1.0\r\n"), b"")?;
        String::from_utf8(body).ok()
    }

    /// The body of the response to a POST; `None` if it does not listen yet.
    pub fn post(&self, path: &str, media_type: &str, body: &[u8]) -> Option<Vec<u8>> {
        let length = body.len();
        let head = format!("content-type: {media_type}\r\ncontent-length: {length}\r\n");
        self.ask(format!("POST {path} HTTP/1.0\r\n{head}"), body)
    }

    /// An HTTP 1.0 response is not chunked.
    fn ask(&self, head: String, body: &[u8]) -> Option<Vec<u8>> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        let request = [head.as_bytes(), b"Host: localhost\r\n\r\n", body].concat();
        stream.write_all(&request).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
        Some(answer.split_off(end + 4))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A free port of the loopback address.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Escapes a text for a URL.
pub fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
