//! The slots of the pool: whose block each one has or had, and in what order they are used again.

use super::trace::Trace;
use bytemuck::Zeroable;

/// Slots of the pool.
pub(super) const SLOTS: usize = 255;

/// What a slot is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    /// Nothing yet.
    Unused = 0,
    /// A block in the program's hands.
    Live = 1,
    /// A block that was freed.
    Freed = 2,
}

/// What the table knows of a slot.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Slot {
    /// Where the last block starts; 0 if there was none.
    pub(super) start: usize,
    /// Its requested bytes.
    pub(super) bytes: usize,
    /// Bytes of the size class that would have served it.
    pub(super) class: u32,
    /// A [`State`].
    pub(super) state: u32,
    /// Who allocated it.
    pub(super) made: Trace,
    /// Who freed it.
    pub(super) freed: Trace,
}

impl Slot {
    pub(super) fn state(&self) -> State {
        match self.state {
            0 => State::Unused,
            1 => State::Live,
            _ => State::Freed,
        }
    }
}

/// The slots, and the queue of those that are free. None is free in zeroed memory.
pub(super) struct Table {
    pub(super) slots: [Slot; SLOTS],
    /// The slots that are not live, from the oldest free on.
    queue: [u16; SLOTS],
    first: usize,
    count: usize,
}

// SAFETY: integers only, and 0 is a value of each.
unsafe impl Zeroable for Table {}

/// What is wrong with a block that the program passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It was freed before.
    Freed,
    /// A block starts elsewhere in the slot.
    Interior,
    /// There is no block.
    NoBlock,
    /// A byte before or after it was written.
    Written(usize),
}

/// A wrong call, and the number of the slot that it is about; [`SLOTS`] if it is about none.
pub(super) struct Mistake {
    pub(super) wrong: Wrong,
    pub(super) number: usize,
}

impl Table {
    /// Makes all slots free.
    pub(super) fn free_all(&mut self) {
        self.queue = core::array::from_fn(|slot| slot as u16);
        self.count = SLOTS;
    }

    /// How many slots are free.
    pub(super) fn free_count(&self) -> usize {
        self.count
    }

    /// Takes the slot that has been free for longest.
    pub(super) fn oldest(&mut self) -> Option<usize> {
        let number = (self.count > 0).then(|| usize::from(self.queue[self.first]))?;
        self.first = (self.first + 1) % SLOTS;
        self.count -= 1;
        Some(number)
    }

    /// Puts a slot behind all others that are free.
    pub(super) fn push(&mut self, number: usize) {
        self.queue[(self.first + self.count) % SLOTS] = number as u16;
        self.count += 1;
    }

    /// The number of the slot whose live block starts at `address`, in a pool that starts at `base`
    /// and has pages of `page` bytes.
    pub(super) fn live_at(
        &self,
        address: usize,
        base: usize,
        page: usize,
    ) -> Result<usize, Mistake> {
        let at = address.wrapping_sub(base) / page;
        let number = (at.wrapping_sub(1) / 2).min(SLOTS - 1);
        let slot = &self.slots[number];
        let is_own = at % 2 == 1 && slot.start != 0;
        let wrong = match (slot.state(), slot.start == address) {
            _ if !is_own => Wrong::NoBlock,
            (State::Live, true) => return Ok(number),
            (State::Freed, true) => Wrong::Freed,
            (State::Live, false) => Wrong::Interior,
            _ => Wrong::NoBlock,
        };
        let number = if is_own { number } else { SLOTS };
        Err(Mistake { wrong, number })
    }

    /// The slot that an access to `address` most likely meant, in a pool as in [`Table::live_at`].
    /// `None` if no block was ever near.
    pub(super) fn meant_by(&self, address: usize, base: usize, page: usize) -> Option<Slot> {
        let at = address.checked_sub(base)? / page;
        // A slot's own page has an odd number; a page between two belongs to both.
        let near = [at.wrapping_sub(1) / 2, at / 2].map(|number| self.slots.get(number));
        let distance = |slot: &&Slot| {
            let end = slot.start + slot.bytes;
            let beyond = address.saturating_sub(end.saturating_sub(1));
            (
                slot.start.saturating_sub(address).max(beyond),
                slot.state() as u32,
            )
        };
        let used = near.into_iter().flatten().filter(|slot| slot.start != 0);
        used.min_by_key(distance).copied()
    }
}
