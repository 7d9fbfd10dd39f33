//! `neap purge`: has a running process give its free memory back.

use super::target;
use crate::Outcome;
use crate::attach::kernel::{self, KernelView};
use crate::attach::{Board, Purge, Silence, Target};
use crate::failure::TIMED_OUT;
use crate::output::print;
use crate::view::text::difference;
use clap::{ArgMatches, Command};
use neap::stats::Bytes;
use serde_json::{Value, json};
use std::time::Duration;

/// Declares the command line.
pub fn command() -> Command {
    Command::new("purge")
        .about("Have a running process give its free memory back to the kernel")
        .after_help(
            "Exits with 124 if the process did not answer in time: it sleeps, and will do it when it next calls its \
             allocator.",
        )
        .arg(target::process())
        .arg(target::json())
        .arg(target::timeout())
}

/// Requests the purge and prints the result.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let target = target::of(matches)?;
    let board = Board::open(target.pid)?;
    let before = kernel::of_board(&board)?;
    let patience = target::patience(matches);
    let purge = board.purge(patience)?;
    let after = kernel::of_board(&board)?;
    print(&match (matches.get_flag("json"), purge) {
        (true, _) => format!("{}\n", object(&target, purge, before, after)),
        (false, Purge::Done(bytes)) => done(&target.title(), bytes, before, after),
        (false, Purge::Pending) => pending(&target.title(), patience, board.silence()),
    })?;
    Ok(match purge {
        Purge::Done(_) => 0,
        Purge::Pending => i32::from(TIMED_OUT),
    })
}

/// What was given back, and the kernel's count before and after. The program runs on meanwhile.
fn done(title: &str, bytes: u64, before: KernelView, after: KernelView) -> String {
    let mut page = match bytes {
        0 => format!("{title} had no free memory to give back\n"),
        bytes => format!(
            "{title} gave {} of free memory back to the kernel\n",
            Bytes(bytes)
        ),
    };
    for (name, figure) in [
        ("resident before", Bytes(before.process_rss).to_string()),
        ("resident after", Bytes(after.process_rss).to_string()),
        (
            "difference",
            difference(after.process_rss, before.process_rss),
        ),
        (
            "of the arenas",
            difference(after.arenas_rss, before.arenas_rss),
        ),
    ] {
        page += &format!("  {name:<16} {figure:>11}\n");
    }
    page
}

fn pending(title: &str, patience: Duration, silence: Silence) -> String {
    format!(
        "pending: {title} has not given its free memory back yet: {}\n{}",
        silence.why,
        target::advice(patience, silence)
    )
}

fn object(target: &Target, purge: Purge, before: KernelView, after: KernelView) -> Value {
    let (state, bytes) = match purge {
        Purge::Done(bytes) => ("done", Some(bytes)),
        Purge::Pending => ("pending", None),
    };
    json!({
        "pid": target.pid,
        "program": target.name,
        "state": state,
        "purged_bytes": bytes,
        "resident_before": before.process_rss,
        "resident_after": after.process_rss,
        "arenas_before": before.arenas_rss,
        "arenas_after": after.arenas_rss,
    })
}
