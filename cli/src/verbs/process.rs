//! `neap doctor PID`: where the memory of any process is, how much of it another allocator could
//! give back at most, and what to do next.

use crate::attach::{Memory, Process, StatusPage, kernel, processes};
use crate::failure::Failure;
use crate::table::{Finding, table};
use neap_shared::areas::{Mapping, Place, field, mappings};
use neap_shared::stats::Bytes;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::ops::Range;

/// Runtimes that keep their own heaps, by the start of their programs' names.
#[rustfmt::skip]
const RUNTIMES: [(&str, &str); 3] = [
    ("python3", "Python keeps small objects in anonymous memory of its own, unless PYTHONMALLOC=malloc is set"),
    ("java", "most of the anonymous memory is the Java heap, which no malloc serves"),
    ("node", "part of the anonymous memory is V8's heap, which no malloc serves"),
];

/// A process's memory by place.
pub struct Memories {
    title: String,
    pid: i32,
    runtime: Option<&'static str>,
    /// Resident bytes by [`Place`].
    places: [u64; Place::ALL.len()],
    /// Resident in Neap's heap; `None` without Neap.
    neap: Option<u64>,
    swapped: u64,
    huge: u64,
    /// Resident whole free pages of glibc's heaps; `None` if they cannot be told.
    free: Option<u64>,
}

impl Memories {
    /// Those of a process.
    ///
    /// # Errors
    ///
    /// There is no such process, it has ended, or this user may not look.
    pub fn of(pid: i32) -> Result<Self, Failure> {
        let process = Process::open(pid)?;
        let text = process.text("smaps").map_err(|error| {
            let title = process.title();
            failure!(
                "cannot look at the memory of {title}: {error}; run neap as its user or as root"
            )
        })?;
        if text.is_empty() {
            return Err(failure!(
                "{} has no memory: it is a thread of the kernel, or has ended",
                process.title()
            ));
        }
        let program = process.program().unwrap_or_default();
        // `node20`, not `node_exporter`.
        let goes_on =
            |rest: &str| rest.starts_with(|next: char| next.is_alphabetic() || next == '_');
        let is_it = |name| {
            program
                .strip_prefix(name)
                .is_some_and(|rest| !goes_on(rest))
        };
        let runtime = RUNTIMES.iter().find(|(name, _)| is_it(*name));
        let arenas = StatusPage::open(pid).ok().map(|page| page.arenas());
        let is_neaps = |one: &Mapping| {
            let meets =
                |arena: &Range<u64>| arena.start < one.range.end && one.range.start < arena.end;
            arenas.iter().flatten().any(meets)
        };
        let (ours, others): (Vec<_>, Vec<_>) = mappings(&text).partition(is_neaps);
        let total = |of: fn(&Mapping) -> u64| ours.iter().chain(&others).map(of).sum();
        let (places, free) = by_place(&process, &others);
        Ok(Self {
            title: process.title(),
            pid,
            runtime: runtime.map(|(_, words)| *words),
            places,
            neap: arenas
                .is_some()
                .then(|| ours.iter().map(|one| one.resident).sum()),
            swapped: total(|one| one.swapped),
            huge: total(|one| one.huge),
            free,
        })
    }

    fn resident(&self) -> u64 {
        self.places.iter().sum::<u64>() + self.neap.unwrap_or(0)
    }

    fn at(&self, place: Place) -> u64 {
        self.places[place as usize]
    }

    /// What another allocator could give back, in a sentence, and the next command.
    fn advice(&self) -> (String, String) {
        if self.neap.is_some() {
            let next = format!("neap stat {}", self.pid);
            return (
                "It runs under Neap, whose own figures say more.".to_owned(),
                next,
            );
        }
        let heaps = self.at(Place::Heap) + self.at(Place::Arena);
        let anonymous = self.at(Place::Anonymous);
        let most = Bytes(self.free.unwrap_or(heaps) + anonymous);
        let heaps = match self.free {
            Some(free) => format!("{} of whole free pages in glibc's heaps", Bytes(free)),
            None => format!(
                "{} of heaps in which neap cannot see what is free (root may)",
                Bytes(heaps)
            ),
        };
        let sentence = format!(
            "At most {most} is free in whole pages:\n{heaps},\nand the free part of {} of anonymous \
             memory.\nAnother allocator may also pack the rest more tightly: a comparison shows it.",
            Bytes(anonymous)
        );
        (sentence, "neap compare -- PROGRAM".to_owned())
    }

    /// For people.
    pub fn text(&self) -> String {
        let neap = self.neap.map(|bytes| ("Neap's heap", bytes, ""));
        let places = Place::ALL.map(|place| (place.words(), self.at(place), meaning(place)));
        let further = [
            ("in huge pages", self.huge, ""),
            ("in swap", self.swapped, ""),
        ];
        let further = places.into_iter().chain(further);
        let rows = neap
            .into_iter()
            .chain(further.filter(|(_, bytes, _)| *bytes > 0));
        let rows =
            rows.map(|(name, bytes, meaning)| Finding::is(name, Bytes(bytes).to_string(), meaning));
        let rows: Vec<_> = rows.collect();
        let title = format!("{}: {} resident", self.title, Bytes(self.resident()));
        let (sentence, next) = self.advice();
        let runtime = self
            .runtime
            .map_or(String::new(), |words| format!("Note: {words}.\n"));
        format!(
            "{}{sentence}\n{runtime}Next: {next}\n",
            table(&title, &rows)
        )
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let places = Place::ALL.map(|place| (place.words(), self.at(place)));
        let (sentence, next) = self.advice();
        json!({
            "process": self.title,
            "pid": self.pid,
            "resident": self.resident(),
            "swapped": self.swapped,
            "huge": self.huge,
            "places": Value::from_iter(places),
            "neap": self.neap,
            "free_in_glibc": self.free,
            "verdict": sentence,
            "runtime": self.runtime,
            "next": next,
        })
    }
}

fn meaning(place: Place) -> &'static str {
    match place {
        Place::Anonymous => "large blocks, other allocators, the program's own mappings",
        Place::File => "code, constants and data of programs and libraries",
        _ => "",
    }
}

/// Resident bytes by place, and those of whole free pages in glibc's heaps; `None` if this user may
/// not read the heaps, or the main one makes no sense. Without a look, a mapping's shape tells.
fn by_place(process: &Process, mappings: &[Mapping]) -> ([u64; Place::ALL.len()], Option<u64>) {
    let (mut places, mut memory) = ([0; Place::ALL.len()], Memory::of(process));
    let mut free = memory.as_ref().map(|_| Vec::new());
    let resident = |ranges: &[Range<u64>]| Some(kernel::pages_in(process, ranges)?[0]);
    for one in mappings.iter().filter(|one| one.resident > 0) {
        let (mut place, mut heaps) = (one.place, 0);
        match (&mut memory, place) {
            (Some(memory), Place::Heap) => {
                let pages = memory.main_heap(&one.range);
                free = free.zip(pages).map(|(free, pages)| [free, pages].concat());
            }
            (Some(memory), Place::Arena | Place::Anonymous) => {
                let [found, pages] = memory.heaps(&one.range);
                place = Place::Anonymous;
                heaps = resident(&found).unwrap_or(0).min(one.resident);
                free.iter_mut()
                    .for_each(|free| free.extend_from_slice(&pages));
            }
            _ => {}
        }
        places[Place::Arena as usize] += heaps;
        places[place as usize] += one.resident - heaps;
    }
    (places, free.and_then(|free| resident(&free)))
}

/// Less is not worth a line, in bytes.
const LEAST: u64 = 64 << 20;
/// Most processes that are listed.
const LISTED: usize = 3;

/// The processes of this user with most anonymous memory.
pub fn largest() -> Vec<Finding> {
    let anonymous = |process: &Process| field(&process.status("RssAnon:")?, "");
    let all = processes().unwrap_or_default().into_iter();
    let all = all.filter_map(|process| Some((anonymous(&process)?, process)));
    let mut all: Vec<_> = all.filter(|(bytes, _)| *bytes >= LEAST).collect();
    all.sort_by_key(|(bytes, _)| Reverse(*bytes));
    let finding = |(bytes, process): &(u64, Process)| {
        let meaning = format!("{}; neap doctor {} says more", Bytes(*bytes), process.pid());
        Finding::is("anonymous", process.title(), meaning)
    };
    all.iter().take(LISTED).map(finding).collect()
}
