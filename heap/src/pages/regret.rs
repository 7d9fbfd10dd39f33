//! Purges that were regretted: what went back to the kernel and was wanted again soon after.
//!
//! The heap does not remember when it purged which page. It keeps the balance of the bytes that it
//! purged of its own accord within the last decay time. When a request takes pages that are not
//! resident, they count as regretted, up to that balance: without the purge they would have been
//! resident, or others in their place. [`super::retention`] says what follows from regrets.

/// Regrets are remembered for this many decay times.
const MEMORY: u64 = 8;
/// From this part of what the heap holds on, what is regretted within half of that time matters.
const REGRET_PART: usize = 32;

/// Why pages were purged that no caller asked to purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// They were free for the decay time.
    Age,
    /// A bound was passed, or a large block was about to make the heap grow.
    Room,
}

/// A sum of bytes over the recent past, in two generations.
#[derive(Debug)]
struct Recent {
    young: usize,
    old: usize,
    /// When the young generation began, in ms.
    since: u64,
}

impl Recent {
    const NOTHING: Recent = Recent {
        young: 0,
        old: 0,
        since: 0,
    };

    /// Forgets what was added more than `memory` ms ago, and maybe some of the older half of the
    /// rest.
    fn forget(&mut self, now: u64, memory: u64) {
        let half = memory / 2;
        match now.saturating_sub(self.since).checked_div(half) {
            Some(0) => return,
            Some(1) => (self.old, self.since) = (self.young, self.since + half),
            Some(_) | None => (self.old, self.since) = (0, now),
        }
        self.young = 0;
    }

    fn sum(&self) -> usize {
        self.young + self.old
    }

    /// Takes up to `bytes` out, the oldest first. Returns how many.
    fn withdraw(&mut self, bytes: usize) -> usize {
        let old = bytes.min(self.old);
        let young = (bytes - old).min(self.young);
        self.old -= old;
        self.young -= young;
        old + young
    }
}

/// What was purged lately, and how much of that was regretted.
#[derive(Debug)]
pub(super) struct Regrets {
    /// Purged, and not wanted again so far. By [`Cause`], as is `regretted`.
    purged: [Recent; 2],
    regretted: [Recent; 2],
    /// The most that the heap held before a large block was taken.
    most_held: usize,
}

impl Regrets {
    pub(super) const fn new() -> Regrets {
        Regrets {
            purged: [Recent::NOTHING; 2],
            regretted: [Recent::NOTHING; 2],
            most_held: 0,
        }
    }

    /// Whether nothing was purged lately that could be regretted.
    pub(super) fn is_clear(&self) -> bool {
        self.purged.iter().all(|purged| purged.sum() == 0)
    }

    /// Whether no purge was regretted lately for its age.
    pub(super) fn is_content(&self) -> bool {
        self.regretted[Cause::Age as usize].sum() == 0
    }

    pub(super) fn forget(&mut self, now: u64, decay_ms: u64) {
        for (purged, regretted) in self.purged.iter_mut().zip(&mut self.regretted) {
            purged.forget(now, decay_ms);
            regretted.forget(now, MEMORY.saturating_mul(decay_ms));
        }
    }

    /// Bytes were purged.
    pub(super) fn note_purged(&mut self, bytes: usize, cause: Cause) {
        self.purged[cause as usize].young += bytes;
    }

    /// `bytes` bytes are about to be faulted in. Returns how many of them are regretted.
    pub(super) fn note_wanted(&mut self, bytes: usize) -> usize {
        let mut rest = bytes;
        for cause in [Cause::Room, Cause::Age] {
            let regretted = self.purged[cause as usize].withdraw(rest);
            self.regretted[cause as usize].young += regretted;
            rest -= regretted;
        }
        bytes - rest
    }

    /// The most that the heap held before a large block was taken, of which it holds `before` now.
    pub(super) fn most_held(&mut self, before: usize) -> usize {
        self.most_held = self.most_held.max(before);
        self.most_held
    }

    /// By how much the heap may grow because it regrets that it did not, in bytes.
    pub(super) fn tolerance(&self) -> usize {
        self.regretted[Cause::Room as usize].sum()
    }

    /// By how many powers of two free spans stay longer, in a heap that holds `held` bytes.
    pub(super) fn patience(&self, held: usize) -> u32 {
        let Recent { young, old, .. } = self.regretted[Cause::Age as usize];
        let matters = |bytes: usize| u32::from(bytes > held / REGRET_PART);
        matters(young) + matters(old)
    }
}
