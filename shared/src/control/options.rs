//! The options, each declared once.
//!
//! The library's parser of the environment, the CLI's flags, help and man pages, and
//! `docs/options.md` all derive from [`OPTIONS`]. Nothing here allocates: the library reads its
//! options before the first block exists.

use super::nearest::nearest;

/// What values an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of the listed words. Where `never` and `always` are among them, `0` and `1` mean these
    /// two.
    Choice(&'static [&'static str]),
    /// A number of bytes, with an optional suffix `K`, `M`, `G` or `T`, or `KiB` to `TiB` (powers
    /// of 1,024), within the range.
    Bytes {
        /// Smallest accepted value, in bytes.
        min: u64,
        /// Largest accepted value, in bytes.
        max: u64,
    },
    /// A whole number with its unit, `ms`, `s`, `m` or `h`, within the range. A bare number is
    /// milliseconds.
    Time {
        /// Smallest accepted value, in ms.
        min: u64,
        /// Largest accepted value, in ms.
        max: u64,
    },
    /// A time within the range, or `all`, which is 0 as a value.
    Interval {
        /// Smallest accepted value, in ms.
        min: u64,
        /// Largest accepted value, in ms.
        max: u64,
    },
    /// Some of the listed names with commas between them; `0` is none of them, `1` all.
    Names(&'static [&'static str]),
    /// A file path.
    Path,
    /// The path of a Unix socket. Set by tools for the programs that they run; it has no flag.
    Socket,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// Its name. Most flags are `--name`.
    pub name: &'static str,
    /// The environment variable.
    pub env: &'static str,
    /// Accepted values.
    pub kind: Kind,
    /// The value in force when the variable is absent. Empty: none is; the doc says what holds.
    pub default: &'static str,
    /// How the command line expresses it.
    pub flag: Flag,
    /// What it is for.
    pub group: Group,
    /// One sentence for people.
    pub doc: &'static str,
}

/// What an option is for. Only the command has these texts, which would take 4 KiB of the library.
const fn doc(text: &'static str) -> &'static str {
    if cfg!(feature = "docs") { text } else { "" }
}

/// The form of an option's flag on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// `--name VALUE`.
    Value,
    /// `--name` or `--name=VALUE`; the value of the former.
    Optional(&'static str),
    /// `--name`, which turns on a switch that is off.
    On,
    /// `--no-name`, which turns off a switch that is on.
    Off,
    /// The named flags of `neap run`, which mean more than this variable.
    Through(&'static str),
    /// None: tools set the variable.
    Absent,
}

/// What options are for, in the order in which help and pages show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// What is written about the program.
    Write,
    /// How much memory stays.
    Bound,
    /// Finding errors.
    Check,
    /// Speed against memory.
    Tune,
    /// Programs and sandboxes that object to something.
    Fit,
}

impl Group {
    /// Every group, in order.
    pub const ALL: [Self; 5] = [Self::Write, Self::Bound, Self::Check, Self::Tune, Self::Fit];

    /// The heading above its options.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Write => "What to write",
            Self::Bound => "How much memory to keep",
            Self::Check => "Checks",
            Self::Tune => "Tuning",
            Self::Fit => "Compatibility",
        }
    }
}

/// Off or on.
pub const SWITCH: Kind = Kind::Choice(&["0", "1"]);

const AUTO: Kind = Kind::Choice(&["auto", "never", "always"]);

const fn size(min: u64, max: u64) -> Kind {
    Kind::Bytes { min, max }
}

/// The least value of `NEAP_SAMPLE`, in bytes.
pub const FINEST_SAMPLE: u64 = 4 << 10;

/// The measures of `NEAP_HARDEN`. `docs/harden.md` says what each stops and costs.
pub const HARDEN: [&str; 8] = [
    "random", "canary", "delay", "zero", "nullpage", "guards", "deletes", "tag",
];

/// Every option Neap knows, most useful first within its group.
pub static OPTIONS: &[Declaration] = &[
    Declaration {
        name: "stats",
        env: "NEAP_STATS",
        kind: Kind::Choice(&["off", "text", "json"]),
        default: "off",
        flag: Flag::Through("--stats[=FILE] --format text|json"),
        group: Group::Write,
        doc: doc("Write one page of statistics for each process when it exits."),
    },
    Declaration {
        name: "stats-file",
        env: "NEAP_STATS_FILE",
        kind: Kind::Path,
        default: "",
        flag: Flag::Through("--stats=FILE"),
        group: Group::Write,
        doc: doc("Append the statistics to this file instead of standard error."),
    },
    Declaration {
        name: "sample",
        env: "NEAP_SAMPLE",
        kind: size(FINEST_SAMPLE, 1 << 30),
        default: "",
        flag: Flag::Value,
        group: Group::Write,
        doc: doc(
            "Sample allocations for the heap profile from the start: one sample in this many \
              bytes, on average.",
        ),
    },
    Declaration {
        name: "decay",
        env: "NEAP_DECAY",
        kind: Kind::Time {
            min: 0,
            max: 3_600_000,
        },
        default: "1s",
        flag: Flag::Value,
        group: Group::Bound,
        doc: doc("How long free memory may stay resident."),
    },
    Declaration {
        name: "limit",
        env: "NEAP_LIMIT",
        kind: size(1 << 20, 1 << 46),
        default: "",
        flag: Flag::Value,
        group: Group::Bound,
        doc: doc(
            "Allocations fail with ENOMEM beyond this many bytes of spans in use and of free \
              spans that stay resident.",
        ),
    },
    Declaration {
        name: "limit-soft",
        env: "NEAP_LIMIT_SOFT",
        kind: size(1 << 20, 1 << 46),
        default: "",
        flag: Flag::Value,
        group: Group::Bound,
        doc: doc(
            "Near this many bytes, give free memory back before the decay time, if necessary \
              all of it.",
        ),
    },
    Declaration {
        name: "limit-dirty",
        env: "NEAP_LIMIT_DIRTY",
        kind: size(0, 1 << 46),
        default: "",
        flag: Flag::Value,
        group: Group::Bound,
        doc: doc("Most bytes of free spans that may stay resident, regardless of their age."),
    },
    Declaration {
        name: "check",
        env: "NEAP_CHECK",
        kind: SWITCH,
        default: "0",
        flag: Flag::On,
        group: Group::Check,
        doc: doc(
            "Quarantine freed blocks, and detect every second free of a block that is still in \
              quarantine. This is slower.",
        ),
    },
    Declaration {
        name: "guard",
        env: "NEAP_GUARD",
        kind: Kind::Interval {
            min: 1,
            max: 3_600_000,
        },
        default: "",
        flag: Flag::Optional("20ms"),
        group: Group::Check,
        doc: doc(
            "Put an allocation of each thread between guard pages, once in this time on average, \
              and report overflows and uses after free of these. `all`: every small allocation \
              for which there is room. `--guard` alone is 20ms.",
        ),
    },
    Declaration {
        name: "guard-file",
        env: "NEAP_GUARD_FILE",
        kind: Kind::Path,
        default: "",
        flag: Flag::Value,
        group: Group::Check,
        doc: doc(
            "Append the reports of guarded allocations to this file. Standard error gets their \
              first lines.",
        ),
    },
    Declaration {
        name: "harden",
        env: "NEAP_HARDEN",
        kind: Kind::Names(&HARDEN),
        default: "0",
        flag: Flag::Optional("1"),
        group: Group::Check,
        doc: doc(
            "Stop memory errors before they do harm: all measures, or those named. This is \
              slower and takes more memory.",
        ),
    },
    Declaration {
        name: "count",
        env: "NEAP_COUNT",
        kind: SWITCH,
        default: "0",
        flag: Flag::On,
        group: Group::Check,
        doc: doc(
            "Count every call and every requested byte exactly. This is slower, because the \
              fast path is off.",
        ),
    },
    Declaration {
        name: "classes",
        env: "NEAP_CLASSES",
        kind: Kind::Path,
        default: "",
        flag: Flag::Value,
        group: Group::Tune,
        doc: doc("Use the size classes of this file, which `neap tune` wrote (libneap.so only)."),
    },
    Declaration {
        name: "cache",
        env: "NEAP_CACHE",
        kind: size(0, 1 << 40),
        default: "",
        flag: Flag::Value,
        group: Group::Tune,
        doc: doc(
            "Most bytes of free blocks that all magazines of the process may hold, beyond the \
              first 4 KiB of each class and thread. If not set: a 32nd of the memory of the \
              machine or the control group, at most 256 MiB per processor and 4 GiB, and at \
              least 64 MiB.",
        ),
    },
    Declaration {
        name: "thread-cache",
        env: "NEAP_THREAD_CACHE",
        kind: size(0, 1 << 30),
        default: "1M",
        flag: Flag::Value,
        group: Group::Tune,
        doc: doc(
            "Most bytes of free blocks in one thread's magazines. Nine times as many if they come and go.",
        ),
    },
    Declaration {
        name: "thp",
        env: "NEAP_THP",
        kind: AUTO,
        default: "auto",
        flag: Flag::Value,
        group: Group::Tune,
        doc: doc(
            "Where the kernel may use huge pages. `auto`: for new slabs of processes that have \
              8 MiB of slabs. `never`: nowhere. `always`: everywhere, which is faster, and \
              resident memory may grow.",
        ),
    },
    Declaration {
        name: "purge-thread",
        env: "NEAP_PURGE_THREAD",
        kind: AUTO,
        default: "auto",
        flag: Flag::Value,
        group: Group::Tune,
        doc: doc(
            "When a background thread gives free memory back and answers `neap stat`. `auto`: \
              once the heap has passed 4 MiB; in a Rust program with Neap as its own allocator, \
              only if the program requests it. `always`: from the start, in every program. \
              `never`: calls of `malloc` and `free` do its work.",
        ),
    },
    Declaration {
        name: "children",
        env: "NEAP_CHILDREN",
        kind: SWITCH,
        default: "1",
        flag: Flag::Off,
        group: Group::Fit,
        doc: doc("Put the programs that this program starts under Neap."),
    },
    Declaration {
        name: "kernel-queries",
        env: "NEAP_KERNEL_QUERIES",
        kind: SWITCH,
        default: "1",
        flag: Flag::Off,
        group: Group::Fit,
        doc: doc(
            "Query the kernel's page map or control group, or start a purge thread: a sandbox \
              may forbid these system calls.",
        ),
    },
    Declaration {
        name: "status-page",
        env: "NEAP_STATUS_PAGE",
        kind: SWITCH,
        default: "",
        flag: Flag::Off,
        group: Group::Fit,
        doc: doc(
            "Keep a status page for `neap stat`, `neap top` and the other tools. 1: from the \
              start, as `neap run` sets it. If not set: once the heap has grown by \
              1 MiB, or 256 calls took a slow path.",
        ),
    },
    Declaration {
        name: "deepbind",
        env: "NEAP_DEEPBIND",
        kind: Kind::Choice(&["strip", "keep"]),
        default: "strip",
        flag: Flag::Value,
        group: Group::Fit,
        doc: doc(
            "Whether to strip RTLD_DEEPBIND from calls of dlopen. If it is kept, it mixes two \
              heaps in one process.",
        ),
    },
    Declaration {
        name: "answer",
        env: "NEAP_ANSWER",
        kind: SWITCH,
        default: "0",
        flag: Flag::Absent,
        group: Group::Tune,
        doc: doc(
            "Start the purge thread with the program, however small the program is, if it may \
              have one. `neap run --record` and `neap report` set it.",
        ),
    },
    Declaration {
        name: "monitor",
        env: "NEAP_MONITOR",
        kind: Kind::Socket,
        default: "",
        flag: Flag::Absent,
        group: Group::Write,
        doc: doc(
            "Send the status page and the profile, as descriptors, to the process that listens \
              at this Unix socket. `neap run --profile`, `--record` and `neap tune` set it.",
        ),
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
            let default = option.default;
            let accepted = parse(option.kind, default.as_bytes()).is_ok();
            assert_eq!(accepted, !default.is_empty(), "{}={default}", option.env);
            assert!(!cfg!(feature = "docs") || option.doc.ends_with('.'));
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
