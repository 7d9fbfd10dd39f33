//! `neap stat`: where the memory of a running process is.

use super::arguments::{self, format};
use crate::attach::StatusPage;
use crate::failure::{Outcome, TIMED_OUT};
use crate::output::print;
use crate::view::{State, View, json, metrics, text};
use clap::ArgMatches;

/// Prints the tables.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let target = arguments::of(matches)?;
    let status_page = StatusPage::open(target.pid)?;
    let patience = arguments::time(matches, "timeout");
    let view = View::ask(&status_page, patience)?;
    let page = match format(matches) {
        "json" => format!("{}\n", json::object(&view)),
        "prometheus" => metrics::page(std::slice::from_ref(&view)),
        _ => text::page(&view, &arguments::advice(patience, status_page.silence())),
    };
    print(&page)?;
    Ok(match view.state {
        State::Fresh => 0,
        State::Pending => i32::from(TIMED_OUT),
    })
}
