//! Runs one client process under one allocator with one chunk size.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::environment::Environment;
use super::environment::Server;
use crate::command;
use crate::engine::campaign::Named;
use crate::engine::record::{Figure, Unit};
use crate::names::named;
use crate::peers::locate::Ready;
use crate::work::identity;

/// The unit of sizes and rates: the report of 2016 requested `100 * 2 ** 20`. Records call it MB.
pub const MIB: u64 = 1 << 20;

const SOURCE: &str = include_str!("../../download/client.py");

/// Most bytes that one TLS read returns.
const RECORD: u64 = 16 << 10;

named! {
    /// How pyOpenSSL makes its receive buffers.
    pub enum Buffers {
        /// Zero-filled, as in 2016: the experiment.
        Zeroed = "zeroed",
        /// Not zeroed, as pyOpenSSL does today: the control, which shows the rest of a download's
        /// cost.
        Unzeroed = "unzeroed",
    }
}

/// The terms that all downloads of a campaign share.
pub struct Terms {
    /// Bytes of the body.
    pub body: u64,
    /// Number of downloads in one client, one after the other.
    pub downloads: u32,
    /// The client ends after this time, complete or not.
    pub limit: Duration,
}

/// A client's chunk size and buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The chunk in MiB.
    pub mb: u64,
    /// The receive buffers.
    pub buffers: Buffers,
}

impl Chunk {
    /// Its name in the record.
    pub fn case(self) -> String {
        format!("{} MB {}", self.mb, self.buffers.name())
    }

    /// The chunk of that name.
    pub fn find(case: &str) -> Option<Chunk> {
        let (mb, buffers) = case.split_once(" MB ")?;
        let (mb, buffers) = (mb.parse().ok()?, Buffers::find(buffers)?);
        Some(Chunk { mb, buffers })
    }
}

impl Named for Chunk {
    fn name(&self) -> String {
        self.case()
    }
}

named! {
    /// How a client ended.
    pub enum End {
        /// The whole body arrived.
        Whole = "body",
        /// The time was up.
        TimeUp = "time",
    }
}

/// One client's measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Bytes received and verified.
    pub bytes: u64,
    /// From the response heads to the last bytes.
    pub seconds: f64,
    /// How it ended.
    pub end: End,
    /// TLS reads, each with a new buffer.
    pub reads: u64,
    /// The client's peak resident KiB.
    pub peak_rss_kib: u64,
    /// The client's minor faults.
    pub minor_faults: u64,
}

/// The name of the rate in MiB per second, 0 if nothing arrived.
pub const RATE: &str = "MB a second";
/// The name of the time.
pub const TIME: &str = "time";
/// The name of what ended a client.
pub const END: &str = "end";

impl Sample {
    fn rate(&self) -> f64 {
        self.bytes as f64 / MIB as f64 / self.seconds
    }

    /// Its figures.
    pub fn figures(&self) -> Vec<Figure> {
        vec![
            Figure::number(RATE, self.rate()),
            Figure::bytes("received", self.bytes as f64),
            Figure::new(TIME, Unit::Seconds, self.seconds),
            Figure::text(END, self.end.name()),
            Figure::count("reads", self.reads),
            Figure::kib("peak RSS", self.peak_rss_kib),
            Figure::count("minor faults", self.minor_faults),
        ]
    }
}

/// An upper bound of the rate if nothing arrived: not even one record within the time.
pub fn bound(seconds: f64) -> f64 {
    RECORD as f64 / MIB as f64 / seconds
}

/// Checks that the client's malloc is the peer's under the preload.
///
/// # Errors
/// If it is another.
pub fn ensure_preload_takes(environment: &Environment, peer: &Ready) -> anyhow::Result<()> {
    let mut python = Command::new(environment.python());
    identity::ensure_bound(python.args(["-I", "-c", ""]), &peer.library)
}

/// Runs one client.
///
/// # Errors
/// If the client fails, hangs, used another malloc or buffers of another size, or received other
/// bytes than the server sent.
pub fn once(
    environment: &Environment,
    server: &mut Server,
    terms: &Terms,
    (chunk, peer): (Chunk, &Ready),
) -> anyhow::Result<Sample> {
    let (buffers, chunk, library) = (chunk.buffers, chunk.mb * MIB, &peer.library);
    let mut client = environment.program(SOURCE);
    client
        .arg(server.url())
        .arg(environment.certificate())
        .arg(chunk.to_string())
        .arg(terms.limit.as_secs_f64().to_string())
        .arg(terms.downloads.to_string())
        .arg(buffers.name())
        .env("LD_PRELOAD", library);
    let told = ClientReport::parse(&command::output(&mut client)?)?;
    identity::ensure_same(Path::new(&told.heap), library)?;
    told.ensure_right(terms, chunk, &mut |bytes| server.crc32(bytes))?;
    Ok(told.sample)
}

/// A client's report.
struct ClientReport {
    sample: Sample,
    /// The bytes of each download, and their CRC-32.
    downloads: Vec<(u64, u32)>,
    largest_buffer: u64,
    heap: String,
}

impl ClientReport {
    fn parse(report: &str) -> anyhow::Result<ClientReport> {
        let pairs: HashMap<&str, &str> = report.lines().filter_map(|l| l.split_once('=')).collect();
        let value = |key: &str| {
            let found = pairs.get(key).copied();
            found.with_context(|| format!("the client did not tell {key}"))
        };
        let number = |key: &str| -> anyhow::Result<u64> {
            let text = value(key)?;
            text.parse().with_context(|| format!("{key} is {text:?}"))
        };
        let seconds: f64 = value("seconds")?.parse()?;
        ensure!(seconds > 0.0, "the download took {seconds} s");
        let downloads = downloads_in(report)?;
        let end = value("end")?;
        let end = End::find(end).with_context(|| format!("no such end: {end:?}"))?;
        Ok(ClientReport {
            sample: Sample {
                bytes: downloads.iter().map(|&(bytes, _)| bytes).sum(),
                seconds,
                end,
                reads: number("reads")?,
                peak_rss_kib: number("peak_rss_kib")?,
                minor_faults: number("minor_faults")?,
            },
            downloads,
            largest_buffer: number("largest_buffer")?,
            heap: value("heap")?.to_string(),
        })
    }

    /// Fails unless the bytes are the server's and the buffers had the chunk's size. `crc32`
    /// returns the checksum of the body's first bytes.
    fn ensure_right(
        &self,
        terms: &Terms,
        chunk: u64,
        crc32: &mut dyn FnMut(u64) -> anyhow::Result<u32>,
    ) -> anyhow::Result<()> {
        self.ensure_whole(terms)?;
        for &(bytes, told) in &self.downloads {
            let sent = crc32(bytes)?;
            ensure!(
                told == sent,
                "the {bytes} bytes that came are not those that were sent (CRC-32 {told:08x}, \
                 not {sent:08x})"
            );
        }
        // The buffered reader rounds down to whole blocks of its own; no other bytes may be
        // missing.
        ensure!(
            self.sample.reads == 0 || self.largest_buffer > chunk / 2,
            "the largest buffer had {} bytes, not the chunk's {chunk}",
            self.largest_buffer
        );
        Ok(())
    }

    /// Fails if a download is incomplete, unless it is the last one and the time was up.
    fn ensure_whole(&self, terms: &Terms) -> anyhow::Result<()> {
        let body = terms.body;
        let whole = self.downloads.iter().take_while(|&&(b, _)| b == body);
        let (count, whole) = (self.downloads.len(), whole.count());
        let enough = match self.sample.end {
            End::Whole => whole == terms.downloads as usize,
            End::TimeUp => whole + 1 >= count,
        };
        let over = self.downloads.iter().any(|&(bytes, _)| bytes > body);
        let all = &self.downloads;
        ensure!(enough && !over, "of {body} bytes a download came {all:?}");
        Ok(())
    }
}

/// The lines `download=BYTES:CRC32`.
fn downloads_in(report: &str) -> anyhow::Result<Vec<(u64, u32)>> {
    let lines = report.lines().filter_map(|l| l.strip_prefix("download="));
    let download = |text: &str| -> anyhow::Result<(u64, u32)> {
        let (bytes, crc32) = text.split_once(':').context("no download")?;
        Ok((bytes.parse()?, crc32.parse()?))
    };
    lines.map(download).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "download=2097152:77\ndownload=2097152:77\nseconds=0.5\nend=body\n\
                          reads=260\nlargest_buffer=1048576\npeak_rss_kib=4096\n\
                          minor_faults=9\nheap=/lib/lib=one.so\n";

    const TERMS: Terms = Terms {
        body: 2 * MIB,
        downloads: 2,
        limit: Duration::from_secs(1),
    };

    /// Checks a report; the server's checksum is always 77.
    fn judge(report: &str) -> anyhow::Result<()> {
        ClientReport::parse(report)?.ensure_right(&TERMS, MIB, &mut |_| Ok(77))
    }

    #[test]
    fn a_report_is_read_and_its_rate_is_in_mb_a_second() {
        let told = ClientReport::parse(REPORT).unwrap();
        assert_eq!(told.sample.rate(), 8.0);
        assert_eq!((told.sample.end, told.sample.reads), (End::Whole, 260));
        assert_eq!(told.heap, "/lib/lib=one.so");
        assert!(judge(REPORT).is_ok());
    }

    #[test]
    fn a_damaged_report_is_refused() {
        for (good, bad) in [
            ("download=2097152:", "download=many:"),
            ("seconds=0.5", "seconds=0"),
            ("end=body", "end=never"),
            ("heap=", "home="),
        ] {
            assert!(
                ClientReport::parse(&REPORT.replace(good, bad)).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn wrong_bytes_missing_bytes_and_small_buffers_are_refused() {
        let refusal = |good, bad| {
            judge(&REPORT.replacen(good, bad, 1))
                .unwrap_err()
                .to_string()
        };
        assert!(refusal(":77", ":78").contains("not those that were sent"));
        let short = refusal("=2097152:", "=1048576:");
        assert!(short.contains("(1048576, 77), (2097152, 77)"), "{short}");
        assert!(refusal("download=2097152:77\n", "").contains("of 2097152 bytes"));
        assert!(refusal("=2097152:", "=2097153:").contains("2097153"));
        assert!(refusal("buffer=1048576", "buffer=8192").contains("not the chunk's"));
    }

    #[test]
    fn when_time_was_up_the_last_download_may_be_short_or_empty() {
        let timed = REPORT.replace("end=body", "end=time");
        assert!(judge(&timed.replacen("\ndownload=2097152", "\ndownload=16384", 1)).is_ok());
        assert!(judge(&timed.replacen("download=2097152", "download=16384", 1)).is_err());
        let one = timed.replacen("download=2097152:77\n", "", 1);
        let record = ClientReport::parse(&one.replace("2097152", "16384"))
            .unwrap()
            .sample;
        assert_eq!(record.rate(), bound(record.seconds));
        let nothing = one.replace("2097152", "0");
        assert_eq!(ClientReport::parse(&nothing).unwrap().sample.rate(), 0.0);
        assert!(judge(&nothing).is_ok());
    }
}
