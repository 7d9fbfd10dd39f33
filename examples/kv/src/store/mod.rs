//! Keys, values, deadlines.
//!
//! Entries stand side by side in an [`IndexMap`], so a number identifies a place. `SCAN` walks from
//! the last place to the first, and a removal moves the last entry into the gap. So an entry not
//! yet visited is always below the cursor, despite removals and additions.
//!
//! The caller sets the time, in milliseconds; 0 is before all other times.

mod sweep;

pub use sweep::Sweep;

use indexmap::IndexMap;
use indexmap::map::Entry as Slot;
use std::collections::TryReserveError;
use std::hash::{BuildHasher, RandomState};

/// An entry's cost besides the bytes of its key and value: its place, its hash, its share of the
/// table.
pub const ENTRY_BYTES: usize = size_of::<(Box<[u8]>, Entry)>() + 8 + 16;

/// No deadline.
const NEVER: u64 = 0;

#[derive(Debug)]
struct Entry {
    value: Vec<u8>,
    /// Milliseconds, or [`NEVER`].
    deadline: u64,
}

/// What happens to a key's deadline when it gets a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The key stays until it is removed.
    Never,
    /// The deadline stays.
    Keep,
    /// The key expires at this time, in milliseconds.
    At(u64),
}

/// Counters of events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not find it.
    pub misses: u64,
    /// Keys that expired.
    pub expired: u64,
}

/// The store.
#[derive(Debug, Default)]
pub struct Store {
    entries: IndexMap<Box<[u8]>, Entry>,
    now: u64,
    bytes: usize,
    /// Entries with a deadline.
    timed: usize,
    /// The sweep has yet to visit the entries below this place.
    sweep_below: usize,
    counts: Counts,
}

impl Store {
    /// An empty store.
    pub fn new() -> Store {
        Store::default()
    }

    /// Sets the time, in milliseconds.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// The time that was set last.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Bytes of keys, values and their places.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of keys, including expired ones that were not removed yet.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys with a deadline.
    pub fn timed(&self) -> usize {
        self.timed
    }

    /// The counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// A key's value.
    pub fn get(&mut self, key: &[u8]) -> Option<&[u8]> {
        match self.place(key) {
            Some(place) => {
                self.counts.hits += 1;
                Some(&self.entries[place].value)
            }
            None => {
                self.counts.misses += 1;
                None
            }
        }
    }

    /// Whether the key exists.
    pub fn contains(&mut self, key: &[u8]) -> bool {
        self.place(key).is_some()
    }

    /// The cost of a key, in bytes.
    pub fn cost(&mut self, key: &[u8]) -> Option<usize> {
        let place = self.place(key)?;
        Some(cost(key, &self.entries[place]))
    }

    /// Sets a key's value.
    ///
    /// # Errors
    /// If memory is short; the key is unchanged.
    pub fn set(
        &mut self,
        key: &[u8],
        value: &[u8],
        deadline: Deadline,
    ) -> Result<(), TryReserveError> {
        match self.place(key) {
            Some(place) => self.overwrite(place, value)?,
            None => self.insert(key, value)?,
        }
        match deadline {
            Deadline::Keep => {}
            Deadline::Never => drop(self.set_deadline(key, None)),
            Deadline::At(time) => drop(self.set_deadline(key, Some(time))),
        }
        Ok(())
    }

    /// Appends bytes to a key's value, which may be absent; returns its new length.
    ///
    /// # Errors
    /// If memory is short; the key is unchanged.
    pub fn append(&mut self, key: &[u8], tail: &[u8]) -> Result<usize, TryReserveError> {
        let Some(place) = self.place(key) else {
            self.insert(key, tail)?;
            return Ok(tail.len());
        };
        let value = &mut self.entries[place].value;
        let before = value.capacity();
        value.try_reserve(tail.len())?;
        value.extend_from_slice(tail);
        self.bytes += value.capacity() - before;
        Ok(value.len())
    }

    /// Removes a key, and returns its value.
    pub fn remove(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let place = self.place(key)?;
        Some(self.remove_at(place))
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        let (now, counts) = (self.now, self.counts);
        *self = Store {
            now,
            counts,
            ..Store::default()
        };
    }

    /// A key's deadline in milliseconds; the inner `None` means never.
    pub fn deadline(&mut self, key: &[u8]) -> Option<Option<u64>> {
        let place = self.place(key)?;
        let deadline = self.entries[place].deadline;
        Some((deadline != NEVER).then_some(deadline))
    }

    /// Sets or removes a key's deadline, and returns the one before. A time that has passed removes
    /// the key.
    pub fn set_deadline(&mut self, key: &[u8], time: Option<u64>) -> Option<Option<u64>> {
        let place = self.place(key)?;
        let entry = &mut self.entries[place];
        let before = (entry.deadline != NEVER).then_some(entry.deadline);
        entry.deadline = time.map_or(NEVER, |time| time.max(1));
        self.timed = self.timed + usize::from(time.is_some()) - usize::from(before.is_some());
        if self.is_over(place) {
            self.remove_at(place);
        }
        Some(before)
    }

    /// Passes about `count` keys from `cursor` on to `show`, and returns the next cursor. 0 begins
    /// the scan and marks its end.
    pub fn scan(&self, cursor: usize, count: usize, mut show: impl FnMut(&[u8])) -> usize {
        let end = match cursor {
            0 => self.entries.len(),
            cursor => cursor.min(self.entries.len()),
        };
        let start = end.saturating_sub(count);
        for place in (start..end).rev() {
            if let Some((key, _)) = self.entries.get_index(place)
                && !self.is_over(place)
            {
                show(key);
            }
        }
        start
    }

    /// A random key.
    pub fn random_key(&mut self) -> Option<&[u8]> {
        let place = loop {
            let length = self.entries.len();
            let place = (length > 0).then(|| random() as usize % length)?;
            if !self.is_over(place) {
                break place;
            }
            self.expire_at(place);
        };
        self.entries.get_index(place).map(|(key, _)| &**key)
    }

    /// A key's place. Removes the key if it has expired.
    fn place(&mut self, key: &[u8]) -> Option<usize> {
        let place = self.entries.get_index_of(key)?;
        if self.is_over(place) {
            self.expire_at(place);
            return None;
        }
        Some(place)
    }

    fn is_over(&self, place: usize) -> bool {
        let deadline = self.entries[place].deadline;
        deadline != NEVER && deadline <= self.now
    }

    fn expire_at(&mut self, place: usize) {
        self.counts.expired += 1;
        self.remove_at(place);
    }

    fn remove_at(&mut self, place: usize) -> Vec<u8> {
        let (key, entry) = self
            .entries
            .swap_remove_index(place)
            .expect("the caller found it there");
        self.bytes -= cost(&key, &entry);
        self.timed -= usize::from(entry.deadline != NEVER);
        entry.value
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), TryReserveError> {
        let entry = Entry {
            value: copy(value)?,
            deadline: NEVER,
        };
        let owned = copy(key)?.into_boxed_slice();
        if self.entries.len() == self.entries.capacity() {
            self.grow()?;
        }
        self.bytes += cost(key, &entry);
        if let Slot::Vacant(slot) = self.entries.entry(owned) {
            slot.insert(entry);
        }
        Ok(())
    }

    /// Reserves places for twice the entries. A refusal is an error here, but would be an abort
    /// inside the map.
    fn grow(&mut self) -> Result<(), TryReserveError> {
        let more = self.entries.len().max(64);
        self.entries.try_reserve(more).map_err(|_| no_memory())
    }

    /// Replaces the value in the place; reuses its block unless it is much too large.
    fn overwrite(&mut self, place: usize, value: &[u8]) -> Result<(), TryReserveError> {
        let old = &mut self.entries[place].value;
        let room = old.capacity();
        if value.len() <= room && room <= value.len() + value.len() / 4 {
            old.clear();
            old.extend_from_slice(value);
        } else {
            let new = copy(value)?;
            self.bytes = self.bytes - room + new.capacity();
            *old = new;
        }
        Ok(())
    }
}

fn cost(key: &[u8], entry: &Entry) -> usize {
    ENTRY_BYTES + key.len() + entry.value.capacity()
}

/// The bytes in a block of exactly their size.
fn copy(bytes: &[u8]) -> Result<Vec<u8>, TryReserveError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// The error of an impossible reservation.
fn no_memory() -> TryReserveError {
    Vec::<u8>::new()
        .try_reserve(usize::MAX)
        .expect_err("no machine has that much")
}

/// A number that clients cannot predict; not for secrets.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}
