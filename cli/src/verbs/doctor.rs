//! `neap doctor`: which of Neap's promises hold here, what this kernel offers, whether a program
//! can run under Neap, and where a process has its memory.

use super::process::{Memories, largest};
use super::{format, program};
use crate::choice::Choice;
use crate::failure::{Failure, Outcome, shown};
use crate::grammar::TextOrJson;
use crate::program::chain::End;
use crate::program::elf::{defines, sanitizer_among, sanitizer_refusal};
use crate::program::obstacle::Why;
use crate::program::{Chain, Link, Obstacle, follow};
use crate::table::{self, Finding, State};
use crate::{library, output, probe};
use clap::ArgMatches;
use neap_shared::control;
use serde::Serialize;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::{env, io, iter};

/// Exit code for a program that cannot run under Neap.
const DOES_NOT_TAKE: i32 = 1;
const JUDGED: &str = "see below; judged by its headers, not started";
const NO_TABLE: &str = "no tables for unwinding, so guards and profiles would show no callers: link \
                        it with -Wl,--eh-frame-hdr";

/// Prints the findings.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let words = program(matches);
    let is_json = format::<TextOrJson>(matches) == TextOrJson::Json;
    if let Some(pid) = process(&words)? {
        let memories = Memories::of(pid)?;
        return output::print(&match is_json {
            true => format!("{:#}\n", memories.json()),
            false => memories.text(),
        });
    }
    let (kernel, environment) = (probe::all(), variables());
    let report = Report {
        library: library_findings(),
        promises: probe::promises(&kernel, &environment),
        kernel,
        environment,
        processes: largest(),
        program: (!words.is_empty())
            .then(|| Judgement::of(&words))
            .transpose()?,
    };
    let text = if is_json {
        format!("{:#}\n", json!(report))
    } else {
        report.to_text()
    };
    output::print(&text)?;
    Ok(report.program.map_or(0, |verdict| verdict.status()))
}

/// The PID, if that is what is given.
fn process(words: &[OsString]) -> Result<Option<i32>, Failure> {
    let number = |word: &OsString| word.to_str()?.parse().ok();
    match (words.first().and_then(number), words.len()) {
        (Some(pid), 2..) => Err(failure!(
            "options go before the PID: neap doctor --format json {pid}"
        )),
        (pid, _) => Ok(pid),
    }
}

#[derive(Serialize)]
struct Report {
    library: Vec<Finding>,
    promises: Vec<Finding>,
    kernel: Vec<Finding>,
    environment: Vec<Finding>,
    processes: Vec<Finding>,
    program: Option<Judgement>,
}

impl Report {
    fn to_text(&self) -> String {
        let all = [
            ("Library", &self.library),
            ("Promises", &self.promises),
            ("Kernel", &self.kernel),
            ("Environment", &self.environment),
            ("Processes", &self.processes),
        ];
        let found = all.into_iter().filter(|(_, findings)| !findings.is_empty());
        let tables = found.map(|(title, findings)| table::table(title, findings));
        let mut tables: Vec<_> = tables.collect();
        if let Some(verdict) = &self.program {
            let table = table::table("Program", &verdict.files);
            tables.push(format!("{table}{}\n", verdict.sentence()));
        }
        tables.join("\n")
    }
}

fn library_findings() -> Vec<Finding> {
    let meaning = "what neap run preloads";
    let file = match library::find() {
        Ok(file) => file,
        Err(failure) => return vec![Finding::absent("libneap.so", failure.to_string(), meaning)],
    };
    let place = shown(&file).to_string();
    let exported = |is: bool| is.then_some(()).ok_or(io::Error::other("not exported"));
    let defined = defines(&file, "malloc").and_then(exported);
    vec![
        Finding::ok("libneap.so", place, meaning),
        Finding::tried("malloc", defined, "replaces the C library's"),
    ]
}

/// The `NEAP_*` variables that are set, which programs under Neap will read.
fn variables() -> Vec<Finding> {
    let ours =
        env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(control::PREFIX.as_bytes()));
    ours.map(|(name, value)| variable(&name, &value)).collect()
}

fn variable(name: &OsStr, value: &OsStr) -> Finding {
    let line = format!("{}={}", shown(name), shown(value));
    let Some(option) = control::find(name.as_bytes()) else {
        let hint = control::nearest_variable(name.as_bytes());
        let meaning = hint.map_or("unknown".to_owned(), |near| {
            format!("unknown; did you mean {near}?")
        });
        return Finding::absent("variable", line, meaning);
    };
    match control::parse(option.kind, value.as_bytes()) {
        Ok(_) => Finding::ok("variable", line, option.doc),
        Err(rejected) => Finding::absent("variable", line, rejected.to_string()),
    }
}

/// The findings about one program.
#[derive(Serialize)]
struct Judgement {
    files: Vec<Finding>,
    obstacle: Option<String>,
    takes: bool,
    /// The program needs no preload, because Neap is linked into it.
    has_neap: bool,
}

impl Judgement {
    fn of(words: &[OsString]) -> Result<Self, Failure> {
        let library = library::find()?;
        let preload = library::preload(&library)?;
        let Chain { links, end } = follow(words, &library::headers(&library)?);
        let mut verdict = Self {
            files: Vec::new(),
            takes: false,
            obstacle: end.as_ref().err().map(Obstacle::to_string),
            has_neap: matches!(&end, Err(obstacle) if matches!(obstacle.why, Why::NeapInside)),
        };
        for (index, link) in links.iter().enumerate() {
            let is_last = index + 1 == links.len();
            match &end {
                Err(_) if is_last && !verdict.has_neap => {
                    verdict.note(link, State::Absent, JUDGED);
                }
                Err(_) if is_last => {
                    let has_table = link.elf.as_ref().is_some_and(|elf| elf.has_unwind_table);
                    verdict.note(link, State::Ok, if has_table { JUDGED } else { NO_TABLE });
                }
                Ok(End::Unreadable) if is_last => {
                    let meaning = "may be executed but not read, so it was not judged";
                    verdict.note(link, State::Is, meaning);
                }
                _ => verdict.examine(link, &library, &preload),
            }
        }
        verdict.takes = verdict.obstacle.is_none();
        Ok(verdict)
    }

    /// Has the loader load the file with the preload, without running any of its code.
    fn examine(&mut self, link: &Link, library: &Path, preload: &OsStr) {
        if link.elf.is_none() {
            return self.note(link, State::Ok, "a script: its interpreter decides");
        }
        match loads(link, library, preload) {
            Ok(()) => {
                let meaning = if link.elf.as_ref().is_some_and(|elf| elf.has_neap) {
                    "has Neap inside, so it needs no neap run"
                } else {
                    "verified: the loader maps the library for it"
                };
                self.note(link, State::Ok, meaning);
            }
            Err(reason) => {
                self.obstacle
                    .get_or_insert_with(|| format!("{}: {reason}", shown(&link.file)));
                self.note(link, State::Absent, reason);
            }
        }
    }

    fn note(&mut self, link: &Link, state: State, meaning: impl Into<String>) {
        let file = shown(&link.file).to_string();
        self.files
            .push(Finding::new(link.role.word(), state, file, meaning));
    }

    fn status(&self) -> i32 {
        if self.takes || self.has_neap {
            0
        } else {
            DOES_NOT_TAKE
        }
    }

    fn sentence(&self) -> String {
        match &self.obstacle {
            None => "This program can run under Neap.".to_owned(),
            Some(obstacle) if self.has_neap => format!("This program uses Neap. {obstacle}"),
            Some(obstacle) => format!("This program cannot run under Neap. {obstacle}"),
        }
    }
}

/// The loader lists what it maps and exits before any code of the program or its libraries runs.
/// `--list` has both glibc's and musl's do so. Only glibc's also reads `LD_TRACE_LOADED_OBJECTS`;
/// under musl's, the program would run.
fn loads(link: &Link, library: &Path, preload: &OsStr) -> Result<(), String> {
    let loader = link.elf.as_ref().and_then(|elf| elf.loader.as_ref());
    let loader = loader.ok_or("no dynamic loader")?;
    let output = Command::new(loader)
        .arg("--list")
        .arg(&link.file)
        .env(library::PRELOAD, preload)
        .output()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let names = [library.as_os_str(), library::first(preload)];
    let mapped = output.stdout.split(|&byte| byte == b'\n').any(|line| {
        names
            .iter()
            .any(|name| line.trim_ascii_start().starts_with(name.as_bytes()))
    });
    if !mapped {
        return Err(format!(
            "the loader left the library out: {}",
            first_line(&output.stderr)
        ));
    }
    sanitizer_of(link, &output.stdout).map_or(Ok(()), |name| Err(sanitizer_refusal(name, loader)))
}

/// The sanitizer that a program is built with, from what the loader has listed for it. A program
/// with Neap inside needs no preload, so it is not judged by that.
fn sanitizer_of(link: &Link, listed: &[u8]) -> Option<&'static str> {
    if link.elf.as_ref().is_some_and(|elf| elf.has_neap) {
        return None;
    }
    let text = String::from_utf8_lossy(listed);
    let libraries = text.lines().filter_map(|line| {
        let (file, _) = line.trim().rsplit_once(" (0x")?;
        let file = file.rsplit_once(" => ").map_or(file, |(_, file)| file);
        file.contains('/').then(|| Path::new(file))
    });
    sanitizer_among(iter::once(link.file.as_path()).chain(libraries))
}

fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines()
        .next()
        .unwrap_or("it gives no reason")
        .to_owned()
}
