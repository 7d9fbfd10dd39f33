//! Functions line by line, with each line's allocations beside its source, like
//! `go tool pprof -list`.

use super::calls::{Share, functions, shares};
use super::model::{Frame, Profile, Value};
use super::summary::{amount, elsewhere, percent, phrase};
use super::symbols::clean;
use crate::failure::Failure;
use crate::files;
use regex_lite::Regex;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::path::Path;

/// Lines shown before and after one that allocates.
const AROUND: u32 = 5;
/// The largest source file read, in bytes.
const LARGEST_SOURCE: u64 = 16 << 20;

/// The functions whose names match, each with its source if that can be read.
///
/// # Errors
/// The pattern is not a valid regular expression, or no function matches.
pub fn listing(profile: &Profile, value: Value, pattern: &str) -> Result<String, Failure> {
    let pattern = compiled(pattern)?;
    let routines = routines(profile, value, &pattern);
    if routines.is_empty() {
        return Err(nothing(profile, value, &pattern));
    }
    let whole = value.of(&profile.total());
    let mut text = format!("Total: {}\n", amount(value, whole));
    for ((function, file), routine) in &routines {
        let _ = writeln!(
            text,
            "ROUTINE ======== {function} in {}",
            if file.is_empty() { "?" } else { file }
        );
        text += &routine.text(file, value, whole);
    }
    Ok(text)
}

/// Checks that the pattern is valid.
///
/// # Errors
/// It is not.
pub fn check_pattern(pattern: &str) -> Result<(), Failure> {
    compiled(pattern).map(drop)
}

fn compiled(pattern: &str) -> Result<Regex, Failure> {
    Regex::new(pattern).map_err(|error| {
        failure!("--list takes a regular expression, and {pattern:?} is not one: {error}")
    })
}

/// A function and its file.
type Key<'a> = (&'a str, &'a str);

#[derive(Default)]
struct Routine {
    all: Share,
    lines: BTreeMap<u32, Share>,
}

fn routines<'a>(profile: &'a Profile, value: Value, pattern: &Regex) -> BTreeMap<Key<'a>, Routine> {
    let functions = functions(profile, value).into_iter();
    let matching: HashSet<&str> = functions
        .map(|((function, _), _)| function)
        .filter(|function| pattern.is_match(function))
        .collect();
    let found = |frame: &'a Frame| {
        let is_matching = matching.contains(frame.function.as_str());
        is_matching.then(|| key(frame))
    };
    let mut routines: BTreeMap<Key, Routine> = BTreeMap::new();
    for (key, share) in shares(profile, value, found) {
        routines.entry(key).or_default().all = share;
    }
    let lines = shares(profile, value, |frame| Some((found(frame)?, frame.line)));
    for ((key, line), share) in lines {
        routines.entry(key).or_default().lines.insert(line, share);
    }
    routines
}

fn key(frame: &Frame) -> Key<'_> {
    (&frame.function, &frame.file)
}

impl Routine {
    fn text(&self, file: &str, value: Value, whole: u64) -> String {
        let (flat, cumulative) = (
            amount(value, self.all.flat),
            amount(value, self.all.cumulative),
        );
        let part = percent(self.all.cumulative, whole);
        let mut text =
            format!("{flat:>10} {cumulative:>10}  (flat, cumulative) {part} of the total\n");
        let source = source(file);
        let mut before = None;
        for line in self.shown(source.as_ref().map_or(0, Vec::len)) {
            if before.is_some_and(|before: u32| before + 1 < line) {
                text.push_str("                         ...\n");
            }
            before = Some(line);
            text += &self.line(line, source.as_deref(), value);
        }
        text
    }

    /// The lines that allocate, and the lines around them, for a source of `length` lines.
    fn shown(&self, length: usize) -> Vec<u32> {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let mut shown: Vec<u32> = Vec::new();
        for &line in self.lines.keys() {
            shown.push(line);
            let first = line.saturating_sub(AROUND).max(1);
            let last = line.saturating_add(AROUND).min(length);
            shown.extend(first..=last);
        }
        shown.sort_unstable();
        shown.dedup();
        shown
    }

    fn line(&self, line: u32, source: Option<&[String]>, value: Value) -> String {
        let number = if line == 0 {
            "?".to_owned()
        } else {
            line.to_string()
        };
        let share = self.lines.get(&line);
        let column = |of: fn(&Share) -> u64| match share.map_or(0, of) {
            0 => ".".to_owned(),
            some => amount(value, some),
        };
        let index = (line as usize).checked_sub(1);
        let code = source
            .and_then(|source| source.get(index?))
            .map_or("", String::as_str);
        let (flat, cumulative) = (column(|share| share.flat), column(|share| share.cumulative));
        let text = format!("{flat:>10} {cumulative:>10} {number:>6}: {code}");
        format!("{}\n", text.trim_end())
    }
}

/// The lines of a source file; `None` if it cannot be read.
fn source(file: &str) -> Option<Vec<String>> {
    let bytes = files::foreign(Path::new(file), LARGEST_SOURCE + 1)?;
    if bytes.len() as u64 > LARGEST_SOURCE {
        return None;
    }
    let text = String::from_utf8_lossy(&bytes);
    Some(
        text.lines()
            .map(|line| clean(&line.replace('\t', "    ")))
            .collect(),
    )
}

fn nothing(profile: &Profile, value: Value, pattern: &Regex) -> Failure {
    let mut all = functions(profile, value);
    all.sort_by_key(|&(name, share)| (std::cmp::Reverse(share.flat), name));
    let names: Vec<&str> = all
        .iter()
        .take(3)
        .map(|((function, _), _)| *function)
        .collect();
    Failure::own(if names.is_empty() {
        format!(
            "the profile has no {}{}",
            phrase(profile, value),
            match elsewhere(profile) {
                "" => ": nothing was sampled yet",
                elsewhere => elsewhere,
            }
        )
    } else {
        format!(
            "no function matches {pattern}; the largest are {}",
            names.join(", ")
        )
    })
}
