//! The servers that are compared.

use anyhow::{Context as _, ensure};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that can be started.
#[derive(Clone, Debug)]
pub struct Peer {
    /// What it is called in tables.
    pub name: &'static str,
    program: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    NeapKv,
    Redis,
}

impl Peer {
    /// `neap-kv` and redis-server.
    ///
    /// # Errors
    /// When either is not there.
    pub fn both(server: Option<PathBuf>) -> anyhow::Result<[Peer; 2]> {
        let beside = || anyhow::Ok(std::env::current_exe()?.with_file_name("neap-kv"));
        let program = server.map_or_else(beside, Ok)?;
        ensure!(
            program.is_file(),
            "no {}: build it (`cargo build --release -p neap-kv`), or name it by --server",
            program.display()
        );
        let peers = [
            Peer {
                name: "neap-kv",
                program,
                kind: Kind::NeapKv,
            },
            Peer {
                name: "redis-server",
                program: "redis-server".into(),
                kind: Kind::Redis,
            },
        ];
        for peer in &peers {
            peer.version()
                .with_context(|| format!("{} does not start", peer.name))?;
        }
        Ok(peers)
    }

    /// What it says of its version.
    ///
    /// # Errors
    /// When it does not start.
    pub fn version(&self) -> anyhow::Result<String> {
        let output = Command::new(&self.program).arg("--version").output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
    }

    /// Starts it with room for so many connections.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn start(&self, connections: usize) -> anyhow::Result<Running> {
        let clients = (connections + 16).to_string();
        let mut command = Command::new(&self.program);
        command.args(["--maxclients", &clients, "--bind", "127.0.0.1"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        match self.kind {
            Kind::NeapKv => command.args(["--port", "0"]),
            Kind::Redis => {
                let port = free_port()?.to_string();
                command.args(["--port", &port, "--save", "", "--appendonly", "no"]);
                // It listens at 127.0.0.1 only, but connections come from 127.0.0.2, too.
                command.args(["--protected-mode", "no"])
            }
        };
        let mut running = Running {
            child: command
                .spawn()
                .with_context(|| format!("cannot start {}", self.name))?,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        running.address = match self.kind {
            Kind::NeapKv => running.announced()?,
            Kind::Redis => running.listening(&command)?,
        };
        Ok(running)
    }
}

/// A port that nobody has now.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Running {
    /// Where `neap-kv` says that it listens.
    fn announced(&mut self) -> anyhow::Result<SocketAddr> {
        let output = self
            .child
            .stdout
            .take()
            .context("its output is not piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().rsplit(' ').next().unwrap_or_default();
        address
            .parse()
            .with_context(|| format!("neap-kv did not get ready: {line:?}"))
    }

    /// Waits until redis-server listens, and lets it write where nobody reads.
    fn listening(&mut self, command: &Command) -> anyhow::Result<SocketAddr> {
        let mut output = self
            .child
            .stdout
            .take()
            .context("its output is not piped")?;
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let words: Vec<_> = command.get_args().collect();
        let place = words
            .iter()
            .position(|word| *word == "--port")
            .context("no port")?;
        let port: u16 = words[place + 1].to_string_lossy().parse()?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(
                begin.elapsed() < Duration::from_secs(20),
                "redis-server does not listen at {address}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(address)
    }

    /// KiB in memory, and KiB of page tables.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let digits = line.and_then(|line| line.trim().strip_suffix(" kB"));
            digits
                .and_then(|digits| digits.parse().ok())
                .with_context(|| format!("no {name} in /proc: the server ended"))
        };
        Ok(Memory {
            rss_kib: field("VmRSS:")?,
            page_tables_kib: field("VmPTE:")?,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended; nothing is lost with either server.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process has in memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// KiB resident, as the kernel counts.
    pub rss_kib: u64,
    /// KiB of page tables, which RSS does not hold.
    pub page_tables_kib: u64,
}
