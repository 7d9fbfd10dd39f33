//! The table of verbs.

use super::words::{Count, LONGEST_MS, Library, Operand, Opt, Takes, Verb};
use neap_shared::control::Group::Write;

/// What `neap` prints when it is run without arguments.
pub const OVERVIEW: &str = "\
Neap is a memory allocator that gives free memory back to the system. neap runs programs
under it and shows where their memory goes.

  neap run -- PROGRAM        run a program, and the programs it starts, under Neap
  neap top                   watch the programs that run under Neap
  neap stat PID              say where the memory of one of them is
  neap profile PID           show which calls allocate its memory
  neap report -- PROGRAM     run a program and make a page: what is large, why, and what to do

neap help lists all commands; neap help run explains one.
";

const PROGRAM: &str = "The program, found by PATH, and its arguments";
const UNITS: &str = "Times have a unit: 500ms, 2s, 5m, 1h. Sizes are bytes, or 512K, 64M, 2G, 1T.";
const QUIET: Opt = Opt::new("quiet", Takes::Nothing, "Print nothing but errors").short('q');
const OUTPUT: Opt = Opt::new("output", Takes::File, "").short('o');
const TEXT_OR_JSON: Opt = Opt::new(
    "format",
    Takes::Words(&["text", "json"], Some("text")),
    "What to print",
);
const PROCESS: Operand = Operand::new(
    "PROCESS",
    Count::One,
    "The process: its PID, or its name if only one process under Neap has it",
);
const TIMEOUT: Opt = Opt::new(
    "timeout",
    Takes::Time(0, LONGEST_MS, Some("2s")),
    "How long to wait for the process's answer",
);
const STATS: Opt = Opt::new(
    "stats",
    Takes::OptionalFile,
    "Write one page of statistics for each process when it exits, to standard error or appended to \
     FILE",
)
.of(Write);

/// Every verb, most useful first.
#[rustfmt::skip]
pub const VERBS: &[Verb] = &[
    Verb {
        usage: &["[OPTIONS] [--] PROGRAM [ARGUMENTS]..."],
        operands: &[Operand::new("PROGRAM", Count::Program, PROGRAM)],
        options: &[
            STATS,
            Opt::new("record", Takes::OptionalFile,
                "Record the heap over time, for neap report [default FILE: PROGRAM.neap]")
                .of(Write),
            Opt::new("profile", Takes::OptionalFile,
                "Sample allocations and write the heap profile [default FILE: \
                 neap.PROGRAM.PID.pb.gz]").of(Write),
            Opt::new("leaks", Takes::Nothing,
                "Sample allocations and print what is still live at the end, by place, to standard \
                 error").of(Write),
            Opt::new("format", Takes::Words(&["text", "json"], Some("text")),
                "The form of the statistics; json is one object per line").needs("stats").of(Write),
            Opt::new("interval", Takes::Time(20, 3_600_000, Some("100ms")),
                "Time between two readings of the heap").needs("record").of(Write),
            QUIET.of(Write),
        ],
        library: Library::Options,
        notes: &[UNITS,
            "The exit status is the program's own. It is 125 if neap itself fails, 126 if the \
             program cannot run under Neap, and 127 if there is no such program."],
        ..Verb::new("run", "Run a program, and the programs it starts, under Neap")
    },
    Verb {
        operands: &[PROCESS.times(Count::Optional)],
        options: &[
            Opt::new("format", Takes::Words(&["screen", "text", "json"], None),
                "How to show it: a screen with keys, lines, or one JSON object per line [default: \
                 screen on a terminal, else text]"),
            Opt::new("interval", Takes::Time(0, LONGEST_MS, Some("1s")),
                "Time between two updates"),
            Opt::new("times", Takes::Number, "End after this many updates"),
        ],
        notes: &["Keys: q quits, p has the process give its free memory back, s sorts, arrows \
                  choose and scroll, Enter shows one process, Esc goes back, Ctrl-Z stops it until \
                  the shell's fg, ? explains. neap top lists your processes; if root runs it, \
                  those of all users."],
        ..Verb::new("top", "Watch where the memory of a process is, or list all processes under \
                            Neap")
    },
    Verb {
        operands: &[PROCESS],
        options: &[
            Opt::new("format", Takes::Words(&["text", "json", "prometheus"], Some("text")),
                "What to print"),
            TIMEOUT,
        ],
        notes: &["Exits with 124 if the process did not answer in time. neap then shows the \
                  figures that its page heap wrote last and the kernel's counts, and says why the \
                  process did not answer. Exits with 125 if there is nothing to show."],
        ..Verb::new("stat", "Say where the memory of a running process is")
    },
    Verb {
        usage: &["[OPTIONS] PROCESS", "[OPTIONS] FILE"],
        operands: &[PROCESS.saying(
            "A process, by its PID or name, or the FILE of a pprof profile of any program")],
        options: &[
            Opt::new("format", Takes::Words(
                &["tree", "leaks", "collapsed", "flamegraph", "pprof", "json"], Some("tree")),
                "What to make: a call tree and the largest functions; what is still live, by \
                 place; one line per stack; an SVG; a file of pprof's format; one JSON object"),
            Opt::new("list", Takes::Regex, "Print the functions that match, line by line")
                .without(&["format"]),
            Opt::new("value", Takes::Words(
                &["live_space", "live_objects", "alloc_space", "alloc_objects", "waste"],
                Some("live_space")), "What to count"),
            Opt::new("for", Takes::Time(0, LONGEST_MS, None),
                "How long to sample; 0 shows what was sampled so far [default: 10s, or 0 if the \
                 process samples already]"),
            Opt::new("sample", Takes::Rate,
                "One sample in this many bytes, on average [default: 512K]"),
            OUTPUT.saying("Write to this file instead of standard output; pprof needs it"),
            QUIET,
        ],
        notes: &["The process must run under Neap. If it does not sample already, neap switches \
                  sampling on for the time of --for. The profile then has only what the process \
                  allocates in that time, and live means growth if the process had sampled \
                  before. Ctrl-C ends the wait early."],
        ..Verb::new("profile", "Show which calls allocate the memory of a program")
    },
    Verb {
        usage: &["[OPTIONS] FILE", "[OPTIONS] -- PROGRAM [ARGUMENTS]..."],
        operands: &[
            Operand::new("FILE", Count::Optional,
                "A recording (neap run --record) or a profile (neap run --profile)"),
            Operand::new("PROGRAM", Count::ProgramAfterDashes,
                "A program to run, record and profile, and its arguments"),
        ],
        options: &[
            OUTPUT.saying("File for the page [default: FILE.html, or neap.PROGRAM.PID.html, in the \
                           current directory]"),
            Opt::new("format", Takes::Words(&["html", "json"], Some("html")),
                "The page, or the verdict as one JSON object"),
            QUIET,
        ],
        notes: &["After --, the exit status is the program's own."],
        ..Verb::new("report", "Make one page of HTML from a recording, a profile or a run: what is \
                               large, why, and what to do")
    },
    Verb {
        operands: &[PROCESS],
        options: &[TEXT_OR_JSON, TIMEOUT],
        notes: &["Exits with 124 if the process did not answer in time. A later slow path of its \
                  malloc or free then gives the memory back."],
        ..Verb::new("purge", "Have a running process give its free memory back to the kernel")
    },
    Verb {
        usage: &["[OPTIONS] [PROCESS]..."],
        operands: &[PROCESS.times(Count::Any).saying(
            "PIDs or names [default: all processes under Neap, later ones as well]")],
        options: &[Opt::new("listen", Takes::Address("127.0.0.1:9464"),
            "Where to listen; port 0 takes any free port")],
        notes: &["Serves your processes; if root runs it, those of all users. Every user of this \
                  machine can read what neap serves on a loopback address.",
                 "/metrics is for Prometheus, /debug/pprof/heap and /debug/pprof/allocs for pprof \
                  (?pid= chooses the process, ?seconds= samples for that time), / lists the \
                  processes."],
        ..Verb::new("serve", "Serve metrics (Prometheus) and heap profiles (pprof) of running \
                              processes over HTTP")
    },
    Verb {
        usage: &["[OPTIONS] [--] PROGRAM [ARGUMENTS]...", "[OPTIONS] --from FILE"],
        operands: &[Operand::new("PROGRAM", Count::ProgramOrFrom, PROGRAM)],
        options: &[
            OUTPUT.saying("Write the classes to this file [default: PROGRAM.classes]"),
            Opt::new("max-classes", Takes::Number,
                "The most classes to write [57 to 80; default: 80]"),
            Opt::new("save-sizes", Takes::File,
                "Keep the requested sizes in this file, for --from"),
            Opt::new("from", Takes::File, "Run no program; take the sizes from this file")
                .without(&["PROGRAM", "save-sizes"]),
            TEXT_OR_JSON,
        ],
        notes: &["Neap counts every call of the program, so the program runs more slowly. Exits \
                  with 0 if neap wrote the classes, however the program ended, and with 125 if \
                  it did not."],
        ..Verb::new("tune", "Find the size classes that waste least for a program")
    },
    Verb {
        usage: &["[OPTIONS] [VARIABLE=VALUE]..."],
        operands: &[Operand::new("VARIABLE=VALUE", Count::Any, "More variables for the line")],
        options: &[
            Opt::new("format", Takes::Words(&["dockerfile", "shell"], Some("dockerfile")),
                "An ENV line for a Dockerfile, or export lines for a shell"),
            Opt::new("library", Takes::File,
                "Path of the library [default: the one that neap run uses]"),
            STATS,
        ],
        library: Library::Options,
        notes: &[UNITS],
        ..Verb::new("env", "Print the line that puts a Dockerfile's or a shell's programs under \
                            Neap")
    },
    Verb {
        usage: &["[OPTIONS] [-- PROGRAM]"],
        operands: &[Operand::new("PROGRAM", Count::OptionalProgram, PROGRAM)],
        options: &[TEXT_OR_JSON],
        notes: &["Exits with 1 if the given program cannot run under Neap."],
        ..Verb::new("doctor", "Check what this kernel offers, and whether a program can run under \
                               Neap")
    },
    Verb {
        operands: &[Operand::new("ARGUMENTS", Count::Rest, "The arguments of neap-lab")],
        ..Verb::new("lab", "Run Neap's experiments and benchmarks (neap-lab)")
    },
    Verb {
        operands: &[Operand::new("SHELL", Count::One, "bash, elvish, fish, powershell or zsh")],
        ..Verb::new("completions", "Print completions for a shell")
    },
    Verb {
        usage: &["[COMMAND]", "--man DIRECTORY"],
        operands: &[Operand::new("COMMAND", Count::Optional, "The command to explain")],
        options: &[Opt::new("man", Takes::Directory,
            "Write the manual pages, neap.1 and one for each command, to this directory")
            .without(&["COMMAND"])],
        ..Verb::new("help", "List the commands, or explain one")
    },
];
