//! The record of a campaign: a CSV file that tells the machine, the versions, and every download.

use std::fmt::Write as _;

use super::campaign::Run;
use super::cell::End;

const COLUMNS: &str =
    "chunk_mb,peer,buffers,round,mb_per_s,bytes,seconds,end,reads,peak_rss_kib,minor_faults";

/// The file's text. The head is in lines `# key: value`.
pub fn csv(head: &[(String, String)], runs: &[Run]) -> String {
    let mut text = String::new();
    for (key, value) in head {
        push_line(
            &mut text,
            format_args!("# {key}: {}", value.replace('\n', " ")),
        );
    }
    push_line(&mut text, format_args!("{COLUMNS}"));
    runs.iter().for_each(|run| push_run(&mut text, run));
    text
}

fn push_line(text: &mut String, line: std::fmt::Arguments) {
    // Writing into a string cannot fail.
    let _ = writeln!(text, "{line}");
}

fn push_run(text: &mut String, run: &Run) {
    let Run {
        chunk_mb,
        peer,
        buffers,
        round,
        sample,
    } = run;
    let buffers = buffers.name();
    let end = match sample.end {
        End::Whole => "body",
        End::TimeUp => "time",
    };
    push_line(
        text,
        format_args!(
            "{chunk_mb},{peer},{buffers},{round},{:.4},{},{:.6},{end},{},{},{}",
            sample.rate(),
            sample.bytes,
            sample.seconds,
            sample.reads,
            sample.peak_rss_kib,
            sample.minor_faults
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::download::cell::{Buffers, Sample};

    #[test]
    fn every_run_is_a_line_with_all_columns() {
        let sample = Sample {
            bytes: 3 << 19,
            seconds: 3.0,
            end: End::TimeUp,
            reads: 96,
            peak_rss_kib: 1_000,
            minor_faults: 12,
        };
        let run = Run {
            chunk_mb: 100,
            peer: "glibc".into(),
            buffers: Buffers::Zeroed,
            round: 2,
            sample,
        };
        let head = [("date".to_string(), "a\nb".to_string())];
        let text = csv(&head, &[run]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "# date: a b");
        assert_eq!(lines[1].split(',').count(), lines[2].split(',').count());
        assert_eq!(
            lines[2],
            "100,glibc,zeroed,2,0.5000,1572864,3.000000,time,96,1000,12"
        );
    }
}
