//! The table of verbs, as clap's commands.

use super::arguments::{
    LONGEST_MS, choice, file, guards, number, of_group, operand, optional_file, program, rate,
    server, switch, time, valued,
};
use super::formats::{EnvFormat, ProfileFormat, ReportFormat, StatFormat, TextOrJson, TopFormat};
use crate::profile::Value;
use clap::builder::ValueParser;
use clap::{Arg, ArgAction, Command, ValueHint, value_parser};
use clap_complete::Shell;
use neap_shared::control::Group;
use std::net::SocketAddr;

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

fn quiet() -> Arg {
    switch("quiet", "Print nothing but errors").short('q')
}

fn output(help: &'static str) -> Arg {
    file("output", help).short('o')
}

fn text_or_json(help: &'static str) -> Arg {
    choice::<TextOrJson>("format", help).default_value("text")
}

fn process() -> Arg {
    operand(
        "PROCESS",
        "The process: its PID, or its name if only one process under Neap has it",
    )
}

fn timeout() -> Arg {
    let help = "How long to wait for the process's answer";
    time("timeout", [0, LONGEST_MS], help).default_value("2s")
}

fn stats(help: &'static str) -> Arg {
    optional_file("stats", help)
}

/// A verb. `usage` has what may follow its name, one form a line.
fn verb(name: &'static str, about: &'static str, usage: &[&str]) -> Command {
    let lines: Vec<_> = usage
        .iter()
        .map(|line| format!("neap {name} {line}"))
        .collect();
    let command = Command::new(name).about(about);
    if lines.is_empty() {
        command
    } else {
        command.override_usage(lines.join("\n       "))
    }
}

/// The library's options by group, after a verb's own: those without a group, and those that say
/// what is written. The help is the last.
fn with_library(mut own: Vec<Arg>, written: Vec<Arg>) -> Vec<Arg> {
    let mut written = Some(written);
    for group in Group::ALL {
        let first = written
            .take_if(|_| group == Group::Write)
            .into_iter()
            .flatten();
        let all = first.chain(of_group(group));
        own.extend(all.map(|argument| argument.help_heading(group.title())));
    }
    let help = Arg::new("help")
        .long("help")
        .short('h')
        .action(ArgAction::Help);
    own.push(help.help("Print help").help_heading("Other"));
    own
}

/// The whole command line: every verb, most useful first.
#[rustfmt::skip]
pub fn neap() -> Command {
    let verbs = [
        verb("run", "Run a program, and the programs it starts, under Neap",
            &["[OPTIONS] [--] PROGRAM [ARGUMENTS]..."])
            .disable_help_flag(true)
            .args(with_library(vec![], vec![
                stats("Write a page of statistics for each process when it exits, appended to FILE; \
                    without FILE, print up to three, of the program and of the large \
                    processes, and a line for each of the others"),
                optional_file("record",
                    "Record the heap over time, for neap report [default FILE: PROGRAM.neap]"),
                optional_file("profile", "Sample allocations and write the heap profile \
                     [default FILE: neap.PROGRAM.PID.pb.gz]"),
                switch("leaks", "Sample allocations and print what is still live at the end, by \
                     place, to standard error"),
                text_or_json("The form of the statistics; json is one object per line")
                    .requires("stats"),
                time("interval", [20, 3_600_000], "Time between two readings of the heap")
                    .default_value("100ms").requires("record"),
                quiet(),
            ]))
            .arg(program("PROGRAM", PROGRAM).required(true))
            .after_help(format!("{UNITS}\n\nThe exit status is the program's own. It is 125 if \
                 neap itself fails, 126 if the program cannot run under Neap, and 127 if there \
                 is no such program.")),
        verb("top", "Watch where the memory of a process is, or list all processes under Neap", &[])
            .arg(choice::<TopFormat>("format",
                "How to show it: a screen with keys, lines, or one JSON object per line [default: \
                 screen on a terminal, else text]"))
            .arg(time("interval", [0, LONGEST_MS], "Time between two updates").default_value("1s"))
            .arg(number("times", "End after this many updates"))
            .arg(process())
            .after_help("Keys: q quits, p has the process give its free memory back, s sorts, \
                 arrows choose and scroll, Enter shows one process, Esc goes back, Ctrl-Z stops \
                 it until the shell's fg, ? explains. neap top lists your processes; if root \
                 runs it, those of all users."),
        verb("stat", "Say where the memory of a running process is, or list all processes under Neap",
            &[])
            .arg(choice::<StatFormat>("format", "What to print")
                .default_value("text"))
            .arg(switch("all", "Print every count, and the size classes").requires("PROCESS"))
            .arg(timeout())
            .arg(process())
            .after_help("Exits with 124 if the process did not answer in time. neap then shows the \
                 figures that its page heap wrote last and the kernel's counts, and says why the \
                 process did not answer. Exits with 125 if there is nothing to show."),
        verb("profile", "Show which calls allocate the memory of a program",
            &["[OPTIONS] PROCESS", "[OPTIONS] FILE"])
            .arg(choice::<ProfileFormat>("format",
                "What to make: a call tree and the largest functions; what is still live, by \
                 place; one line per stack; an SVG; a file of pprof's format; one JSON object")
                .default_value("tree"))
            .arg(Arg::new("list").long("list").value_name("REGEX")
                .help("Print the functions that match, line by line").conflicts_with("format"))
            .arg(choice::<Value>("value", "What to count").default_value("live_space"))
            .arg(time("for", [0, LONGEST_MS],
                "How long to sample; 0 shows what was sampled so far [default: 10s, or 0 if the \
                 process samples already]"))
            .arg(rate("sample", "One sample in this many bytes, on average [default: 512K]"))
            .arg(file("base", "Show only what was added since the profile in FILE, of the same \
                 process or of an earlier run"))
            .arg(output("Write to this file instead of standard output; pprof needs it"))
            .arg(quiet())
            .arg(process().required(true).help(
                "A process, by its PID or name, or the FILE of a pprof profile of any program"))
            .after_help("The process must run under Neap. If it does not sample already, neap \
                 switches sampling on for the time of --for. The profile then has only what the \
                 process allocates in that time, and live means growth if the process had sampled \
                 before. Ctrl-C ends the wait early."),
        verb("report", "Make one page of HTML from a recording, a profile or a run: what is large, \
             why, and what to do", &["[OPTIONS] FILE", "[OPTIONS] -- PROGRAM [ARGUMENTS]..."])
            .arg(output("File for the page [default: FILE.html, or neap.PROGRAM.PID.html, in the \
                 current directory]"))
            .arg(choice::<ReportFormat>("format", "The page, or the verdict as one JSON object")
                .default_value("html"))
            .arg(quiet())
            .arg(operand("FILE",
                "A recording (neap run --record), a profile (neap run --profile), or the reports of \
                 guarded samples (--guard-file)"))
            .arg(program("PROGRAM", "A program to run, record and profile, and its arguments")
                .trailing_var_arg(false).last(true).required_unless_present("FILE"))
            .after_help("After --, the exit status is the program's own."),
        verb("compare", "Run a program under all allocators of this machine, and say whether Neap is \
             worth it", &["[OPTIONS] [--] PROGRAM [ARGUMENTS]..."])
            .arg(Arg::new("load").long("load").value_name("COMMAND").help("A shell command that \
                 loads a server, started once the server is idle"))
            .arg(number("rounds", "How often to run it under each allocator").default_value("5"))
            .arg(time("rest", [0, 3_600_000], "How long to watch the program after the load")
                .default_value("5s"))
            .arg(time("within", [0, LONGEST_MS], "Start no round after this time")
                .default_value("5m"))
            .arg(Arg::new("allocators").long("allocators").value_name("NAMES").help("Besides glibc \
                 and Neap, only these [default: all found]"))
            .arg(file("html", "Also write a page with a picture of the memory over time"))
            .args([text_or_json("What to print"), quiet()])
            .arg(program("PROGRAM", PROGRAM).required(true))
            .after_help("A first run does not count. After the load, neap ends the program, and \
                 whatever it leaves running. The program's input is empty, and its output is \
                 dropped. If a run ends differently than under glibc, neap prints the end of its \
                 standard error. Exits with 1 if a run failed."),
        verb("purge", "Have a running process give its free memory back to the kernel", &[])
            .args([text_or_json("What to print"), timeout(), process().required(true)])
            .after_help("Exits with 124 if the process did not answer in time. A later slow path \
                 of its malloc or free then gives the memory back."),
        verb("guard", "Find overflows and uses after free in a running process", &[])
            .arg(valued("interval", "TIME", ValueParser::new(guards),
                "Guard an allocation of each thread, once in this time on average; all: every \
                 small allocation for which there is room; off: none [all, off, or 1ms to 1h]")
                .default_value("20ms"))
            .args([text_or_json("What to print"), timeout(), process().required(true)])
            .after_help("Puts some allocations between guard pages. The process writes a report of \
                 each error to its standard error, or to the file that it was started with \
                 (--guard-file, NEAP_GUARD_FILE). A wrong access to a guarded block then ends it \
                 by SIGSEGV, unless it handles that signal. The samples go on until the process \
                 ends, or until --interval off. neap stat and neap serve show how many blocks \
                 were guarded and how many errors found.\n\nExits with 124 if the process did \
                 not answer in time. A later slow path of its malloc or free then makes the \
                 change."),
        verb("serve", "Serve metrics (Prometheus) and heap profiles (pprof) of running processes \
             over HTTP", &["[OPTIONS] [PROCESS]..."])
            .arg(Arg::new("listen").long("listen").value_name("ADDRESS:PORT")
                .help("Where to listen; port 0 takes any free port")
                .value_parser(value_parser!(SocketAddr)).default_value("127.0.0.1:9464"))
            .arg(valued("push", "URL", ValueParser::new(server),
                "Send the profiles of processes that sample to this Pyroscope server (or Grafana \
                 Alloy): http://[USER:PASSWORD@]HOST:PORT"))
            .arg(time("interval", [1000, 3_600_000], "Time between two profiles of a process")
                .default_value("15s").requires("push"))
            .arg(process().num_args(0..)
                .help("PIDs or names [default: all processes under Neap, later ones as well]"))
            .after_help("Serves your processes; if root runs it, those of all users. Every user \
                 of this machine can read what neap serves on a loopback address.\n\n\
                 /metrics is for Prometheus, /debug/pprof/heap and /debug/pprof/allocs for pprof \
                 (?pid= or ?program= chooses the process, ?seconds= samples for that time), \
                 /targets for discovery of the processes with profiles, / lists the processes."),
        verb("tune", "Find the size classes that waste least for a program",
            &["[OPTIONS] [--] PROGRAM [ARGUMENTS]...", "[OPTIONS] --from FILE"])
            .arg(output("Write the classes to this file [default: PROGRAM.classes]"))
            .arg(number("max-classes", "The most classes to write [57 to 80; default: 80]"))
            .arg(file("save-sizes", "Keep the requested sizes in this file, for --from"))
            .arg(file("from", "Run no program; take the sizes from this file")
                .conflicts_with_all(["PROGRAM", "save-sizes"]))
            .arg(text_or_json("What to print"))
            .arg(program("PROGRAM", PROGRAM).required_unless_present("from"))
            .after_help("Neap counts every call of the program, so the program runs more slowly. \
                 Exits with 0 if neap wrote the classes, however the program ended, and with 125 \
                 if it did not."),
        verb("env", "Print the line that puts a Dockerfile's or a shell's programs under Neap",
            &["[OPTIONS] [VARIABLE=VALUE]..."])
            .disable_help_flag(true)
            .args(with_library(vec![
                choice::<EnvFormat>("format",
                    "An ENV line for a Dockerfile, or export lines for a shell")
                    .default_value("dockerfile"),
                file("library", "Path of the library [default: the one that neap run uses]"),
            ], vec![stats("Have each process write a page of statistics when it exits, to \
                standard error or appended to FILE")]))
            .arg(operand("VARIABLE=VALUE", "More variables for the line").num_args(0..))
            .after_help(UNITS),
        verb("doctor", "Check what this kernel offers, whether a program can run under Neap, or where \
             a process has its memory", &["[OPTIONS] [-- PROGRAM]", "[OPTIONS] PID"])
            .args([text_or_json("What to print"), program("PROGRAM", "The program, found by PATH, \
                 or the PID of any process, under Neap or not")])
            .after_help("Exits with 1 if the given program cannot run under Neap."),
        verb("lab", "Run Neap's experiments and benchmarks (neap-lab)", &[])
            .disable_help_flag(true)
            .arg(program("ARGUMENTS", "The arguments of neap-lab").allow_hyphen_values(true)),
        verb("completions", "Print completions for a shell", &[])
            .arg(Arg::new("SHELL").help("The shell").required(true)
                .value_parser(value_parser!(Shell))),
        verb("help", "List the commands, or explain one", &["[COMMAND]", "--man DIRECTORY"])
            .arg(file("man", "Write the manual pages, neap.1 and one for each command, to this \
                 directory").value_name("DIRECTORY").value_hint(ValueHint::DirPath)
                .conflicts_with("COMMAND"))
            .arg(operand("COMMAND", "The command to explain")),
    ];
    Command::new("neap")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Run programs under the Neap memory system and see where memory goes")
        .max_term_width(100)
        .disable_help_subcommand(true)
        .subcommands(verbs)
}
