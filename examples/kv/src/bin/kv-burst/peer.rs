//! The compared servers.

use anyhow::{Context as _, ensure};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A server to start.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its name in tables.
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
    /// If either is not installed.
    pub fn both(server: Option<PathBuf>) -> anyhow::Result<[Peer; 2]> {
        let beside = || anyhow::Ok(std::env::current_exe()?.with_file_name("neap-kv"));
        let program = server.map_or_else(beside, Ok)?;
        ensure!(
            program.is_file(),
            "no {}: build it (`cargo build --profile dist -p neap-kv`), or name it by --server",
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

    /// Its version, as it prints it.
    ///
    /// # Errors
    /// If it does not start.
    pub fn version(&self) -> anyhow::Result<String> {
        let output = Command::new(&self.program).arg("--version").output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
    }

    /// Starts it with room for `connections`.
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn start(&self, connections: usize) -> anyhow::Result<Running> {
        let clients = (connections + 16).to_string();
        let port = match self.kind {
            Kind::NeapKv => 0,
            Kind::Redis => free_port()?,
        };
        let mut command = Command::new(&self.program);
        command.args(["--maxclients", &clients, "--bind", "127.0.0.1"]);
        command.args(["--port", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        if self.kind == Kind::Redis {
            command.args(["--save", "", "--appendonly", "no"]);
            // It listens on 127.0.0.1 only, but connections come from 127.0.0.2 as well.
            command.args(["--protected-mode", "no"]);
        }
        let child = command.spawn();
        let mut running = Running {
            child: child.with_context(|| format!("cannot start {}", self.name))?,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
        };
        match self.kind {
            Kind::NeapKv => running.announced()?,
            Kind::Redis => running.listening()?,
        }
        Ok(running)
    }
}

/// A port that is free now.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A server that runs until this value is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// The address that it listens on.
    pub address: SocketAddr,
}

impl Running {
    fn output(&mut self) -> anyhow::Result<ChildStdout> {
        self.child.stdout.take().context("its output is not piped")
    }

    /// Reads the address that `neap-kv` prints.
    fn announced(&mut self) -> anyhow::Result<()> {
        let mut line = String::new();
        BufReader::new(self.output()?).read_line(&mut line)?;
        let address = line.trim().rsplit(' ').next().unwrap_or_default().parse();
        self.address = address.with_context(|| format!("neap-kv did not get ready: {line:?}"))?;
        Ok(())
    }

    /// Waits until redis-server listens. A thread discards the server's output.
    fn listening(&mut self) -> anyhow::Result<()> {
        let (mut output, address) = (self.output()?, self.address);
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            let is_late = begin.elapsed() > Duration::from_secs(20);
            ensure!(!is_late, "redis-server does not listen at {address}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Resident KiB, and KiB of page tables.
    ///
    /// # Errors
    /// If the process has ended.
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
        // It may have ended; neither server has data to lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process's memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Resident KiB by the kernel's count.
    pub rss_kib: u64,
    /// KiB of page tables, which RSS does not include.
    pub page_tables_kib: u64,
}
