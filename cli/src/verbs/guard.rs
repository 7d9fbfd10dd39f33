//! `neap guard`: switches guarded samples of a running process on and off.

use super::arguments;
use crate::attach::{Silence, StatusPage, Target};
use crate::failure::{Outcome, TIMED_OUT};
use crate::output::print;
use crate::view::guarded::{Guarded, Outlet};
use clap::ArgMatches;
use neap_shared::status_page::{Guards, Served, ThreadState};
use serde_json::{Value, json};
use std::time::Duration;

/// Makes the request and prints what is in force.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let target = arguments::of(matches)?;
    let status_page = StatusPage::open(target.pid)?;
    let guards = matches.get_one("interval").copied().unwrap_or(Guards::Off);
    let patience = arguments::time(matches, "timeout");
    let served = status_page.guard(guards, patience)?;
    let outlet = status_page.process().map(Outlet::of).unwrap_or_default();
    print(&match (arguments::format(matches) == "json", served) {
        (true, _) => format!("{}\n", object(&target, served.as_ref(), &outlet)),
        (false, Some(served)) => done(&target, &served, &outlet),
        (false, None) => pending(&target.title(), patience, status_page.silence()),
    })?;
    Ok(match served {
        Some(_) => 0,
        None => i32::from(TIMED_OUT),
    })
}

fn done(target: &Target, served: &Served, outlet: &Outlet) -> String {
    let guarded = Guarded::from(served);
    let mut page = format!("{} guards {}\n", target.title(), guarded.in_force());
    let mut line = |name: &str, text: &str| page += &format!("  {name:<12} {text}\n");
    line("so far", &guarded.counts());
    if !guarded.is_on() {
        return page;
    }
    line("reports to", &outlet.words());
    line(
        "to stop",
        &format!("neap guard {} --interval off", target.pid),
    );
    if outlet.is_nowhere() {
        let lost = "nobody reads that; to keep the reports, start the program with --guard-file \
                    FILE (NEAP_GUARD_FILE)";
        line("hint", lost);
    }
    if served.thread != ThreadState::Here as u64 {
        let slow = "it has no purge thread, so a thread whose calls all take the fast path gets no \
                    guarded blocks";
        line("hint", slow);
    }
    page
}

fn pending(title: &str, patience: Duration, silence: Silence) -> String {
    format!(
        "pending: {title} has not changed its guarded samples yet: {}\n{}",
        silence.why,
        arguments::advice(patience, silence)
    )
}

fn object(target: &Target, served: Option<&Served>, outlet: &Outlet) -> Value {
    let state = served.map_or("pending", |_| "done");
    json!({
        "pid": target.pid,
        "program": target.name,
        "state": state,
        "guards": served.map(|served| Guarded::from(served).json()),
        "reports": outlet.json(),
    })
}
