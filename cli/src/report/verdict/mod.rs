//! What is large, why, and what to do about it.
//!
//! Every finding must pass two thresholds: a share of the whole, and a floor of [`heap::FLOOR`]
//! bytes, so that small programs get no complaints. Memory that stays and grows has a lower floor,
//! [`heap::SMALL_FLOOR`], and a higher share. Valkey's `MEMORY DOCTOR` is the model. Figures of the
//! heap come only through [`super::known`].
//!
//! | file | what it judges |
//! |---|---|
//! | `heap` | the lines of the ledger at the peak by `rules.json`, and the heap over time |
//! | `places` | the sites of the profile |

mod heap;
mod places;
#[cfg(test)]
mod tests;

use super::date::seconds;
use super::known::{Gap, History};
use super::material::Errors;
use super::subject::{Sampling, Subject};
use crate::profile::{Extent, Profile, no_sample, session_words};
use crate::recording::format::{Frontend, Happening};
use heap::Finding;
use neap_shared::stats::{Bytes, ending};
use serde::Serialize;

/// The judgement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Prose, with names in backticks.
    pub opening: String,
    /// Memory errors, then the largest first.
    pub findings: Vec<Finding>,
}

/// Judges a process.
pub fn judge(subject: &Subject) -> Verdict {
    let growth = heap::Growth::of(subject);
    let mut findings = places::findings(subject, growth.as_ref());
    if !findings.iter().any(|finding| finding.kind == places::LEAK) {
        findings.extend(growth.as_ref().and_then(|growth| growth.finding(subject)));
    }
    let rounding_is_named = findings.iter().any(|finding| finding.kind == places::WASTE);
    findings.extend(
        heap::findings(subject)
            .into_iter()
            .filter(|finding| !(rounding_is_named && finding.kind == heap::ROUNDING)),
    );
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.bytes));
    findings.splice(0..0, memory_errors(subject));
    Verdict {
        opening: opening(subject, &findings),
        findings,
    }
}

/// Most findings in the first paragraph.
const TOLD: usize = 5;

/// Why no place in the program is among the findings.
const NOT_SAMPLED: &str = "Places in the program were not sampled: record with `neap run --record \
                           --sample 512K -- PROGRAM` to \
                           see them.";

/// How to have more samples.
const FINER: &str = "`neap run --record --sample 4K -- PROGRAM` samples more finely";

/// The prose for `subject` and its findings.
fn opening(subject: &Subject, findings: &[Finding]) -> String {
    let history = subject.history();
    let mut sentences = vec![run(subject)];
    sentences.extend(peak(&history, subject.frontend));
    sentences.extend(history.missed().map(|most| {
        let most = Bytes(most);
        format!(
            "Between two samples it had up to {most} in RAM; what it consisted of is not known."
        )
    }));
    sentences.extend(
        findings
            .iter()
            .take(TOLD)
            .map(|finding| finding.headline.clone()),
    );
    let peak = history.peak().and_then(Result::ok);
    sentences.extend(rest(subject, peak.is_some(), findings.len()));
    sentences.retain(|sentence| !sentence.is_empty());
    sentences.join(" ")
}

fn run(subject: &Subject) -> String {
    let name = subject.program.replace('`', "'");
    if let Some(program) = &subject.became {
        let ms = subject.duration_ms();
        let program = program.replace('`', "'");
        return format!(
            "`{name}` ran until {}, then executed `{program}`.",
            seconds(ms)
        );
    }
    if subject.samples.is_empty() {
        return match subject.profile {
            Some(profile) => profiled(&name, profile),
            // Their findings say all that is known.
            None if subject.events.is_empty() && !subject.errors.is_empty() => String::new(),
            None => format!("Nothing was recorded for `{name}`: it ended before the first sample."),
        };
    }
    let time = seconds(subject.duration_ms());
    match subject.ending() {
        Some(Happening::Killed { signal }) => {
            format!("`{name}` ran for {time} and was killed by signal {signal}.")
        }
        Some(Happening::Exited { status: 0 } | Happening::Ended) => {
            format!("`{name}` ran for {time}.")
        }
        Some(Happening::Exited { status }) => {
            format!("`{name}` ran for {time} and ended with status {status}.")
        }
        _ => {
            format!(
                "The last record of `{name}` is from {time} after its start; how it ended \
                 was not seen."
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

fn peak(history: &History, frontend: Frontend) -> Option<String> {
    let most = Bytes(history.most());
    Some(match history.peak()? {
        Ok(told) => format!(
            "At most it had {} in RAM, {} after its start; {} of these were in the heap, for about \
             {} that it had asked for.",
            Bytes(told.rss),
            seconds(told.at_ms),
            Bytes(told.heap.ledger.resident),
            Bytes(told.heap.ledger.requested)
        ),
        Err(gap) => {
            let moment = gap.moment;
            let mut text = format!(
                "At most it had {most} in RAM, {} after its start. What its heap held then is not \
                 known: {}.",
                seconds(moment.t_ms),
                silence(&gap, frontend)
            );
            if let Some(spans) = moment.spans {
                text.push_str(&format!(
                    " By the page heap's own count, slabs and large blocks took {} at that moment, \
                     with the free blocks in \
                     them.",
                    Bytes(spans.taken())
                ));
            }
            if let Some(alike) = gap.alike {
                text.push_str(&format!(
                    " With as much in RAM, {} after the start, {} were in the heap, for about {} \
                     that it had asked for.",
                    seconds(alike.at_ms),
                    Bytes(alike.resident),
                    Bytes(alike.requested)
                ));
            }
            text
        }
    })
}

/// Why nothing is known of a moment.
fn silence(gap: &Gap, frontend: Frontend) -> String {
    let apart = |told: u64| seconds(gap.moment.t_ms.abs_diff(told));
    let told = match (gap.before_ms, gap.after_ms) {
        (None, None) => {
            return format!(
                "the process never reported what is in its heap. {}",
                reasons(frontend)
            );
        }
        (Some(before), Some(after)) => format!(
            "the process reported it {} before that and {} after it, and may have changed in \
             between",
            apart(before),
            apart(after)
        ),
        (Some(before), None) => format!(
            "the process last reported it {} before that, and may have changed since",
            apart(before)
        ),
        (None, Some(after)) => format!(
            "the process first reported it {} after that, and may have changed by then",
            apart(after)
        ),
    };
    match frontend {
        Frontend::Library => told,
        Frontend::Rust => format!("{told}. {}", reasons(frontend)),
    }
}

fn reasons(frontend: Frontend) -> &'static str {
    match frontend {
        Frontend::Library => {
            "The process had no purge thread (its heap stayed below 4 MiB, or \
             `NEAP_PURGE_THREAD=never`) and \
             slept, ran in a sandbox or with `NEAP_STATUS_PAGE=0`, or ended too soon"
        }
        Frontend::Rust => {
            "A Rust program with Neap as its own allocator has no thread that answers unless it \
             calls \
             `neap::purge::enable_thread()`, or runs with `NEAP_PURGE_THREAD=always`"
        }
    }
}

fn rest(subject: &Subject, peak_is_known: bool, findings: usize) -> Option<String> {
    match findings {
        0 if subject.profile.is_none() && !peak_is_known => None,
        0 if subject.profile.is_none() => Some(format!(
            "No line of the heap passes its threshold. {}",
            unsampled(subject.sampling)
        )),
        0 if peak_is_known => Some(
            "Nothing stands out: no line of the heap and no place in the program passes its \
             threshold."
                .to_owned(),
        ),
        0 => Some(
            "No place in the program passes its threshold; the lines of the heap are not \
             known."
                .to_owned(),
        ),
        1..=TOLD => None,
        more => Some(format!("{} more below.", more - TOLD)),
    }
}

/// Why nothing is said of places in the program.
fn unsampled(sampling: Sampling) -> String {
    match sampling {
        Sampling::Off => NOT_SAMPLED.to_owned(),
        Sampling::Lost => "The recording lacks the profile of the program.".to_owned(),
        Sampling::Every(rate) => no_sample("The program", rate, FINER) + ".",
    }
}

/// See [`Finding::kind`].
pub const MEMORY_ERROR: &str = "memory_error";

/// One finding for each process with errors.
fn memory_errors(subject: &Subject) -> Vec<Finding> {
    subject.errors.iter().map(memory_error).collect()
}

fn memory_error(errors: &Errors) -> Finding {
    let Errors { pid, count, .. } = *errors;
    let name = match errors.program.as_str() {
        "" => format!("process {pid}"),
        program => format!("`{}` (process {pid})", program.replace('`', "'")),
    };
    let plural = ending(count, "s");
    let remedy = match errors.reports.as_str() {
        "" => {
            "The reports went to standard error, or to the file that `NEAP_GUARD_FILE` named. To \
             have them here, run `neap run --record --guard --guard-file=FILE -- PROGRAM`, with \
             the value of `--guard` that found them."
        }
        _ => "In each stack trace of the report, look at the first call in the program's own code.",
    };
    Finding {
        kind: MEMORY_ERROR,
        headline: format!("Guarded samples found {count} memory error{plural} in {name}."),
        detail: "The program accessed memory outside a block or after its free, or freed a block \
                 wrongly. Few allocations are guarded, so the error may be frequent."
            .to_owned(),
        remedy: remedy.to_owned(),
        text: Some(errors.reports.clone()).filter(|text| !text.is_empty()),
        ..Finding::default()
    }
}
