//! The workloads as data: what each runs, its size, and the meaning of its number. [`crate::work`]
//! carries out the shapes in a worker process, and [`crate::programs`] the programs.

/// The order in which a batch is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First allocated, first freed.
    Fifo,
    /// Last allocated, first freed.
    Lifo,
    /// A fixed random permutation.
    Random,
}

/// Which thread first allocates the objects that two threads write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each thread its own, at the same time as the other.
    Active,
    /// The main thread, both in a row; the threads free them.
    Passive,
}

/// How a block grows by `realloc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// By a factor of two, as a vector does.
    Double,
    /// By an eighth, as CPython's list does.
    Eighth,
}

/// The work of a workload. An *operation* is a malloc+free pair unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Blocks of `size` bytes, each freed at once.
    Pair { size: usize },
    /// `count` blocks of `size` bytes, then all freed.
    Batch {
        size: usize,
        count: usize,
        order: Order,
    },
    /// In each thread, a random one of `live` blocks of 16 to 1,024 bytes is replaced, repeatedly.
    Churn { live: usize, threads: usize },
    /// A linked list of `length` nodes of `size` bytes built in order and freed in order.
    List { size: usize, length: usize },
    /// Blocks of `size` bytes allocated by one thread and freed by another.
    Handoff { size: usize },
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
    /// redis-server under redis-benchmark, SET and GET; one request per operation.
    Redis,
    /// CPython builds, dumps and loads a document; one round trip per operation.
    PythonJson,
}

/// The number of a run that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Time and peak resident memory.
    Time,
    /// Resident bytes per block.
    Memory,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name on the command line and in the records.
    pub name: &'static str,
    /// What it shows, for people.
    pub shows: &'static str,
    /// Its work.
    pub shape: Shape,
    /// Operations of a full run.
    pub full: u64,
    /// Operations of a quick run, which only shows that it works.
    pub quick: u64,
}

impl Workload {
    /// Which number of the run is compared.
    pub fn measure(&self) -> Measure {
        match self.shape {
            Shape::Live { .. } => Measure::Memory,
            _ => Measure::Time,
        }
    }

    /// Whether one of the lab's worker processes carries it out (else another project's program
    /// does).
    pub fn is_ours(&self) -> bool {
        !matches!(self.shape, Shape::Redis | Shape::PythonJson)
    }
}

const MIB: usize = 1 << 20;

/// A thousand blocks of 64 bytes, freed in `order`.
const fn thousand(order: Order) -> Shape {
    Shape::Batch {
        size: 64,
        count: 1_000,
        order,
    }
}

/// All workloads, in the order of the report.
#[rustfmt::skip]
pub const ALL: &[Workload] = &[
    Workload { name: "pair-48", shows: "the hot path: malloc 48, free at once",
        shape: Shape::Pair { size: 48 }, full: 20_000_000, quick: 20_000 },
    Workload { name: "fifo", shows: "1,000 blocks of 64 B, freed first in first out",
        shape: thousand(Order::Fifo), full: 15_000_000, quick: 20_000 },
    Workload { name: "lifo", shows: "the same, freed last in first out",
        shape: thousand(Order::Lifo), full: 15_000_000, quick: 20_000 },
    Workload { name: "random", shows: "the same, freed in random order",
        shape: thousand(Order::Random), full: 15_000_000, quick: 20_000 },
    Workload { name: "churn-1k", shows: "1,000 live blocks of 16-1,024 B replaced at random",
        shape: Shape::Churn { live: 1_000, threads: 1 }, full: 8_000_000, quick: 20_000 },
    Workload { name: "churn-128k", shows: "131,072 live blocks of 16-1,024 B replaced at random",
        shape: Shape::Churn { live: 131_072, threads: 1 }, full: 4_000_000, quick: 140_000 },
    Workload { name: "list", shows: "a list of 100,000 nodes of 32 B, built and freed in order",
        shape: Shape::List { size: 32, length: 100_000 }, full: 10_000_000, quick: 100_000 },
    Workload { name: "churn-1k-4t", shows: "four threads, each with 1,000 live blocks",
        shape: Shape::Churn { live: 1_000, threads: 4 }, full: 12_000_000, quick: 40_000 },
    Workload { name: "churn-128k-4t", shows: "four threads, each with 32,768 live blocks",
        shape: Shape::Churn { live: 32_768, threads: 4 }, full: 6_000_000, quick: 140_000 },
    Workload { name: "crowd-100", shows: "a hundred threads, each with 1,000 live blocks",
        shape: Shape::Churn { live: 1_000, threads: 100 }, full: 24_000_000, quick: 100_000 },
    Workload { name: "crowd-400", shows: "four hundred threads, each with 1,000 live blocks",
        shape: Shape::Churn { live: 1_000, threads: 400 }, full: 24_000_000, quick: 400_000 },
    Workload { name: "handoff", shows: "64 B blocks through a ring: one thread allocates, one frees",
        shape: Shape::Handoff { size: 64 }, full: 20_000_000, quick: 50_000 },
    Workload { name: "server", shows: "larson: slots replaced at random, threads end, new ones inherit",
        shape: Shape::Server { live: 1_000, threads: 4, life: 50_000 }, full: 8_000_000, quick: 400_000 },
    Workload { name: "sharing-active", shows: "two threads write to small objects of their own",
        shape: Shape::FalseSharing(Sharing::Active), full: 2_000_000, quick: 2_000 },
    Workload { name: "sharing-passive", shows: "two threads write to small objects handed to them",
        shape: Shape::FalseSharing(Sharing::Passive), full: 2_000_000, quick: 2_000 },
    Workload { name: "grow-double", shows: "realloc from 1 KiB to 64 MiB by doubling, written as it grows",
        shape: Shape::Grow { limit: 64 * MIB, growth: Growth::Double }, full: 8, quick: 1 },
    Workload { name: "grow-eighth", shows: "the same by steps of an eighth",
        shape: Shape::Grow { limit: 64 * MIB, growth: Growth::Eighth }, full: 4, quick: 1 },
    Workload { name: "redis", shows: "redis-server under redis-benchmark, pipelined SET and GET",
        shape: Shape::Redis, full: 400_000, quick: 20_000 },
    Workload { name: "python-json", shows: "CPython (PYTHONMALLOC=malloc) builds, dumps and loads JSON",
        shape: Shape::PythonJson, full: 3, quick: 1 },
    Workload { name: "live-16", shows: "resident bytes a live block of 16 B",
        shape: Shape::Live { size: 16 }, full: 8_000_000, quick: 100_000 },
    Workload { name: "live-64", shows: "resident bytes a live block of 64 B",
        shape: Shape::Live { size: 64 }, full: 4_000_000, quick: 100_000 },
    Workload { name: "live-1024", shows: "resident bytes a live block of 1,024 B",
        shape: Shape::Live { size: 1_024 }, full: 1_000_000, quick: 20_000 },
];

/// The workload with that name.
pub fn find(name: &str) -> Option<&'static Workload> {
    ALL.iter().find(|w| w.name == name)
}

/// All workloads, to choose from.
pub fn all() -> Vec<&'static Workload> {
    ALL.iter().collect()
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
