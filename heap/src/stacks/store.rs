//! The store of records: rows of neighbours, cut from metadata spans and kept in free lists. Their
//! memory never becomes anything else.

use super::record::{Record, pointer, record};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::SLICE_BYTES;
use core::ptr::{NonNull, null_mut};

/// Rows have 1, 2, 4 or 8 records.
const SHELVES: usize = 4;

/// The records of stacks.
#[derive(Debug)]
pub(super) struct Store {
    /// Free rows by length, linked through their first records.
    free: [*mut Record; SHELVES],
    /// The unused rest of the newest span.
    next: *mut Record,
    left: usize,
    /// Slices of all spans.
    slices: usize,
}

/// Records per slice.
const PER_SLICE: usize = SLICE_BYTES / size_of::<Record>();
/// Most slices in one span of records.
const MOST_SLICES: usize = 256;

impl Store {
    pub(super) const fn new() -> Self {
        Self {
            free: [null_mut(); SHELVES],
            next: null_mut(),
            left: 0,
            slices: 0,
        }
    }

    /// A row of `count` blank records (a power of two, at most 8). `span` allocates a given number
    /// of fresh, zeroed slices.
    pub(super) fn take<'h>(
        &mut self,
        count: usize,
        span: impl Fn(usize) -> Option<NonNull<u8>>,
    ) -> Option<&'h [Record]> {
        let free = &mut self.free[count.trailing_zeros() as usize];
        // SAFETY: null, or the first record of a free row.
        if let Some(first) = unsafe { record(*free) } {
            *free = first.older.load(Relaxed);
            // SAFETY: rows of this shelf have `count` records.
            return Some(unsafe { core::slice::from_raw_parts(first, count) });
        }
        if self.left < count {
            self.open(span)?;
        }
        Some(self.cut(count))
    }

    /// Begins a new span, as long as all earlier ones together. Such spans are permanent and
    /// fragment the heap, so they should be few.
    fn open(&mut self, span: impl Fn(usize) -> Option<NonNull<u8>>) -> Option<()> {
        let slices = self.slices.clamp(1, MOST_SLICES);
        let (base, slices) = span(slices)
            .map(|base| (base, slices))
            .or_else(|| Some((span(1)?, 1)))?;
        self.next = base.as_ptr().cast();
        self.left = slices * PER_SLICE;
        self.slices += slices;
        Some(())
    }

    fn cut<'h>(&mut self, count: usize) -> &'h [Record] {
        // SAFETY: at least `count` records are left of a zeroed, aligned span that is never given
        // back, and none of them has been handed out.
        let row = unsafe { core::slice::from_raw_parts(self.next, count) };
        // SAFETY: within the span or one past its end.
        self.next = unsafe { self.next.add(count) };
        self.left -= count;
        row
    }

    /// Takes back a row of blank records.
    pub(super) fn give(&mut self, row: &[Record]) {
        let free = &mut self.free[row.len().trailing_zeros() as usize];
        row[0].older.store(*free, Relaxed);
        *free = pointer(&row[0]);
    }
}
