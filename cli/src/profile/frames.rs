//! Recognises frames that do not help the reader: the allocator's own, which are removed, and runs
//! of a runtime's frames, which texts and the pages of reports fold into one line. Flame graphs
//! as files, and files for other tools, keep every frame of a runtime.

use super::model::{Frame, Profile, Stack, base};
use neap_shared::sites::is_python;
use std::sync::Arc;

/// Removes the innermost frames that only pass a request on to the allocator. Where Python
/// functions follow, removes the interpreter's frames and those that called it.
pub fn without(mut frames: Vec<Arc<Frame>>) -> Vec<Arc<Frame>> {
    if let Some(python) = frames.iter().position(|frame| is_python(frame.address)) {
        let first = frames[..python]
            .iter()
            .position(|frame| is_interpreter(frame));
        frames.drain(first.unwrap_or(python)..python);
    }
    let inlined = inlined_into_shim(&frames);
    let own = frames[inlined..].iter().take_while(|frame| is_own(frame));
    let own = inlined + own.count();
    frames.drain(..own);
    frames
}

/// How many frames the compiler inlined into Rust's shim of the allocator: the allocator, of whose
/// functions `debug = "line-tables-only"` keeps only the last part of the names.
fn inlined_into_shim(frames: &[Arc<Frame>]) -> usize {
    let same_place = |frame: &&Arc<Frame>| frame.address == frames[0].address;
    let mut inlined = frames.iter().take_while(same_place);
    inlined
        .position(|frame| is_shim(&frame.function))
        .unwrap_or(0)
}

/// Whether the function is one that Rust's compiler makes between a program and its allocator:
/// `__rust_alloc`, `__rustc::__rust_alloc` or `__rustc[HASH]::__rust_alloc`, by its version.
fn is_shim(function: &str) -> bool {
    #[rustfmt::skip]
    const SHIM: [&str; 5] =
        ["__rust_alloc", "__rust_dealloc", "__rust_realloc", "__rg_", "__rdl_"];
    let last = function.rsplit("::").next().unwrap_or_default();
    function.starts_with("__") && starts_with(last, &SHIM)
}

fn starts_with(text: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| text.starts_with(start))
}

fn is_own(frame: &Frame) -> bool {
    in_library(&frame.module) || is_entry(&frame.function) || is_rust(frame)
}

fn in_library(module: &str) -> bool {
    let name = base(module);
    name.starts_with("libneap") && name.contains(".so")
}

/// The allocator linked into a Rust program, its entry points, and C++'s standard operators that
/// call them.
fn is_entry(function: &str) -> bool {
    const CRATES: [&str; 3] = ["neap::", "neap_heap::", "neap_instruments::"];
    #[rustfmt::skip]
    const OWN: [&str; 5] =
        ["operator new", "std::__new_allocator<", "__gnu_cxx::new_allocator<",
            "std::allocator_traits<", "std::allocator<"];
    // `<neap::Neap as …>::alloc`.
    let path = function.strip_prefix('<').unwrap_or(function);
    starts_with(path, &CRATES) || starts_with(function, &OWN) || is_shim(function)
}

/// Whether the frame is of Rust's library, by its source path if there is debug information. The
/// name alone does not tell: the program's code has such a name if it is compiled as a method of
/// one of the library's types.
fn is_rust(frame: &Frame) -> bool {
    const CRATES: [&str; 4] = ["alloc::", "<alloc::", "core::", "<core::"];
    let is_source = |library: &str| frame.file.contains(library);
    if frame.file.is_empty() {
        starts_with(&frame.function, &CRATES) || frame.function.contains(" as alloc::")
    } else {
        is_source("/library/alloc/src/") || is_source("/library/core/src/")
    }
}

/// Whether the frame is of Rust's or C++'s library, which calls on the program's behalf.
fn is_library(frame: &Frame) -> bool {
    #[rustfmt::skip]
    const SOURCES: [&str; 5] =
        ["/library/alloc/", "/library/core/", "/library/std/", "/hashbrown-", "/include/c++/"];
    let names = ["std::", "__gnu_cxx::"];
    let is_of_cxx = starts_with(base(&frame.module), &LIBRARIES_OF_CXX);
    let is_named = || is_rust(frame) || starts_with(&frame.function, &names);
    is_of_cxx
        || if frame.file.is_empty() {
            is_named()
        } else {
            SOURCES.iter().any(|source| frame.file.contains(source))
        }
}

/// Whether the frame is CPython's, or leads to a thread of it.
fn is_interpreter(frame: &Frame) -> bool {
    starts_with(base(&frame.module), &["python3", "libpython3"]) || is_start(frame)
}

/// Whether the frame is of a library of Python's, or of a module in C.
fn is_python_library(frame: &Frame) -> bool {
    starts_with(&frame.file, &["<frozen "])
        || frame.file.contains("/lib/python3")
        || frame.module.contains(".cpython-3")
}

/// Prefixes of functions that allocate on others' behalf: languages' runtimes, and common wrappers.
#[rustfmt::skip]
const RUNTIME: [&str; 37] = [
    "operator new", "std::", "<std::", "core::", "<core::", "alloc::", "<alloc::", "hashbrown::",
    "<hashbrown::", "__rust_", "__rustc", "__gnu_cxx::", "__libc_", "__strdup", "strdup", "strndup",
    "_IO_", "zmalloc", "zcalloc", "zrealloc", "ztrymalloc", "ztrycalloc", "ztryrealloc", "PyMem_",
    "_PyMem_", "PyObject_Malloc", "PyObject_Calloc", "PyObject_Realloc", "_PyObject_Malloc",
    "_PyObject_Calloc", "_PyObject_Realloc", "_PyObject_GC_", "g_malloc", "g_realloc", "xmalloc",
    "xrealloc", "xcalloc",
];

/// Whether the frame is of a language's runtime, of the C library, or a common wrapper of malloc.
fn is_runtime(frame: &Frame) -> bool {
    let function = frame.function.as_str();
    let inner = function.strip_prefix('<').unwrap_or(function);
    let module = base(&frame.module);
    starts_with(function, &RUNTIME)
        || starts_with(module, &LIBRARIES)
        || inner.starts_with("alloc[") // a v0-mangled crate with its hash
        || is_library(frame)
        || RUNTIMES.iter().any(|(line, _)| *line == function)
        || is_python_library(frame)
}

/// Whether the function calls `main` or a thread's function.
pub fn is_start(frame: &Frame) -> bool {
    #[rustfmt::skip]
    const STARTS: [&str; 5] =
        ["__libc_start_call_main", "__libc_start_main_impl", "_start", "start_thread", "clone3"];
    !is_python(frame.address) && STARTS.contains(&frame.function.as_str())
}

/// The index of the innermost frame of the program's own code; of the innermost of all if there is
/// none.
pub fn own(frames: &[Arc<Frame>]) -> usize {
    let is_own = |frame: &Arc<Frame>| !is_runtime(frame) && !is_start(frame);
    frames.iter().position(is_own).unwrap_or(0)
}

/// The C library.
const LIBRARIES: [&str; 3] = ["libc.so.", "libc-2.", "ld-musl-"];
/// C++'s.
const LIBRARIES_OF_CXX: [&str; 2] = ["libstdc++.so.", "libc++.so."];

/// The line for a run of frames of Rust's or C++'s library.
const LIBRARY: &str = "(standard library)";

/// The line for a run of frames of Python's import system.
const IMPORT: &str = "(Python import)";

/// Runtimes, each with the line shown for a run of its frames and the prefixes of its functions'
/// names. In order of precedence: a run gets the line of the first runtime with a frame in it.
#[rustfmt::skip]
const RUNTIMES: [(&str, &[&str]); 6] = [
    ("(tokio runtime)",
        &["tokio::runtime::", "tokio::task::", "tokio::loom::", "tokio::util::"]),
    ("(async-std runtime)",
        &["async_std::", "async_executor::", "async_task::", "async_io::", "smol::"]),
    ("(futures executor)",
        &["futures_executor::", "futures_util::", "futures_core::", "pollster::"]),
    ("(Rust runtime)",
        &["std::rt::", "std::panicking::", "std::panic::", "std::sys::", "std::thread::",
            "__rust_try", "core::future::", "core::ops::function::", "core::panic::",
            "core::pin::Pin", "alloc::boxed::Box<F,A> as core::ops::function::"]),
    (LIBRARY, &[]),
    (IMPORT, &[]),
];

/// The runtime of a frame; `None` for the program's own functions.
fn runtime_of(frame: &Frame) -> Option<usize> {
    // `<tokio::task::Core<T> as …>::poll` belongs to tokio, `<my::Future as core::future::…>` does
    // not.
    let name = frame.function.trim_start_matches('<');
    let is_of = |(line, starts): &(&str, &[&str])| {
        starts_with(name, starts)
            || *line == LIBRARY && is_library(frame)
            || *line == IMPORT && frame.file.starts_with("<frozen importlib")
    };
    RUNTIMES.iter().position(is_of)
}

/// The stack without the library's innermost frames, with each run of two or more runtime frames
/// folded into one frame.
fn folded(frames: &[Arc<Frame>]) -> Vec<Arc<Frame>> {
    let mut out = Vec::with_capacity(frames.len());
    let callers = frames.iter().position(|frame| !is_library(frame));
    let is_runtime = |frame: &Arc<Frame>| runtime_of(frame).is_some();
    let both = |one: &_, other: &_| is_runtime(one) && is_runtime(other);
    for run in frames[callers.unwrap_or(0)..].chunk_by(both) {
        match run.iter().filter_map(|frame| runtime_of(frame)).min() {
            Some(first) if run.len() > 1 => out.push(Arc::new(Frame {
                function: RUNTIMES[first].0.to_owned(),
                ..Frame::default()
            })),
            _ => out.extend_from_slice(run),
        }
    }
    out
}

impl Profile {
    /// The same figures, with each run of runtime frames folded into one.
    #[must_use]
    pub fn folded(&self) -> Profile {
        let stacks = self.stacks.iter().map(|stack| Stack {
            frames: folded(&stack.frames),
            figures: stack.figures,
        });
        Profile {
            stacks: stacks.collect(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: &str, module: &str) -> Arc<Frame> {
        Arc::new(Frame {
            function: function.to_owned(),
            file: file.to_owned(),
            module: module.to_owned(),
            ..Frame::default()
        })
    }

    fn left(frames: &[Arc<Frame>]) -> Vec<String> {
        let left = without(frames.to_vec());
        left.iter().map(|frame| frame.function.clone()).collect()
    }

    #[test]
    fn python_functions_replace_the_interpreter() {
        let python = |function: &str| {
            let frame = frame(function, "/srv/app.py", "/srv/app.py");
            Arc::new(Frame {
                address: neap_shared::sites::PYTHON,
                ..(*frame).clone()
            })
        };
        let stack = [
            frame("malloc", "", "/usr/lib/libneap.so"),
            frame("new_array", "", "/lib/python3/numpy/core.cpython-311.so"),
            frame("_PyEval_EvalFrameDefault", "", "/usr/bin/python3.11"),
            frame("__libc_start_main_impl", "", "/usr/lib/libc.so.6"),
            python("login"),
            python("<module>"),
        ];
        assert_eq!(left(&stack), ["new_array", "login", "<module>"]);
        assert!(is_runtime(&stack[1]));
        let interpreter = [
            "new_array",
            "_PyEval_EvalFrameDefault",
            "__libc_start_main_impl",
        ];
        assert_eq!(left(&stack[..4]), interpreter);
        assert!(is_runtime(&frame(
            "loads",
            "/usr/lib/python3.11/json/__init__.py",
            ""
        )));
        assert!(!is_runtime(&python("login")));
    }

    #[test]
    fn only_the_innermost_are_dropped() {
        let stack = [
            frame("inner", "", "/usr/lib/libneap.so"),
            frame("malloc", "", "/target/libneap_c.so.1"),
            frame("make", "a.c", "/bin/program"),
            frame("callback", "", "/usr/lib/libneap.so"),
            frame("main", "a.c", "/bin/program"),
        ];
        assert_eq!(left(&stack), ["make", "callback", "main"]);
        assert_eq!(left(&stack[..2]), Vec::<String>::new());
    }

    #[test]
    fn every_crate_of_the_allocator_is_dropped() {
        let stack = [
            frame("neap_instruments::profile::sample", "", "/bin/program"),
            frame("neap_heap::front::allocate::missed", "", "/bin/program"),
            frame(
                "<neap_heap::front::global::Neap as core::alloc::global::GlobalAlloc>::alloc",
                "",
                "/bin/program",
            ),
            frame("neap::helper", "", "/bin/program"),
            frame("neaped::main", "", "/bin/program"),
        ];
        assert_eq!(left(&stack), ["neaped::main"]);
    }

    #[test]
    fn what_is_inlined_into_rust_s_shim_is_dropped_whatever_its_name() {
        let at = |address, function: &str| {
            let frame = frame(function, "/src/malloc.rs", "/bin/program");
            Arc::new(Frame {
                address,
                ..(*frame).clone()
            })
        };
        let stack = [
            at(2, "pop"),
            at(2, "alloc"),
            at(2, "__rust_alloc"),
            at(2, "make"),
            at(1, "__rust_alloc"),
            at(1, "main"),
            at(1, "__rust_begin_short_backtrace"),
        ];
        let stack_from_make = [
            "make",
            "__rust_alloc",
            "main",
            "__rust_begin_short_backtrace",
        ];
        assert_eq!(left(&stack), stack_from_make);
        assert_eq!(left(&stack[3..]), stack_from_make);
        assert_eq!(left(&stack[5..]), ["main", "__rust_begin_short_backtrace"]);
        assert_eq!(left(&[]), Vec::<String>::new());
    }

    #[test]
    fn rust_s_library_is_known_by_its_source_and_else_by_its_names() {
        let raw = "/rustc/0/library/alloc/src/raw_vec.rs";
        let stack = [
            frame("__rustc::__rust_alloc", "", "/bin/program"),
            frame("alloc::alloc::alloc", "", "/bin/program"),
            frame("alloc::raw_vec::RawVec<T>::grow", raw, "/bin/program"),
            frame(
                "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
                "",
                "/bin/program",
            ),
            frame("alloc::mine", "/src/mine.cpp", "/bin/program"),
            frame("main", "", "/bin/program"),
        ];
        assert_eq!(left(&stack), ["alloc::mine", "main"]);
    }

    fn stack(functions: &[&str]) -> Vec<Arc<Frame>> {
        let frame = |function: &&str| {
            Arc::new(Frame {
                function: (*function).to_owned(),
                ..Frame::default()
            })
        };
        functions.iter().map(frame).collect()
    }

    fn names(functions: &[&str]) -> Vec<String> {
        let folded = folded(&stack(functions));
        folded.iter().map(|frame| frame.function.clone()).collect()
    }

    #[test]
    fn a_run_of_runtime_frames_is_one_line_and_the_programs_own_stay() {
        assert_eq!(
            names(&[
                "server::parse",
                "server::handle::{{closure}}",
                "<core::pin::Pin<P> as core::future::future::Future>::poll",
                "tokio::runtime::task::core::Core<T,S>::poll",
                "std::panicking::try::do_call",
                "tokio::runtime::scheduler::current_thread::run",
                "server::main",
                "core::ops::function::FnOnce::call_once",
                "std::rt::lang_start",
            ]),
            [
                "server::parse",
                "server::handle::{{closure}}",
                "(tokio runtime)",
                "server::main",
                "(Rust runtime)",
            ]
        );
    }

    #[test]
    fn a_library_that_allocates_for_the_program_is_left_out() {
        let of_header = |function| frame(function, "/usr/include/c++/12/bits/vector.tcc", "/bin/p");
        let stack = [
            frame("std::string::_M_mutate", "", "/lib/libstdc++.so.6.0.30"),
            of_header("std::vector<...>::push_back"),
            frame("Catalog::add", "/src/main.cc", "/bin/p"),
            of_header("std::invoke<...>"),
            of_header("std::for_each<...>"),
            frame("main", "/src/main.cc", "/bin/p"),
        ];
        let functions = |frames: &[Arc<Frame>]| -> Vec<String> {
            folded(frames)
                .iter()
                .map(|frame| frame.function.clone())
                .collect()
        };
        assert_eq!(functions(&stack), ["Catalog::add", LIBRARY, "main"]);
        assert_eq!(functions(&stack[..2]), [LIBRARY]);
        assert_eq!((own(&stack), own(&stack[3..]), own(&stack[..2])), (2, 2, 0));
        assert_eq!(own(&folded(&stack)[1..]), 1);
    }

    #[test]
    fn one_frame_alone_keeps_its_name() {
        assert_eq!(
            names(&["a", "tokio::task::spawn::spawn", "b"]),
            ["a", "tokio::task::spawn::spawn", "b"]
        );
        assert_eq!(names(&[]), Vec::<String>::new());
    }
}
