//! The workloads as data: what each runs, its size, and the meaning of its number. [`crate::work`]
//! carries out the shapes in a worker process, and [`crate::programs`] the programs.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::stats::Rng;

/// The order in which blocks are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// First allocated, first freed.
    Fifo,
    /// Last allocated, first freed.
    Lifo,
    /// A fixed random permutation.
    Random,
}

/// Which thread first allocates the objects that two threads write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// Each thread its own, at the same time as the other.
    Active,
    /// The main thread, both in a row; the threads free them.
    Passive,
}

/// How a block grows by `realloc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Growth {
    /// By a factor of two, as a vector does.
    Double,
    /// By an eighth, as CPython's list does.
    Eighth,
}

/// The smallest and the largest of a workload's blocks, in bytes. Sizes between them are equally
/// frequent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Sizes(pub usize, pub usize);

impl Sizes {
    /// The mean.
    pub fn mean(self) -> usize {
        (self.0 + self.1) / 2
    }

    /// One of them.
    #[inline(always)]
    pub fn random(self, rng: &mut Rng) -> usize {
        match self.1 - self.0 {
            0 => self.0,
            range => self.0 + rng.below(range + 1),
        }
    }
}

/// The work of a workload. An *operation* is a malloc+free pair unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Blocks of `size` bytes, each freed at once.
    Pair { size: usize },
    /// `count` blocks of `size` bytes, then all freed.
    Batch {
        size: usize,
        count: usize,
        order: Order,
    },
    /// In each thread, one of `live` blocks is replaced, repeatedly: the oldest or a random one.
    Churn {
        sizes: Sizes,
        live: usize,
        threads: usize,
        order: Order,
    },
    /// A linked list of `length` nodes of `size` bytes built in order and freed in order.
    List { size: usize, length: usize },
    /// Blocks allocated by one thread and freed by another, in each of `pairs` pairs of threads.
    Handoff { sizes: Sizes, pairs: usize },
    /// Churn in which a new thread inherits the slots after `life` operations.
    Server {
        live: usize,
        threads: usize,
        life: u64,
    },
    /// Two threads write 200 times to an 8-byte object each, then replace it.
    FalseSharing(Sharing),
    /// One block grown by realloc to `limit` bytes, written as it grows; one growth per operation.
    Grow { limit: usize, growth: Growth },
    /// Live blocks of `size` bytes, all written: resident bytes per block. A full run takes enough
    /// blocks that a single huge page does not matter.
    Live { size: usize },
    /// Blocks of `bytes` in all are allocated, written, freed in random order, and followed by a
    /// pause; processor time of all threads, without the first burst. One burst per operation.
    Burst { sizes: Sizes, bytes: usize },
    /// Forks of a process with `bytes` of live blocks, whose child ends at once.
    Fork { bytes: usize },
    /// The program of the case in this folder of the lab: processor time; one run per operation.
    Program(String),
}

/// One row of the table.
#[derive(Clone, Debug, Deserialize)]
pub struct Workload {
    /// Its name on the command line and in the records.
    pub name: String,
    /// What it shows, for people.
    pub shows: String,
    /// Its work.
    #[serde(flatten)]
    pub shape: Shape,
    /// Operations of a full run.
    pub full: u64,
    /// Operations of a quick run, which only shows that it works.
    pub quick: u64,
}

impl Workload {
    /// Whether one of the lab's worker processes carries it out (else another project's program
    /// does).
    pub fn is_ours(&self) -> bool {
        !matches!(self.shape, Shape::Program(_))
    }
}

/// Keys of a worker's report that not all workloads have.
pub const PER_BLOCK_KEY: &str = "bytes_per_block";
pub const IDLE_KEY: &str = "idle_kib";
pub const HUGE_KEY: &str = "huge_kib";

/// The sizes of most objects.
pub const SMALL: Sizes = Sizes(16, 1_024);

/// All workloads, in the order of the report.
pub static ALL: LazyLock<Vec<Workload>> = LazyLock::new(|| {
    let text = include_str!("../workloads.toml");
    let mut parts: BTreeMap<String, Vec<Workload>> =
        basic_toml::from_str(text).expect("the table of workloads is damaged");
    parts.remove("workload").expect("there are workloads")
});

/// The workload with that name.
pub fn find(name: &str) -> Option<&'static Workload> {
    ALL.iter().find(|w| w.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_sizes_sensible() {
        for (i, w) in ALL.iter().enumerate() {
            assert!(
                ALL[..i].iter().all(|other| other.name != w.name),
                "{} twice",
                w.name
            );
            assert!(w.quick > 0 && w.quick <= w.full, "{}", w.name);
        }
    }
}
