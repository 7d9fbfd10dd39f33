//! Compares a page with the truth.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A program's own record of one moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    unix_ms: u64,
    live: u64,
    rss: u64,
}

/// A program's own record over time.
pub struct Truth(Vec<Moment>);

/// The minimum and maximum over the moments around one.
#[derive(Clone, Copy, Debug)]
struct Around {
    live: (u64, u64),
    rss: (u64, u64),
}

/// The clocks of program, recorder and page may differ by this much, in ms, because a loaded
/// machine stops each for a while.
const APART_MS: u64 = 60;
/// Most bytes that the program holds but does not count: its runtime's own.
const UNCOUNTED: u64 = 3 << 20;

impl Truth {
    pub fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap();
        let moments = text.lines().filter_map(|line| {
            let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            let [unix_ms, live, rss] = numbers[..] else {
                return None;
            };
            Some(Moment { unix_ms, live, rss })
        });
        Self(moments.collect())
    }

    /// `None` before the first and after the last.
    fn around(&self, unix_ms: u64) -> Option<Around> {
        let moments = &self.0;
        let first = moments.partition_point(|moment| moment.unix_ms + APART_MS < unix_ms);
        let last = moments.partition_point(|moment| moment.unix_ms <= unix_ms + APART_MS);
        // One more on either side, because the value changes between two moments.
        let first = first.checked_sub(1)?;
        let near = moments.get(first..=last)?;
        let range = |of: fn(&Moment) -> u64| {
            let all = near.iter().map(of);
            (all.clone().min().unwrap(), all.max().unwrap())
        };
        Some(Around {
            live: range(|moment| moment.live),
            rss: range(|moment| moment.rss),
        })
    }

    fn most_rss(&self) -> u64 {
        self.0.iter().map(|moment| moment.rss).max().unwrap()
    }
}

/// Whether the value is within a twentieth of those around that moment.
fn is_within(value: u64, (least, most): (u64, u64), more: u64) -> bool {
    value >= least - least / 20 && value <= most + most / 20 + more
}

/// A page and its verdict.
pub struct Page {
    started_ms: u64,
    verdict: Value,
    points: Value,
    bands: Vec<String>,
    html: String,
}

impl Page {
    /// The page and verdict of a recording.
    pub fn of(mut neap: Command, recording: &Path) -> Self {
        let first = std::fs::read_to_string(recording).unwrap();
        let head: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
        let html = recording.with_extension("html");
        let output = neap
            .args(["report", "--quiet", "-o"])
            .arg(&html)
            .arg(recording);
        assert!(output.status().unwrap().success());
        let program = neap.get_program().to_owned();
        let json = Command::new(program)
            .args(["report", "--format=json"])
            .arg(recording)
            .output();
        let html = std::fs::read_to_string(html).unwrap();
        let points = between(&html, "id=\"points\">", "</script>").unwrap_or("null");
        let bands = html.split("<path class=\"fill-").skip(1);
        Self {
            started_ms: head["head"]["started_ms"].as_u64().unwrap(),
            verdict: serde_json::from_slice(&json.unwrap().stdout).unwrap(),
            points: serde_json::from_str(points).unwrap(),
            bands: bands
                .map(|rest| rest.split('"').next().unwrap().to_owned())
                .collect(),
            html,
        }
    }

    pub fn opening(&self) -> &str {
        self.verdict["verdict"].as_str().unwrap()
    }

    /// Whether the page states at some moment that the program held at least `bytes`.
    pub fn knows(&self, bytes: u64) -> bool {
        (0..self.len()).any(|at| self.held(at).is_some_and(|held| held >= bytes))
    }

    fn len(&self) -> usize {
        self.points["t"].as_array().map_or(0, Vec::len)
    }

    fn unix_ms(&self, at: usize) -> u64 {
        self.started_ms + (self.points["t"][at].as_f64().unwrap() * 1000.0).round() as u64
    }

    fn band(&self, name: &str, at: usize) -> Option<u64> {
        match self.bands.iter().position(|band| band == name) {
            Some(band) => self.points["bands"][band][at].as_u64(),
            // A band that is always 0, as far as anything is known.
            None => self.points["bands"][0][at].as_u64().map(|_| 0),
        }
    }

    fn held(&self, at: usize) -> Option<u64> {
        Some(self.band("used", at)? + self.band("rounding", at)?)
    }

    /// Compares every number with the truth.
    pub fn agrees(&self, truth: &Truth) {
        assert!(self.len() > 5, "{}", self.points);
        let known = (0..self.len()).filter(|at| self.check_point(*at, truth));
        let known = known.count();
        println!(
            "{known} of {} moments are known: {}",
            self.len(),
            self.opening()
        );
        self.check_ledger("peak", truth);
        self.check_ledger("end", truth);
        self.check_peak(truth);
    }

    /// Whether the heap is known at a moment.
    fn check_point(&self, at: usize, truth: &Truth) -> bool {
        let (t, rss) = (
            &self.points["t"][at],
            self.points["rss"][at].as_u64().unwrap(),
        );
        let held = self.held(at);
        let Some(around) = truth.around(self.unix_ms(at)) else {
            return held.is_some();
        };
        let what = || format!("at {t} s: in RAM {rss}, held {held:?}, true: {around:?}");
        assert!(is_within(rss, around.rss, 0), "{}", what());
        if let Some(held) = held {
            assert!(is_within(held, around.live, UNCOUNTED), "{}", what());
        }
        if let Some(taken) = self.points["taken"][at].as_u64() {
            assert!(
                taken + taken / 20 + UNCOUNTED >= around.live.0,
                "{}: {taken}",
                what()
            );
        }
        held.is_some()
    }

    /// The ledger of the peak or of the end must be true at its moment, or be marked as missing.
    fn check_ledger(&self, which: &str, truth: &Truth) {
        let moment = match which {
            "peak" => &self.verdict["peak"]["split"],
            _ => &self.verdict[which],
        };
        let ledger = &self.verdict[format!("ledger_at_{which}")];
        if moment["known"] != true {
            assert!(ledger.is_null(), "{which}: {ledger}");
            let words: &[&str] = match which {
                "peak" => &["not known", "Nearest known"],
                _ => &["Last reported"],
            };
            let is_said = words.iter().any(|words| self.html.contains(words));
            let is_marked = is_said || moment.is_null();
            assert!(is_marked, "{which}: {moment}");
            return;
        }
        let line = |name: &str| ledger[name].as_u64().unwrap();
        let Some(around) = truth.around(self.started_ms + moment["t_ms"].as_u64().unwrap()) else {
            return;
        };
        let usable = line("requested") + line("rounding");
        assert!(
            is_within(usable, around.live, UNCOUNTED),
            "{which}: {ledger}, true: {around:?}"
        );
        // The requested bytes are an estimate, and the page says so.
        assert!(self.html.contains("(estimated"), "{which}");
        let rss = moment["resident"].as_u64().unwrap();
        assert!(
            is_within(rss, around.rss, 0),
            "{which}: {moment}, true: {around:?}"
        );
    }

    /// Checks the peak that the first paragraph states.
    fn check_peak(&self, truth: &Truth) {
        let most = self.verdict["peak_resident"].as_u64().unwrap();
        assert!(
            is_within(most, (truth.most_rss(), truth.most_rss()), 0),
            "{most}: {}",
            truth.most_rss()
        );
        if self.verdict["peak"]["split"]["known"] != true {
            // Other figures than those of the peak come with their time.
            let opening = self.opening();
            let has_time = opening.contains(" in RAM were in the heap: ");
            assert!(opening.contains("not known") || has_time, "{opening}");
        }
    }
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    Some(text.split_once(start)?.1.split_once(end)?.0)
}
