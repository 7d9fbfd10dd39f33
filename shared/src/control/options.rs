//! The options, each declared once.
//!
//! The library's parser of the environment, the CLI's flags and help, and `docs/options.md` all
//! derive from [`OPTIONS`]. Nothing here allocates: the library reads its options before the first
//! block exists.

use super::nearest::nearest;

/// What values an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of the listed words.
    Choice(&'static [&'static str]),
    /// A number of bytes, with an optional suffix `K`, `M`, `G` or `T`, or `KiB` to `TiB` (powers
    /// of 1,024), within the range.
    Bytes {
        /// Smallest accepted value, in bytes.
        min: u64,
        /// Largest accepted value, in bytes.
        max: u64,
    },
    /// A number of milliseconds within the range.
    Millis {
        /// Smallest accepted value, in ms.
        min: u64,
        /// Largest accepted value, in ms.
        max: u64,
    },
    /// A file path.
    Path,
    /// The path of a Unix socket. Set by tools for the programs they run: no flag stands for it.
    Socket,
}

/// One option: the CLI flag is `--name`, the variable is `env`.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// The flag's name, without the dashes.
    pub name: &'static str,
    /// The environment variable.
    pub env: &'static str,
    /// Accepted values.
    pub kind: Kind,
    /// The value in force when the variable is absent.
    pub default: &'static str,
    /// What the flag means when it stands alone (`--name`); `None`: it needs a value.
    pub bare: Option<&'static str>,
    /// One sentence for people.
    pub doc: &'static str,
}

/// The form of an option's flag on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// `--name VALUE`.
    Value,
    /// `--name` or `--name=VALUE`; alone it means the word given here.
    Optional(&'static str),
    /// `--no-name`: a switch that is on until it is turned off.
    Off,
    /// There is none: tools set the variable.
    Absent,
}

impl Declaration {
    /// The form of this option's flag.
    #[must_use]
    pub fn flag(&self) -> Flag {
        match self.bare {
            Some(word) => Flag::Optional(word),
            None if self.kind == Kind::Socket => Flag::Absent,
            None if self.kind == SWITCH && self.default == "1" => Flag::Off,
            None => Flag::Value,
        }
    }
}

/// Off or on.
pub const SWITCH: Kind = Kind::Choice(&["0", "1"]);

/// Every option Neap knows.
pub static OPTIONS: &[Declaration] = &[
    Declaration {
        name: "stats",
        env: "NEAP_STATS",
        kind: Kind::Choice(&["off", "text", "json"]),
        default: "off",
        bare: Some("text"),
        doc: "Write one page of statistics when the process exits.",
    },
    Declaration {
        name: "stats-file",
        env: "NEAP_STATS_FILE",
        kind: Kind::Path,
        default: "",
        bare: None,
        doc: "Append the statistics to this file instead of standard error.",
    },
    Declaration {
        name: "count",
        env: "NEAP_COUNT",
        kind: SWITCH,
        default: "0",
        bare: Some("1"),
        doc: "Count every call and every requested byte exactly. This is slower, because the fast path is off.",
    },
    Declaration {
        name: "check",
        env: "NEAP_CHECK",
        kind: SWITCH,
        default: "0",
        bare: Some("1"),
        doc: "Quarantine freed blocks, and detect every second free of a block that is still in quarantine. This is slower.",
    },
    Declaration {
        name: "decay",
        env: "NEAP_DECAY",
        kind: Kind::Millis {
            min: 0,
            max: 3_600_000,
        },
        default: "1000",
        bare: None,
        doc: "How long a free page may stay resident, in milliseconds.",
    },
    Declaration {
        name: "purge-thread",
        env: "NEAP_PURGE_THREAD",
        kind: SWITCH,
        default: "1",
        bare: None,
        doc: "Run a background thread that gives free pages back. Without it, calls of `malloc` and `free` do this. A Rust program with Neap as its own allocator has the thread only if it asks.",
    },
    Declaration {
        name: "dirty-max",
        env: "NEAP_DIRTY_MAX",
        kind: Kind::Bytes {
            min: 0,
            max: 1 << 46,
        },
        default: "",
        bare: None,
        doc: "Most bytes of free spans that may stay resident, regardless of their age.",
    },
    Declaration {
        name: "limit-soft",
        env: "NEAP_LIMIT_SOFT",
        kind: Kind::Bytes {
            min: 1 << 20,
            max: 1 << 46,
        },
        default: "",
        bare: None,
        doc: "Near this many bytes, give free memory back before the decay time, if necessary all of it.",
    },
    Declaration {
        name: "limit",
        env: "NEAP_LIMIT",
        kind: Kind::Bytes {
            min: 1 << 20,
            max: 1 << 46,
        },
        default: "",
        bare: None,
        doc: "Allocations fail with ENOMEM beyond this many bytes of spans in use and of free spans that stay resident.",
    },
    Declaration {
        name: "thp",
        env: "NEAP_THP",
        kind: Kind::Choice(&["auto", "never", "always"]),
        default: "auto",
        bare: None,
        doc: "Where the kernel may use huge pages. `auto`: for new slabs of processes that have 64 MiB of slabs. `never`: nowhere. `always`: everywhere, which is faster, and resident memory may grow.",
    },
    Declaration {
        name: "thread-cache",
        env: "NEAP_THREAD_CACHE",
        kind: Kind::Bytes {
            min: 0,
            max: 1 << 30,
        },
        default: "1M",
        bare: None,
        doc: "Most bytes of free blocks that one thread's magazines may hold.",
    },
    Declaration {
        name: "cache",
        env: "NEAP_CACHE",
        kind: Kind::Bytes {
            min: 0,
            max: 1 << 40,
        },
        default: "",
        bare: None,
        doc: "Most bytes of free blocks that all magazines of the process may hold, beyond the first 4 KiB of each class and thread. If not set: a 32nd of the memory of the machine or the control group, at most 256 MiB a processor and 4 GiB, and at least 64 MiB.",
    },
    Declaration {
        name: "ask",
        env: "NEAP_ASK",
        kind: SWITCH,
        default: "1",
        bare: None,
        doc: "Query the kernel's page map or control group, or start a purge thread: a sandbox may forbid these system calls.",
    },
    Declaration {
        name: "deepbind",
        env: "NEAP_DEEPBIND",
        kind: Kind::Choice(&["strip", "keep"]),
        default: "strip",
        bare: None,
        doc: "Whether to strip RTLD_DEEPBIND from calls of dlopen. If it is kept, it mixes two heaps in one process.",
    },
    Declaration {
        name: "attach",
        env: "NEAP_ATTACH",
        kind: SWITCH,
        default: "1",
        bare: None,
        doc: "Keep a board for `neap stat`, `neap top` and the other tools: a memory file with figures, and a descriptor of it. 1: from the start, as `neap run` sets it. 0: never. If not set: once the heap has grown by 1 MiB, or 256 calls took a slow path.",
    },
    Declaration {
        name: "answer",
        env: "NEAP_ANSWER",
        kind: SWITCH,
        default: "0",
        bare: Some("1"),
        doc: "Start the background thread with the program, however small the program is, so that it answers `neap stat` and the other tools even while it sleeps. Larger programs have the thread anyway.",
    },
    Declaration {
        name: "sample",
        env: "NEAP_SAMPLE",
        kind: Kind::Bytes {
            min: 4 << 10,
            max: 1 << 30,
        },
        default: "",
        bare: Some("512K"),
        doc: "Sample allocations for the heap profile from the start. The value is the mean number of bytes between two samples.",
    },
    Declaration {
        name: "monitor",
        env: "NEAP_MONITOR",
        kind: Kind::Socket,
        default: "",
        bare: None,
        doc: "Send the board and the profile, as descriptors, to the process that listens at this Unix socket. `neap run --profile`, `--record` and `neap tune` set it.",
    },
    Declaration {
        name: "classes",
        env: "NEAP_CLASSES",
        kind: Kind::Path,
        default: "",
        bare: None,
        doc: "Use the size classes of this file, which `neap tune` wrote (libneap.so only).",
    },
    Declaration {
        name: "children",
        env: "NEAP_CHILDREN",
        kind: SWITCH,
        default: "1",
        bare: None,
        doc: "Put the programs that this program starts under Neap.",
    },
];

/// The option read from the variable `env`.
#[must_use]
pub fn find(env: &[u8]) -> Option<&'static Declaration> {
    OPTIONS.iter().find(|option| option.env.as_bytes() == env)
}

/// The variable whose name is nearest to the unknown `env`, if one is near enough
/// to be what was meant.
#[must_use]
pub fn nearest_variable(env: &[u8]) -> Option<&'static str> {
    let word = env.strip_prefix(PREFIX.as_bytes())?;
    let suffixes = OPTIONS.iter().map(|option| &option.env[PREFIX.len()..]);
    let suffix = nearest(word, suffixes)?;
    OPTIONS
        .iter()
        .map(|option| option.env)
        .find(|env| &env[PREFIX.len()..] == suffix)
}

/// What every variable of Neap begins with.
pub const PREFIX: &str = "NEAP_";

#[cfg(test)]
mod tests {
    use super::super::nearest::LONGEST;
    use super::super::value::parse;
    use super::*;
    use std::format;

    #[test]
    fn every_declaration_is_sound() {
        for option in OPTIONS {
            let name = option.name.to_uppercase().replace('-', "_");
            assert_eq!(option.env, format!("{PREFIX}{name}"));
            assert!(
                option.name.len() <= LONGEST,
                "{} is too long to be compared",
                option.name
            );
            assert_eq!(
                OPTIONS
                    .iter()
                    .filter(|other| other.env == option.env)
                    .count(),
                1
            );
            for value in option.bare.into_iter().chain([option.default]) {
                let accepted = parse(option.kind, value.as_bytes()).is_ok();
                assert_eq!(accepted, !value.is_empty(), "{}={value}", option.env);
            }
            assert!(option.doc.ends_with('.'));
        }
    }

    #[test]
    fn the_nearest_variable_is_near() {
        assert_eq!(nearest_variable(b"NEAP_DECYA"), Some("NEAP_DECAY"));
        assert_eq!(nearest_variable(b"NEAP_STATSFILE"), Some("NEAP_STATS_FILE"));
        assert_eq!(nearest_variable(b"NEAP_stats"), Some("NEAP_STATS"));
        assert_eq!(
            nearest_variable(b"NEAP_THREADCACHE"),
            Some("NEAP_THREAD_CACHE")
        );
        assert_eq!(nearest_variable(b"NEAP_COLOUR"), None);
        assert_eq!(nearest_variable(b"NEAP_"), None);
        assert_eq!(nearest_variable(b"DECAY"), None);
    }

    #[test]
    fn variables_are_found_by_their_whole_name() {
        assert_eq!(find(b"NEAP_DECAY").map(|option| option.name), Some("decay"));
        assert!(find(b"NEAP_DECA").is_none());
    }
}
