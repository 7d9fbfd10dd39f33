//! The table of verbs.

use super::words::{Count, LONGEST_MS, Library, Operand, Opt, Takes, Verb};
use neap_shared::control::Group;

/// What `neap` says when nothing else stands on the command line.
pub const OVERVIEW: &str = "\
Neap is a memory allocator that gives free memory back to the system. neap runs programs
under it and shows where their memory goes.

  neap run -- PROGRAM        run a program, and the programs it starts, under Neap
  neap top                   watch the programs that run under Neap
  neap stat PID              say where the memory of one of them is
  neap profile PID           show which calls allocate its memory
  neap report -- PROGRAM     run a program and make a page: what is large, why, what to do

neap help lists all commands; neap help run explains one.
";

const QUIET: Opt = Opt::new("quiet", Takes::Nothing, "Say nothing but errors").short('q');
const TEXT_OR_JSON: Opt = Opt::new(
    "format",
    Takes::Words(&["text", "json"], Some("text")),
    "What to print",
);
const TIMEOUT: Opt = Opt::new(
    "timeout",
    Takes::Time(0, LONGEST_MS, Some("2s")),
    "How long to wait for the process's answer",
);
const PROCESS: Operand = Operand {
    name: "PROCESS",
    count: Count::One,
    help: "The process: its PID, or its name if only one process under Neap has it",
};
const PROGRAM: Operand = Operand {
    name: "PROGRAM",
    count: Count::Program,
    help: "The program, found by PATH, and its arguments",
};
const STATS: Opt = Opt::new(
    "stats",
    Takes::OptionalFile,
    "Write one page of statistics for each process when it exits, to standard error or appended to \
     FILE",
)
.of(Group::Write);

/// Every verb, most useful first.
pub const VERBS: &[Verb] = &[
    Verb {
        name: "run",
        about: "Run a program, and the programs it starts, under Neap",
        usage: &["[OPTIONS] [--] PROGRAM [ARGUMENTS]..."],
        operands: &[PROGRAM],
        options: &[
            STATS,
            Opt::new(
                "record",
                Takes::OptionalFile,
                "Record the heap over time, for neap report [default FILE: PROGRAM.neap]",
            )
            .of(Group::Write),
            Opt::new(
                "profile",
                Takes::OptionalFile,
                "Sample allocations and write the heap profile [default FILE: \
                 neap.PROGRAM.PID.pb.gz]",
            )
            .of(Group::Write),
            Opt::new(
                "leaks",
                Takes::Nothing,
                "Sample allocations and print what is still live at the end, by place, to standard \
                 error",
            )
            .of(Group::Write),
            Opt::new(
                "format",
                Takes::Words(&["text", "json"], Some("text")),
                "The form of the statistics; json is one object a line",
            )
            .needs("stats")
            .of(Group::Write),
            Opt::new(
                "interval",
                Takes::Time(20, 3_600_000, Some("100ms")),
                "Time between two samples of the recording",
            )
            .needs("record")
            .of(Group::Write),
            QUIET,
        ],
        library: Library::Options,
        notes: "The exit status is the program's own. neap itself exits with 125 if it fails, 126 \
                if the program cannot run under Neap, 127 if there is no such program.",
    },
    Verb {
        name: "top",
        about: "Watch where the memory of a process is, or list all processes under Neap",
        usage: &[],
        operands: &[Operand {
            count: Count::Optional,
            ..PROCESS
        }],
        options: &[
            Opt::new(
                "format",
                Takes::Words(&["screen", "text", "json"], None),
                "How to show it: a screen with keys, lines, or one JSON object a line [default: \
                 screen on a terminal, else text]",
            ),
            Opt::new(
                "interval",
                Takes::Time(0, LONGEST_MS, Some("1s")),
                "Time between two updates",
            ),
            Opt::new("times", Takes::Number, "End after this many updates"),
        ],
        library: Library::None,
        notes: "Keys: q quits, p has the process give its free memory back, s sorts, arrows choose \
                and scroll, Enter looks into a process, Esc goes back, ? explains. Lists the \
                processes of the user who runs it; for root, those of all users.",
    },
    Verb {
        name: "stat",
        about: "Say where the memory of a running process is",
        usage: &[],
        operands: &[PROCESS],
        options: &[
            Opt::new(
                "format",
                Takes::Words(&["text", "json", "prometheus"], Some("text")),
                "What to print",
            ),
            TIMEOUT,
        ],
        library: Library::None,
        notes: "Exits with 124 if the process did not answer in time: what is shown then is what \
                its page heap and the kernel know without it, and why it did not answer. With 125 \
                if there is nothing to show.",
    },
    Verb {
        name: "profile",
        about: "Show which calls allocate the memory of a program",
        usage: &["[OPTIONS] PROCESS", "[OPTIONS] FILE"],
        operands: &[Operand {
            name: "PROCESS",
            count: Count::One,
            help: "A process, by its PID or name, or the FILE of a pprof profile of any program",
        }],
        options: &[
            Opt::new(
                "format",
                Takes::Words(
                    &["tree", "leaks", "collapsed", "flamegraph", "pprof", "json"],
                    Some("tree"),
                ),
                "What to make: a call tree and the largest functions; what is still live, by place; \
                 one line a stack; an SVG; a file of pprof's format; one JSON object",
            ),
            Opt::new(
                "list",
                Takes::Regex,
                "Print the functions that match, line by line",
            )
            .without(&["format"]),
            Opt::new(
                "value",
                Takes::Words(
                    &[
                        "live_space",
                        "live_objects",
                        "alloc_space",
                        "alloc_objects",
                        "waste",
                    ],
                    Some("live_space"),
                ),
                "What to count",
            ),
            Opt::new(
                "for",
                Takes::Time(0, LONGEST_MS, None),
                "How long to sample [default: 10s, or 0 if the process samples already]",
            ),
            Opt::new(
                "sample",
                Takes::Rate,
                "One sample in this many bytes, on average [default: 512K]",
            ),
            Opt::new(
                "output",
                Takes::File,
                "Write to this file instead of standard output; pprof needs it",
            )
            .short('o'),
            QUIET,
        ],
        library: Library::None,
        notes: "The process must run under Neap. If it does not sample already, it does so for the \
                time of --for and stops then. With --for only what it allocates meanwhile is \
                shown; live is growth if it had sampled before. Without, or with 0, all that it \
                sampled so far. Ctrl-C ends the wait early.",
    },
    Verb {
        name: "report",
        about: "Make one page of HTML from a recording, a profile or a run: what is large, why, \
                what to do",
        usage: &["[OPTIONS] FILE", "[OPTIONS] -- PROGRAM [ARGUMENTS]..."],
        operands: &[
            Operand {
                name: "FILE",
                count: Count::Optional,
                help: "A recording (neap run --record) or a profile (neap run --profile)",
            },
            Operand {
                count: Count::ProgramAfterDashes,
                help: "A program to run, record and profile, and its arguments",
                ..PROGRAM
            },
        ],
        options: &[
            Opt::new(
                "output",
                Takes::File,
                "File for the page [default: FILE.html, or neap.PROGRAM.PID.html, in the current \
                 directory]",
            )
            .short('o'),
            Opt::new(
                "format",
                Takes::Words(&["html", "json"], Some("html")),
                "The page, or the verdict as one JSON object",
            ),
            QUIET,
        ],
        library: Library::None,
        notes: "After --, the exit status is the program's own.",
    },
    Verb {
        name: "purge",
        about: "Have a running process give its free memory back to the kernel",
        usage: &[],
        operands: &[PROCESS],
        options: &[TEXT_OR_JSON, TIMEOUT],
        library: Library::None,
        notes: "Exits with 124 if the process did not answer in time: it sleeps, and will do it \
                when it next calls its allocator.",
    },
    Verb {
        name: "serve",
        about: "Serve metrics (Prometheus) and heap profiles (pprof) of running processes over \
                HTTP",
        usage: &["[OPTIONS] [PROCESS]..."],
        operands: &[Operand {
            count: Count::Any,
            help: "PIDs or names [default: all processes under Neap, later ones as well]",
            ..PROCESS
        }],
        options: &[Opt::new(
            "listen",
            Takes::Address("127.0.0.1:9464"),
            "Where to listen; port 0 takes any",
        )],
        library: Library::None,
        notes: "Serves the processes of the user who runs it; root serves those of all users. \
                Every user of this machine can read what is served on a loopback address.\n\n\
                /metrics is for Prometheus, /debug/pprof/heap and /debug/pprof/allocs for pprof \
                (?pid= chooses the process, ?seconds= samples for that time), / lists the \
                processes.",
    },
    Verb {
        name: "tune",
        about: "Find the size classes that waste least for a program",
        usage: &[
            "[OPTIONS] [--] PROGRAM [ARGUMENTS]...",
            "[OPTIONS] --from FILE",
        ],
        operands: &[Operand {
            count: Count::OptionalProgram,
            ..PROGRAM
        }],
        options: &[
            Opt::new(
                "output",
                Takes::File,
                "Write the classes to this file [default: PROGRAM.classes]",
            )
            .short('o'),
            Opt::new(
                "max-classes",
                Takes::Number,
                "Most classes [57 to 80; default: 80]",
            ),
            Opt::new(
                "save-sizes",
                Takes::File,
                "Keep the requested sizes in this file, for --from",
            ),
            Opt::new(
                "from",
                Takes::File,
                "Run nothing: take the sizes from this file",
            )
            .without(&["PROGRAM", "save-sizes"]),
            TEXT_OR_JSON,
        ],
        library: Library::None,
        notes: "The program runs with every call counted, slower than otherwise. Exits with 0 if \
                the classes were written, however the program ended, and with 125 if not.",
    },
    Verb {
        name: "env",
        about: "Print the line that puts a Dockerfile's or a shell's programs under Neap",
        usage: &["[OPTIONS] [VARIABLE=VALUE]..."],
        operands: &[Operand {
            name: "VARIABLE=VALUE",
            count: Count::Any,
            help: "Further variables for the line",
        }],
        options: &[
            Opt::new(
                "format",
                Takes::Words(&["dockerfile", "shell"], Some("dockerfile")),
                "An ENV line for a Dockerfile, or export lines for a shell",
            ),
            Opt::new(
                "library",
                Takes::File,
                "Path of the library [default: the one that neap run uses]",
            ),
            STATS,
        ],
        library: Library::Options,
        notes: "",
    },
    Verb {
        name: "doctor",
        about: "Check what this kernel offers, and whether a program can run under Neap",
        usage: &["[OPTIONS] [-- PROGRAM]"],
        operands: &[Operand {
            count: Count::OptionalProgram,
            ..PROGRAM
        }],
        options: &[TEXT_OR_JSON],
        library: Library::None,
        notes: "Exits with 1 if a program is given that cannot run under Neap.",
    },
    Verb {
        name: "lab",
        about: "Run Neap's experiments and benchmarks (neap-lab)",
        usage: &[],
        operands: &[Operand {
            name: "ARGUMENTS",
            count: Count::Rest,
            help: "Handed on to neap-lab",
        }],
        options: &[],
        library: Library::None,
        notes: "",
    },
    Verb {
        name: "completions",
        about: "Print completions for a shell",
        usage: &[],
        operands: &[Operand {
            name: "SHELL",
            count: Count::One,
            help: "bash, elvish, fish, powershell or zsh",
        }],
        options: &[],
        library: Library::None,
        notes: "",
    },
    Verb {
        name: "help",
        about: "List the commands, or explain one",
        usage: &["[COMMAND]", "--man DIRECTORY"],
        operands: &[Operand {
            name: "COMMAND",
            count: Count::Optional,
            help: "The command to explain",
        }],
        options: &[Opt::new(
            "man",
            Takes::Directory,
            "Write the manual pages, neap.1 and one for each command, to this directory",
        )
        .without(&["COMMAND"])],
        library: Library::None,
        notes: "",
    },
];
