//! What page, JSON and terminal say of programs whose memory is known.

use super::{Path, PathBuf, Run, Stdio, compiled, neap, skips};
use serde_json::Value;
use std::process::Command;

const MIB: f64 = (1 << 20) as f64;

/// Page, JSON and terminal about one run.
struct Answers {
    json: Value,
    /// Without its tags.
    page: String,
    terminal: String,
}

impl Answers {
    fn of(program: &[&str]) -> Self {
        let run = Run::new();
        let file = |name: &str| run.room.path().join(name);
        let recording = file("recording");
        let mut command = neap();
        let record = format!("--record={}", recording.display());
        command.args(["run", "--quiet", &record, "--sample=64K", "--"]);
        let command = command.args(program).stdout(Stdio::null());
        command.status().unwrap();
        let said = |arguments: &[&str]| {
            let mut command = neap();
            command.arg("report").args(arguments).arg(&recording);
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let html = file("page.html");
        let terminal = said(&["-o", html.to_str().unwrap()]);
        let page = std::fs::read_to_string(html).unwrap();
        let answers = Self {
            json: serde_json::from_str(&said(&["--format=json"])).unwrap(),
            page: text(&page),
            terminal: terminal.split_whitespace().collect::<Vec<_>>().join(" "),
        };
        answers.agree();
        answers
    }

    /// Page, JSON and terminal give the same figures.
    fn agree(&self) {
        let opening = self.json["verdict"].as_str().unwrap().replace('`', "");
        assert!(self.terminal.contains(&opening), "{}", self.terminal);
        assert!(self.page.contains(&opening), "{}", self.page);
        let most = after(&opening, "At most it had ").unwrap();
        let counted = after(&self.page, "most in RAM ").unwrap();
        assert_eq!(most, counted, "{opening}");
        // The table of the picture and the ledger are of one moment, and so is the prose.
        let moment = after(&self.page, "Line ").unwrap();
        let legend = format!("Band {moment} What it is");
        assert!(self.page.contains(&legend), "{legend}: {}", self.page);
        if self.json["peak"]["split"]["known"] == true {
            let time = moment.split_once("at ").unwrap().1;
            assert!(
                opening.contains(&format!("At {time}, ")),
                "{moment}: {opening}"
            );
        }
        for finding in self.json["findings"].as_array().unwrap() {
            let headline = finding["headline"].as_str().unwrap().replace('`', "");
            assert!(self.terminal.contains(&headline), "{headline}");
            assert!(self.page.contains(&headline), "{headline}");
        }
    }

    /// The kernel's maximum is that of the program, which holds `mib` at most.
    fn peaks_at(&self, mib: f64) {
        let most = self.json["peak_resident"].as_f64().unwrap() / MIB;
        // The runtime, the heap's tables and huge pages take the rest.
        assert!(
            most >= 0.95 * mib && most <= 1.15 * mib + 12.0,
            "{most}: {}",
            self.json
        );
        assert_eq!(self.json["peak"]["resident"], self.json["peak_resident"]);
        for finding in self.json["findings"].as_array().unwrap() {
            let bytes = finding["bytes"].as_f64().unwrap() / MIB;
            assert!(bytes <= most, "{finding}");
        }
    }

    fn findings(&self, kind: &str) -> Vec<&Value> {
        let all = self.json["findings"].as_array().unwrap().iter();
        all.filter(|finding| finding["kind"] == kind).collect()
    }

    /// The first finding is of this kind about a function that contains `site`, which grew by at
    /// least `mib`.
    fn grows(&self, kind: &str, site: &str, mib: f64) {
        let first = &self.json["findings"][0];
        let named = first["site"].as_str().unwrap_or_default();
        assert!(
            first["kind"] == kind && !named.is_empty() && named.contains(site),
            "{:#}",
            self.json
        );
        let grown = first["grown"].as_f64().unwrap() / MIB;
        assert!(grown >= mib && grown <= 240.0, "{first}");
        let headline = first["headline"].as_str().unwrap();
        assert!(
            headline.contains("grew by") && headline.contains(" a second"),
            "{headline}"
        );
        assert_eq!(self.findings("peak").len(), 0, "{:#}", self.json);
    }
}

/// What follows `start`, up to the end of an amount or of a cell.
fn after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let rest = text.split_once(start)?.1;
    let end = [" in RAM", " page faults", " At the end", " Last reported"];
    let end = end.iter().filter_map(|end| rest.find(end)).min()?;
    Some(&rest[..end])
}

/// A page without tags, scripts and styles.
fn text(page: &str) -> String {
    let parts = page.split('<').map(|part| match part.split_once('>') {
        Some((tag, _)) if tag.starts_with("script") || tag.starts_with("style") => "",
        Some((tag, text)) if tag.starts_with("code") || tag.starts_with("/code") => text,
        Some((_, text)) => &part[part.len() - text.len() - 1..],
        None => "",
    });
    let text: String = parts.collect();
    let text = text
        .replace('>', " ")
        .replace("&#39;", "'")
        .replace("&#38;", "&");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn planted(what: &str) -> Answers {
    let run = Run::new();
    let program = compiled("tests/truth/answers.c", run.room.path());
    Answers::of(&[program.to_str().unwrap(), what])
}

#[test]
fn growth_is_judged_before_the_teardown_and_named_by_place() {
    let answers = planted("teardown");
    answers.peaks_at(240.0);
    answers.grows("growth", "login", 80.0);
    assert_eq!(answers.findings("leak").len(), 0);
}

#[test]
fn what_stays_says_how_fast_it_grew() {
    let answers = planted("ramp");
    answers.peaks_at(240.0);
    answers.grows("leak", "login", 80.0);
}

#[test]
fn a_leak_beside_data_and_churn_comes_first() {
    let answers = planted("leak");
    answers.peaks_at(70.0);
    let first = &answers.json["findings"][0];
    assert!(
        first["kind"] == "leak" && first["site"] == "login",
        "{first}"
    );
    assert!(
        first["headline"].as_str().unwrap().contains("grew by"),
        "{first}"
    );
    let opening = answers.json["verdict"].as_str().unwrap();
    assert!(opening.contains("killed by signal 2"), "{opening}");
    assert!(!opening.contains("`request`"), "{opening}");
}

#[test]
fn a_short_spike_is_the_peak_and_no_growth() {
    let answers = planted("spike");
    answers.peaks_at(160.0);
    for kind in ["growth", "leak"] {
        assert_eq!(answers.findings(kind).len(), 0, "{:#}", answers.json);
    }
}

#[test]
fn a_quiet_program_neither_grows_nor_leaks() {
    let answers = planted("quiet");
    answers.peaks_at(20.0);
    for kind in ["growth", "leak"] {
        assert_eq!(answers.findings(kind).len(), 0, "{:#}", answers.json);
    }
}

#[test]
fn a_method_in_cxx_grows() {
    let run = Run::new();
    let program = run.room.path().join("catalog");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/truth/answers.cc");
    let mut compiler = Command::new("c++");
    compiler.args(["-g", "-O1", source, "-o"]).arg(&program);
    if !compiler.status().is_ok_and(|status| status.success()) {
        return skips::skipped("no C++ compiler here (Debian: apt install g++)");
    }
    let answers = Answers::of(&[program.to_str().unwrap()]);
    answers.peaks_at(240.0);
    answers.grows("growth", "Catalog::add", 80.0);
}

#[test]
fn a_list_in_python_grows() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/truth/answers.py");
    let mut found = 0;
    for release in 11..=14 {
        let Some(python) = python(release) else {
            continue;
        };
        found += 1;
        let answers = Answers::of(&[python.to_str().unwrap(), program]);
        answers.peaks_at(240.0);
        answers.grows("growth", "login", 80.0);
        let headline = answers.findings("growth")[0]["headline"].clone();
        let place = "`login` (answers.py:9)";
        assert!(headline.as_str().unwrap().contains(place), "{headline}");
    }
    if found < 4 {
        skips::announce(&format!(
            "{found} of the releases 3.11 to 3.14 of Python are here"
        ));
    }
    if found == 0 {
        skips::skipped("no python3 here (Debian: apt install python3)");
    }
}

/// The interpreter of release 3.`release`, in the system's places or among pyenv's.
fn python(release: u32) -> Option<PathBuf> {
    let system = ["/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    let pyenv = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions"));
    let versions = pyenv.and_then(|folder| std::fs::read_dir(folder).ok());
    let versions = versions.into_iter().flatten().flatten();
    let folders = system
        .into_iter()
        .chain(versions.map(|version| version.path().join("bin")));
    let mut files = folders.map(|folder| folder.join(format!("python3.{release}")));
    files.find(|file| file.exists())
}
