//! A real Prometheus scrapes a real program through `neap serve`, and answers the dashboard's
//! queries.

use crate::engine::{Engine, escaped};
use crate::live::Holder;
use crate::profile::Planted;
use crate::serve::Server;
use crate::skips::skipped;
use crate::stage::room;
use serde_json::Value;
use std::fs;
use std::process::Command;

/// A scrape may take as long as the interval, even on a busy machine.
const EVERY: &str = "2s";

/// Prometheus with a data directory of its own.
struct Prometheus(Engine);

impl Prometheus {
    /// A Prometheus with these discoveries of targets; `None` if none is installed.
    fn start(discovery: &str) -> Option<Prometheus> {
        let room = room();
        let text = format!(
            "global: {{scrape_interval: {EVERY}, scrape_timeout: {EVERY}}}\n\
             scrape_configs: [{{job_name: neap, {discovery}}}]\n"
        );
        fs::write(room.path().join("prometheus.yml"), text).unwrap();
        let mut command = Command::new("prometheus");
        command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
        command.arg("--web.listen-address=127.0.0.1:0");
        let Some(mut engine) = Engine::start(&mut command, room, String::new()) else {
            skipped("no prometheus here (Debian: apt install prometheus)");
            return None;
        };
        // It prints the address once it listens.
        engine.address = engine.wait_for("an address", |engine| {
            let log = engine.log();
            let line = log.lines().find(|line| line.contains("\"Listening on\""))?;
            Some(line.split("address=").nth(1)?.trim().to_owned())
        });
        Some(Prometheus(engine))
    }

    fn wait_for<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        self.0.wait_for(what, |_| look(self))
    }

    /// The response to a request of its HTTP API; `None` while it is not ready.
    fn get(&self, path: &str) -> Option<Value> {
        let body: Value = serde_json::from_str(&self.0.get(path)?).ok()?;
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
    let targets = format!("static_configs: [{{targets: ['{}']}}]", server.address);
    let Some(prometheus) = Prometheus::start(&targets) else {
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

#[test]
fn prometheus_discovers_the_processes_that_have_profiles() {
    let planted = Planted::start(&[], Some("64K"));
    let server = Server::start(&[&planted.pid()]);
    let url = format!("http://{}/targets", server.address);
    let discovery = format!("http_sd_configs: [{{url: '{url}', refresh_interval: 2s}}]");
    let Some(prometheus) = Prometheus::start(&discovery) else {
        return;
    };
    let labels = prometheus.wait_for("a target that is up", |prometheus| {
        let targets = prometheus.get("/api/v1/targets")?;
        let target = &targets["activeTargets"][0];
        (target["health"] == "up").then(|| target["labels"].clone())
    });
    assert_eq!(labels["pid"], planted.pid(), "{labels}");
    assert_eq!(labels["service_name"], "planted", "{labels}");
    assert_eq!(labels["instance"], server.address, "{labels}");
}
