//! The commands that look into the members while they work.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::command;

/// What is run on a member, one after another; the process's number follows.
const LOOKS: [&[&str]; 5] = [
    &["stat", "--timeout", "20s"],
    &["profile", "--for", "3s", "--format", "collapsed"],
    &["stat", "--timeout", "20s", "--format", "json"],
    &[
        "top",
        "--times",
        "3",
        "--interval",
        "500ms",
        "--format",
        "json",
    ],
    &["purge", "--timeout", "20s"],
];

/// From the end of one look to the next.
const PAUSE: Duration = Duration::from_secs(1);

/// What came of the looks.
#[derive(Debug, Default, PartialEq)]
pub struct Seen {
    /// Looks that went well.
    pub looks: u64,
    /// Those that did not, with the command.
    pub complaints: Vec<String>,
}

/// Looks into every member in turn, in a thread of its own.
pub struct Observers {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
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
    pub fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Seen {
            looks: 0,
            complaints: vec!["the observers panicked".into()],
        })
    }
}

fn look_on(neap: &Path, members: &[(String, u32)], is_over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let turns = members
        .iter()
        .flat_map(|member| LOOKS.map(|look| (member, look)));
    // One verb after another on one member after another, so that every pair comes.
    for ((name, id), words) in turns.cycle() {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let told = command::output(Command::new(neap).args(words).arg(id.to_string()));
        match (told, is_over.load(Ordering::Relaxed)) {
            (Ok(_), _) => seen.looks += 1,
            // The member was ended meanwhile.
            (Err(_), true) => {}
            (Err(reason), false) => {
                let verb = words[0];
                seen.complaints
                    .push(format!("neap {verb} on {name}: {reason:#}"));
            }
        }
        thread::sleep(PAUSE);
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_fail_are_told_with_their_member() {
        let look = |neap: &str| {
            let members = vec![("redis".to_string(), 1)];
            let observers = Observers::start(PathBuf::from(neap), members);
            thread::sleep(Duration::from_millis(100));
            observers.stop()
        };
        let seen = look("/bin/true");
        assert!(seen.looks > 0 && seen.complaints.is_empty(), "{seen:?}");
        let seen = look("/bin/false");
        assert_eq!(seen.looks, 0);
        assert!(
            seen.complaints[0].starts_with("neap stat on redis"),
            "{seen:?}"
        );
    }
}
