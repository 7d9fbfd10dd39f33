//! `neap purge`: has a running process give its free memory back.

use super::arguments;
use crate::attach::kernel::{self, KernelView};
use crate::attach::{Silence, StatusPage, Target};
use crate::failure::{Outcome, TIMED_OUT};
use crate::output::print;
use crate::view::text::difference;
use clap::ArgMatches;
use neap_shared::stats::Bytes;
use serde_json::{Value, json};
use std::time::Duration;

/// Requests the purge and prints the result.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let target = arguments::of(matches)?;
    let status_page = StatusPage::open(target.pid)?;
    let before = kernel::of_status_page(&status_page)?;
    let patience = arguments::time(matches, "timeout");
    let purge = status_page.purge(patience)?;
    let after = kernel::of_status_page(&status_page)?;
    print(&match (arguments::format(matches) == "json", purge) {
        (true, _) => format!("{}\n", object(&target, purge, before, after)),
        (false, Some(bytes)) => done(&target.title(), bytes, before, after),
        (false, None) => pending(&target.title(), patience, status_page.silence()),
    })?;
    Ok(match purge {
        Some(_) => 0,
        None => i32::from(TIMED_OUT),
    })
}

/// The kernel's count before and after, and what the process says that it gave back. These differ:
/// the program runs on meanwhile, and the process also counts pages that were not resident.
fn done(title: &str, bytes: u64, before: KernelView, after: KernelView) -> String {
    let [was, is] = [before, after].map(|view| Bytes(view.process_rss).to_string());
    let mut page = match bytes {
        0 => format!("{title} had no free memory to give back\n"),
        _ => format!("{title} purged: {was} resident before, {is} after\n"),
    };
    let change = difference(after.process_rss, before.process_rss);
    let arenas = difference(after.arenas_rss, before.arenas_rss);
    for (name, figure, meaning) in [
        (
            "resident before",
            was,
            "the whole process, as the kernel counts",
        ),
        ("resident after", is, ""),
        ("difference", change, ""),
        ("of the arenas", arenas, "Neap's part of the difference"),
        (
            "given back",
            Bytes(bytes).to_string(),
            "pages, as the process counts: resident or not",
        ),
    ] {
        let line = format!("  {name:<16} {figure:>11}  {meaning}");
        page += line.trim_end();
        page.push('\n');
    }
    page
}

fn pending(title: &str, patience: Duration, silence: Silence) -> String {
    format!(
        "pending: {title} has not given its free memory back yet: {}\n{}",
        silence.why,
        arguments::advice(patience, silence)
    )
}

fn object(target: &Target, purge: Option<u64>, before: KernelView, after: KernelView) -> Value {
    let state = purge.map_or("pending", |_| "done");
    json!({
        "pid": target.pid,
        "program": target.name,
        "state": state,
        "purged_bytes": purge,
        "resident_before": before.process_rss,
        "resident_after": after.process_rss,
        "arenas_before": before.arenas_rss,
        "arenas_after": after.arenas_rss,
    })
}
