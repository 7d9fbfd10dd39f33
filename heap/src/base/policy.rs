//! When memory goes back to the kernel. All ages, thresholds and bounds are here, each with its
//! reason; other files carry them out. Nothing here touches the heap.
//!
//! | memory | rule | carried out by |
//! |---|---|---|
//! | any | what a round takes for each [`Reason`], and the [pause](pause_ms) between two rounds | `reclaim/round.rs`, `reclaim/thread.rs` |
//! | free spans | [`FreeSince`], [`room_beside_block`], [`most_dirty`] | `pages/purge.rs`, `pages/figures.rs` |
//! | cached spans | [`Reason::magazines`], [`cache_shard_bytes`] | `pages/span_cache.rs` |
//! | tails of large blocks | [`are_tails_due`] | `pages/tails.rs` |
//! | stacks | [`most_idle_stacks`], [`TRIM_BYTES`], [`KEPT_BYTES`] | `stacks/pool.rs` |
//! | any, while memory is short | [`near`], and the constants from [`GROUP_PART`] on | `reclaim/pressure.rs`, `reclaim/round.rs` |

/// How long free memory stays resident unless told otherwise, in ms.
pub const DECAY_MS: u64 = 1000;

/// Freed bytes that are worth waking the purge thread: a wake-up costs some 15 µs.
pub const WAKE_BYTES: usize = 2 << 20;

/// Once the heap has grown by this much, the price of the purge thread (some 50 µs and 20 KiB) is
/// below a hundredth of the program's.
pub const START_BYTES: usize = 4 << 20;

/// Up to this decay time, in ms, the thread gives back what it can when it ends before a fork.
pub const SHORT_DECAY_MS: u64 = 10_000;

// Free spans.

/// Times at which free spans with dirty pages became free, in ms.
#[derive(Clone, Copy, Debug)]
pub struct FreeSince {
    /// Of the first of them.
    pub oldest: u64,
    /// Of the last of them.
    pub newest: u64,
}

impl FreeSince {
    /// When the oldest span goes, in ms: a decay time after the program last freed one, and after
    /// two decay times at the latest. A program that replaces blocks once a second or more often
    /// wants the pages of most spans again within the second one.
    pub fn due_at(self, decay_ms: u64) -> u64 {
        let at_work = self.oldest.saturating_add(decay_ms.saturating_mul(2));
        at_work.min(self.newest.saturating_add(decay_ms))
    }

    /// Spans go together that became free at this time or before, in ms: those that are due within
    /// a quarter of the decay time. `None`: the clock is younger than that.
    pub fn until(self, now: u64, decay_ms: u64) -> Option<u64> {
        let soon = decay_ms - decay_ms / 4;
        let rests = self.newest.saturating_add(soon) <= now;
        now.checked_sub(if rests {
            soon
        } else {
            decay_ms.saturating_add(soon)
        })
    }
}

/// How long after the kernel refused to purge a page the purge is tried again, in ms. A program
/// seldom unlocks a page, and a try takes a system call for each part of the span.
pub const RETRY_MS: u64 = 10_000;

/// A large block of which fewer bytes are not resident makes no free pages give way: it faults in
/// at most 1,024 pages, and a wake-up of the purge thread takes as long as some ten faults.
pub const LEAST_COLD: usize = 4 << 20;
/// For a large block, the heap may grow by this part of the most that it held before: the block
/// that another one replaces has just become free, but often does not fit.
const GROWTH_PART: usize = 16;
/// Once free pages are this part of what is in use, the heap does not grow for such a block.
const FREE_PART: usize = 4;
/// An excess of less than this part of what the heap holds is not worth a wake-up of the thread.
const WORTH_PART: usize = 64;

/// How many bytes of free pages may stay when a large block has been taken. `used` bytes are in use
/// now, the block among them, `dirty` bytes are free and resident, and the heap held at most
/// `most_held` bytes when one was taken before. `None`: all of them.
pub fn room_beside_block(used: usize, dirty: usize, most_held: usize) -> Option<usize> {
    let grown = most_held + most_held / GROWTH_PART;
    let most = grown.min(used + used / FREE_PART).max(most_held);
    let excess = (used + dirty).saturating_sub(most).min(dirty);
    (excess > (used + dirty) / WORTH_PART).then(|| dirty - excess)
}

/// A purge for a bound takes at least this many bytes of one span, so that a program at its bound
/// does not make a system call in every free.
pub const LEAST_BYTES: usize = 1 << 20;
/// Free pages may pass their bound by this many bytes while another thread purges. Beyond, callers
/// wait for that thread, which may have lost its processor.
pub const FAR_BYTES: usize = 1 << 20;

/// Free pages may always take this part of what the control group leaves the heap.
const GROUP_FREE_PART: usize = 16;

/// Most bytes of dirty pages that free spans may have beside `used` bytes in use. `own` is the soft
/// limit, `group` what the control group leaves the heap, and `demand` what the program may soon
/// need in that group outside of the heap.
pub fn most_dirty(used: usize, own: usize, group: usize, demand: usize) -> usize {
    let left = group.saturating_sub(used);
    let for_group = left.saturating_sub(demand).max(left / GROUP_FREE_PART);
    own.saturating_sub(used).min(for_group)
}

/// A group that leaves the heap less than this is small.
const SMALL_GROUP: usize = 1 << 30;

/// Whether a control group leaves the heap, with `group` bytes, too little for huge pages that the
/// program may not fill: less than a GiB, or than room for `demand` beside what the heap held.
pub fn is_small_group(group: usize, demand: usize) -> bool {
    group < SMALL_GROUP.max(demand.saturating_add(demand / DEMANDS))
}

/// Shards of the cache of spans.
pub const CACHE_SHARDS: usize = 16;
/// Most bytes of the spans of a shard (16 blocks of 1 MiB), unless other shards leave it their
/// room.
pub const CACHE_SHARD_BYTES: usize = 16 << 20;
/// All of them together may have this part of what the control group leaves the heap.
const CACHE_GROUP_PART: usize = 8;

/// Most bytes of the spans that a shard keeps, where the control group leaves the heap `group`.
pub fn cache_shard_bytes(group: usize) -> usize {
    CACHE_SHARD_BYTES.min(group / CACHE_GROUP_PART / CACHE_SHARDS)
}

// Blocks in use, and stacks.

/// Tails go once they are at least this part of the bytes in use ...
const TAIL_PART: usize = 64;
/// ... and in a heap with less than this in use, of this: a sweep visits every large block.
const TAIL_LEAST: usize = 64 << 20;

/// Whether the tails of blocks in use, which have `tails` dirty bytes, are worth a sweep.
pub fn are_tails_due(tails: usize, used: usize) -> bool {
    tails >= used.max(TAIL_LEAST) / TAIL_PART
}

/// Most idle stacks kept of one size.
const MOST_IDLE: usize = 64;
/// Most bytes of the idle stacks kept of one size, guards not counted.
const MOST_IDLE_BYTES: usize = 4 << 20;
/// Idle stacks kept of every size regardless of [`MOST_IDLE_BYTES`]; enough for a program that runs
/// one coroutine at a time.
const LEAST_IDLE: usize = 4;

/// Most idle stacks of `bytes` bytes that are kept.
pub fn most_idle_stacks(bytes: usize) -> usize {
    (MOST_IDLE_BYTES / bytes).clamp(LEAST_IDLE, MOST_IDLE)
}

/// A stack is trimmed after giving back this many bytes of address space since its last trim. A
/// stack of 1 MiB is trimmed every time, one of 64 KiB every 16th time. A trim costs as much as ten
/// reuses.
pub const TRIM_BYTES: usize = 1 << 20;
/// A trim keeps this many of an idle stack's highest bytes resident and purges the rest.
pub const KEPT_BYTES: usize = 16 << 10;

// Rounds.

/// What purges pages past the decay time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Threads that allocate and free, at the end of an operation.
    Callers,
    /// A thread that does nothing else.
    Thread,
}

/// Which memory of a kind goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// What was idle since the last round. All other is marked.
    Idle,
    /// All.
    All,
}

/// How long a span that becomes free has been unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// It was in use until now.
    New,
    /// Longer than any decay time: it may be purged at once.
    Old,
}

/// Why memory is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It idled.
    Age,
    /// Memory is short, and callers help.
    Shortage,
    /// All is to go that can: a request to trim, or the thread while memory is short.
    Demand,
    /// A request was refused. Free spans are room for it.
    Refusal,
}

impl Reason {
    /// Which magazines are emptied, and which cached spans go.
    pub fn magazines(self) -> Scope {
        match self {
            Reason::Age | Reason::Shortage => Scope::Idle,
            Reason::Demand | Reason::Refusal => Scope::All,
        }
    }

    /// Stacks go that ended at this time (ms) or before, and slabs that have been empty since.
    pub fn idle_since(self, now: u64, decay_ms: u64) -> u64 {
        match self {
            Reason::Age | Reason::Shortage => now.saturating_sub(decay_ms / 2),
            Reason::Demand | Reason::Refusal => u64::MAX,
        }
    }

    /// From which slabs in use pages of free blocks go. Only a hard limit counts them.
    pub fn slab_pages(self, has_hard: bool) -> Option<Scope> {
        match self {
            Reason::Age => Some(Scope::Idle),
            Reason::Refusal if !has_hard => None,
            Reason::Shortage | Reason::Demand | Reason::Refusal => Some(Scope::All),
        }
    }

    /// Which free spans go.
    pub fn spans(self) -> Option<Scope> {
        match self {
            Reason::Age => Some(Scope::Idle),
            Reason::Demand => Some(Scope::All),
            // Callers purge them past the decay time, whatever round there is.
            Reason::Shortage | Reason::Refusal => None,
        }
    }

    /// Which blocks' tails go. Rounds follow each other quickly while memory is short, so those of
    /// blocks that were handed out a moment ago stay even then.
    pub fn tails(self) -> Option<Scope> {
        match self {
            Reason::Age | Reason::Demand => Some(Scope::Idle),
            Reason::Shortage | Reason::Refusal => None,
        }
    }

    /// The age of the spans that a round frees. New ones merge before they go.
    pub fn age(self) -> Age {
        match self {
            Reason::Age | Reason::Shortage => Age::Old,
            Reason::Demand | Reason::Refusal => Age::New,
        }
    }
}

/// Least time between two purges of the thread, in ms: the clock ticks every 4 ms or less often.
pub const LEAST_MS: u64 = 10;
/// Least time between two rounds of callers, in ms.
const LEAST_ROUND_MS: u64 = 4;
/// Time between two rounds of the thread while memory is short, in ms; twice as long after each
/// that gained little.
const PRESSED_MS: u64 = 25;
/// The thread's rounds stop after this many without anything to do.
pub const IDLE_ROUNDS: u32 = 2;

/// Time between two rounds, in ms. While memory is short, `vain` rounds in a row gained little.
pub fn pause_ms(driver: Driver, decay_ms: u64, vain: Option<u32>) -> u64 {
    let half = decay_ms / 2;
    match (driver, vain) {
        (Driver::Thread, None) => half.max(2 * LEAST_MS),
        (Driver::Thread, Some(vain)) => (PRESSED_MS << vain.min(8)).min(half.max(PRESSED_MS)),
        (Driver::Callers, Some(0)) => 0,
        (Driver::Callers, Some(_)) => LEAST_ROUND_MS,
        (Driver::Callers, None) => half.max(LEAST_ROUND_MS),
    }
}

/// Whether a round while memory was short gained little, with `bytes` bytes.
pub fn is_vain(driver: Driver, bytes: usize) -> bool {
    bytes
        < match driver {
            Driver::Callers => 64 << 10,
            Driver::Thread => 1 << 20,
        }
}

// While memory is short.

/// From this part of a limit on, the limit is near.
pub const NEAR_PART: usize = 8;

/// From how many bytes on free memory goes back before its time, for a soft limit.
pub fn near(soft: usize) -> usize {
    match soft {
        usize::MAX => usize::MAX,
        soft => soft - soft / NEAR_PART,
    }
}

/// Over the soft limit, the heap may grow by this many bytes after the begin of a round of callers
/// before they wait for each other.
pub const GROWTH_BYTES: usize = 1 << 20;

/// The part of its group's limit that the heap leaves to what it knows nothing of.
pub const GROUP_PART: usize = 16;
/// In its own mappings, a child or a file in memory, a program may soon need this many times what
/// the heap held. If the group has that much room, free pages stay.
pub const DEMANDS: usize = 2;
/// What the heap held counts less by this part each second.
pub const FORGET_PART: usize = 32;

/// How often the group and the machine are asked, in ms.
pub const ASK_MS: u64 = 1000;
/// The group is read for the first time when free spans have this many bytes of dirty pages ...
pub const FIRST_READ: usize = 2 << 20;
/// ... and again when they have grown by this part of its room and by at least [`LEAST_STEP`]
/// bytes, because a reading takes 20 to 50 µs.
pub const STEP_PART: usize = 8;
/// See [`STEP_PART`].
pub const LEAST_STEP: usize = 1 << 20;

/// This long after a vain attempt to gather free memory for a refused request another is made,
/// though nothing was freed past a magazine, in ms.
pub const RELIEF_MS: u64 = 100;
/// Fewer bytes than this, freed since a vain attempt, are no reason for another.
pub const WORTH_BYTES: usize = 64 << 10;
/// The longest wait for a thread that gathers free memory, in ms.
pub const WAIT_MS: u64 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_spans_go_a_decay_time_after_the_last_one_and_after_two_at_the_latest() {
        let due = |oldest, newest| FreeSince { oldest, newest }.due_at(DECAY_MS);
        assert_eq!(due(5000, 5000), 6000);
        assert_eq!(due(5000, 5600), 6600);
        assert_eq!(due(5000, 6900), 7000);
        let until = |newest, now| FreeSince { oldest: 0, newest }.until(now, DECAY_MS);
        assert_eq!(until(5000, 6000), Some(5250), "it rests");
        assert_eq!(until(6900, 7000), Some(5250), "it works");
        assert_eq!(until(0, 100), None, "a young clock");
    }

    #[test]
    fn a_large_block_may_make_the_heap_grow_by_a_sixteenth() {
        assert_eq!(room_beside_block(160, 8, 160), None, "grows by less");
        assert_eq!(room_beside_block(1600, 300, 1600), Some(100));
        assert_eq!(room_beside_block(400, 300, 700), None, "was as large");
        assert_eq!(room_beside_block(400, 400, 700), Some(300), "much is free");
    }

    #[test]
    fn free_spans_are_a_refused_requests_room() {
        assert_eq!(Reason::Refusal.spans(), None);
        assert_eq!(Reason::Refusal.slab_pages(false), None);
        assert_eq!(Reason::Refusal.slab_pages(true), Some(Scope::All));
        assert_eq!(Reason::Demand.spans(), Some(Scope::All));
        assert_eq!(Reason::Age.idle_since(5000, DECAY_MS), 4500);
    }
}
