//! The options, each declared once.
//!
//! The environment parser in [`crate::front`], the CLI's flags and help, and
//! `docs/options.md` all derive from [`OPTIONS`].

/// What values an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of the listed words.
    Choice(&'static [&'static str]),
    /// A number of bytes, with an optional suffix `K`, `M` or `G` (powers of 1,024), within the range.
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
    /// One sentence for people.
    pub doc: &'static str,
}

/// On or off.
pub const SWITCH: Kind = Kind::Choice(&["0", "1"]);

/// Every option Neap knows.
pub static OPTIONS: &[Declaration] = &[
    Declaration {
        name: "stats",
        env: "NEAP_STATS",
        kind: Kind::Choice(&["off", "text", "json"]),
        default: "off",
        doc: "Write one page of statistics when the process exits.",
    },
    Declaration {
        name: "stats-file",
        env: "NEAP_STATS_FILE",
        kind: Kind::Path,
        default: "",
        doc: "Append the statistics to this file instead of standard error.",
    },
    Declaration {
        name: "count",
        env: "NEAP_COUNT",
        kind: SWITCH,
        default: "0",
        doc: "Count every call and every requested byte exactly (slower: the fast path is off).",
    },
    Declaration {
        name: "check",
        env: "NEAP_CHECK",
        kind: SWITCH,
        default: "0",
        doc: "Quarantine freed blocks and catch every second free of one still in quarantine (slower).",
    },
    Declaration {
        name: "decay",
        env: "NEAP_DECAY",
        kind: Kind::Millis {
            min: 0,
            max: 3_600_000,
        },
        default: "1000",
        doc: "How long a free page may stay resident, in milliseconds.",
    },
    Declaration {
        name: "thread-cache",
        env: "NEAP_THREAD_CACHE",
        kind: Kind::Bytes {
            min: 0,
            max: 1 << 30,
        },
        default: "1M",
        doc: "Most bytes of free blocks that one thread's magazines may hold.",
    },
    Declaration {
        name: "cache",
        env: "NEAP_CACHE",
        kind: Kind::Bytes {
            min: 0,
            max: 1 << 40,
        },
        default: "64M",
        doc: "Most bytes of free blocks that all magazines of the process may hold.",
    },
    Declaration {
        name: "deepbind",
        env: "NEAP_DEEPBIND",
        kind: Kind::Choice(&["strip", "keep"]),
        default: "strip",
        doc: "Whether dlopen's RTLD_DEEPBIND is taken out (kept, it mixes two heaps in one process).",
    },
];
