//! Keys and values.

use indexmap::IndexMap;
use indexmap::map::Entry as Slot;
use std::collections::TryReserveError;

/// An entry's cost besides the bytes of its key and value: its place, its hash, its share of the
/// table.
pub const ENTRY_BYTES: usize = size_of::<(Box<[u8]>, Vec<u8>)>() + 8 + 16;

/// The store.
#[derive(Debug, Default)]
pub struct Store {
    entries: IndexMap<Box<[u8]>, Vec<u8>>,
    bytes: usize,
    hits: u64,
    misses: u64,
}

impl Store {
    /// Bytes of keys, values and their places.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reads that found their key, and reads that did not.
    pub fn reads(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    /// A key's value.
    pub fn get(&mut self, key: &[u8]) -> Option<&[u8]> {
        let value = self.entries.get(key).map(Vec::as_slice);
        match value {
            Some(_) => self.hits += 1,
            None => self.misses += 1,
        }
        value
    }

    /// Sets a key's value.
    ///
    /// # Errors
    /// If memory is short; the key is unchanged.
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), TryReserveError> {
        match self.entries.get_index_of(key) {
            Some(place) => self.overwrite(place, value),
            None => self.insert(key, value),
        }
    }

    /// Removes a key. True if it existed.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let removed = self.entries.swap_remove(key);
        if let Some(value) = &removed {
            self.bytes -= cost(key, value);
        }
        removed.is_some()
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.entries = IndexMap::default();
        self.bytes = 0;
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), TryReserveError> {
        let value = copy(value)?;
        let owned = copy(key)?.into_boxed_slice();
        if self.entries.len() == self.entries.capacity() {
            self.grow()?;
        }
        self.bytes += cost(key, &value);
        if let Slot::Vacant(slot) = self.entries.entry(owned) {
            slot.insert(value);
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
        let old = &mut self.entries[place];
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

fn cost(key: &[u8], value: &Vec<u8>) -> usize {
    ENTRY_BYTES + key.len() + value.capacity()
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
