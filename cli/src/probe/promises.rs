//! Which of Neap's promises hold on this machine: the rows of `docs/platforms.md`.

use crate::profile::grouped;
use crate::table::{Finding, State};

type Text = &'static str;

/// The page's rows.
const ROWS: [&str; 8] = [
    "50,000 stacks with guards that cost no mapping",
    "an overflow ends the process, and its report names the stack",
    "a child of fork has the guards of its parent",
    "guards stay when the program closes descriptors",
    "stacks in a process that starts under a system call filter",
    "stacks in locked memory (mlockall) have guards",
    "calloc touches no page that is zero",
    "memory that idle threads cache goes back",
];
/// How many stacks the page promises, and the address space of each.
const STACKS: u64 = 50_000;
const STACK_KIB: u64 = 64;
/// What the heap assumes if it cannot read `vm.max_map_count`.
const USUAL_MAPPINGS: u64 = 65_530;
/// Guards by `mprotect` take two mappings each, and at most half of all mappings.
const MAPPINGS_EACH: u64 = 4;
const MORE_STACKS: &str = ", use Linux 6.13 or newer, or raise vm.max_map_count to 200,000";

/// Either forbids queries to the kernel. The second is the older name.
const NO_QUERIES: [&str; 2] = ["NEAP_KERNEL_QUERIES=0", "NEAP_ASK=0"];

/// How the heap guards a stack.
enum Guard {
    /// By `MADV_GUARD_INSTALL`.
    Advice,
    /// By userfaultfd.
    Writes,
    /// By `mprotect`. Why not by another way, and what to change.
    Mapping(String, Text),
}

/// The promises, by the findings of [`super::all`] and the variables of the environment.
pub fn promises(findings: &[Finding], variables: &[Finding]) -> Vec<Finding> {
    let forbids = |variable: &Finding| NO_QUERIES.contains(&variable.value.as_str());
    let queries = !variables.iter().any(forbids);
    let machine = Machine { findings, queries };
    let locked = machine.guard_if_locked(machine.value("seccomp") != "off");
    let (guard, filtered) = match machine.has("MADV_GUARD_INSTALL") {
        true => (&Guard::Advice, &Guard::Advice),
        false => (&locked, &machine.guard_if_locked(true)),
    };
    let by_writes = matches!(guard, Guard::Writes);
    let unless_by_writes = |name, state, value| match by_writes {
        true => Finding::new(name, state, value, "use Linux 6.13 or newer"),
        false => full(name, ""),
    };
    let signal = if by_writes { "SIGBUS" } else { "SIGSEGV" };
    let [many, overflow, fork, closed, filter, mlockall, calloc, idle] = ROWS;
    let pagemap = ["PAGEMAP_SCAN", "/proc/self/pagemap"];
    let written = "up to 4 MiB are written, more is purged";
    let stays = "it stays in their caches";
    let later = "lost until the next new stack or round";
    vec![
        machine.stacks(many, guard),
        full(overflow, signal),
        unless_by_writes(fork, State::Slower, "1 to 4 µs a guard"),
        unless_by_writes(closed, State::Absent, later),
        machine.stacks(filter, filtered),
        guarded(mlockall, &locked),
        machine.by(&pagemap, calloc, written, "mount /proc"),
        machine.by(&["membarrier"], idle, stays, "allow membarrier"),
    ]
}

fn full(name: Text, value: impl Into<String>) -> Finding {
    Finding::new(name, State::Full, value, "")
}

fn guarded(name: Text, guard: &Guard) -> Finding {
    match guard {
        Guard::Advice => full(name, "by MADV_GUARD_INSTALL"),
        Guard::Writes => full(name, "against writes"),
        Guard::Mapping(why, change) => {
            let value = format!("two mappings a guard: {why}");
            Finding::new(name, State::Slower, value, *change)
        }
    }
}

struct Machine<'a> {
    findings: &'a [Finding],
    queries: bool,
}

impl Machine<'_> {
    fn of(&self, name: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.name == name)
    }

    fn value(&self, name: &str) -> &str {
        self.of(name).map_or("", |finding| &finding.value)
    }

    /// Whether the heap uses a facility.
    fn has(&self, name: &str) -> bool {
        self.queries && self.of(name).is_some_and(|found| found.state == State::Ok)
    }

    /// Why the heap does not use a facility, and what to change.
    fn refusal(&self, name: &str, change: Text) -> (String, Text) {
        match self.queries {
            true => (format!("{name}: {}", self.value(name)), change),
            false => (NO_QUERIES[0].into(), "unset NEAP_KERNEL_QUERIES"),
        }
    }

    /// Whether the heap uses one of some facilities, and what it does instead.
    fn by(&self, ways: &[&str], name: Text, instead: Text, change: Text) -> Finding {
        if let Some(way) = ways.iter().find(|way| self.has(way)) {
            return full(name, format!("by {way}"));
        }
        let (why, change) = self.refusal(ways[ways.len() - 1], change);
        Finding::absent(name, format!("{instead}: {why}"), change)
    }

    fn guard_if_locked(&self, is_filtered: bool) -> Guard {
        if self.queries && is_filtered {
            let why = "Neap tries no userfaultfd under a system call filter";
            return Guard::Mapping(why.into(), "start it without a filter");
        }
        if self.has("userfaultfd") {
            return Guard::Writes;
        }
        let change = "allow userfaultfd (vm.unprivileged_userfaultfd)";
        let (why, change) = self.refusal("userfaultfd", change);
        Guard::Mapping(why, change)
    }

    /// Whether a process may have all the stacks.
    fn stacks(&self, name: Text, guard: &Guard) -> Finding {
        let number = |name: &str| self.value(name).split(' ').next()?.parse::<u64>().ok();
        let limit = |name: &str| {
            let most = number(name)? / STACK_KIB;
            Some((most, name.to_owned(), format!("raise {name}")))
        };
        let mapped = match guard {
            Guard::Mapping(why, change) => {
                let most = number("max_map_count").unwrap_or(USUAL_MAPPINGS) / MAPPINGS_EACH;
                let more = if self.queries { MORE_STACKS } else { "" };
                Some((most, why.clone(), format!("{change}{more}")))
            }
            _ => None,
        };
        let bounds = [limit("RLIMIT_AS"), limit("RLIMIT_DATA"), mapped];
        match bounds.into_iter().flatten().min() {
            Some((most, why, change)) if most < STACKS => {
                let value = format!("at most {} stacks, then an error: {why}", grouped(most));
                Finding::absent(name, value, change)
            }
            _ => guarded(name, guard),
        }
    }
}
