//! Workloads that are other projects' programs, under a preload.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::command::{self, which};
use crate::machine;
use crate::peers::locate::Ready;
use crate::run::{self, Sample};
use crate::work::identity;
use crate::workloads::{Shape, Workload};

/// Runs a program's workload once under `peer`.
///
/// # Errors
/// If the program is not installed, fails, or does not use the peer's malloc.
pub fn once(workload: &Workload, peer: &Ready, ops: u64) -> anyhow::Result<Sample> {
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
    folder: PathBuf,
}

impl Redis {
    fn start(peer: &Ready) -> anyhow::Result<Redis> {
        let program = which("redis-server").context("redis-server is not installed")?;
        ensure_bound(&program, peer)?;
        let folder = std::env::temp_dir().join(format!("neap-lab-redis-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let server = Command::new(program)
            .args([
                "--port",
                "0",
                "--unixsocket",
                "redis.sock",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .args(["--daemonize", "no", "--logfile", "redis.log"])
            .current_dir(&folder)
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
        self.folder.join("redis.sock")
    }

    fn wait_for_socket(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            let log = fs::read_to_string(self.folder.join("redis.log")).unwrap_or_default();
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
        // Both fail only if the server or the directory is gone already, which is the goal.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn redis(peer: &Ready, ops: u64) -> anyhow::Result<Sample> {
    let redis = Redis::start(peer)?;
    let each = (ops / 2).to_string();
    let mut client = Command::new("redis-benchmark");
    client.arg("-s").arg(redis.socket());
    client.args([
        "-t", "set,get", "-n", &each, "-P", "16", "-c", "20", "-d", "256", "-r", "100000",
    ]);
    let report = command::output(client.arg("--csv"))?;
    let server = redis.server.id();
    Ok(Sample {
        ns_per_op: redis_ns_per_request(&report)?,
        peak_rss_kib: machine::peak_resident_kib(server)?,
        faults: machine::faults(server)?,
        bytes_per_block: None,
        purges: None,
    })
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
const PYTHON_JSON: &str = r#"
import json, resource, sys, time
rounds, library = int(sys.argv[1]), sys.argv[2]
start = time.perf_counter_ns()
for _ in range(rounds):
    document = [
        {"id": i, "name": "name %d" % i, "tags": ["t%d" % (i % 7), "u%d" % (i % 11)],
         "at": {"x": i * 0.5, "y": -i}, "note": "n" * (i % 200)}
        for i in range(40000)
    ]
    text = json.dumps(document)
    again = json.loads(text)
    assert again == document, "json came back changed"
elapsed = time.perf_counter_ns() - start
usage = resource.getrusage(resource.RUSAGE_SELF)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
assert any(line.rstrip("\n").endswith(library) for line in open("/proc/self/maps")), "not mapped"
print("ns_per_op=%d" % (elapsed / rounds))
print("peak_rss_kib=" + status["VmHWM"].split()[0])
print("minor_faults=%d\nmajor_faults=%d" % (usage.ru_minflt, usage.ru_majflt))
print("heap=" + library)
"#;

fn python(peer: &Ready, ops: u64) -> anyhow::Result<Sample> {
    let program = python_program()?;
    ensure_bound(&program, peer)?;
    let library = peer.library.canonicalize()?;
    // Not `-I`, with which Python ignores PYTHONMALLOC.
    let mut command = Command::new(program);
    command
        .args(["-s", "-c", PYTHON_JSON, &ops.to_string()])
        .arg(&library);
    command
        .env("LD_PRELOAD", &library)
        .envs(peer.settings.iter().cloned())
        .env("PYTHONMALLOC", "malloc");
    run::parse(&command::output(&mut command)?, &library)
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
            let sample = once(workload, &glibc(), workload.quick).unwrap();
            assert!(
                sample.ns_per_op > 0.0 && sample.peak_rss_kib > 1_000,
                "{sample:?}"
            );
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
