//! A real Prometheus scrapes a real program through `neap serve`, and answers the dashboard's
//! queries.

use crate::live::Holder;
use crate::serve::Server;
use crate::stage::room;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Prometheus with a data directory of its own, ended when this value is dropped.
struct Prometheus {
    child: Child,
    address: String,
    room: TempDir,
}

/// A scrape may take as long as the interval, even on a busy machine.
const EVERY: &str = "2s";

/// How long to wait for a condition.
const PATIENCE: Duration = Duration::from_secs(120);

impl Prometheus {
    /// A Prometheus that scrapes `target`; `None` if none is installed.
    fn start(target: &str) -> Option<Prometheus> {
        let room = room();
        let configuration = room.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: {EVERY}, scrape_timeout: {EVERY}}}\n\
             scrape_configs: [{{job_name: neap, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        fs::write(&configuration, text).unwrap();
        let log = File::create(room.path().join("log")).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", configuration.display()))
            .arg("--storage.tsdb.path")
            .arg(room.path().join("data"))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .ok()?;
        let mut started = Prometheus {
            child,
            address: String::new(),
            room,
        };
        started.address = started.wait_for("an address", Prometheus::told_address);
        Some(started)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.room.path().join("log")).unwrap_or_default()
    }

    /// The address that it listens on, once it has printed it.
    fn told_address(&self) -> Option<String> {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("\"Listening on\""))?;
        Some(line.split("address=").nth(1)?.trim().to_owned())
    }

    fn wait_for<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(seen) = look(self) {
                return seen;
            }
            assert!(since.elapsed() < PATIENCE, "{what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The response to a request of its HTTP API; `None` while it is not ready.
    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        // An HTTP 1.0 response is not chunked.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let body: Value = serde_json::from_str(body).ok()?;
        assert_ne!(body["status"], "error", "{path}: {body}");
        Some(body["data"].clone())
    }

    /// The current values of a query.
    fn query(&self, expression: &str) -> Option<Vec<f64>> {
        let data = self.get(&format!("/api/v1/query?query={}", escaped(expression)))?;
        let series = data["result"].as_array()?.iter();
        let values = series.filter_map(|one| one["value"][1].as_str()?.parse().ok());
        Some(values.collect())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Escapes a text for a URL.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// All queries of the dashboard, for one process.
fn dashboard(pid: &str) -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/grafana-neap.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array());
    let queries = targets.flatten().filter_map(|one| one["expr"].as_str());
    let asked = queries.map(|query| {
        query
            .replace("$instance", ".*")
            .replace("$program", "holder")
            .replace("$pid", pid)
            .replace("$__rate_interval", "1m")
    });
    asked.collect()
}

#[test]
fn prometheus_scrapes_and_answers_the_dashboard() {
    let holder = Holder::start("busy");
    let server = Server::start(&[&holder.pid()]);
    let Some(prometheus) = Prometheus::start(&server.address) else {
        let required = std::env::var_os("REQUIRE_ALL").is_some_and(|value| value == "1");
        assert!(!required, "prometheus is not installed");
        // Not eprintln, which the harness hides in a test that passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED: no prometheus here");
        return;
    };
    prometheus.wait_for("a target that is up", |prometheus| {
        let targets = prometheus.get("/api/v1/targets")?;
        let target = &targets["activeTargets"][0];
        let scraped = target["scrapeUrl"] == format!("http://{}/metrics", server.address);
        (scraped && target["health"] == "up").then_some(())
    });
    let queries = dashboard(&holder.pid());
    assert!(queries.len() > 30, "{queries:?}");
    for query in queries {
        prometheus.wait_for(&query, |prometheus| {
            prometheus.query(&query).filter(|values| !values.is_empty())
        });
    }
    let large = format!("neap_large_bytes{{pid=\"{}\"}}", holder.pid());
    let values = prometheus.query(&large).unwrap();
    let held = f64::from(32 << 20)..f64::from(40 << 20);
    assert!(
        values.len() == 1 && held.contains(&values[0]),
        "{large}: {values:?}"
    );
}
