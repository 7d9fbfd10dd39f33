//! The programs, and what their reports must say.

use std::path::Path;

use anyhow::Context as _;

use super::report::Report;
use crate::cases::case::Case;
use crate::cases::home::Home;
use crate::engine::campaign::Named;
use crate::peers::Places;

/// A program, and what its reports must say.
#[derive(Clone, Copy)]
struct Wanted {
    /// The name in the record.
    name: &'static str,
    /// The directory of the program.
    folder: &'static str,
    /// Variables of the client.
    variables: &'static [(&'static str, &'static str)],
    /// Whether a short run has it.
    part: Part,
    /// What is planted, for the table.
    error: &'static str,
    /// The first line, in each of its forms.
    lines: &'static [&'static str],
    /// Functions of the extension that the stack traces must name.
    functions: &'static [&'static str],
}

/// What a program is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Guarded samples should find its error.
    Main,
    /// It shows how the probability depends on the load.
    Variant,
}

/// A site that serves a thousand pages in a second.
const REDIS: Wanted = Wanted {
    name: "redis",
    folder: "redis-sessions",
    variables: &[("PER_SECOND", "1000")],
    part: Part::Main,
    error: "read after free",
    lines: &["read of ADDR, byte 16 of a block of 66 bytes that was freed"],
    functions: &["count_of", "forget_session", "new_session"],
};

/// Substring searches, each of which reads all notes.
const SQLITE: Wanted = Wanted {
    name: "sqlite",
    folder: "sqlite-tidy",
    variables: &[],
    part: Part::Main,
    error: "write after realloc",
    lines: &["write to ADDR, byte 16 of a block of 124 bytes that was freed"],
    functions: &["note_last", "grown", "new_buffer"],
};

const WANTED: [Wanted; 5] = [
    REDIS,
    Wanted {
        name: "python",
        folder: "python-seal",
        variables: &[],
        part: Part::Main,
        error: "write past the end",
        // Of a block at the end of its page, the write faults. Of one at the start, the free finds
        // it.
        lines: &[
            "write to ADDR, right after a block of 528 bytes",
            "write to ADDR, right after a block of 528 bytes, found when the block was freed",
        ],
        functions: &["seal"],
    },
    SQLITE,
    // Ten thousand requests in about a second, with few samples.
    Wanted {
        name: "redis-burst",
        variables: &[],
        part: Part::Variant,
        ..REDIS
    },
    // A full-text search makes an allocation for each note that it finds, and more.
    Wanted {
        name: "sqlite-words",
        variables: &[("SEARCH", "words")],
        part: Part::Variant,
        ..SQLITE
    },
];

/// A program with a planted error.
pub struct Program {
    wanted: Wanted,
    /// Its directory.
    pub case: Case,
    /// Where its files are.
    pub home: Home,
}

impl Named for Program {
    fn name(&self) -> String {
        self.wanted.name.to_string()
    }
}

impl Program {
    /// Every program.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn all(places: &Places) -> anyhow::Result<Vec<Program>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("planted");
        let read = |wanted: Wanted| {
            let case = Case::read(&folder.join(wanted.folder))?;
            let home = Home::of(&case, places).with_context(|| case.name.clone())?;
            Ok(Program { wanted, case, home })
        };
        WANTED.into_iter().map(read).collect()
    }

    /// Whether it is one whose error guarded samples should find.
    pub fn is_main(&self) -> bool {
        self.wanted.part == Part::Main
    }

    /// Variables of its client.
    pub fn variables(&self) -> &'static [(&'static str, &'static str)] {
        self.wanted.variables
    }

    /// The planted error.
    pub fn error(&self) -> &'static str {
        self.wanted.error
    }

    /// Why a report is not of the planted error; `None` if it is.
    pub fn objection(&self, report: &Report) -> Option<String> {
        let Wanted {
            lines, functions, ..
        } = self.wanted;
        if !lines.iter().any(|line| report.says(line)) {
            return Some(format!("the report is another one: {}", report.line));
        }
        let missing = functions.iter().find(|name| !report.names(name))?;
        Some(format!(
            "the report does not name {missing}: {}",
            report.text
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(line: &str, function: &str) -> Report {
        let text = format!("neap: {line}\n  the access:\n    #0 {function}  (in seal.so)\n  x");
        Report::find(&text).unwrap()
    }

    #[test]
    fn a_report_must_have_the_line_and_the_functions_of_its_program() {
        let all = Program::all(&Places::new(None).unwrap()).unwrap();
        let python = all.iter().find(|one| one.name() == "python").unwrap();
        let line = "write to ADDR, right after a block of 528 bytes";
        let ours = |line, function| python.objection(&report(line, function));
        assert_eq!(ours(line, "seal"), None);
        assert!(ours(line, "other").unwrap().contains("does not name seal"));
        let other = ours("double free of ADDR (a block of 528 bytes)", "seal");
        assert!(other.unwrap().contains("another one: double free"));
    }
}
