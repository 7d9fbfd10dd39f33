//! `neap purge` and `neap guard`: have a running process give its free memory back, or guard some
//! of its allocations.

use super::{advice, format, named, time};
use crate::attach::kernel::{self, KernelView};
use crate::attach::{StatusPage, Target};
use crate::failure::{Outcome, TIMED_OUT};
use crate::grammar::TextOrJson;
use crate::output::print;
use crate::view::guarded::{Guarded, Outlet};
use crate::view::text::difference;
use askama::Template;
use clap::ArgMatches;
use neap_shared::stats::Bytes;
use neap_shared::status_page::{Guards, ThreadState};
use serde_json::{Value, json};

/// `neap purge`: requests the purge and prints the result.
pub fn purge(matches: &ArgMatches) -> Outcome {
    let target = named(matches)?;
    let status_page = StatusPage::open(target.pid)?;
    let before = kernel::of_status_page(&status_page)?;
    let bytes = status_page.purge(time(matches, "timeout"))?;
    let after = kernel::of_status_page(&status_page)?;
    let object = json!({
        "pid": target.pid,
        "program": target.name,
        "state": state(bytes.is_some()),
        "purged_bytes": bytes,
        "resident_before": before.process_rss,
        "resident_after": after.process_rss,
        "arenas_before": before.arenas_rss,
        "arenas_after": after.arenas_rss,
    });
    let done = bytes.map(|bytes| purged(&target.title(), bytes, before, after));
    let answer = Answer { done, object };
    answer.tell(matches, &status_page, "given its free memory back")
}

/// The answer to a request.
struct Answer {
    /// In words; `None` if there is none yet.
    done: Option<String>,
    /// For tools.
    object: Value,
}

impl Answer {
    /// Prints the answer, or that the process has not done `what`.
    fn tell(self, matches: &ArgMatches, status_page: &StatusPage, what: &str) -> Outcome {
        let (is_done, silence) = (self.done.is_some(), status_page.silence());
        let pending = || {
            let (title, why) = (status_page.title(), silence.why);
            let advice = advice(time(matches, "timeout"), silence);
            format!("pending: {title} has not {what} yet: {why}\n{advice}")
        };
        print(&if format::<TextOrJson>(matches) == TextOrJson::Json {
            format!("{}\n", self.object)
        } else {
            self.done.unwrap_or_else(pending)
        })?;
        Ok(if is_done { 0 } else { i32::from(TIMED_OUT) })
    }
}

fn state(is_done: bool) -> &'static str {
    if is_done { "done" } else { "pending" }
}

/// The kernel's count before and after, and what the process says that it gave back. These differ:
/// the program runs on meanwhile, and the process also counts pages that were not resident.
fn purged(title: &str, bytes: u64, before: KernelView, after: KernelView) -> String {
    let [was, is] = [before, after].map(|view| Bytes(view.process_rss));
    let change = difference(after.process_rss, before.process_rss);
    let arenas = difference(after.arenas_rss, before.arenas_rss);
    let back = match bytes {
        0 => "had no free memory to give back".to_owned(),
        bytes => format!("gave {} back, resident or not", Bytes(bytes)),
    };
    format!(
        "{title} {back}\n{was} resident before, {is} after: {change}, of this {arenas} in the heap\n"
    )
}

/// `neap guard`: switches guarded samples on or off, and prints what is in force.
pub fn guard(matches: &ArgMatches) -> Outcome {
    let target = named(matches)?;
    let status_page = StatusPage::open(target.pid)?;
    let guards = matches.get_one("interval").copied().unwrap_or(Guards::Off);
    let served = status_page.guard(guards, time(matches, "timeout"))?;
    let outlet = status_page.process().map(Outlet::of).unwrap_or_default();
    let object = json!({
        "pid": target.pid,
        "program": target.name,
        "state": state(served.is_some()),
        "guards": served.as_ref().map(|served| Guarded::from(served).json()),
        "reports": outlet.json(),
    });
    let done = served.map(|served| InForce {
        target: &target,
        guarded: Guarded::from(&served),
        outlet: &outlet,
        has_thread: served.thread == ThreadState::Here as u64,
    });
    let done = done.map(|page| page.to_string());
    let answer = Answer { done, object };
    answer.tell(matches, &status_page, "changed its guarded samples")
}

/// What is in force.
#[derive(Template)]
#[template(path = "guard.txt")]
struct InForce<'a> {
    target: &'a Target,
    guarded: Guarded,
    outlet: &'a Outlet,
    has_thread: bool,
}
