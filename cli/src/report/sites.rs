//! Places in the program that allocate.
//!
//! A profile has stacks of calls. People look for their own function, not for the library's that it
//! called. So a site is the innermost call outside all languages' runtimes.

use crate::profile::{Figures, Frame, Profile, Stack, base, is_start, own, source, variance};
use crate::recording::format::Classes;
use neap_shared::classes::{BUILT_IN, MAX_BLOCK};
use neap_shared::stats::Bytes;
use std::collections::HashMap;

/// One place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// The function.
    pub function: String,
    /// Its file and line, shortened; may be empty.
    pub place: String,
    /// Its callers in the stack that allocates most here, nearest first.
    pub callers: Vec<String>,
    /// Its allocations.
    pub figures: Figures,
    /// Bytes of the stack that `callers` come from.
    most: u64,
    /// The sum over the stacks of the square of their live usable bytes, divided by their live
    /// objects. It is least if the blocks of all stacks have the same mean.
    squares: f64,
    /// The variance of its live bytes.
    variance: f64,
}

/// Most callers listed.
const CALLERS: usize = 4;

impl Site {
    /// For prose: the function and its location.
    pub fn name(&self) -> String {
        let function = plain(&self.function);
        match self.place.as_str() {
            "" => format!("`{function}`"),
            place => format!("`{function}` ({})", plain(place)),
        }
    }

    /// Its live bytes, with twice their standard error.
    pub fn live(&self) -> String {
        with_error(self.figures.live_bytes, (2.0 * self.variance.sqrt()) as u64)
    }

    /// How many more bytes are live here than at the same place of `before`, and the error. Both
    /// profiles share the samples of objects that stayed, so only the others add to the error.
    pub fn grown(&self, before: &[Self]) -> (u64, u64) {
        let before = before.iter().find(|other| other.is_at(self));
        let before = before.map_or(Figures::default(), |site| site.figures);
        let (now, each) = (
            self.figures,
            self.variance / self.figures.live_bytes.max(1) as f64,
        );
        let grown = now.live_bytes.saturating_sub(before.live_bytes);
        let added = now.alloc_bytes.saturating_sub(before.alloc_bytes);
        let replaced = added.saturating_sub(grown).min(before.live_bytes);
        let variance = each * (grown as f64 + 2.0 * replaced as f64);
        (grown, (2.0 * variance.sqrt()) as u64)
    }

    /// Whether both are the same place.
    pub fn is_at(&self, other: &Self) -> bool {
        (&self.function, &self.place) == (&other.function, &other.place)
    }

    /// The mean size of its live blocks, if they may all have the same size: the means of the
    /// stacks are alike, and the mean is a class, or larger than every class.
    pub fn block(&self, classes: Option<&Classes>) -> Option<u64> {
        let objects = self.figures.live_objects as f64;
        let mean = self.figures.live_usable as f64 / objects;
        let alike = self.squares <= 1.05 * self.figures.live_usable as f64 * mean;
        // The number of objects is rounded.
        let off = mean * (0.001 + 0.5 / objects);
        let is_mean = |class: u64| (class as f64 - mean).abs() <= off;
        let of_a_file = classes.is_some_and(|used| used.classes.iter().any(|c| is_mean(c.bytes)));
        let is_class = of_a_file || BUILT_IN.iter().any(|&class| is_mean(class.into()));
        (alike && (is_class || mean > MAX_BLOCK as f64)).then_some(mean.round() as u64)
    }

    /// Usable minus requested bytes of live objects.
    pub fn waste(&self) -> u64 {
        self.figures.waste()
    }
}

/// An estimate with its error in percent, if that is at least 1 %.
pub fn with_error(bytes: u64, error: u64) -> String {
    match (100.0 * error as f64 / bytes.max(1) as f64).ceil() {
        percent if percent > 1.0 => format!("{} ± {percent:.0} %", Bytes(bytes)),
        _ => Bytes(bytes).to_string(),
    }
}

/// A name without the characters that would end a quotation.
fn plain(name: &str) -> String {
    name.replace('`', "'")
}

/// The sites of `profile`, unsorted.
pub fn sites(profile: &Profile) -> Vec<Site> {
    let mut found: HashMap<(&str, &str, u32), Site> = HashMap::new();
    for stack in &profile.stacks {
        let at = own(&stack.frames);
        let key = stack.frames.get(at).map_or(("", "", 0), |frame| {
            (frame.function.as_str(), frame.file.as_str(), frame.line)
        });
        let site = found.entry(key).or_insert_with(|| named(stack, at));
        site.figures.add(&stack.figures);
        site.variance += variance(&stack.figures, profile.rate);
        let figures = &stack.figures;
        site.squares += (figures.live_usable as f64).powi(2) / figures.live_objects.max(1) as f64;
        if figures.alloc_bytes > site.most {
            site.most = figures.alloc_bytes;
            site.callers = callers(stack, at);
        }
    }
    found.into_values().collect()
}

fn named(stack: &Stack, at: usize) -> Site {
    let (function, place) = match stack.frames.get(at) {
        Some(frame) => (frame.function.clone(), place(frame)),
        None => ("(no stack)".to_owned(), String::new()),
    };
    Site {
        function,
        place,
        ..Site::default()
    }
}

fn callers(stack: &Stack, at: usize) -> Vec<String> {
    let outer = stack.frames.iter().skip(at + 1).take(CALLERS);
    let ours = outer.take_while(|frame| !is_start(frame));
    ours.map(|frame| frame.function.clone()).collect()
}

/// `file.c:12`, or the module without its directories.
pub fn place(frame: &Frame) -> String {
    source(frame).unwrap_or_else(|| base(&frame.module).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn frame(function: &str, line: u32) -> Arc<Frame> {
        Arc::new(Frame {
            function: function.to_owned(),
            file: "/src/deep/main.c".to_owned(),
            line,
            ..Frame::default()
        })
    }

    fn stack(functions: &[&str], bytes: u64) -> Stack {
        Stack {
            frames: functions.iter().map(|name| frame(name, 7)).collect(),
            figures: Figures {
                alloc_bytes: bytes,
                ..Figures::default()
            },
        }
    }

    #[test]
    fn a_site_is_the_programs_own_function() {
        let profile = Profile {
            stacks: vec![
                stack(
                    &[
                        "operator new(unsigned long)",
                        "std::vector<int>::reserve",
                        "fill",
                        "main",
                    ],
                    5,
                ),
                stack(&["fill", "twice", "main"], 9),
                stack(&["std::thread::spawn"], 1),
                stack(&[], 2),
            ],
            ..Profile::default()
        };
        let mut sites = sites(&profile);
        sites.sort_by_key(|site| site.figures.alloc_bytes);
        let names: Vec<_> = sites.iter().map(Site::name).collect();
        assert_eq!(
            names,
            [
                "`std::thread::spawn` (main.c:7)",
                "`(no stack)`",
                "`fill` (main.c:7)"
            ]
        );
        assert_eq!(sites[2].figures.alloc_bytes, 14);
        assert_eq!(sites[2].callers, ["twice", "main"]);
    }

    #[test]
    fn a_site_is_no_function_of_the_c_library() {
        let library = |function: &str, module: &str| {
            Arc::new(Frame {
                module: format!("/lib/{module}"),
                ..(*frame(function, 42)).clone()
            })
        };
        let named = |frames: &[Arc<Frame>]| {
            let stack = Stack {
                frames: frames.to_vec(),
                ..Stack::default()
            };
            sites(&Profile {
                stacks: vec![stack],
                ..Profile::default()
            })[0]
                .function
                .clone()
        };
        let copies = library("__GI___strdup", "libc.so.6");
        let starts = library("__libc_start_call_main", "libc.so.6");
        let own = [copies.clone(), frame("parse", 7), starts.clone()];
        assert_eq!(named(&own), "parse");
        assert_eq!(
            named(&[library("getline", "ld-musl-x86_64.so.1"), frame("f", 1)]),
            "f"
        );
        let start = frame("_start", 1);
        assert_eq!(named(&[copies, starts, start]), "__GI___strdup");
    }

    #[test]
    fn a_name_cannot_end_its_quotation() {
        let site = Site {
            function: "a`b".to_owned(),
            ..Site::default()
        };
        assert_eq!(site.name(), "`a'b`");
    }
}
