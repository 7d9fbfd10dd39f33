//! Places in the program that allocate.
//!
//! A profile has stacks of calls. People look for their own function, not for the library's that it
//! called. So a site is the innermost call outside all languages' runtimes.

use crate::profile::{Figures, Frame, Profile, Stack, base, source};
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

    /// Usable minus requested bytes of live objects.
    pub fn waste(&self) -> u64 {
        self.figures.waste()
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
        if stack.figures.alloc_bytes > site.most {
            site.most = stack.figures.alloc_bytes;
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

/// The innermost frame of the program's own code; the innermost of all if there is none.
fn own(frames: &[std::sync::Arc<Frame>]) -> usize {
    frames
        .iter()
        .position(|frame| !is_runtime(frame))
        .unwrap_or(0)
}

/// Prefixes of functions that allocate on others' behalf: languages' runtimes, and common wrappers.
const RUNTIME: [&str; 34] = [
    "operator new",
    "std::",
    "<std::",
    "core::",
    "<core::",
    "alloc::",
    "<alloc::",
    "hashbrown::",
    "<hashbrown::",
    "__rust_",
    "__rustc",
    "__gnu_cxx::",
    "__libc_",
    "__strdup",
    "strdup",
    "strndup",
    "_IO_",
    "zmalloc",
    "zcalloc",
    "zrealloc",
    "ztrymalloc",
    "ztrycalloc",
    "ztryrealloc",
    "PyMem_",
    "_PyMem_",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "_PyObject_GC_",
    "g_malloc",
    "g_realloc",
    "xmalloc",
    "xrealloc",
    "xcalloc",
];

/// Whether the function calls `main` or a thread's function.
fn is_start(frame: &Frame) -> bool {
    let starts = [
        "__libc_start_call_main",
        "__libc_start_main_impl",
        "_start",
        "start_thread",
        "clone3",
    ];
    starts.contains(&frame.function.as_str())
}

fn is_runtime(frame: &Frame) -> bool {
    let function = frame.function.as_str();
    let inner = function.strip_prefix('<').unwrap_or(function);
    RUNTIME.iter().any(|start| function.starts_with(start))
        || inner.starts_with("alloc[") // a v0-mangled crate with its hash
        || function.starts_with("void std::")
        || function.starts_with("void* std::")
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
    fn a_name_cannot_end_its_quotation() {
        let site = Site {
            function: "a`b".to_owned(),
            ..Site::default()
        };
        assert_eq!(site.name(), "`a'b`");
    }
}
