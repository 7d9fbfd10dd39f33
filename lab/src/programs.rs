//! Workloads that are other projects' programs, under a preload.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::cases::case::Work;
use crate::command::{self, which};
use crate::engine::record::Figure;
use crate::machine;
use crate::peers::locate::Ready;
use crate::run::{self, MAJOR, MINOR, PEAK, TIME};
use crate::work::identity;
use crate::workloads::{Shape, Workload};

/// Runs a program's workload once under `peer`.
///
/// # Errors
/// If the program is not installed, fails, or does not use the peer's malloc.
pub fn once(workload: &Workload, peer: &Ready, ops: u64) -> anyhow::Result<Vec<Figure>> {
    match workload.shape {
        Shape::Redis => redis(peer, ops),
        Shape::PythonJson => python(peer, ops),
        _ => bail!("{} is a workload of ours", workload.name),
    }
}

/// Why the programs of a workload are not available; `None` if they are.
pub fn absent(workload: &Workload) -> Option<String> {
    let needed: &[&str] = match workload.shape {
        Shape::Redis => &["redis-server", "redis-benchmark"],
        Shape::PythonJson => &["python3"],
        _ => &[],
    };
    needed
        .iter()
        .find(|name| which(name).is_none())
        .map(|name| format!("{name} is not installed"))
}

/// Checks, once for each program and peer, that the preload works.
fn ensure_bound(program: &Path, peer: &Ready) -> anyhow::Result<()> {
    static PROVEN: Mutex<Vec<(PathBuf, PathBuf)>> = Mutex::new(Vec::new());
    let case = (program.to_path_buf(), peer.library.clone());
    let mut proven = PROVEN
        .lock()
        .map_err(|_| anyhow::anyhow!("a check panicked"))?;
    if !proven.contains(&case) {
        identity::ensure_bound(Command::new(program).arg("--version"), &peer.library)?;
        proven.push(case);
    }
    Ok(())
}

/// A redis-server in a directory of its own, reachable only by a Unix socket; killed when dropped.
struct Redis {
    server: Child,
    folder: Work,
}

impl Redis {
    fn start(peer: &Ready) -> anyhow::Result<Redis> {
        let program = which("redis-server").context("redis-server is not installed")?;
        ensure_bound(&program, peer)?;
        let folder = Work::new()?;
        let server = Command::new(program)
            .args("--port 0 --unixsocket redis.sock --appendonly no --daemonize no".split(' '))
            .args(["--logfile", "redis.log", "--save", ""])
            .current_dir(folder.path())
            .env("LD_PRELOAD", &peer.library)
            .envs(peer.settings.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let redis = Redis { server, folder };
        redis.wait_for_socket()?;
        identity::ensure_mapped(redis.server.id(), &peer.library)?;
        Ok(redis)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    fn wait_for_socket(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            let log = fs::read_to_string(self.folder.path().join("redis.log")).unwrap_or_default();
            let last = log.lines().last().unwrap_or("no log");
            ensure!(
                start.elapsed() < Duration::from_secs(10),
                "redis-server is not up: {last}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Both fail only if the server is gone already, which is the goal.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn redis(peer: &Ready, ops: u64) -> anyhow::Result<Vec<Figure>> {
    let redis = Redis::start(peer)?;
    let each = (ops / 2).to_string();
    let mut client = Command::new("redis-benchmark");
    client.arg("-s").arg(redis.socket());
    client.args("-t set,get -P 16 -c 20 -d 256 -r 100000 -n".split(' '));
    client.arg(&each);
    let report = command::output(client.arg("--csv"))?;
    let server = redis.server.id();
    let (minor, major) = machine::faults(server)?;
    Ok(vec![
        Figure::nanoseconds(TIME, redis_ns_per_request(&report)?),
        Figure::kib(PEAK, machine::peak_resident_kib(server)?),
        Figure::count(MINOR, minor),
        Figure::count(MAJOR, major),
    ])
}

/// The mean time of a request, from redis-benchmark's table of requests per second.
fn redis_ns_per_request(report: &str) -> anyhow::Result<f64> {
    let times: Vec<f64> = report
        .lines()
        .filter(|line| line.starts_with("\"SET\"") || line.starts_with("\"GET\""))
        .filter_map(|line| {
            line.split(',')
                .nth(1)?
                .trim_matches('"')
                .parse::<f64>()
                .ok()
        })
        .map(|per_second| 1e9 / per_second)
        .collect();
    ensure!(
        times.len() == 2,
        "redis-benchmark does not tell SET and GET: {report}"
    );
    Ok(times.iter().sum::<f64>() / 2.0)
}

/// The interpreter itself: `python3` may be a script that finds it.
fn python_program() -> anyhow::Result<PathBuf> {
    static FOUND: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut found = FOUND
        .lock()
        .map_err(|_| anyhow::anyhow!("a look-up panicked"))?;
    if found.is_none() {
        let script = "import os, sys; print(os.path.realpath(sys.executable))";
        let path = command::output(Command::new("python3").args(["-c", script]))?;
        *found = Some(PathBuf::from(path.trim()));
    }
    found.clone().context("no python3")
}

/// Builds, dumps and loads a document of 40,000 records, and reports like a worker.
const DOCUMENTS: &str = include_str!("../programs/documents.py");

fn python(peer: &Ready, ops: u64) -> anyhow::Result<Vec<Figure>> {
    let program = python_program()?;
    ensure_bound(&program, peer)?;
    let library = peer.library.canonicalize()?;
    // Not `-I`, with which Python ignores PYTHONMALLOC.
    let mut command = Command::new(program);
    command
        .args(["-s", "-c", DOCUMENTS, &ops.to_string()])
        .arg(&library);
    command
        .env("LD_PRELOAD", &library)
        .envs(peer.settings.iter().cloned())
        .env("PYTHONMALLOC", "malloc");
    run::figures(&command::output(&mut command)?, &library)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers;
    use crate::peers::locate::Places;
    use crate::workloads;

    fn glibc() -> Ready {
        peers::locate::locate(peers::find("glibc").unwrap(), &Places::new(None).unwrap()).unwrap()
    }

    #[test]
    fn redis_benchmarks_table_is_read() {
        let report = "\"test\",\"rps\",\"avg\"\n\"SET\",\"500000.00\",\"0.1\"\n\
                      \"GET\",\"1000000.00\",\"0.1\"\n";
        assert_eq!(redis_ns_per_request(report).unwrap(), 1_500.0);
        assert!(redis_ns_per_request("\"SET\",\"1\"\n").is_err());
    }

    #[test]
    fn the_programs_that_are_here_run_under_the_c_library() {
        let programs = workloads::ALL.iter().filter(|w| !w.is_ours());
        for workload in programs.filter(|w| absent(w).is_none()) {
            let told = once(workload, &glibc(), workload.quick).unwrap();
            let (time, peak) = (told[0].as_number(), told[1].as_number());
            assert!(time > Some(0.0) && peak > Some(1_000.0), "{told:?}");
        }
    }

    #[test]
    fn a_program_under_a_library_that_cannot_be_preloaded_is_refused() {
        let wrong = Ready {
            library: "/nowhere/libx.so".into(),
            ..glibc()
        };
        assert!(ensure_bound(Path::new("/bin/ls"), &wrong).is_err());
    }
}
