//! The record, a CSV file with the machine, the versions and every figure; and its tables.

use crate::options::Options;
use crate::peer::{Memory, Peer};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const COLUMNS: &str = "kind,name,server,round,value";

/// A figure.
#[derive(Clone, Debug)]
struct Row {
    kind: &'static str,
    name: String,
    server: &'static str,
    round: u32,
    value: f64,
}

/// All measurements.
#[derive(Debug)]
pub struct Record {
    head: Vec<(String, String)>,
    rows: Vec<Row>,
    peers: Vec<&'static str>,
}

impl Record {
    /// An empty record of this machine.
    ///
    /// # Errors
    /// If a server does not print its version.
    pub fn new(peers: &[Peer], options: &Options) -> anyhow::Result<Record> {
        let mut record = Record {
            head: Vec::new(),
            rows: Vec::new(),
            peers: peers.iter().map(|peer| peer.name).collect(),
        };
        record.head("date", said_by("date", &["-u", "+%F"]));
        let sources = env!("CARGO_MANIFEST_DIR");
        let words = ["-C", sources, "describe", "--always", "--dirty"];
        record.head("revision", said_by("git", &words));
        record.head("keys", options.keys.to_string());
        record.head("bytes of a value", options.value.to_string());
        record.head("rounds", options.rounds.to_string());
        record.head("requests", options.requests.to_string());
        record.head("processor", field("/proc/cpuinfo", "model name"));
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        record.head("cores", cores.to_string());
        record.head("memory", field("/proc/meminfo", "MemTotal"));
        record.head("kernel", said_by("uname", &["-r"]));
        for peer in peers {
            record.head(&format!("version of {}", peer.name), peer.version()?);
        }
        Ok(record)
    }

    /// Adds a line to the head.
    pub fn head(&mut self, key: &str, value: String) {
        self.head.push((key.to_string(), value));
    }

    /// Adds a server's memory at a step.
    pub fn memory(&mut self, step: &str, server: &'static str, memory: Memory) {
        for (kind, kib) in [
            ("rss_kib", memory.rss_kib),
            ("page_tables_kib", memory.page_tables_kib),
        ] {
            self.rows.push(Row {
                kind,
                name: step.to_string(),
                server,
                round: 0,
                value: kib as f64,
            });
        }
    }

    /// Adds a rate in requests per second.
    pub fn rate(&mut self, name: String, server: &'static str, round: u32, rate: f64) {
        self.rows.push(Row {
            kind: "requests_per_second",
            name,
            server,
            round,
            value: rate,
        });
    }

    /// Writes the record as `DATE-kv.csv` in `folder`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let path = folder.join(format!("{}-kv.csv", self.head[0].1));
        std::fs::write(&path, self.to_csv())?;
        Ok(path)
    }

    fn to_csv(&self) -> String {
        let mut text = String::new();
        // Writing into a string cannot fail.
        for (key, value) in &self.head {
            let _ = writeln!(text, "# {key}: {value}");
        }
        let _ = writeln!(text, "{COLUMNS}");
        for row in &self.rows {
            let _ = writeln!(
                text,
                "{},{},{},{},{}",
                row.kind, row.name, row.server, row.round, row.value
            );
        }
        text
    }

    /// The figures as tables.
    pub fn tables(&self) -> String {
        format!("{}\n{}", self.memory_table(), self.rate_table())
    }

    fn names(&self, kind: &str) -> Vec<&str> {
        let mut names = Vec::new();
        for row in self.rows.iter().filter(|row| row.kind == kind) {
            if !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        names
    }

    fn values(&self, kind: &str, name: &str, server: &str) -> Vec<f64> {
        let wanted = |row: &&Row| row.kind == kind && row.name == name && row.server == server;
        self.rows
            .iter()
            .filter(wanted)
            .map(|row| row.value)
            .collect()
    }

    fn memory_table(&self) -> String {
        let mut rows = vec![vec!["RSS, MiB".to_string()]];
        for peer in &self.peers {
            rows[0].extend([peer, "to loaded", "page tables"].map(String::from));
        }
        for step in self.names("rss_kib") {
            let mut cells = vec![step.to_string()];
            for peer in &self.peers {
                let first = |kind, step| {
                    let values = self.values(kind, step, peer);
                    values.first().copied().unwrap_or(f64::NAN)
                };
                let (rss, loaded) = (first("rss_kib", step), first("rss_kib", "loaded"));
                cells.push(format!("{:.1}", rss / 1_024.0));
                cells.push(format!("{:+.1} %", (rss / loaded - 1.0) * 100.0));
                cells.push(format!("{:.1}", first("page_tables_kib", step) / 1_024.0));
            }
            rows.push(cells);
        }
        aligned(&rows)
    }

    fn rate_table(&self) -> String {
        let mut rows = vec![vec!["requests per second, median".to_string()]];
        rows[0].extend(self.peers.iter().map(ToString::to_string));
        rows[0].extend(["ratio", "least", "most"].map(String::from));
        for name in self.names("requests_per_second") {
            let rates = |peer: &&str| self.values("requests_per_second", name, peer);
            let rates: Vec<Vec<f64>> = self.peers.iter().map(rates).collect();
            // The runs of one round are pairs, so that other load on the machine cancels out.
            let pairs = rates[0].iter().zip(&rates[1]);
            let ratios = sorted(pairs.map(|(own, other)| own / other).collect());
            let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
            let mut cells = vec![name.to_string()];
            cells.extend(rates.into_iter().map(|all| format!("{:.0}", median(all))));
            let ratios = [median(ratios), least, most];
            cells.extend(ratios.map(|ratio| format!("{ratio:.2}")));
            rows.push(cells);
        }
        aligned(&rows)
    }
}

/// The rows as a table in Markdown; the first is the heading.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            // Writing into a string cannot fail.
            let _ = match column {
                0 => write!(text, "| {cell:<width$} |"),
                _ => write!(text, " {cell:>width$} |"),
            };
        }
        text.push('\n');
        if number == 0 {
            let rules = widths.iter().map(|width| "-".repeat(width + 2) + "|");
            text += &format!("|{}\n", rules.collect::<String>());
        }
    }
    text
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: Vec<f64>) -> f64 {
    let values = sorted(values);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

/// The first line of a program's output, or `unknown`.
fn said_by(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_string()
}

/// The value of `name` in a file of `name: value` lines, or `unknown`.
fn field(path: &str, name: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    let found = pairs.find(|(key, _)| key.trim() == name);
    found
        .map_or("unknown", |(_, value)| value.trim())
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_few() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn ratios_are_of_pairs_and_steps_of_the_loaded_store() {
        let mut record = Record {
            head: Vec::new(),
            rows: Vec::new(),
            peers: vec!["a", "b"],
        };
        for (round, (a, b)) in [(100.0, 50.0), (90.0, 90.0), (80.0, 160.0)]
            .into_iter()
            .enumerate()
        {
            record.rate("SET -P 1".into(), "a", round as u32, a);
            record.rate("SET -P 1".into(), "b", round as u32, b);
        }
        for (server, kib) in [("a", 2_048), ("b", 1_024)] {
            for (step, times) in [("loaded", 1), ("closed", 2)] {
                let memory = Memory {
                    rss_kib: kib * times,
                    page_tables_kib: 512,
                };
                record.memory(step, server, memory);
            }
        }
        let tables = record.tables();
        let line = |start: &str| {
            let line = tables.lines().find(|line| line.contains(start)).unwrap();
            line.split('|').map(str::trim).collect::<Vec<_>>().join("|")
        };
        assert_eq!(line("SET -P 1"), "|SET -P 1|90|90|1.00|0.50|2.00|");
        assert_eq!(line("closed"), "|closed|4.0|+100.0 %|0.5|2.0|+100.0 %|0.5|");
        assert!(record.to_csv().contains("rss_kib,loaded,b,0,1024\n"));
    }
}
