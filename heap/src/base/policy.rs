//! When free spans go back to the kernel.

/// A large block of which fewer bytes are not resident makes no free pages give way: it faults in
/// at most 1,024 pages, and a wake-up of the purge thread takes as long as some ten faults.
pub const LEAST_COLD: usize = 4 << 20;

/// A purge for a bound takes at least so many bytes of one span, so that a program at its bound
/// does not make a system call in every free.
pub const LEAST_BYTES: usize = 1 << 20;

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

/// Times at which free spans with dirty pages became free, in ms.
#[derive(Clone, Copy, Debug)]
pub struct FreeSince {
    /// Of all of them.
    pub oldest: u64,
    /// Of all of them.
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
        let stay = if rests {
            soon
        } else {
            decay_ms.saturating_add(soon)
        };
        now.checked_sub(stay)
    }
}
