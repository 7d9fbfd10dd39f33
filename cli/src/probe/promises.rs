//! Which of Neap's promises hold on this machine: the rows of `docs/platforms.md`.

use crate::profile::grouped;
use crate::table::{Finding, State};
use neap_shared::control::{self, OPTIONS, Value};

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
/// How many stacks the page promises.
const STACKS: u64 = 50_000;
/// What a stack takes of a resource limit: 64 KiB, as much for its guard, the heap's own mappings
/// (up to 1.8 KiB), and a hundredth for what the process maps besides.
const STACK_KIB: u64 = 131;
/// What an empty process takes of a resource limit.
const PROCESS_KIB: u64 = 5 << 10;
/// What a stack takes of `NEAP_LIMIT`: two pages of 4 KiB, and the heap's records.
const STACK_BYTES: u64 = (8 << 10) + 210;
/// What the heap assumes if it cannot read `vm.max_map_count`.
const USUAL_MAPPINGS: u64 = 65_530;
/// Guards by `mprotect` take two mappings each, and at most half of all mappings.
const MAPPINGS_EACH: u64 = 4;
const MORE_STACKS: &str = ", use Linux 6.13 or newer, or raise vm.max_map_count to 200,000";

/// How the heap guards a stack.
enum Guard {
    /// By `MADV_GUARD_INSTALL`.
    Advice,
    /// By userfaultfd.
    Writes,
    /// By `mprotect`. Why not by another way, and what to change.
    Mapping(String, String),
}

/// The promises, by the findings of [`super::all`] and the variables of the environment.
pub fn promises(findings: &[Finding], variables: &[Finding]) -> Vec<Finding> {
    let machine = Machine::new(findings, variables);
    let locked = machine.guard_if_locked(machine.value("seccomp") != "off");
    let (guard, filtered) = if machine.has("MADV_GUARD_INSTALL") {
        (&Guard::Advice, &Guard::Advice)
    } else {
        (&locked, &machine.guard_if_locked(true))
    };
    let by_writes = matches!(guard, Guard::Writes);
    let unless_by_writes = |name, state, value| {
        if by_writes {
            Finding::new(name, state, value, "use Linux 6.13 or newer")
        } else {
            full(name, "")
        }
    };
    let signal = if by_writes { "SIGBUS" } else { "SIGSEGV" };
    let [many, overflow, fork, closed, filter, mlockall, calloc, idle] = ROWS;
    let pagemap = ["PAGEMAP_SCAN", "/proc/self/pagemap"];
    let written = "up to 4 MiB are written, more is purged";
    let later = "lost until the next new stack or round";
    vec![
        machine.stacks(many, guard),
        full(overflow, signal),
        unless_by_writes(fork, State::Slower, "2 to 8 µs a guard"),
        unless_by_writes(closed, State::Absent, later),
        machine.stacks(filter, filtered),
        guarded(mlockall, &locked),
        machine.by(&pagemap, calloc, written, "mount /proc"),
        machine.idle(idle),
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
            Finding::new(name, State::Slower, value, change)
        }
    }
}

/// An option that the environment sets.
struct Setting<'a> {
    variable: Text,
    /// `VARIABLE=VALUE`.
    line: &'a str,
    value: Value<'a>,
}

impl<'a> Setting<'a> {
    /// The setting of an option, as the heap reads it: a wrong value does not count.
    fn of(name: &str, variables: &'a [Finding]) -> Option<Self> {
        let option = OPTIONS.iter().find(|option| option.name == name)?;
        let mut lines = variables.iter().map(|found| found.value.as_str());
        let line = lines.find(|line| {
            let own = line.split_once('=').map(|(own, _)| own);
            own == Some(option.env)
        })?;
        let text = &line.as_bytes()[option.env.len() + 1..];
        Some(Self {
            variable: option.env,
            line,
            value: control::parse(option.kind, text).ok()?,
        })
    }

    fn unset(&self) -> String {
        format!("unset {}", self.variable)
    }
}

/// At most this many stacks: the number in words, why, and what to change.
type Bound = (u64, String, String, String);

struct Machine<'a> {
    findings: &'a [Finding],
    /// What forbids queries to the kernel.
    without_queries: Option<Setting<'a>>,
    /// What forbids the purge thread.
    without_thread: Option<Setting<'a>>,
    /// What limits the heap.
    limit: Option<Setting<'a>>,
}

impl<'a> Machine<'a> {
    fn new(findings: &'a [Finding], variables: &'a [Finding]) -> Self {
        let chosen = |name, word| {
            let setting = Setting::of(name, variables);
            setting.filter(|setting| setting.value == Value::Choice(word))
        };
        Self {
            findings,
            without_queries: chosen("kernel-queries", "0"),
            without_thread: chosen("purge-thread", "never"),
            limit: Setting::of("limit", variables),
        }
    }

    fn of(&self, name: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.name == name)
    }

    fn value(&self, name: &str) -> &str {
        self.of(name).map_or("", |finding| &finding.value)
    }

    /// Whether the heap uses a facility.
    fn has(&self, name: &str) -> bool {
        self.without_queries.is_none()
            && self.of(name).is_some_and(|found| found.state == State::Ok)
    }

    /// Why the heap does not use a facility, and what to change.
    fn refusal(&self, name: &str, change: Text) -> (String, String) {
        match &self.without_queries {
            None => (format!("{name}: {}", self.value(name)), change.into()),
            Some(setting) => (setting.line.into(), setting.unset()),
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

    /// Whether memory in the caches of idle threads goes back.
    fn idle(&self, name: Text) -> Finding {
        match &self.without_thread {
            None => {
                let stays = "it stays in their caches";
                self.by(&["membarrier"], name, stays, "allow membarrier")
            }
            Some(never) => {
                let value = format!("a program that sleeps keeps it: {}", never.line);
                Finding::absent(name, value, never.unset())
            }
        }
    }

    fn guard_if_locked(&self, is_filtered: bool) -> Guard {
        if self.without_queries.is_none() && is_filtered {
            let why = "Neap tries no userfaultfd under a system call filter";
            return Guard::Mapping(why.into(), "start it without a filter".into());
        }
        if self.has("userfaultfd") {
            return Guard::Writes;
        }
        let change = "allow userfaultfd (vm.unprivileged_userfaultfd)";
        let (why, change) = self.refusal("userfaultfd", change);
        Guard::Mapping(why, change)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.value(name).split(' ').next()?.parse().ok()
    }

    /// How many stacks a resource limit allows.
    fn by_resource(&self, name: &str) -> Option<Bound> {
        let most = self.number(name)?.saturating_sub(PROCESS_KIB) / STACK_KIB;
        Some((most, about(most), name.into(), format!("raise {name}")))
    }

    /// How many stacks `NEAP_LIMIT` allows.
    fn by_limit(&self) -> Option<Bound> {
        let setting = self.limit.as_ref()?;
        let Value::Bytes(bytes) = setting.value else {
            return None;
        };
        let (most, change) = (bytes / STACK_BYTES, format!("raise {}", setting.variable));
        Some((most, about(most), setting.line.into(), change))
    }

    /// How many stacks the mappings of a process allow.
    fn by_mappings(&self, guard: &Guard) -> Option<Bound> {
        let Guard::Mapping(why, change) = guard else {
            return None;
        };
        let most = self.number("max_map_count").unwrap_or(USUAL_MAPPINGS) / MAPPINGS_EACH;
        let more = match self.without_queries {
            None => MORE_STACKS,
            Some(_) => "",
        };
        let text = format!("at most {}", grouped(most));
        Some((most, text, why.clone(), format!("{change}{more}")))
    }

    /// Whether a process may have all the stacks.
    fn stacks(&self, name: Text, guard: &Guard) -> Finding {
        let bounds = [
            self.by_resource("RLIMIT_AS"),
            self.by_resource("RLIMIT_DATA"),
            self.by_limit(),
            self.by_mappings(guard),
        ];
        match bounds.into_iter().flatten().min() {
            Some((most, text, why, change)) if most < STACKS => {
                let value = format!("{text} stacks, then an error: {why}");
                Finding::absent(name, value, change)
            }
            _ => guarded(name, guard),
        }
    }
}

/// An estimate, rounded down to hundreds or, below 1,000, to tens.
fn about(number: u64) -> String {
    let step = if number < 1_000 { 10 } else { 100 };
    format!("about {}", grouped(number - number % step))
}
