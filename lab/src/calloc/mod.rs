//! The campaign of `calloc` and `free`: sizes and touch patterns under every allocator, in
//! interleaved rounds. A cell is a size and a pattern; under one allocator it is a process with a
//! clock, and once another with accounting. `views` has the tables and the picture.

mod views;

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::command::which;
use crate::engine::campaign::{Campaign, Named};
use crate::engine::experiment::{Ended, Experiment, Kept, PLAIN, available_peers};
use crate::engine::record::{Figure, Unit};
use crate::engine::settings::{self, Settings};
use crate::peers::locate::Ready;
use crate::work::calloc::{MARK, Touch};
use crate::{command, machine, run};

/// The write-up's calloc and free in a loop.
pub const EXPERIMENT: Experiment = Experiment {
    name: "calloc",
    about: "The write-up's calloc and free in a loop: time, faults, zeroed bytes, system calls",
    settings: || {
        vec![
        settings::neap(),
        settings::peers(),
        settings::names(
            "only",
            "Only these sizes (64K 256K 1M 10M 100M 1000M 2000M 4G) and patterns (none first \
             read sixteenth all)",
        ),
        settings::rounds().default_value("5"),
        settings::seconds().default_value("3600"),
        settings::number("milliseconds", "NUMBER", (0, 1 << 32))
            .default_value("300")
            .help(
                "Duration of a timed run; slow pairs take up to one pair beyond four times that",
            ),
        settings::quick(),
        settings::seed(),
    ]
    },
    kept: Kept::Always,
    run: carry_out,
    tables: |record, _| views::tables(record),
    picture: |record, _| Some(views::picture(record)),
    ..PLAIN
};

const QUICK_MILLISECONDS: u64 = 5;

fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let quick = settings.is_quick();
    let reach = if quick { Reach::Quick } else { Reach::Full };
    let memory = machine::available_bytes()?;
    let chosen = choose(&settings.names("only"), reach, memory)?;
    let peers = available_peers(settings)?;
    let rounds = if quick { 1 } else { settings.rounds(1) };
    let time = Duration::from_millis(settings.within("milliseconds", QUICK_MILLISECONDS));
    let options = [
        ("rounds", rounds.to_string()),
        ("milliseconds a timed run", time.as_millis().to_string()),
        ("seed", settings.number("seed").to_string()),
    ];
    campaign.head(&options, &peers);
    let cells = Cell::all(&chosen);
    chosen
        .left_out
        .into_iter()
        .for_each(|what| campaign.leave_out(what));
    let steps = (cells.len() * peers.len()) as u64;
    campaign.progress.expect(steps * (u64::from(rounds) + 1));
    // The accounts follow the first round, so a budget that ends early costs repetitions but no
    // columns of the report.
    for round in 0..rounds {
        let what = format!("round {} of {rounds}", round + 1);
        let run = |_: &_, cell: &Cell, peer: &Ready| timed(cell, peer, time);
        let all = (&cells[..], &peers[..]);
        if !campaign.round((round, &what), all, run) {
            break;
        }
        if round == 0 {
            campaign.round((0, "the accounts"), all, |record, cell, peer| {
                let ns = record.median(&cell.name(), peer.name, TIME);
                // Enough pairs for a fifth of a second. If the first round failed there is no
                // accounting; that failure is reported.
                let pairs = ns.map(|ns| (2e8 / ns).clamp(1.0, 100.0) as u64);
                pairs.map_or(Ok(Vec::new()), |pairs| accounted(cell, peer, pairs))
            });
        }
    }
    Ok(Ended::Measured)
}

const MIB: u64 = 1 << 20;

/// A block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Its name on the command line and in the records.
    pub name: &'static str,
    /// Bytes.
    pub bytes: u64,
}

/// All sizes, in the order of the report.
#[rustfmt::skip]
pub const SIZES: &[Size] = &[
    Size { name: "64K", bytes: 64 << 10 },
    Size { name: "256K", bytes: 256 << 10 },
    Size { name: "1M", bytes: MIB },
    Size { name: "10M", bytes: 10 * MIB },
    Size { name: "100M", bytes: 100 * MIB },
    Size { name: "1000M", bytes: 1_000 * MIB },
    STAND_IN,
    LARGEST,
];

/// The largest size, and its replacement on a machine with too little memory.
const LARGEST: Size = Size {
    name: "4G",
    bytes: 4_096 * MIB,
};
const STAND_IN: Size = Size {
    name: "2000M",
    bytes: 2_000 * MIB,
};

/// The largest size of a quick run.
const LARGEST_QUICK: u64 = 10 * MIB;

/// The sizes to use if none is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All that fit into the machine's memory.
    Full,
    /// The small ones.
    Quick,
}

/// What to run, and what is left out for lack of memory.
#[derive(Debug, PartialEq)]
pub struct Chosen {
    /// The rows.
    pub sizes: Vec<&'static Size>,
    /// The patterns.
    pub touches: Vec<Touch>,
    /// Why sizes were left out.
    pub left_out: Vec<String>,
}

/// The sizes and patterns named in `only`. If it names none of a kind, all of that kind, as far as
/// `available` bytes of memory allow.
///
/// # Errors
/// If a name is neither, or nothing is left.
pub fn choose(only: &[String], reach: Reach, available: u64) -> anyhow::Result<Chosen> {
    let unknown = only.iter().find(|name| !known().contains(&name.as_str()));
    if let Some(name) = unknown {
        bail!(
            "no size and no pattern {name:?}; there are {}",
            known().join(", ")
        );
    }
    let named = |name: &str| only.iter().any(|n| n == name);
    let mut touches = Touch::ALL.to_vec();
    if only.iter().any(|n| Touch::find(n).is_some()) {
        touches.retain(|touch| named(touch.name()));
    }
    let mut sizes: Vec<&'static Size> = SIZES.iter().filter(|size| named(size.name)).collect();
    if sizes.is_empty() {
        sizes = SIZES
            .iter()
            .filter(|size| reach.has(size, available))
            .collect();
    }
    let (sizes, large): (Vec<_>, Vec<_>) = sizes.iter().partition(|size| needed(size) <= available);
    let reason = |size: &&Size| {
        let (needed, available) = (needed(size) / MIB, available / MIB);
        format!(
            "{}: needs {needed} MiB of memory, {available} MiB are available",
            size.name
        )
    };
    let left_out: Vec<String> = large.iter().map(reason).collect();
    ensure!(!sizes.is_empty(), "nothing to run: {}", left_out.join(", "));
    Ok(Chosen {
        sizes,
        touches,
        left_out,
    })
}

fn known() -> Vec<&'static str> {
    let sizes = SIZES.iter().map(|size| size.name);
    sizes.chain(Touch::ALL.map(Touch::name)).collect()
}

impl Reach {
    /// Whether a size is used if none is named. The replacement is, on a machine without memory for
    /// the largest size.
    fn has(self, size: &Size, available: u64) -> bool {
        match self {
            Reach::Quick => size.bytes <= LARGEST_QUICK,
            Reach::Full if needed(&LARGEST) <= available => *size != STAND_IN,
            Reach::Full => *size != LARGEST,
        }
    }
}

/// Memory for a size: twice its bytes, because an allocator may keep a freed block while it
/// allocates the next, and a margin.
fn needed(size: &Size) -> u64 {
    2 * size.bytes + 256 * MIB
}

/// One cell: the work of one worker process under one allocator.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The size of a block.
    pub size: &'static Size,
    /// The pattern of writes to the block.
    pub touch: Touch,
}

impl Cell {
    /// Every cell of the chosen sizes and patterns. Small sizes come first, so that the slowest
    /// cells are missing if the time is up.
    pub fn all(chosen: &Chosen) -> Vec<Cell> {
        let touches = &chosen.touches;
        let of = |&size: &&'static Size| touches.iter().map(move |&touch| Cell { size, touch });
        chosen.sizes.iter().flat_map(of).collect()
    }
}

impl Named for Cell {
    fn name(&self) -> String {
        format!("{} {}", self.size.name, self.touch.name())
    }
}

/// The names of the figures: of the timed process, and of the accounts.
const PAIRS: &str = "pairs";
pub const TIME: &str = "time of a pair";
const LEAST: &str = "least time";
pub const MINOR: &str = "minor faults";
pub const MAJOR: &str = "major faults";
pub const ZEROED: &str = "zeroed";
pub const CALLS: &str = "system calls";
/// In place of a figure that this machine cannot tell.
const UNKNOWN: &str = "unknown";

/// The arguments of a cell's worker.
fn job(cell: &Cell, kind: &str, number: impl ToString) -> [String; 5] {
    let (touch, bytes) = (cell.touch.name().to_string(), cell.size.bytes.to_string());
    [
        "calloc".into(),
        touch,
        bytes,
        kind.into(),
        number.to_string(),
    ]
}

/// Runs pairs for about `time` under `peer`.
///
/// # Errors
/// If the worker fails, hangs, or used another malloc.
pub fn timed(cell: &Cell, peer: &Ready, time: Duration) -> anyhow::Result<Vec<Figure>> {
    parse_timed(&run::ask(
        job(cell, "--milliseconds", time.as_millis()),
        peer,
    )?)
}

fn parse_timed(report: &str) -> anyhow::Result<Vec<Figure>> {
    let number = |key| anyhow::Ok(run::needed(report, key)?.parse::<f64>()?);
    Ok(vec![
        Figure::new(PAIRS, Unit::Count, number("pairs")?),
        Figure::nanoseconds(TIME, number("ns_median")?),
        Figure::nanoseconds(LEAST, number("ns_least")?),
        Figure::number(MINOR, number("minor_faults")?),
        Figure::number(MAJOR, number("major_faults")?),
    ])
}

/// The options of strace. Only the calls that a pair makes count. A purge thread makes its own, and
/// splits the log's lines for other threads in two.
const STRACE: [&str; 6] = [
    "-qq",
    "--signal=none",
    "-s",
    "0",
    "-E",
    "NEAP_PURGE_THREAD=0",
];

/// Runs `pairs` pairs under `peer` with accounting, under strace if that is installed.
///
/// # Errors
/// If the worker fails, hangs, found a byte that is not zero, or used another malloc.
pub fn accounted(cell: &Cell, peer: &Ready, pairs: u64) -> anyhow::Result<Vec<Figure>> {
    let job = job(cell, "--account", pairs);
    let (report, trace) = match which("strace") {
        Some(_) => {
            let mut strace = run::under_strace(&STRACE, &job, peer)?;
            let (report, errors) = command::outputs(&mut strace)?;
            run::ensure_heap(&report, &peer.library)?;
            (report, Some(errors))
        }
        None => (run::ask(job, peer)?, None),
    };
    let zeroed = run::field(&report, "zeroed").map(str::parse).transpose()?;
    let calls = trace.as_deref().map(calls_between_marks).transpose()?;
    let calls = calls.map(|calls| (100.0 * calls as f64 / pairs as f64).round() / 100.0);
    let unknown = |name| Figure::text(name, UNKNOWN);
    Ok(vec![
        zeroed.map_or(unknown(ZEROED), |bytes| Figure::block_bytes(ZEROED, bytes)),
        calls.map_or(unknown(CALLS), |calls| Figure::number(CALLS, calls)),
    ])
}

/// The calls of all threads in strace's log between the worker's two marks.
fn calls_between_marks(log: &str) -> anyhow::Result<u64> {
    let mark = format!("close({MARK})");
    let parts: Vec<&str> = log.split(&mark).collect();
    let [_, between, _] = parts[..] else {
        anyhow::bail!("{} marks in the system call trace", parts.len() - 1);
    };
    // Skip the rest of the first mark's line, and the start of the second mark's line.
    let (_, calls) = between.split_once('\n').context("a mark without an end")?;
    let (calls, _) = calls.rsplit_once('\n').unwrap_or(("", calls));
    let is_call = |line: &&str| line.contains('(') && !line.contains(" resumed>");
    Ok(calls.lines().filter(is_call).count() as u64)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    fn names(chosen: &Chosen) -> Vec<&'static str> {
        chosen.sizes.iter().map(|size| size.name).collect()
    }

    #[test]
    fn memory_decides_which_size_is_the_largest() {
        let rich = choose(&[], Reach::Full, 64 << 30).unwrap();
        assert_eq!(
            names(&rich),
            ["64K", "256K", "1M", "10M", "100M", "1000M", "4G"]
        );
        let poor = choose(&[], Reach::Full, 6 << 30).unwrap();
        assert_eq!(names(&poor).last(), Some(&"2000M"));
        assert!(poor.left_out.is_empty() && poor.touches == Touch::ALL);
        let poorest = choose(&[], Reach::Full, 1 << 30).unwrap();
        assert_eq!(names(&poorest).last(), Some(&"100M"));
        assert_eq!(poorest.left_out.len(), 2, "{:?}", poorest.left_out);
        assert!(choose(&["4G".into()], Reach::Full, 1 << 30).is_err());
    }

    #[test]
    fn names_choose_sizes_and_patterns_apart() {
        let only = ["10M".to_string(), "all".into(), "first".into()];
        let chosen = choose(&only, Reach::Quick, 64 << 30).unwrap();
        assert_eq!(names(&chosen), ["10M"]);
        assert_eq!(chosen.touches, [Touch::First, Touch::All]);
        assert_eq!(Cell::all(&chosen).len(), 2);
        assert!(choose(&["11M".into()], Reach::Full, 64 << 30).is_err());
        assert_eq!(
            names(&choose(&[], Reach::Quick, 64 << 30).unwrap()).last(),
            Some(&"10M")
        );
    }

    /// The figures of a cell whose pair takes that long, for tests.
    pub fn figures(ns: f64) -> Vec<Figure> {
        let report =
            format!("pairs=12\nns_median={ns}\nns_least=800\nminor_faults=1.25\nmajor_faults=0\n");
        let mut figures = parse_timed(&report).unwrap();
        figures.extend([
            Figure::block_bytes(ZEROED, 4_096.0),
            Figure::text(CALLS, UNKNOWN),
        ]);
        figures
    }

    #[test]
    fn a_timed_report_is_read() {
        let figures = figures(900.5);
        assert_eq!(figures[0], Figure::count(PAIRS, 12));
        assert_eq!(figures[1], Figure::nanoseconds(TIME, 900.5));
        assert!(parse_timed("pairs=12\n").is_err());
    }

    #[test]
    fn calls_are_counted_between_the_marks_only() {
        let log = "mmap(NULL, 1) = 0x1\n\
                   close(-7116) = -1 EBADF (Bad file descriptor)\n\
                   [pid 7] munmap(0x1, 1) = 0\n[pid 8] futex(0x2 <unfinished ...>\n\
                   [pid 7] mmap(NULL, 1) = 0x1\n[pid 8] <... futex resumed>) = 0\n\
                   [pid 7] close(-7116) = -1 EBADF (Bad file descriptor)\nexit_group(0) = ?\n";
        assert_eq!(calls_between_marks(log).unwrap(), 3);
        let none = "close(-7116) = -1 EBADF (Bad)\nclose(-7116) = -1 EBADF (Bad)\n";
        assert_eq!(calls_between_marks(none).unwrap(), 0);
        assert!(calls_between_marks("mmap(NULL, 1) = 0x1\n").is_err());
    }
}
