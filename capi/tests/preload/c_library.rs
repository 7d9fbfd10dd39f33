//! The C library that the programs are compiled for, and what the tests leave out with it.

use crate::skips::announce;
use crate::support::{Machine, library, sources};
use std::env;
use std::ffi::{OsStr, OsString};

/// The C library of the programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CLibrary {
    Glibc,
    Musl,
    /// Before 2.34: threads and the loader's functions are in libraries of their own.
    OldGlibc,
}

impl CLibrary {
    /// The one that `C_LIBRARY_UNDER_TEST` names; glibc if it names none.
    pub fn under_test() -> Self {
        match env::var("C_LIBRARY_UNDER_TEST").as_deref() {
            Err(_) | Ok("glibc") => Self::Glibc,
            Ok("musl") => Self::Musl,
            Ok("old-glibc") => Self::OldGlibc,
            Ok(other) => panic!("C_LIBRARY_UNDER_TEST={other}: say glibc, musl or old-glibc"),
        }
    }

    /// The flags that a compiler needs for it. A program of musl's is not linked to the library,
    /// because its loader would not take the preloaded one for it; `musl.h` declares the names, and
    /// what musl lacks.
    pub fn flags(self, flags: &[&OsStr]) -> Vec<OsString> {
        let flags = flags.iter().map(|&flag| flag.to_owned());
        let header = match self {
            Self::Glibc => return flags.collect(),
            Self::Musl => "programs/musl.h",
            Self::OldGlibc => "programs/old_glibc.h",
        };
        let declarations = sources().join(header);
        if self == Self::OldGlibc {
            // Timers are in librt.
            let own = ["-include".into(), declarations.into(), "-lrt".into()];
            return flags.chain(own).collect();
        }
        let headers = match Machine::under_test() {
            Machine::Own => ["/usr/include", "/usr/include/x86_64-linux-gnu"],
            Machine::Aarch64 => ["/usr/aarch64-linux-gnu/include"; 2],
        };
        let headers = headers.iter().flat_map(|path| ["-idirafter", path]);
        ["-include".into(), declarations.into()]
            .into_iter()
            .chain(headers.map(OsString::from))
            .chain(flags.filter(|flag| *flag != library()))
            .collect()
    }
}

/// What a test leaves out with musl, a source or a program's way, and why.
const NOT_WITH_MUSL: &[(&str, &str)] = &[
    (
        "injected faults",
        "musl's pthread_create takes ENOSYS for success, and its calls do not show who made them",
    ),
    ("runtime's file name", "the runtime is this machine's"),
    ("compilers", "they are this machine's"),
    ("a browser", "it is this machine's"),
    ("programs/overflow.c", "musl has no makecontext"),
    ("programs/leap.c", "musl has no makecontext"),
    ("programs/chosen_stack.c", "musl has no makecontext"),
    ("programs/early.c", "musl has no LD_AUDIT"),
    (
        "programs/thread_area.c",
        "since 1.2.4, musl's clone gives a child no thread area",
    ),
    (
        "programs/unload.c",
        "musl opens no library late that needs thread-local memory at a fixed place",
    ),
    (
        "programs/early_and_late.c",
        "musl runs nothing of .preinit_array",
    ),
    (
        "programs/start/small.c",
        "the bars compare with glibc's processes, which are larger than musl's",
    ),
    (
        "programs/start/privileged.c",
        "programs of musl's are not linked to the library here",
    ),
    (
        "programs/fork/opened_late.c",
        "musl opens no library late that needs thread-local memory at a fixed place",
    ),
    (
        "programs/fork/streams.c",
        "musl's fork takes its list of streams after the heap's locks",
    ),
    (
        "programs/fork/signalled.c",
        "musl does not tell whether a program has fork handlers, so no signals are masked",
    ),
    (
        "programs/fork/beside.c",
        "musl's fork waits for other threads' handlers, and these fork",
    ),
    (
        "programs/start/name_service.c",
        "musl loads no modules of a name service",
    ),
    (
        "programs/start/name_module.c",
        "it is loaded by name_service.c",
    ),
    (
        "handlers fork",
        "musl's fork waits for one that the same thread has begun",
    ),
    (
        "forks daemon",
        "musl's fork waits for other threads' handlers",
    ),
    ("deepbind keep", "musl has no RTLD_DEEPBIND"),
    (
        "programs/sanitized.c",
        "no compiler here has sanitizers for musl",
    ),
    ("a browser", "it is this machine's"),
    (
        "small-stack",
        "musl allows stacks of 2 KiB, and the heap needs 3 KiB",
    ),
];

/// The same with an old glibc.
const NOT_WITH_OLD_GLIBC: &[(&str, &str)] = &[
    (
        "programs/start/small.c",
        "the bars are those of a C library in one file",
    ),
    (
        "programs/sanitized.c",
        "the sanitizers' runtimes are this machine's",
    ),
    ("runtime's file name", "the runtime is this machine's"),
    ("compilers", "they are this machine's"),
    ("a browser", "it is this machine's"),
];

/// Whether a test leaves out `what` with the C library under test. Says so on stderr.
pub fn leaves_out(what: &str) -> bool {
    let list = match CLibrary::under_test() {
        CLibrary::Glibc => &[],
        CLibrary::Musl => NOT_WITH_MUSL,
        CLibrary::OldGlibc => NOT_WITH_OLD_GLIBC,
    };
    let excluded = list.iter().find(|(name, _)| *name == what);
    if let Some((what, why)) = excluded {
        announce(&format!("{what}: {why}"));
    }
    excluded.is_some()
}
