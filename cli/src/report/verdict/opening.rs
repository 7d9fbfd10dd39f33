//! The first paragraph.

use super::Finding;
use crate::profile::{Extent, Profile, session_words};
use crate::recording::format::Happening;
use crate::report::subject::Subject;
use neap::stats::Bytes;

/// Findings that the first paragraph tells.
const TOLD: usize = 5;

/// Prose for `subject` and what stands out.
pub fn text(subject: &Subject, findings: &[Finding]) -> String {
    let mut sentences = vec![run(subject)];
    sentences.extend(peak(subject));
    sentences.extend(
        findings
            .iter()
            .take(TOLD)
            .map(|finding| finding.headline.clone()),
    );
    sentences.extend(rest(subject, findings.len()));
    sentences.retain(|sentence| !sentence.is_empty());
    sentences.join(" ")
}

fn run(subject: &Subject) -> String {
    let name = subject.program.replace('`', "'");
    if subject.samples.is_empty() {
        return match subject.profile {
            Some(profile) => profiled(&name, profile),
            None => format!("Nothing was recorded of `{name}`: it ended before the first sample."),
        };
    }
    let seconds = subject.duration_ms() as f64 / 1e3;
    match subject.ending() {
        Some(Happening::Killed { signal }) => {
            format!("`{name}` ran for {seconds:.1} s and was killed by signal {signal}.")
        }
        Some(Happening::Exited { status: 0 } | Happening::Ended) => {
            format!("`{name}` ran for {seconds:.1} s.")
        }
        Some(Happening::Exited { status }) => {
            format!("`{name}` ran for {seconds:.1} s and ended with status {status}.")
        }
        _ => {
            format!(
                "The last that was heard of `{name}` was after {seconds:.1} s; how it ended was not seen."
            )
        }
    }
}

fn profiled(name: &str, profile: &Profile) -> String {
    match profile.extent {
        Extent::Whole => {
            let total = profile.total();
            format!(
                "In the profile of `{name}` {} were live, of {} allocated in all.",
                Bytes(total.live_bytes),
                Bytes(total.alloc_bytes)
            )
        }
        Extent::Session { shrunk } => {
            format!("`{name}`: {}.", session_words(profile, shrunk))
        }
    }
}

fn peak(subject: &Subject) -> Option<String> {
    let rss = subject.peak_rss();
    if rss == 0 {
        return None;
    }
    let Some((sample, heap)) = subject.peak() else {
        return Some(format!(
            "It had up to {} in RAM, and never told what is in its heap: it slept or called only its allocator's fast paths (run it with `--answer`, and it answers then, too), ran outside Neap, with `NEAP_ATTACH=0`, or for too short a time.",
            Bytes(rss)
        ));
    };
    Some(format!(
        "At most it had {} in RAM, {:.1} s after its start; {} of these were in the heap, for {} that it had asked for.",
        Bytes(sample.rss_of_figures()),
        sample.figures_ms() as f64 / 1e3,
        Bytes(heap.ledger.resident),
        Bytes(heap.ledger.requested)
    ))
}

fn rest(subject: &Subject, findings: usize) -> Option<String> {
    match findings {
        0 if subject.profile.is_none() && subject.peak().is_none() => None,
        0 => Some(
            "Nothing stands out: no line of the heap and no place in the program passes its threshold (a share of the whole, and at least 10 MB).".to_owned(),
        ),
        1..=TOLD => None,
        more => Some(format!("{} more below.", more - TOLD)),
    }
}
