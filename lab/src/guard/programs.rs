//! The programs, which `lab/planted/planted.toml` lists, their reports as `neap run` prints them,
//! and what these must say.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::cases::case::Case;
use crate::cases::case::Home;
use crate::engine::campaign::Named;
use crate::peers::locate::Places;

/// What a program is for.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    Main,
    Variant,
}

/// A program, and what its reports must say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    name: String,
    folder: String,
    part: Part,
    #[serde(default)]
    variables: BTreeMap<String, String>,
    error: String,
    lines: Vec<String>,
    functions: Vec<String>,
}

#[derive(Deserialize)]
struct List {
    program: Vec<Wanted>,
}

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
        self.wanted.name.clone()
    }
}

impl Program {
    /// Every program.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn all(places: &Places) -> anyhow::Result<Vec<Program>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("planted");
        let list: List = basic_toml::from_str(include_str!("../../planted/planted.toml"))?;
        let read = |wanted: Wanted| {
            let case = Case::read(&folder.join(&wanted.folder))?;
            let home = Home::of(&case, places).with_context(|| case.name.clone())?;
            Ok(Program { wanted, case, home })
        };
        list.program.into_iter().map(read).collect()
    }

    /// Its name in the record.
    pub fn word(&self) -> &str {
        &self.wanted.name
    }

    /// Whether it is one whose error guarded samples should find.
    pub fn is_main(&self) -> bool {
        self.wanted.part == Part::Main
    }

    /// Variables of its client.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.wanted.variables
    }

    /// The planted error.
    pub fn error(&self) -> &str {
        &self.wanted.error
    }

    /// Why a report is not of the planted error; `None` if it is.
    pub fn objection(&self, report: &Report) -> Option<String> {
        let Wanted {
            lines, functions, ..
        } = &self.wanted;
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

/// A report of a wrong access or call.
#[derive(Debug, PartialEq)]
pub struct Report {
    /// Its first line, with `ADDR` for the address.
    pub line: String,
    /// All of its lines.
    pub text: String,
}

const START: &str = "neap: ";

impl Report {
    /// The first report in `errors` that has stack traces. The first line alone, which the program
    /// itself wrote, is none.
    pub fn find(errors: &str) -> Option<Report> {
        let lines: Vec<&str> = errors.lines().collect();
        let starts = |line: &&str| line.starts_with(START);
        let is_trace = |line: &&str| line.starts_with("  ");
        let at = (0..lines.len().saturating_sub(1))
            .find(|&at| starts(&lines[at]) && is_trace(&lines[at + 1]))?;
        let rest = lines[at + 1..].iter().take_while(|line| is_trace(line));
        let all: Vec<&str> = [lines[at]].iter().chain(rest).copied().collect();
        Some(Report {
            line: without_address(&lines[at][START.len()..]),
            text: all.join("\n"),
        })
    }

    /// Whether its first line is `line`. Some processors do not tell a read from a write.
    pub fn says(&self, line: &str) -> bool {
        let forms = ["read of", "write to"].map(|verb| line.strip_prefix(verb));
        let mut forms = forms.into_iter().flatten();
        self.line == line || forms.any(|rest| self.line == format!("access to{rest}"))
    }

    /// Whether a stack trace has a call of `function`.
    pub fn names(&self, function: &str) -> bool {
        let frames = self.text.lines().filter(|line| line.starts_with("    #"));
        let mut names = frames.filter_map(|line| line.trim_start().split(' ').nth(1));
        names.any(|name| name == function)
    }
}

fn without_address(line: &str) -> String {
    let Some((before, after)) = line.split_once("0x") else {
        return line.to_string();
    };
    let rest = after.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
    format!("{before}ADDR{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(line: &str, function: &str) -> Report {
        let text = format!("neap: {line}\n  the access:\n    #0 {function} (in seal.so)\n  x");
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

    const ERRORS: &str = "starts\n\
neap: read of 0x7ea8c42ef010, byte 16 of a block of 66 bytes that was freed
the program's own words
neap: read of 0x7ea8c42ef010, byte 16 of a block of 66 bytes that was freed
  the access by thread 5 of process 5:
    #0 count_of (sessions.c:54)
  the free by thread 5 of process 5:
    #0 forget_session (in sessions.so)
ends";

    #[test]
    fn a_report_is_the_part_with_stack_traces() {
        let report = Report::find(ERRORS).unwrap();
        let line = "read of ADDR, byte 16 of a block of 66 bytes that was freed";
        assert_eq!(report.line, line);
        assert_eq!(report.text.lines().count(), 5);
        assert!(report.says(line) && !report.says("write to ADDR"));
        assert!(report.names("count_of") && report.names("forget_session"));
        assert!(!report.names("count") && !report.names("(in"));
    }

    #[test]
    fn a_processor_that_cannot_tell_says_access() {
        let errors = ERRORS.replace("read of", "access to");
        let report = Report::find(&errors).unwrap();
        assert!(report.says("read of ADDR, byte 16 of a block of 66 bytes that was freed"));
    }

    #[test]
    fn other_words_are_no_report() {
        for words in [
            "",
            "neap: x",
            "neap: the program has no such option\nend",
            "  #0 x",
        ] {
            assert_eq!(Report::find(words), None, "{words}");
        }
    }
}
