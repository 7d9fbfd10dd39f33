//! The page: one file of HTML.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the values for the page's template |
//! | `tables` | the rows of its tables |
//! | `html` | escapes untrusted text and data |
//!
//! Names of programs, functions and files are untrusted. The template escapes all text. Data for
//! the script is JSON without `<`. Prose is escaped before its names are marked up. The page's own
//! policy forbids any other script and any request.

mod html;
mod tables;

pub use html::quoted;

use super::date::{seconds, utc};
use super::flame::Flame;
use super::material::Material;
use super::subject::Subject;
use super::timeline::Timeline;
use super::verdict::{Finding, Verdict};
use crate::failure::Failure;
use crate::profile::Profile;
use crate::recording::format::Head;
use askama::Template;
use html::{Prose, json, nonce};
use neap_shared::stats::Bytes;
use tables::{
    ClassLine, LedgerTable, SiteHeads, SiteRow, class_lines, class_moment, counters, ledger_table,
    process_rows, site_rows, stacks,
};

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    nonce: String,
    title: String,
    command: String,
    about: Vec<(&'static str, String)>,
    opening: Prose<'a>,
    findings: Vec<Card<'a>>,
    notes: &'a [String],
    timeline: Option<Timeline>,
    points: String,
    flame: Option<String>,
    sites: Vec<SiteRow>,
    heads: SiteHeads,
    classes: Vec<ClassLine>,
    class_moment: String,
    ledger: LedgerTable,
    counters: Vec<(String, String)>,
    stacks: Vec<(&'static str, String)>,
    processes: Vec<(u32, String, String)>,
    options: Vec<(String, String)>,
    machine: Vec<(&'static str, String)>,
}

/// Writes the page.
///
/// # Errors
///
/// The kernel provides no random numbers, which the page's policy needs.
pub fn render(
    material: &Material,
    subject: &Subject,
    verdict: &Verdict,
) -> Result<String, Failure> {
    let head = material.recording.as_ref().map(|recording| &recording.head);
    let timeline = Timeline::of(subject);
    let history = subject.history();
    let points = timeline.as_ref().map(|timeline| json(&timeline.points));
    let page = Page {
        nonce: nonce()?,
        title: subject.program.clone(),
        command: head.map_or_else(String::new, command),
        about: about(head, subject),
        opening: Prose(&verdict.opening),
        findings: verdict.findings.iter().map(Card::new).collect(),
        notes: &material.notes,
        points: points.unwrap_or_default(),
        timeline,
        flame: (subject.profile)
            .filter(|profile| !profile.stacks.is_empty())
            .map(|profile| flame(profile, subject)),
        sites: site_rows(subject),
        heads: SiteHeads::of(subject),
        classes: class_lines(subject),
        class_moment: class_moment(subject),
        ledger: ledger_table(&history),
        counters: counters(&history),
        stacks: stacks(&history),
        processes: process_rows(material),
        options: head.map_or_else(Vec::new, |head| head.options.clone().into_iter().collect()),
        machine: head.map_or_else(Vec::new, machine),
    };
    page.render()
        .map_err(|error| Failure::own(format!("cannot write the report: {error}")))
}

fn flame(profile: &Profile, subject: &Subject) -> String {
    let peak = subject.at_peak.map(|(_, profile)| profile);
    json(&Flame::of(profile, peak, &subject.program))
}

struct Card<'a> {
    headline: Prose<'a>,
    detail: Prose<'a>,
    remedy: Prose<'a>,
    kind: &'static str,
    bytes: String,
    percent: f64,
    of: &'static str,
}

impl<'a> Card<'a> {
    fn new(finding: &'a Finding) -> Self {
        Self {
            headline: Prose(&finding.headline),
            detail: Prose(&finding.detail),
            remedy: Prose(&finding.remedy),
            kind: finding.kind,
            bytes: Bytes(finding.bytes).to_string(),
            percent: (finding.share * 100.0).clamp(0.0, 100.0),
            of: finding.of,
        }
    }
}

fn command(head: &Head) -> String {
    let words = std::iter::once(&head.program).chain(&head.arguments);
    let words: Vec<_> = words.map(|word| quoted(word)).collect();
    words.join(" ")
}

fn about(head: Option<&Head>, subject: &Subject) -> Vec<(&'static str, String)> {
    let mut about = Vec::new();
    if subject.pid != 0 {
        about.push(("process", subject.pid.to_string()));
    }
    if let Some(head) = head {
        about.push(("started", utc(head.started_ms)));
        about.push(("seen for", seconds(subject.duration_ms())));
    }
    if let Some(profile) = subject.profile {
        let rate = match profile.rate {
            0 => "yes".to_owned(),
            rate => format!("every {}", Bytes(rate)),
        };
        about.push(("sampled", rate));
    }
    about
}

fn machine(head: &Head) -> Vec<(&'static str, String)> {
    let machine = &head.machine;
    vec![
        ("kernel", machine.kernel.clone()),
        ("processors", machine.cpus.to_string()),
        ("memory", Bytes(machine.memory).to_string()),
        ("OS page", Bytes(machine.page_bytes).to_string()),
        ("huge pages", machine.huge_pages.clone()),
        ("recorded by", head.written_by.clone()),
        ("sampled every", format!("{} ms", head.interval_ms)),
    ]
}

/// The template's filters.
mod filters {
    use askama::{Result, Values, filter_fn};

    /// Bytes for people.
    #[filter_fn]
    pub fn bytes(bytes: &u64, _: &dyn Values) -> Result<String> {
        Ok(neap_shared::stats::Bytes(*bytes).to_string())
    }

    /// The same for bytes that may be unknown.
    #[filter_fn]
    pub fn known(bytes: &Option<u64>, _: &dyn Values) -> Result<String> {
        Ok(bytes.map_or("not known".to_owned(), |bytes| {
            neap_shared::stats::Bytes(bytes).to_string()
        }))
    }

    /// In reverse order.
    #[filter_fn]
    pub fn reversed<'a, T>(
        list: &'a [T],
        _: &dyn Values,
    ) -> Result<std::iter::Rev<std::slice::Iter<'a, T>>> {
        Ok(list.iter().rev())
    }
}
