//! `neap purge`: has a running process give its free memory back.

use super::target;
use crate::Outcome;
use crate::attach::kernel::{self, KernelView};
use crate::attach::{Board, Purge};
use crate::failure::TIMED_OUT;
use crate::table::print;
use clap::{ArgMatches, Command};
use neap::stats::Bytes;
use serde_json::{Value, json};

/// The command line.
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

/// Asks for the purge and says what came of it.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let target = target::of(matches)?;
    let board = Board::open(target.pid)?;
    let before = kernel::of_board(&board)?;
    let purge = board.purge(target::patience(matches))?;
    let after = kernel::of_board(&board)?;
    let title = target.title();
    print(&match matches.get_flag("json") {
        true => format!(
            "{}\n",
            object(target.pid, &target.name, purge, before, after)
        ),
        false => sentence(&title, purge, before, after),
    })?;
    Ok(match purge {
        Purge::Done(_) => 0,
        Purge::Pending => i32::from(TIMED_OUT),
    })
}

fn sentence(title: &str, purge: Purge, before: KernelView, after: KernelView) -> String {
    match purge {
        Purge::Done(bytes) => format!(
            "{title} gave {} back; resident now {}, before {}\n",
            Bytes(bytes),
            Bytes(after.process_rss),
            Bytes(before.process_rss)
        ),
        Purge::Pending => format!(
            "pending: {title} sleeps, or has called only its allocator's fast paths since; it will give its free memory back \
             when it comes by\n"
        ),
    }
}

fn object(pid: i32, program: &str, purge: Purge, before: KernelView, after: KernelView) -> Value {
    let (state, bytes) = match purge {
        Purge::Done(bytes) => ("done", Some(bytes)),
        Purge::Pending => ("pending", None),
    };
    json!({
        "pid": pid,
        "program": program,
        "state": state,
        "purged_bytes": bytes,
        "resident_before": before.process_rss,
        "resident_after": after.process_rss,
    })
}
