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

use super::flame::Flame;
use super::material::Material;
use super::sites::Site;
use super::subject::{Process, Subject};
use super::timeline::Timeline;
use super::verdict::Verdict;
use crate::failure::Failure;
use crate::profile::{Extent, Profile};
use crate::recording::format::{Head, Told};
use askama::Template;
use html::{json, nonce};
use tables::{
    ClassLine, Counted, LedgerTable, class_lines, counted, ledger_table, process_rows, site_rows,
    stacks,
};

/// The template's values. Text in them is untrusted.
#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    nonce: String,
    subject: &'a Subject<'a>,
    head: Option<&'a Head>,
    command: String,
    verdict: &'a Verdict,
    notes: &'a [String],
    timeline: Option<Timeline>,
    /// JSON.
    points: String,
    /// JSON.
    flame: Option<String>,
    sites: Vec<(Site, f64)>,
    /// Whether the profile is of one session, so that "live" means growth.
    is_session: bool,
    classes: Vec<ClassLine>,
    ledger: LedgerTable,
    counted: Option<Counted<'a>>,
    /// When the most stacks were in use.
    stacks: Option<Told<'a>>,
    /// Empty if there is one.
    processes: Vec<Process>,
}

/// The page.
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
        subject,
        head,
        command: head.map_or_else(String::new, command),
        verdict,
        notes: &material.notes,
        points: points.unwrap_or_default(),
        timeline,
        flame: (subject.profile)
            .filter(|profile| !profile.stacks.is_empty())
            .map(|profile| flame(profile, subject)),
        sites: site_rows(subject),
        is_session: subject
            .profile
            .is_some_and(|profile| profile.extent != Extent::Whole),
        classes: class_lines(subject),
        ledger: ledger_table(&history),
        counted: counted(&history),
        stacks: stacks(&history),
        processes: process_rows(material),
    };
    page.render()
        .map_err(|error| failure!("cannot write the report: {error}"))
}

fn flame(profile: &Profile, subject: &Subject) -> String {
    let peak = subject.at_peak.map(|(_, profile)| profile);
    json(&Flame::of(profile, peak, &subject.program))
}

fn command(head: &Head) -> String {
    let words = std::iter::once(&head.program).chain(&head.arguments);
    let words: Vec<_> = words.map(quoted).collect();
    words.join(" ")
}

/// The template's filters.
mod filters {
    pub use crate::filters::bytes;
    use crate::report::date;
    use crate::report::page::html;
    use askama::{Result, Values, filter_fn};
    use std::fmt::Display;

    /// Bytes that may be unknown.
    #[filter_fn]
    pub fn known(bytes: &Option<u64>, _: &dyn Values) -> Result<String> {
        Ok(bytes.map_or("not known".to_owned(), |bytes| {
            neap_shared::stats::Bytes(bytes).to_string()
        }))
    }

    /// Milliseconds as seconds.
    #[filter_fn]
    pub fn seconds(ms: &u64, _: &dyn Values) -> Result<String> {
        Ok(date::seconds(*ms))
    }

    /// Milliseconds since 1970 as a date and time.
    #[filter_fn]
    pub fn utc(ms: &u64, _: &dyn Values) -> Result<String> {
        Ok(date::utc(*ms))
    }

    /// Prose with names in backticks, as HTML.
    #[filter_fn]
    pub fn prose(text: impl Display, _: &dyn Values) -> Result<String> {
        Ok(html::prose(&text.to_string()))
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
