//! Free memory in the heaps of glibc's `malloc`, by the headers of their chunks.
//!
//! A chunk begins with a word for the one before it and its size, whose low bits are flags. The
//! process runs on meanwhile, so a walk may meet a header that makes no sense. It then ends without
//! a result.

use super::process::Process;
use neap_shared::areas::ARENA;
use rustix::fs::OFlags;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// Flags in a size: the chunk before is in use; all flags.
const BEFORE_IN_USE: u64 = 1;
const FLAGS: u64 = 7;
/// Chunks are multiples of this, and begin at them.
const UNIT: u64 = 16;
/// The first chunk of a further heap is within this many bytes, after the tables of its arena.
const TABLES: u64 = 0x1000;
/// Most heaps that are looked for in one mapping.
const MOST_HEAPS: usize = 1024;
/// Bytes of a page; larger pages make the result an estimate.
const PAGE: u64 = 4096;
/// A chunk's header, and the links of a free one.
const HEAD: u64 = 48;

/// The memory of a process, a page at a time.
pub struct Memory {
    file: File,
    at: u64,
    page: [u8; PAGE as usize],
}

impl Memory {
    /// The memory of `process`; `None` if this user may not read it.
    pub fn of(process: &Process) -> Option<Memory> {
        let file = process.file("mem", OFlags::RDONLY).ok()?;
        Some(Memory {
            file,
            at: u64::MAX,
            page: [0; PAGE as usize],
        })
    }

    /// The aligned word at an address.
    fn word(&mut self, address: u64) -> Option<u64> {
        let start = address / PAGE * PAGE;
        if self.at != start {
            self.at = u64::MAX;
            self.file.read_exact_at(&mut self.page, start).ok()?;
            self.at = start;
        }
        let word = self.page[(address - start) as usize..].first_chunk()?;
        Some(u64::from_ne_bytes(*word))
    }

    /// The whole pages of free chunks in the heap that grows by `brk`.
    pub fn main_heap(&mut self, heap: &Range<u64>) -> Option<Vec<Range<u64>>> {
        self.walk(heap.start, heap.end)
    }

    /// The further heaps in a mapping, and the whole pages of their free chunks.
    pub fn heaps(&mut self, mapping: &Range<u64>) -> [Vec<Range<u64>>; 2] {
        let [mut heaps, mut free] = [vec![], vec![]];
        let first = mapping.start.checked_next_multiple_of(ARENA);
        let starts = (first.unwrap_or(u64::MAX)..mapping.end).step_by(ARENA as usize);
        for start in starts.take(MOST_HEAPS) {
            let heap = start..mapping.end.min(start.saturating_add(ARENA));
            if let Some(pages) = self.heap(&heap) {
                heaps.push(heap);
                free.extend(pages);
            }
        }
        [heaps, free]
    }

    /// The whole pages of free chunks in a further heap. `None` if none begins there: a heap begins
    /// with the address of its arena, that of another heap, and its bytes.
    fn heap(&mut self, heap: &Range<u64>) -> Option<Vec<Range<u64>>> {
        let [arena, bytes] = [0, 16].map(|at| self.word(heap.start + at));
        let is_arena = arena? != 0 && arena?.is_multiple_of(UNIT);
        let is_size = bytes? >= PAGE && bytes?.is_multiple_of(PAGE);
        let end = heap.start.checked_add(bytes?)?;
        if !is_arena || !is_size || end > heap.end {
            return None;
        }
        let mut starts = (UNIT * 2..TABLES).step_by(UNIT as usize);
        starts.find_map(|first| self.walk(heap.start + first, end))
    }

    /// From the first chunk to the last one, which is free and ends the heap. A heap that was given
    /// up for another ends with two short headers instead.
    fn walk(&mut self, first: u64, end: u64) -> Option<Vec<Range<u64>>> {
        let (mut free, mut chunk) = (Vec::new(), first);
        loop {
            if end.saturating_sub(chunk) <= 2 * UNIT {
                return Some(free);
            }
            let bytes = self.word(chunk + 8)? & !FLAGS;
            let next = chunk.checked_add(bytes)?;
            if bytes < 2 * UNIT || !bytes.is_multiple_of(UNIT) || next > end {
                return None;
            }
            let is_last = next == end;
            if is_last || self.word(next + 8)? & BEFORE_IN_USE == 0 {
                let pages = (chunk + HEAD).next_multiple_of(PAGE)..next / PAGE * PAGE;
                free.extend((!pages.is_empty()).then_some(pages));
            }
            if is_last {
                return Some(free);
            }
            chunk = next;
        }
    }
}
