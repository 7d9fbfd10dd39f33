//! The lines of a recording, in bytes and milliseconds unless stated otherwise; `t_ms` counts from
//! the program's start.

use crate::probe::bracketed;
use neap_shared::areas::field;
use neap_shared::ledger::Ledger;
use neap_shared::stats::{ClassFigures, Snapshot, SpanFigures, Use};
use neap_shared::status_page::Coarse;
use neap_shared::units::SLICE_SHIFT;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;

/// The format's name in the head.
pub const FORMAT: &str = "neap-recording";
/// Changes when a reader of the previous version would misread a line.
pub const VERSION: u32 = 1;
/// The first bytes of every recording.
pub const START: &[u8] = br#"{"head":{"format":"neap-recording","#;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// The first line, and only that.
    Head(Head),
    /// A process at one moment.
    Sample(Box<Sample>),
    /// The size classes of a process at one moment.
    Classes(Classes),
    /// An event.
    Event(Event),
    /// A process's heap profile, at its end or at its peak.
    Profile(Embedded),
}

/// What was run, where and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The `neap` that wrote this.
    pub written_by: String,
    /// The program as it was named on the command line.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its PID.
    pub pid: i32,
    /// When it started, in ms since 1970 (UTC).
    pub started_ms: u64,
    /// Between two samples.
    pub interval_ms: u64,
    /// The machine.
    pub machine: Machine,
    /// The `NEAP_*` variables that were set; all others had their defaults.
    pub options: BTreeMap<String, String>,
}

/// A process at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When `neap` took the sample.
    pub t_ms: u64,
    /// Its PID.
    pub pid: u32,
    /// Resident bytes of the whole process at `t_ms`, by the kernel's count; 0 if it has ended.
    pub rss: u64,
    /// Resident bytes of the heap's arenas, by the kernel's count; taken at longer intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arenas_rss: Option<u64>,
    /// The page heap's counts at `t_ms`, which it always keeps up to date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans: Option<Spans>,
    /// The process's guarded samples at `t_ms`, if it ever had some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guards: Option<GuardCounts>,
    /// The last figures that the process wrote, possibly long before `t_ms`; only [`Sample::told`]
    /// returns them.
    #[serde(default, skip_serializing_if = "LastTold::is_none")]
    pub heap: LastTold,
}

/// Guarded samples since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardCounts {
    /// Guarded blocks.
    pub blocks: u64,
    /// Memory errors found.
    pub errors: u64,
}

/// Figures without public access, because they belong to another moment than the sample. See
/// [`Sample::told`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LastTold(Option<Heap>);

impl LastTold {
    fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

/// A process's figures of its heap, with the time at which they held: never the time when `neap`
/// read them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told<'a> {
    /// When the process began to count, in ms.
    pub at_ms: u64,
    /// When the process had finished and wrote this, in ms.
    pub until_ms: u64,
    /// Resident bytes of the whole process when it began.
    pub rss: u64,
    /// The figures.
    pub heap: &'a Heap,
}

/// The size classes in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Classes {
    /// When the process wrote them.
    pub t_ms: u64,
    /// Its PID.
    pub pid: u32,
    /// Smallest first.
    pub classes: Vec<ClassRow>,
}

/// Numbers of blocks in one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassRow {
    /// Bytes of a block.
    pub bytes: u64,
    /// Slabs.
    pub slabs: u64,
    /// Live.
    pub live: u64,
    /// Free in slabs.
    pub free: u64,
    /// Free in magazines.
    pub cached: u64,
    /// Allocations so far, in the counting mode; else 0.
    #[serde(default)]
    pub allocations: u64,
    /// Bytes requested by them.
    #[serde(default)]
    pub requested: u64,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub t_ms: u64,
    /// The PID.
    pub pid: u32,
    /// What happened.
    #[serde(flatten)]
    pub what: Happening,
}

/// See [`Event`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Happening {
    /// A process under Neap started, or executed another program.
    Came {
        /// Its name.
        program: String,
        /// Its kind of heap.
        #[serde(default)]
        frontend: Frontend,
    },
    /// From here on the process reports a heap of its own besides the library's: it is a Rust
    /// program with Neap as its allocator.
    OwnHeap,
    /// The main program returned.
    Exited {
        /// Its exit status.
        status: i32,
    },
    /// The main program was killed.
    Killed {
        /// By this signal.
        signal: i32,
    },
    /// Another process of the tree has ended.
    Ended,
    /// The process purged pages since the last sample.
    Purge {
        /// Bytes purged.
        bytes: u64,
    },
    /// Lines before this one could not be written.
    Lost {
        /// How many.
        lines: u64,
    },
}

/// The kind of heap, which determines the thread that answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frontend {
    /// The library's, or unknown.
    #[default]
    Library,
    /// A Rust program's own allocator, which has a purge thread only on the program's request.
    Rust,
}

/// A heap profile inside a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embedded {
    /// When the profile was taken, if not at the end: what was live when the program held most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_ms: Option<u64>,
    /// When the profile was taken, if that was between a quarter and half of the process's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_ms: Option<u64>,
    /// The process's PID.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// pprof's profile.proto, gzipped, in base64.
    pub pprof: String,
}

/// Figures without the process's size count as the sample's moment if they are at most this old, in
/// ms.
const SAME_MOMENT_MS: u64 = 50;

impl Sample {
    /// The sample with the last figures that the process wrote.
    pub fn with(self, heap: Heap) -> Self {
        Self {
            heap: LastTold(Some(heap)),
            ..self
        }
    }

    /// The process's figures of its heap, with their time.
    pub fn told(&self) -> Option<Told<'_>> {
        let heap = self.heap.0.as_ref()?;
        let rss = match heap.rss {
            0 if heap.age_ms > SAME_MOMENT_MS => return None,
            0 => self.rss,
            rss => rss,
        };
        let until_ms = self.t_ms.saturating_sub(heap.age_ms);
        Some(Told {
            at_ms: until_ms.saturating_sub(heap.took_ms),
            until_ms,
            rss,
            heap,
        })
    }
}

impl From<&ClassFigures> for ClassRow {
    fn from(figures: &ClassFigures) -> Self {
        Self {
            bytes: figures.bytes,
            slabs: figures.slabs,
            live: figures.live(),
            free: figures.free,
            cached: figures.cached,
            allocations: figures.allocations,
            requested: figures.requested,
        }
    }
}

impl Classes {
    /// The classes of `figures` that have blocks or had some.
    pub fn new(t_ms: u64, pid: u32, figures: &Snapshot) -> Self {
        let used = |class: &&ClassFigures| class.blocks > 0 || class.allocations > 0;
        let classes = figures.classes.iter().filter(used).map(ClassRow::from);
        Self {
            t_ms,
            pid,
            classes: classes.collect(),
        }
    }
}

/// Spans by use, in bytes. The page heap's counts are exact to a sixty-fourth of the heap, or to 1
/// MiB in a small one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spans {
    /// Slabs, including the free blocks in them.
    pub slabs: u64,
    /// Large blocks.
    pub large: u64,
    /// Free spans.
    pub free: u64,
    /// Pages of free spans that may be resident.
    pub free_dirty: u64,
}

impl Spans {
    /// Slabs and large blocks: an upper bound of what the program holds.
    pub fn taken(&self) -> u64 {
        self.slabs.saturating_add(self.large)
    }
}

impl From<&Coarse> for Spans {
    fn from(coarse: &Coarse) -> Self {
        Self {
            slabs: slab_bytes(&coarse.spans),
            large: coarse.large_bytes,
            free: coarse.free,
            free_dirty: coarse.free_dirty,
        }
    }
}

impl From<&Snapshot> for Spans {
    fn from(figures: &Snapshot) -> Self {
        Self {
            slabs: slab_bytes(&figures.spans),
            large: figures.large_bytes,
            free: figures.free_spans,
            free_dirty: figures.free_dirty,
        }
    }
}

fn slab_bytes(spans: &[SpanFigures]) -> u64 {
    let slices = spans[Use::Slab as usize - 1].slices;
    slices.saturating_mul(1 << SLICE_SHIFT)
}

/// The heap's own figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heap {
    /// How old these figures were at the sample's `t_ms`. A sleeping process does not write them.
    pub age_ms: u64,
    /// How long the process took to count; on a busy machine that may be long.
    #[serde(default)]
    pub took_ms: u64,
    /// The page heap's counts when these figures were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans: Option<Spans>,
    /// Resident bytes of the whole process when these figures were written; 0: unknown.
    pub rss: u64,
    /// The highest resident count up to then, including between two samples; 0: unknown.
    #[serde(default)]
    pub most_rss: u64,
    /// Where every byte is.
    #[serde(with = "LedgerFields")]
    pub ledger: Ledger,
    /// Minor page faults so far.
    pub minor_faults: u64,
    /// Major page faults so far.
    pub major_faults: u64,
    /// Purges so far.
    pub purges: u64,
    /// Bytes purged so far.
    pub purged_bytes: u64,
    /// Of these, bytes that were wanted again within the decay time.
    #[serde(default)]
    pub regretted_bytes: u64,
    /// Bytes zeroed by stores for large callocs so far.
    pub zeroed: u64,
    /// Bytes of large callocs known to be zero, and so not written, so far.
    pub zero_spared: u64,
    /// Bytes of large callocs purged instead of zeroed, so far.
    pub zero_purged: u64,
    /// Threads with a cache.
    pub threads: u64,
    /// Usable bytes of large blocks.
    pub large_bytes: u64,
    /// Large blocks.
    pub large_blocks: u64,
    /// Committed address space.
    pub committed: u64,
    /// Coroutine stacks.
    pub stacks: Stacks,
}

/// Numbers of coroutine stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stacks {
    /// In use.
    pub used: u64,
    /// Ended and kept warm.
    pub idle: u64,
    /// Without memory.
    pub free: u64,
    /// Address space of all of these, in bytes.
    pub address: u64,
}

impl Heap {
    /// The part of `figures` that a recording keeps. They are `age_ms` old.
    pub fn new(figures: &Snapshot, age_ms: u64) -> Self {
        Self {
            age_ms,
            took_ms: figures.at_ms.saturating_sub(figures.began_ms),
            spans: Some(Spans::from(figures)),
            rss: figures.resident,
            most_rss: figures.peak_resident,
            ledger: figures.ledger,
            minor_faults: figures.minor_faults,
            major_faults: figures.major_faults,
            purges: figures.purges,
            purged_bytes: figures.purged_bytes,
            regretted_bytes: figures.regretted_bytes,
            zeroed: figures.zeroed,
            zero_spared: figures.zero_spared,
            zero_purged: figures.zero_purged,
            threads: figures.threads,
            large_bytes: figures.large_bytes,
            large_blocks: figures.large_blocks,
            committed: figures.committed,
            stacks: Stacks {
                used: figures.stacks.used,
                idle: figures.stacks.idle,
                free: figures.stacks.free,
                address: figures.stacks.address,
            },
        }
    }

    /// Bytes of large callocs that were not written with zeros.
    pub fn zeroing_saved(&self) -> u64 {
        self.zero_spared.saturating_add(self.zero_purged)
    }
}

/// The ledger's lines by name.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Ledger")]
struct LedgerFields {
    requested: u64,
    rounding: u64,
    untouched: u64,
    swapped: u64,
    tails: u64,
    slab_free: u64,
    magazines: u64,
    quarantine: u64,
    free_dirty: u64,
    huge_excess: u64,
    stacks_used: u64,
    stacks_idle: u64,
    stacks_free: u64,
    metadata: u64,
    sampling: u64,
    resident: u64,
    requested_by: u64,
    asked_kernel: u64,
    swapped_free: u64,
}

/// A machine. Unknown fields are empty or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// Processors that this process may use.
    pub cpus: u64,
    /// RAM, in bytes.
    pub memory: u64,
    /// Bytes of an OS page.
    pub page_bytes: u64,
    /// `always`, `madvise` or `never`: when the kernel uses transparent huge pages.
    pub huge_pages: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let text = |file| fs::read_to_string(file).unwrap_or_default();
        Self {
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpus: std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u64),
            memory: total(&text("/proc/meminfo")),
            page_bytes: rustix::param::page_size() as u64,
            huge_pages: bracketed(&text("/sys/kernel/mm/transparent_hugepage/enabled"))
                .unwrap_or_default()
                .to_owned(),
        }
    }
}

/// Parses `MemTotal:  24576 kB`, in bytes.
fn total(text: &str) -> u64 {
    (text.lines().find_map(|line| field(line, "MemTotal:"))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_shared::ledger::Ledger;

    #[test]
    fn every_line_of_the_ledger_is_recorded_under_its_own_name() {
        let sample = Sample::default().with(Heap::default());
        let value = serde_json::to_value(&sample).unwrap();
        let ledger = value["heap"]["ledger"].as_object().unwrap();
        for line in Ledger::default().lines() {
            assert!(ledger.contains_key(line.name), "{}", line.name);
        }
        assert!(ledger.contains_key("resident"));
    }

    #[test]
    fn figures_stand_at_the_moment_when_they_were_written() {
        let heap = Heap {
            age_ms: 900,
            rss: 7,
            ..Heap::default()
        };
        let sample = Sample {
            t_ms: 1000,
            rss: 5,
            ..Sample::default()
        };
        let told = |heap: Heap| {
            let sample = sample.clone().with(heap);
            sample.told().map(|told| (told.at_ms, told.rss))
        };
        assert_eq!(told(heap.clone()), Some((100, 7)));
        // Old figures without the process's size say nothing about it.
        assert_eq!(told(Heap { rss: 0, ..heap }), None);
        assert_eq!(told(Heap::default()), Some((1000, 5)));
        assert_eq!(sample.told(), None);
    }

    #[test]
    fn events_are_flat() {
        let event = Event {
            t_ms: 5,
            pid: 7,
            what: Happening::Killed { signal: 9 },
        };
        let text = serde_json::to_string(&Record::Event(event.clone())).unwrap();
        assert_eq!(
            text,
            r#"{"event":{"t_ms":5,"pid":7,"event":"killed","signal":9}}"#
        );
        assert_eq!(
            serde_json::from_str::<Record>(&text).unwrap(),
            Record::Event(event)
        );
    }

    #[test]
    fn this_machine_has_memory() {
        let machine = Machine::here();
        assert!(machine.memory > 1 << 20 && machine.page_bytes >= 4096 && machine.cpus > 0);
        assert!(!machine.kernel.is_empty());
    }

    #[test]
    fn the_memory_is_taken_out_of_its_line() {
        assert_eq!(
            total("MemFree: 1 kB\nMemTotal:       24576 kB\n"),
            24576 << 10
        );
        assert_eq!(total("MemTotal: much"), 0);
    }
}
