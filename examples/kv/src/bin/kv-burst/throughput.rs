//! Requests per second by redis-benchmark; the servers alternate.

use crate::options::Options;
use crate::peer::{Peer, Running};
use crate::record::Record;
use anyhow::{Context as _, ensure};
use std::process::Command;

/// Connections of redis-benchmark.
const CLIENTS: usize = 50;

/// Pipelined requests per connection, and the factor for the number of requests.
const PIPELINES: [(usize, usize); 2] = [(1, 1), (16, 10)];

/// Measures all servers in all rounds.
///
/// # Errors
/// If redis-benchmark or a server fails.
pub fn measure(peers: &[Peer], options: &Options, record: &mut Record) -> anyhow::Result<()> {
    let running = peers
        .iter()
        .map(|peer| Ok((peer.name, peer.start(CLIENTS)?)))
        .collect::<anyhow::Result<Vec<(&str, Running)>>>()?;
    for round in 0..options.rounds {
        for (pipeline, times) in PIPELINES {
            let mut order: Vec<_> = running.iter().collect();
            // Alternate the order, because the first run leaves the machine in another state for
            // the second.
            if round % 2 == 1 {
                order.reverse();
            }
            for (name, server) in order {
                for (test, rate) in run(server, pipeline, options.requests * times)? {
                    record.rate(format!("{test} -P {pipeline}"), name, round, rate);
                }
            }
        }
    }
    Ok(())
}

/// One run: requests per second by command.
fn run(server: &Running, pipeline: usize, requests: usize) -> anyhow::Result<Vec<(String, f64)>> {
    let port = server.address.port().to_string();
    let (clients, pipeline) = (CLIENTS.to_string(), pipeline.to_string());
    let requests = requests.to_string();
    let words = [
        "-p", &port, "-c", &clients, "-P", &pipeline, "-n", &requests,
    ];
    let output = Command::new("redis-benchmark")
        .args(words)
        .args(["-t", "set,get", "--csv"])
        .output()
        .context("cannot start redis-benchmark (Debian: redis-tools)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rates: Vec<_> = text.lines().filter_map(rate).collect();
    ensure!(
        output.status.success() && rates.len() == 2,
        "redis-benchmark: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(rates)
}

/// Parses a line `"SET","123456.78",…`.
fn rate(line: &str) -> Option<(String, f64)> {
    let mut fields = line.split(',').map(|field| field.trim_matches('"'));
    let (test, rate) = (fields.next()?, fields.next()?);
    Some((test.to_string(), rate.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn lines_of_redis_benchmark() {
        assert_eq!(
            rate("\"SET\",\"99800.40\",\"0.2\""),
            Some(("SET".into(), 99_800.40))
        );
        assert_eq!(rate("\"test\",\"rps\",\"avg_latency_ms\""), None);
    }
}
