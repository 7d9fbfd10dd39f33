//! Memory errors that guarded samples found in the processes of a recording.

use crate::files;
use crate::guard;
use crate::profile::base;
use crate::recording::Recording;
use crate::recording::format::Happening;
use std::collections::BTreeMap;
use std::path::Path;

/// The variable that names the file for reports.
const FILE: &str = "NEAP_GUARD_FILE";
/// Most bytes read of the file.
const MOST: u64 = 16 << 20;
/// Most processes whose errors are told.
const PROCESSES: usize = 20;

/// The errors of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Its PID.
    pub pid: u32,
    /// Its program; may be empty.
    pub program: String,
    /// How many.
    pub count: u64,
    /// Their reports, as far as they can be read. Untrusted.
    pub reports: String,
}

/// The errors of each process of the recording that made some.
pub fn of(recording: &Recording) -> Vec<Errors> {
    let mut counts = BTreeMap::new();
    let guards = recording.samples.iter().filter_map(|sample| {
        let errors = sample.guards?.errors;
        (errors > 0).then_some((sample.pid, errors))
    });
    for (pid, errors) in guards {
        let most = counts.entry(pid).or_insert(0);
        *most = errors.max(*most);
    }
    let text = match counts.is_empty() {
        true => String::new(),
        false => file(recording),
    };
    let began_ms = recording.head.started_ms;
    let found = counts.into_iter().take(PROCESSES);
    found
        .map(|(pid, count)| Errors {
            pid,
            program: program(recording, pid),
            count,
            reports: guard::of_process(&text, pid, count, began_ms),
        })
        .collect()
}

/// The errors of each process with reports in a file of them (`--guard-file`); of many, the last.
/// A mapped file that changed since `began_ms` may not be the one of the report.
pub fn of_reports(text: &str, began_ms: u64) -> Vec<Errors> {
    let processes = guard::processes(text);
    let last = processes.len().saturating_sub(PROCESSES);
    let found = processes.iter().skip(last);
    found
        .map(|&(pid, count)| Errors {
            pid,
            program: String::new(),
            count,
            reports: guard::of_process(text, pid, count, began_ms),
        })
        .collect()
}

/// What the program last was.
fn program(recording: &Recording, pid: u32) -> String {
    let names = recording.events.iter().filter(|event| event.pid == pid);
    let mut names = names.filter_map(|event| match &event.what {
        Happening::Came { program, .. } => Some(program.clone()),
        _ => None,
    });
    let last = names.next_back().unwrap_or_default();
    let head = &recording.head;
    match last.is_empty() && head.pid == pid.cast_signed() {
        true => base(&head.program).to_owned(),
        false => last,
    }
}

/// The file of the reports; empty if there is none, or if the user may not read it. The recording
/// may come from anywhere, so what is taken of the file must look like a report.
fn file(recording: &Recording) -> String {
    let name = recording.head.options.get(FILE);
    let bytes = name.and_then(|name| files::foreign(Path::new(name), MOST));
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}
