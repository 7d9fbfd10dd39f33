//! The lines of a recording. Bytes and milliseconds unless said otherwise; `t_ms` counts from the program's start.

use super::machine::Machine;
use neap::ledger::Ledger;
use neap::stats::{ClassFigures, Snapshot, StackFigures};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the head says the file is.
pub const FORMAT: &str = "neap-recording";
/// Changes when a reader of the version before would misread a line.
pub const VERSION: u32 = 1;
/// How every recording begins.
pub const START: &[u8] = br#"{"head":{"format":"neap-recording","#;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// The first line, and only this.
    Head(Head),
    /// A process at one moment.
    Sample(Box<Sample>),
    /// The size classes of a process at one moment.
    Classes(Classes),
    /// Something that happened.
    Event(Event),
    /// A heap profile of a process, of its end or of its peak.
    Profile(Embedded),
}

/// What was run, where and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The `neap` that wrote this.
    pub written_by: String,
    /// The program, as it was called.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its process number.
    pub pid: i32,
    /// When it started, in ms since 1970 (UTC).
    pub started_ms: u64,
    /// Between two samples.
    pub interval_ms: u64,
    /// The machine.
    pub machine: Machine,
    /// The variables `NEAP_*` in force; what is not here had its default.
    pub options: BTreeMap<String, String>,
}

/// A process at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When.
    pub t_ms: u64,
    /// Which process.
    pub pid: u32,
    /// In RAM, the whole process, as the kernel counts; 0 when it has ended.
    pub rss: u64,
    /// In RAM, the heap's arenas, as the kernel counts; looked at now and then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arenas_rss: Option<u64>,
    /// The heap, if the process has told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heap: Option<Heap>,
}

/// What the heap tells about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heap {
    /// How old these figures were: a process that sleeps does not write them.
    pub age_ms: u64,
    /// In RAM, the whole process, when these figures were written; 0: not known.
    pub rss: u64,
    /// Where every byte is.
    #[serde(with = "LedgerFields")]
    pub ledger: Ledger,
    /// Page faults so far that needed no disk.
    pub minor_faults: u64,
    /// Page faults so far that did.
    pub major_faults: u64,
    /// Times that pages were given back, so far.
    pub purges: u64,
    /// Bytes of these.
    pub purged_bytes: u64,
    /// Written with zeros for large callocs, so far.
    pub zeroed: u64,
    /// Of large callocs, known to be zero and not written, so far.
    pub zero_spared: u64,
    /// Of large callocs, given back to the kernel instead, so far.
    pub zero_purged: u64,
    /// Threads that have a cache.
    pub threads: u64,
    /// Usable bytes of large blocks.
    pub large_bytes: u64,
    /// Large blocks.
    pub large_blocks: u64,
    /// Backed by the kernel's promise.
    pub committed: u64,
    /// Coroutine stacks.
    pub stacks: Stacks,
}

/// Coroutine stacks, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stacks {
    /// In the program's hands.
    pub used: u64,
    /// Ended and kept warm.
    pub parked: u64,
    /// Without memory.
    pub free: u64,
    /// Address space of all of these, in bytes.
    pub address: u64,
}

/// The size classes in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Classes {
    /// When.
    pub t_ms: u64,
    /// Which process.
    pub pid: u32,
    /// Smallest first.
    pub classes: Vec<ClassRow>,
}

/// Blocks of one size class, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassRow {
    /// Bytes of a block.
    pub bytes: u64,
    /// Slabs.
    pub slabs: u64,
    /// In the program's hands.
    pub live: u64,
    /// Free in slabs.
    pub free: u64,
    /// Free in magazines.
    pub cached: u64,
    /// Handed out so far, in the counting mode; else 0.
    #[serde(default)]
    pub allocations: u64,
    /// Bytes that these asked for.
    #[serde(default)]
    pub requested: u64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub t_ms: u64,
    /// To which process.
    pub pid: u32,
    /// What.
    #[serde(flatten)]
    pub what: Happening,
}

/// See [`Event`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Happening {
    /// A process under Neap is there, or executed another program.
    Came {
        /// Its name.
        program: String,
    },
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
    /// Since the last sample, pages were given back to the kernel.
    Purge {
        /// How much.
        bytes: u64,
    },
    /// Lines that could not be written, before this one.
    Lost {
        /// How many.
        lines: u64,
    },
}

/// A heap profile inside a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embedded {
    /// When it was taken, if that was not at the end: what was live when the program held most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_ms: Option<u64>,
    /// Of which process.
    pub pid: u32,
    /// What that runs.
    pub program: String,
    /// pprof's profile.proto, gzipped, in base64.
    pub pprof: String,
}

impl Heap {
    /// What a recording keeps of `figures`, which are `age_ms` old.
    pub fn new(figures: &Snapshot, age_ms: u64) -> Self {
        Self {
            age_ms,
            rss: figures.resident,
            ledger: figures.ledger,
            minor_faults: figures.minor_faults,
            major_faults: figures.major_faults,
            purges: figures.purges,
            purged_bytes: figures.purged_bytes,
            zeroed: figures.zeroed,
            zero_spared: figures.zero_spared,
            zero_purged: figures.zero_purged,
            threads: figures.threads,
            large_bytes: figures.large_bytes,
            large_blocks: figures.large_blocks,
            committed: figures.committed,
            stacks: Stacks::from(&figures.stacks),
        }
    }
}

impl Sample {
    /// What was in RAM when the heap's figures were written, or now if there are none.
    pub fn rss_of_figures(&self) -> u64 {
        match &self.heap {
            Some(heap) if heap.rss > 0 => heap.rss,
            _ => self.rss,
        }
    }

    /// When the heap's figures were written, in ms.
    pub fn figures_ms(&self) -> u64 {
        let age_ms = self.heap.as_ref().map_or(0, |heap| heap.age_ms);
        self.t_ms.saturating_sub(age_ms)
    }
}

impl From<&StackFigures> for Stacks {
    fn from(figures: &StackFigures) -> Self {
        Self {
            used: figures.used,
            parked: figures.parked,
            free: figures.free,
            address: figures.address,
        }
    }
}

impl From<&ClassFigures> for ClassRow {
    fn from(figures: &ClassFigures) -> Self {
        Self {
            bytes: figures.bytes,
            slabs: figures.slabs,
            live: figures
                .blocks
                .saturating_sub(figures.free.saturating_add(figures.cached)),
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

/// The ledger's lines by their names.
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
    stacks_parked: u64,
    stacks_free: u64,
    metadata: u64,
    sampling: u64,
    resident: u64,
    requested_by: u64,
    asked_kernel: u64,
    swapped_free: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_ledger_is_recorded_under_its_own_name() {
        let sample = Sample {
            heap: Some(Heap::default()),
            ..Sample::default()
        };
        let value = serde_json::to_value(&sample).unwrap();
        let ledger = value["heap"]["ledger"].as_object().unwrap();
        for line in Ledger::default().lines() {
            assert!(ledger.contains_key(line.name), "{}", line.name);
        }
        assert!(ledger.contains_key("resident"));
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
}
