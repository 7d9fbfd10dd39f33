//! Folds runs of runtime frames into one line: the frames of an async executor or of Rust's
//! start-up between two functions of the program do not help the reader.
//!
//! `neap profile --tree` and `--leaks` show folded stacks. Reports, flame graphs and files for
//! other tools keep every frame.

use super::model::{Frame, Profile, Stack};
use std::sync::Arc;

/// A runtime, recognised by prefixes of its functions' names.
struct Runtime {
    /// The line shown for a run of its frames.
    label: &'static str,
    starts: &'static [&'static str],
}

/// In order of precedence: a run gets the label of the first runtime with a frame in it.
const RUNTIMES: [Runtime; 4] = [
    Runtime {
        label: "(tokio runtime)",
        starts: &[
            "tokio::runtime::",
            "tokio::task::",
            "tokio::loom::",
            "tokio::util::",
        ],
    },
    Runtime {
        label: "(async-std runtime)",
        starts: &[
            "async_std::",
            "async_executor::",
            "async_task::",
            "async_io::",
            "smol::",
        ],
    },
    Runtime {
        label: "(futures executor)",
        starts: &[
            "futures_executor::",
            "futures_util::",
            "futures_core::",
            "pollster::",
        ],
    },
    Runtime {
        label: "(Rust runtime)",
        starts: &[
            "std::rt::",
            "std::panicking::",
            "std::panic::",
            "std::sys::",
            "std::thread::",
            "__rust_try",
            "core::future::",
            "core::ops::function::",
            "core::panic::",
            "core::pin::Pin",
            "alloc::boxed::Box<F,A> as core::ops::function::",
        ],
    },
];

/// The runtime of a function; `None` for the program's own functions.
fn runtime_of(function: &str) -> Option<usize> {
    // `<tokio::task::Core<T> as …>::poll` belongs to tokio, `<my::Future as core::future::…>` does
    // not.
    let name = function.trim_start_matches('<');
    RUNTIMES
        .iter()
        .position(|runtime| runtime.starts.iter().any(|start| name.starts_with(start)))
}

/// The stack with each run of two or more runtime frames folded into one frame.
fn folded(frames: &[Arc<Frame>]) -> Vec<Arc<Frame>> {
    let mut out = Vec::with_capacity(frames.len());
    let mut rest = frames;
    while let Some(frame) = rest.first() {
        let runtimes = rest.iter().map_while(|frame| runtime_of(&frame.function));
        let (count, first) = runtimes.fold((0, usize::MAX), |(count, first), runtime| {
            (count + 1, first.min(runtime))
        });
        if count < 2 {
            out.push(Arc::clone(frame));
            rest = &rest[1..];
            continue;
        }
        out.push(Arc::new(Frame {
            function: RUNTIMES[first].label.to_owned(),
            ..Frame::default()
        }));
        rest = &rest[count..];
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

    /// A sentence about frames that the profile cannot name, such as a Python program's own
    /// functions.
    pub fn unnamed(&self) -> Option<&'static str> {
        let functions = || {
            let stacks = self.stacks.iter();
            stacks.flat_map(|stack| stack.frames.iter().map(|frame| frame.function.as_str()))
        };
        let is_python = functions().any(|function| function == "_PyEval_EvalFrameDefault");
        let is_named = functions().any(|function| function.starts_with("py::"));
        (is_python && !is_named).then_some(PYTHON)
    }
}

const PYTHON: &str = "These are the Python interpreter's C functions. Python 3.12 or newer names \
                      the program's \
                      own when it starts with PYTHONPERFSUPPORT=1; for older versions use memray.";

#[cfg(test)]
mod tests {
    use super::*;

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
    fn one_frame_alone_keeps_its_name() {
        assert_eq!(
            names(&["a", "tokio::task::spawn::spawn", "b"]),
            ["a", "tokio::task::spawn::spawn", "b"]
        );
        assert_eq!(names(&[]), Vec::<String>::new());
    }

    #[test]
    fn a_python_program_is_told_what_names_its_functions() {
        let profile = |functions: &[&str]| Profile {
            stacks: vec![Stack {
                frames: stack(functions),
                ..Stack::default()
            }],
            ..Profile::default()
        };
        let interpreter = ["PyObject_Malloc", "_PyEval_EvalFrameDefault", "main"];
        assert!(profile(&interpreter).unnamed().unwrap().contains("memray"));
        let named = ["_PyEval_EvalFrameDefault", "py::load:/srv/app.py"];
        assert_eq!(profile(&named).unnamed(), None);
        assert_eq!(profile(&["main"]).unnamed(), None);
    }
}
