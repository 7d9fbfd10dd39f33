//! Lists of records in order of insertion; the newest is taken first.

use super::record::{StackRecord, pointer, record};
use crate::base::sync::plain::Ordering::Relaxed;
use core::ptr::null_mut;

/// A list of records, linked through the records.
#[derive(Debug)]
pub(super) struct List {
    oldest: *mut StackRecord,
    newest: *mut StackRecord,
    count: usize,
}

impl List {
    pub(super) const fn new() -> Self {
        Self {
            oldest: null_mut(),
            newest: null_mut(),
            count: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn newest<'h>(&self) -> Option<&'h StackRecord> {
        // SAFETY: the ends of a list are null or in it.
        unsafe { record(self.newest) }
    }

    pub(super) fn oldest<'h>(&self) -> Option<&'h StackRecord> {
        // SAFETY: as above.
        unsafe { record(self.oldest) }
    }

    pub(super) fn push(&mut self, entry: &StackRecord) {
        entry.older.store(self.newest, Relaxed);
        entry.newer.store(null_mut(), Relaxed);
        match self.newest() {
            Some(newest) => newest.newer.store(pointer(entry), Relaxed),
            None => self.oldest = pointer(entry),
        }
        self.newest = pointer(entry);
        self.count += 1;
    }

    /// Removes an entry of this list.
    pub(super) fn remove(&mut self, entry: &StackRecord) {
        let (older, newer) = (entry.older.load(Relaxed), entry.newer.load(Relaxed));
        // SAFETY: links of a list lead to its entries.
        match unsafe { record(older) } {
            Some(older) => older.newer.store(newer, Relaxed),
            None => self.oldest = newer,
        }
        // SAFETY: as above.
        match unsafe { record(newer) } {
            Some(newer) => newer.older.store(older, Relaxed),
            None => self.newest = older,
        }
        self.count -= 1;
    }
}
