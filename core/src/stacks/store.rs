//! Where records live: rows of one or more neighbours, cut from metadata spans, free-listed, never anything else.

use super::record::{Record, pointer, record};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::SLICE_BYTES;
use core::ptr::{NonNull, null_mut};

/// Rows have 1, 2, 4 or 8 records.
const SHELVES: usize = 4;

/// The records of stacks.
#[derive(Debug)]
pub(super) struct Store {
    /// Free rows by length, through the first record's link.
    free: [*mut Record; SHELVES],
    /// The rest of the newest slice.
    next: *mut Record,
    left: usize,
}

impl Store {
    pub(super) const fn new() -> Self {
        Self {
            free: [null_mut(); SHELVES],
            next: null_mut(),
            left: 0,
        }
    }

    /// A row of `count` blank records (a power of two, at most 8). `slice` gives a fresh slice, all zero.
    pub(super) fn take<'h>(
        &mut self,
        count: usize,
        slice: impl FnOnce() -> Option<NonNull<u8>>,
    ) -> Option<&'h [Record]> {
        let free = &mut self.free[count.trailing_zeros() as usize];
        // SAFETY: null, or the first record of a free row.
        if let Some(first) = unsafe { record(*free) } {
            *free = first.older.load(Relaxed);
            // SAFETY: rows of this shelf have `count` records.
            return Some(unsafe { core::slice::from_raw_parts(first, count) });
        }
        self.cut(count, slice)
    }

    fn cut<'h>(
        &mut self,
        count: usize,
        slice: impl FnOnce() -> Option<NonNull<u8>>,
    ) -> Option<&'h [Record]> {
        if self.left < count {
            self.next = slice()?.as_ptr().cast();
            self.left = SLICE_BYTES / size_of::<Record>();
        }
        // SAFETY: `left` records are left of a slice of zeros, which is aligned and never given back; these
        // `count` are nobody's yet.
        let row = unsafe { core::slice::from_raw_parts(self.next, count) };
        // SAFETY: within the slice or one past its end.
        self.next = unsafe { self.next.add(count) };
        self.left -= count;
        Some(row)
    }

    /// Takes a row back, its records blank.
    pub(super) fn give(&mut self, row: &[Record]) {
        let free = &mut self.free[row.len().trailing_zeros() as usize];
        row[0].older.store(*free, Relaxed);
        *free = pointer(&row[0]);
    }
}
