//! The guarded samples of a process: what is in force, the counts, and where its reports go. Also
//! memory that a runtime keeps out of Neap's figures, and how to bring it in.

use crate::attach::kernel::KernelView;
use crate::attach::{Process, StatusPage};
use neap_shared::stats::ending;
use neap_shared::status_page::{Guards, Served};
use serde_json::{Value, json};

/// The variable that names the file for reports.
const FILE: &str = "NEAP_GUARD_FILE=";
/// Programs that write there lose what they write.
const NOWHERE: &str = "/dev/null";

/// What a process says of its guarded samples.
#[derive(Clone, Copy, Debug)]
pub struct Guarded {
    /// What is in force; `None`: unknown to this command.
    guards: Option<Guards>,
    /// Guarded blocks so far.
    pub blocks: u64,
    /// Memory errors found so far.
    pub errors: u64,
}

impl From<&Served> for Guarded {
    fn from(served: &Served) -> Self {
        Self {
            guards: Guards::from_word(served.guard_interval),
            blocks: served.guarded_blocks,
            errors: served.memory_errors,
        }
    }
}

impl Guarded {
    /// Whether the process guards allocations now.
    pub fn is_on(&self) -> bool {
        self.guards != Some(Guards::Off)
    }

    /// Whether there is anything to say of it.
    pub fn was_ever_on(&self) -> bool {
        self.is_on() || self.blocks > 0 || self.errors > 0
    }

    /// What is in force, as the object of "guards".
    pub fn in_force(&self) -> String {
        match self.guards {
            Some(Guards::Off) => "no further allocations".to_owned(),
            Some(Guards::All) => "every small allocation for which there is room".to_owned(),
            Some(Guards::Every(ms)) => {
                format!("one allocation of each thread about every {}", time(ms))
            }
            None => "allocations at an interval that this neap does not know".to_owned(),
        }
    }

    /// The counts.
    pub fn counts(&self) -> String {
        let (blocks, errors) = (self.blocks, self.errors);
        format!(
            "{blocks} guarded block{}, {errors} memory error{}",
            ending(blocks, "s"),
            ending(errors, "s")
        )
    }

    /// The same for tools. The interval is in ms, 0 for every allocation, and null while off.
    pub fn json(&self) -> Value {
        let (state, interval) = match self.guards {
            Some(Guards::Off) => ("off", None),
            Some(Guards::All) => ("all", Some(0)),
            Some(Guards::Every(ms)) => ("on", Some(ms)),
            None => ("unknown", None),
        };
        json!({
            "state": state,
            "interval_ms": interval,
            "blocks": self.blocks,
            "errors": self.errors,
        })
    }
}

/// In the largest unit that divides it.
fn time(ms: u64) -> String {
    match ms {
        ms if ms.is_multiple_of(60_000) => format!("{} min", ms / 60_000),
        ms if ms.is_multiple_of(1000) => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}

/// Where a process writes its reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlet {
    /// What its standard error is; `None`: closed, or the user may not see it.
    standard_error: Option<String>,
    /// The file that it was started with.
    file: Option<String>,
}

impl Outlet {
    /// Of a running process.
    pub fn of(process: &Process) -> Self {
        Self {
            standard_error: process.link("fd/2"),
            file: named_in(&process.text("environ").unwrap_or_default()),
        }
    }

    /// In words.
    pub fn words(&self) -> String {
        let error = match &self.standard_error {
            Some(link) => format!("its standard error ({})", shown(link)),
            None => "its standard error".to_owned(),
        };
        match &self.file {
            Some(file) => format!("{}, and their first lines to {error}", shown(file)),
            None => error,
        }
    }

    /// Whether nobody will read them.
    pub fn is_nowhere(&self) -> bool {
        self.file.is_none() && self.standard_error.as_deref() == Some(NOWHERE)
    }

    /// For tools.
    pub fn json(&self) -> Value {
        json!({"standard_error": self.standard_error, "file": self.file})
    }
}

fn shown(path: &str) -> String {
    crate::failure::shown(path).to_string()
}

/// The file that an environment names.
fn named_in(environment: &str) -> Option<String> {
    let mut variables = environment.split('\0');
    let file = variables.find_map(|variable| variable.strip_prefix(FILE))?;
    (!file.is_empty()).then(|| file.to_owned())
}

/// CPython's own allocator.
pub const PYTHON_HINT: &str = "CPython keeps objects of up to 512 bytes to itself, in arenas from mmap, \
                          so they are not in these figures; run it with PYTHONMALLOC=malloc";

/// [`PYTHON_HINT`], for a column.
pub const SHORT_HINT: &str = "resident, elsewhere; Python: set PYTHONMALLOC=malloc";

/// The hint for a process with more than a quarter of its resident memory outside the heap.
pub fn hint(status_page: &StatusPage, kernel: KernelView) -> Option<&'static str> {
    let process = status_page.process().filter(|_| kernel.is_elsewhere())?;
    of_process(process)
}

fn of_process(process: &Process) -> Option<&'static str> {
    let is_python = [Some(process.name()), process.program()]
        .iter()
        .flatten()
        .any(|name| name.starts_with("python"));
    let environment = process.text("environ").ok().filter(|_| is_python)?;
    (!calls_malloc(&environment)).then_some(PYTHON_HINT)
}

/// Whether an environment has CPython allocate every object with malloc.
fn calls_malloc(environment: &str) -> bool {
    let value = environment
        .split('\0')
        .find_map(|variable| variable.strip_prefix("PYTHONMALLOC="));
    matches!(value, Some("malloc" | "malloc_debug"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(guard_interval: u64) -> Guarded {
        Guarded::from(&Served {
            guard_interval,
            guarded_blocks: 1,
            memory_errors: u64::MAX,
            ..Served::default()
        })
    }

    #[test]
    fn any_word_of_a_process_has_words() {
        for (word, state, words) in [
            (0, "off", "no further allocations"),
            (20, "on", "about every 20 ms"),
            (2000, "on", "about every 2 s"),
            (3_600_000, "on", "about every 60 min"),
            (3_600_001, "unknown", "does not know"),
            (u64::MAX - 1, "unknown", "does not know"),
            (u64::MAX, "all", "every small allocation"),
        ] {
            let guarded = guarded(word);
            assert!(guarded.in_force().ends_with(words) || guarded.in_force().starts_with(words));
            assert_eq!(guarded.json()["state"], state, "{word}");
            assert_eq!(guarded.is_on(), word != 0);
            assert!(guarded.was_ever_on());
        }
        let counts = "1 guarded block, 18446744073709551615 memory errors";
        assert_eq!(guarded(0).counts(), counts);
        assert!(!Guarded::from(&Served::default()).was_ever_on());
    }

    #[test]
    fn reports_go_to_the_file_that_the_process_was_started_with() {
        for (environment, file) in [
            ("A=B\0NEAP_GUARD_FILE=/tmp/x\0", Some("/tmp/x")),
            ("NEAP_GUARD_FILE=\0", None),
            ("XNEAP_GUARD_FILE=y\0", None),
        ] {
            assert_eq!(named_in(environment).as_deref(), file, "{environment:?}");
        }
        let mut outlet = Outlet {
            standard_error: Some("/dev/null".to_owned()),
            file: None,
        };
        assert!(outlet.is_nowhere());
        outlet.file = Some("/tmp/x\u{1b}".to_owned());
        assert!(!outlet.is_nowhere());
        assert!(!outlet.words().contains('\u{1b}'), "{}", outlet.words());
    }

    #[test]
    fn python_calls_malloc_only_if_told_to() {
        for (environment, is_told) in [
            ("", false),
            ("PYTHONMALLOC=malloc", true),
            ("A=B\0PYTHONMALLOC=malloc_debug\0C=D\0", true),
            ("PYTHONMALLOC=debug\0", false),
            ("PYTHONMALLOC=\0", false),
            ("MYPYTHONMALLOC=malloc\0", false),
        ] {
            assert_eq!(calls_malloc(environment), is_told, "{environment:?}");
        }
    }
}
