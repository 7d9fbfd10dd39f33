//! The record of a campaign: a CSV file with the machine, the versions and every download.

use anyhow::{Context as _, bail, ensure};

use super::campaign::Run;
use super::cell::{Buffers, End, Sample};
use crate::peers;
use crate::record::{has_columns, rows_of, text_of};

const COLUMNS: &str =
    "chunk_mb,peer,buffers,round,mb_per_s,bytes,seconds,end,reads,peak_rss_kib,minor_faults";

/// A whole campaign.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The machine, the versions, the terms.
    pub head: Vec<(String, String)>,
    /// Every download.
    pub runs: Vec<Run>,
}

impl Record {
    /// Whether a file is a record of this kind.
    pub fn recognises(text: &str) -> bool {
        has_columns(text, COLUMNS)
    }

    /// The file's text. The head is in lines `# key: value`.
    pub fn to_csv(&self) -> String {
        text_of(&self.head, COLUMNS, &self.runs, line)
    }

    /// Reads what [`Record::to_csv`] wrote. Computes the rate again.
    ///
    /// # Errors
    /// If a line has another form, or there is none.
    pub fn from_csv(text: &str) -> anyhow::Result<Record> {
        let (head, runs) = rows_of(text, COLUMNS, parse)?;
        ensure!(!runs.is_empty(), "no downloads");
        Ok(Record { head, runs })
    }
}

fn line(run: &Run) -> String {
    let Run {
        chunk_mb,
        peer,
        buffers,
        round,
        sample,
    } = run;
    let (buffers, rate) = (buffers.name(), sample.rate());
    let Sample {
        bytes,
        seconds,
        end,
        reads,
        peak_rss_kib,
        minor_faults,
    } = sample;
    let end = end.name();
    // All digits of the seconds, so that tables of a run and of its record agree.
    format!(
        "{chunk_mb},{peer},{buffers},{round},{rate:.4},{bytes},{seconds},{end},{reads},\
         {peak_rss_kib},{minor_faults}"
    )
}

fn parse(line: &str) -> anyhow::Result<Run> {
    let fields: Vec<&str> = line.split(',').collect();
    let [
        chunk,
        peer,
        buffers,
        round,
        rate,
        bytes,
        seconds,
        end,
        reads,
        rss,
        faults,
    ] = fields[..]
    else {
        bail!("{} fields", fields.len());
    };
    let _: f64 = rate.parse()?;
    let seconds: f64 = seconds.parse()?;
    ensure!(seconds > 0.0, "a download in {seconds} s");
    Ok(Run {
        chunk_mb: chunk.parse()?,
        peer: peers::find(peer)
            .map(|peer| peer.name.to_string())
            .with_context(|| format!("no peer {peer:?}"))?,
        buffers: Buffers::find(buffers).with_context(|| format!("no buffers {buffers:?}"))?,
        round: round.parse()?,
        sample: Sample {
            bytes: bytes.parse()?,
            seconds,
            end: End::find(end).with_context(|| format!("no end {end:?}"))?,
            reads: reads.parse()?,
            peak_rss_kib: rss.parse()?,
            minor_faults: faults.parse()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Record {
        let sample = Sample {
            bytes: 3 << 19,
            seconds: 3.0,
            end: End::TimeUp,
            reads: 96,
            peak_rss_kib: 1_000,
            minor_faults: 12,
        };
        let whole = Sample {
            seconds: 1.0 / 3.0,
            end: End::Whole,
            ..sample
        };
        let run = |buffers, sample| Run {
            chunk_mb: 100,
            peer: "glibc".into(),
            buffers,
            round: 2,
            sample,
        };
        Record {
            head: vec![("date".into(), "a b".into())],
            runs: vec![run(Buffers::Zeroed, sample), run(Buffers::Unzeroed, whole)],
        }
    }

    #[test]
    fn every_run_is_a_line_with_all_columns() {
        let text = example().to_csv();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "# date: a b");
        assert_eq!(lines[1].split(',').count(), lines[2].split(',').count());
        assert_eq!(
            lines[2],
            "100,glibc,zeroed,2,0.5000,1572864,3,time,96,1000,12"
        );
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let text = example().to_csv();
        assert!(Record::recognises(&text));
        assert_eq!(Record::from_csv(&text).unwrap(), example());
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let csv = example().to_csv();
        for (right, wrong) in [
            ("100,glibc", "100,x,glibc"),
            ("glibc", "dlmalloc"),
            ("0.5000", "fast"),
            ("864,3,time", "864,0,time"),
            ("unzeroed", "raw"),
            ("time", "noon"),
            ("chunk_mb,", "chunk,"),
        ] {
            assert!(csv.contains(right), "{right}");
            assert!(
                Record::from_csv(&csv.replace(right, wrong)).is_err(),
                "{wrong}"
            );
        }
        let without_runs: Vec<&str> = csv.lines().take(2).collect();
        assert!(Record::from_csv(&without_runs.join("\n")).is_err());
    }
}
