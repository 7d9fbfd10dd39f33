//! The commands that look into the members while they work, and at the end ask each for its guarded
//! samples.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::member::Member;
use crate::command;

/// What is run on a member, one after another; the process's number follows.
const LOOKS: [&str; 5] = [
    "stat --timeout 20s",
    "profile --for 3s --format collapsed",
    "stat --timeout 20s --format json",
    "top --times 3 --interval 500ms --format json",
    "purge --timeout 20s",
];

/// From the end of one look to the next.
const PAUSE: Duration = Duration::from_secs(1);

/// What came of the looks.
#[derive(Debug, Default, PartialEq)]
pub struct Looks {
    /// Looks that went well.
    pub looks: u64,
    /// Those that did not, with the command.
    pub complaints: Vec<String>,
}

/// Looks into every member in turn, in a thread of its own.
pub struct Observers {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Looks>,
}

impl Observers {
    /// Begins to look into processes with the command `neap`.
    pub fn start(neap: PathBuf, members: Vec<(String, u32)>) -> Observers {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let thread = thread::spawn(move || look_on(&neap, &members, &is_over));
        Observers { stop, thread }
    }

    /// Ends the looks, the last one when it is over.
    pub fn stop(self) -> Looks {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Looks {
            looks: 0,
            complaints: vec!["the observers panicked".into()],
        })
    }
}

fn look_on(neap: &Path, members: &[(String, u32)], is_over: &AtomicBool) -> Looks {
    let mut seen = Looks::default();
    let turns = members
        .iter()
        .flat_map(|member| LOOKS.map(|look| (member, look)));
    // One verb after another on one member after another, so that every pair comes.
    for ((name, id), look) in turns.cycle() {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let told = command::output(Command::new(neap).args(look.split(' ')).arg(id.to_string()));
        match (told, is_over.load(Ordering::Relaxed)) {
            (Ok(_), _) => seen.looks += 1,
            // The member was ended meanwhile.
            (Err(_), true) => {}
            (Err(reason), false) => {
                let told = format!("neap {look} on {name}: {reason:#}");
                seen.complaints.push(told);
            }
        }
        thread::sleep(PAUSE);
    }
    seen
}

/// The variable that switches them on, and the mean time between two of a thread: the default of
/// `neap run --guard`.
pub const VARIABLE: (&str, &str) = ("NEAP_GUARD", "20ms");

/// Asks every member for its guarded blocks with the command `neap`, and notes them there.
///
/// # Errors
/// If a member does not answer, had none, or found a memory error.
pub fn count(neap: &Path, members: &mut [Member]) -> anyhow::Result<()> {
    for member in members {
        let mut stat = Command::new(neap);
        stat.args(["stat", "--timeout", "60s", "--format", "json"]);
        let told = command::output(stat.arg(member.id().to_string()));
        let blocks = told.and_then(|told| blocks(&told));
        let blocks = blocks.with_context(|| format!("{}: guarded samples", member.name))?;
        member.guarded = Some(blocks);
    }
    Ok(())
}

/// The guarded blocks so far, of what `neap stat` says.
fn blocks(told: &str) -> anyhow::Result<u64> {
    let told: Value = serde_json::from_str(told).context("no JSON")?;
    let number = |name| told["guards"][name].as_u64().context("no counts");
    let (blocks, errors) = (number("blocks")?, number("errors")?);
    ensure!(errors == 0, "{errors} memory errors");
    ensure!(blocks > 0, "no block was guarded");
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_fail_are_told_with_their_member() {
        let look = |neap: &str| {
            let members = vec![("redis".to_string(), 1)];
            let observers = Observers::start(PathBuf::from(neap), members);
            thread::sleep(Duration::from_millis(500));
            observers.stop()
        };
        let seen = look("/bin/true");
        assert!(seen.looks > 0 && seen.complaints.is_empty(), "{seen:?}");
        let seen = look("/bin/false");
        assert_eq!(seen.looks, 0);
        assert!(
            seen.complaints[0].starts_with("neap stat --timeout 20s on redis"),
            "{seen:?}"
        );
    }

    #[test]
    fn a_member_without_guarded_blocks_or_with_an_error_fails() {
        let told = |counts| blocks(counts).map_err(|error| error.to_string());
        assert_eq!(told(r#"{"guards": {"blocks": 7, "errors": 0}}"#), Ok(7));
        for (counts, reason) in [
            (
                r#"{"guards": {"blocks": 0, "errors": 0}}"#,
                "no block was guarded",
            ),
            (
                r#"{"guards": {"blocks": 7, "errors": 2}}"#,
                "2 memory errors",
            ),
            ("{}", "no counts"),
            ("", "no JSON"),
        ] {
            assert_eq!(told(counts), Err(reason.to_string()));
        }
    }
}
