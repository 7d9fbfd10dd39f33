//! Attaches `neap top` to each process that this one runs under Neap, as a user at another terminal
//! would.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use neap_shared::status_page;

use crate::memory_file;

/// Looks for children of this process until it is stopped.
pub struct Watcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Told>,
}

/// The result of watching.
#[derive(Debug, Default)]
pub struct Told {
    /// Lines that `neap top` printed.
    pub lines: usize,
    /// The last lines of its errors, if it failed.
    pub complaint: Option<String>,
}

/// How often to look for children.
const LOOK: Duration = Duration::from_millis(20);

impl Watcher {
    /// Watches with the command `neap`.
    pub fn start(neap: &Path) -> Watcher {
        let stop = Arc::new(AtomicBool::new(false));
        let (neap, seen) = (neap.to_path_buf(), Arc::clone(&stop));
        let thread = thread::spawn(move || watch(&neap, &seen));
        Watcher { stop, thread }
    }

    /// Ends all watchers and returns their output.
    pub fn stop(self) -> Told {
        self.stop.store(true, Ordering::Relaxed);
        let panicked = || Told {
            complaint: Some("the watcher panicked".into()),
            ..Told::default()
        };
        self.thread.join().unwrap_or_else(|_| panicked())
    }
}

fn watch(neap: &Path, stop: &AtomicBool) -> Told {
    let mut watching: HashMap<u32, Child> = HashMap::new();
    while !stop.load(Ordering::Relaxed) {
        for pid in children() {
            let has_status_page =
                || memory_file::open(&pid.to_string(), status_page::NAME).is_some();
            if !watching.contains_key(&pid)
                && has_status_page()
                && let Ok(child) = attach(neap, pid)
            {
                watching.insert(pid, child);
            }
        }
        thread::sleep(LOOK);
    }
    watching.into_values().fold(Told::default(), end)
}

/// `neap top PID` into a pipe: plain text, once per second.
fn attach(neap: &Path, pid: u32) -> std::io::Result<Child> {
    Command::new(neap)
        .args(["top", &pid.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Ends one, which may have ended with the process that it watched.
fn end(mut told: Told, mut child: Child) -> Told {
    // This fails if it has ended already, which is the goal.
    let _ = child.kill();
    let Ok(output) = child.wait_with_output() else {
        return told;
    };
    told.lines += String::from_utf8_lossy(&output.stdout).lines().count();
    let errors = String::from_utf8_lossy(&output.stderr);
    told.complaint = errors.lines().last().map(str::to_string).or(told.complaint);
    told
}

/// The children of all threads of this process that it has not waited for.
fn children() -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let numbers: Vec<String> = lists.collect();
    numbers
        .iter()
        .flat_map(|list| list.split_whitespace())
        .filter_map(|number| number.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_and_those_without_neap_are_let_be() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(children().contains(&child.id()));
        let watcher = Watcher::start(Path::new("/nowhere/neap"));
        thread::sleep(2 * LOOK);
        let told = watcher.stop();
        assert!(told.lines == 0 && told.complaint.is_none(), "{told:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_was_printed_and_complained_is_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two; echo no >&2"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.wait().unwrap();
        let told = end(Told::default(), child);
        assert_eq!((told.lines, told.complaint.as_deref()), (2, Some("no")));
    }
}
