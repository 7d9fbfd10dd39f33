//! One download: one client process under one allocator with one chunk size.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use super::MB;
use super::environment::Environment;
use super::server::Server;
use crate::peers::Ready;
use crate::{identity, run};

const SOURCE: &str = include_str!("../../download/client.py");

/// The most bytes that one TLS read gives.
const RECORD: u64 = 16 << 10;

/// How pyOpenSSL makes its receive buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// Zero-filled, as in 2016: the experiment.
    Zeroed,
    /// Not zeroed, as today: the control, which shows what the rest of a download costs.
    Unzeroed,
}

impl Buffers {
    /// The word for the client and for the record.
    pub fn name(self) -> &'static str {
        match self {
            Buffers::Zeroed => "zeroed",
            Buffers::Unzeroed => "unzeroed",
        }
    }
}

/// What every download of a campaign has in common.
pub struct Terms {
    /// Bytes of the body.
    pub body: u64,
    /// A download ends after this time, whatever came.
    pub limit: Duration,
}

/// What one download is.
#[derive(Clone, Copy)]
pub struct Cell<'a> {
    /// The client's allocator.
    pub peer: &'a Ready,
    /// The chunk in MB.
    pub chunk_mb: u64,
    /// The receive buffers.
    pub buffers: Buffers,
}

/// How a download ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All of the body came.
    Whole,
    /// Time was up.
    TimeUp,
}

/// What one download measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Bytes that came, and were right.
    pub bytes: u64,
    /// From the head of the answer to the last byte.
    pub seconds: f64,
    /// How it ended.
    pub end: End,
    /// TLS reads, each with a buffer of its own.
    pub reads: u64,
    /// The most KiB that the client had resident.
    pub peak_rss_kib: u64,
    /// The client's minor faults.
    pub minor_faults: u64,
}

impl Sample {
    /// MB a second; 0 when nothing came.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / MB as f64 / self.seconds
    }

    /// What the rate is below when nothing came: not even one record within the time.
    pub fn bound(&self) -> f64 {
        RECORD as f64 / MB as f64 / self.seconds
    }
}

/// Makes sure that the client's malloc is the peer's when it is preloaded.
///
/// # Errors
/// When it is another.
pub fn ensure_preload_takes(environment: &Environment, peer: &Ready) -> anyhow::Result<()> {
    let mut python = Command::new(environment.python());
    identity::ensure_bound(python.args(["-I", "-c", ""]), &peer.library)
}

/// Downloads once.
///
/// # Errors
/// When the client fails, hangs, used another malloc or buffers of another size, or got other
/// bytes than the server sent.
pub fn once(
    environment: &Environment,
    server: &mut Server,
    terms: &Terms,
    cell: Cell,
) -> anyhow::Result<Sample> {
    let (chunk, library) = (cell.chunk_mb * MB, &cell.peer.library);
    let mut client = environment.program(SOURCE);
    client
        .arg(server.url())
        .arg(environment.certificate())
        .arg(chunk.to_string())
        .arg(terms.limit.as_secs_f64().to_string())
        .arg(cell.buffers.name())
        .env("LD_PRELOAD", library);
    let told = Told::parse(&run::output(&mut client)?)?;
    identity::ensure_same(Path::new(&told.heap), library)?;
    told.ensure_right(terms, chunk, server.crc32(told.sample.bytes)?)?;
    Ok(told.sample)
}

/// What a client told.
struct Told {
    sample: Sample,
    crc32: u32,
    largest_buffer: u64,
    heap: String,
}

impl Told {
    fn parse(report: &str) -> anyhow::Result<Told> {
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
        let end = match value("end")? {
            "body" => End::Whole,
            "time" => End::TimeUp,
            other => bail!("no such end: {other:?}"),
        };
        Ok(Told {
            sample: Sample {
                bytes: number("bytes")?,
                seconds,
                end,
                reads: number("reads")?,
                peak_rss_kib: number("peak_rss_kib")?,
                minor_faults: number("minor_faults")?,
            },
            crc32: value("crc32")?.parse()?,
            largest_buffer: number("largest_buffer")?,
            heap: value("heap")?.to_string(),
        })
    }

    /// Fails unless the bytes are the server's and the buffers were of the chunk's size.
    fn ensure_right(&self, terms: &Terms, chunk: u64, expected: u32) -> anyhow::Result<()> {
        let Sample { bytes, end, .. } = self.sample;
        ensure!(
            bytes <= terms.body && (end == End::TimeUp || bytes == terms.body),
            "{bytes} bytes came of {}",
            terms.body
        );
        ensure!(
            self.crc32 == expected,
            "the {bytes} bytes that came are not those that were sent (CRC-32 {:08x}, not \
             {expected:08x})",
            self.crc32
        );
        // The buffered reader rounds down to whole blocks of its own; nothing more may be lost.
        ensure!(
            self.sample.reads == 0 || self.largest_buffer > chunk / 2,
            "the largest buffer had {} bytes, not the chunk's {chunk}",
            self.largest_buffer
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "bytes=2097152\ncrc32=77\nseconds=0.5\nend=body\nreads=130\n\
                          largest_buffer=1048576\npeak_rss_kib=4096\nminor_faults=9\n\
                          heap=/lib/lib=one.so\n";

    const TERMS: Terms = Terms {
        body: 2 * MB,
        limit: Duration::from_secs(1),
    };

    #[test]
    fn a_report_is_read_and_its_rate_is_in_mb_a_second() {
        let told = Told::parse(REPORT).unwrap();
        assert_eq!(told.sample.rate(), 4.0);
        assert_eq!((told.sample.end, told.sample.reads), (End::Whole, 130));
        assert_eq!((told.crc32, told.heap.as_str()), (77, "/lib/lib=one.so"));
        assert!(told.ensure_right(&TERMS, MB, 77).is_ok());
    }

    #[test]
    fn a_damaged_report_is_refused() {
        for (good, bad) in [
            ("bytes=2097152", "bytes=many"),
            ("seconds=0.5", "seconds=0"),
            ("end=body", "end=never"),
            ("heap=", "home="),
        ] {
            assert!(Told::parse(&REPORT.replace(good, bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn wrong_bytes_missing_bytes_and_small_buffers_are_refused() {
        let refusal = |report: &str, crc32| {
            let told = Told::parse(report).unwrap();
            told.ensure_right(&TERMS, MB, crc32)
                .unwrap_err()
                .to_string()
        };
        assert!(refusal(REPORT, 78).contains("not those that were sent"));
        let short = REPORT.replace("bytes=2097152", "bytes=1048576");
        assert!(refusal(&short, 77).contains("1048576 bytes came of 2097152"));
        let small = REPORT.replace("buffer=1048576", "buffer=8192");
        assert!(refusal(&small, 77).contains("not the chunk's"));
    }

    #[test]
    fn a_download_that_ran_out_of_time_may_be_short_or_empty() {
        let short = REPORT
            .replace("end=body", "end=time")
            .replace("2097152", "16384");
        let told = Told::parse(&short).unwrap();
        assert!(told.ensure_right(&TERMS, MB, 77).is_ok());
        assert_eq!(told.sample.rate(), told.sample.bound());
        let empty = short.replace("bytes=16384", "bytes=0");
        assert_eq!(Told::parse(&empty).unwrap().sample.rate(), 0.0);
    }
}
