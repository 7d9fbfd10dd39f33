//! How `calloc` makes a span zero without touching what is zero.
//!
//! Pages that the zero state calls zero are left alone. Of the others, short runs are written. For
//! long ones the kernel is asked which pages are populated, and only those are written, in place:
//! that costs a twentieth of faulting them in again. Pages in swap are purged, for writing would
//! first read them, and so are those that other processes share, for writing would copy them. Where
//! the kernel does not tell, long runs are purged. `docs/zero.md` has the measurements behind the
//! numbers.
//!
//! The first and the last huge page of a run may reach beyond it. What a neighbour's first write
//! then made resident is in the run as well, although the program never touched it there. So these
//! two are purged where most of the run is not resident: once, for that splits them.

use super::arena::pointer;
use super::heap::PageHeap;
use super::zero_state::{Expectation, Finding, ProbePages, Row, Run};
use crate::base::sync::plain::Ordering::Relaxed;
use crate::base::units::HUGE_BYTES;
use crate::os::{self, Answers, Backing, Os, Populated, Purged, Unknown};
use core::ptr::NonNull;

/// Runs shorter than this are written: asking costs as much.
const LEAST_ASKED: usize = 128 << 10;

/// Runs at most this long are written without a query where all recent queries led to a write: for
/// each populated page, a query costs a quarter to three fifths of a write. Longer runs have
/// [`ProbePages`].
const MOST_UNASKED: usize = 1 << 20;

/// Where the kernel does not tell, runs at most this long are written: no more is paged in for
/// nothing. Longer ones are purged.
const MOST_WRITTEN: usize = 4 << 20;

/// The longest run about which a kernel is asked that answers page by page, which takes half as
/// long as to write what is asked about. From there on glibc maps every block afresh.
const MOST_BY_PAGE: usize = 32 << 20;

/// The edges of a run are purged if no more than this part of it is resident.
const EDGE_PART: usize = 8;

/// From this many bytes on, stores bypass the caches. The block is larger than they are, so plain
/// stores would only evict other data. Measured in `docs/zero.md`.
const STREAMED: usize = 64 << 20;

/// Fills `bytes` bytes with zeros.
///
/// # Safety
/// - The bytes are writable, and no other thread uses them.
unsafe fn clear(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if bytes < STREAMED {
            start.write_bytes(0, bytes);
        } else {
            os::clear_streaming(start, bytes);
        }
    }
}

/// What was populated in a run.
struct Scan {
    samples: ProbePages,
    bytes: usize,
    /// How many of the samples.
    sampled: usize,
    /// Whether a huge page was among them: purging a part of one would split it.
    huge: bool,
    /// The parts of the run that lie in a huge page which reaches beyond the run, at its start and
    /// at its end, and whether there is such a page. They may be empty.
    edges: [(Run, bool); 2],
}

impl Scan {
    fn of(run: Run, page_bytes: usize) -> Self {
        let end = run.start() + run.bytes();
        let first = run.start().next_multiple_of(HUGE_BYTES).min(end);
        let last = (end - end % HUGE_BYTES).max(first);
        Self {
            samples: ProbePages::of(run, page_bytes),
            bytes: 0,
            sampled: 0,
            huge: false,
            edges: [run.part(run.start()..first), run.part(last..end)].map(|part| (part, false)),
        }
    }

    /// Notes a run of huge pages. Returns the part of it that lies in no edge.
    fn note_huge(&mut self, found: Run) -> Run {
        self.huge = true;
        let [(first, in_first), (last, in_last)] = &mut self.edges;
        let inner = found.part(first.start() + first.bytes()..last.start());
        *in_first |= found.start() < first.start() + first.bytes();
        *in_last |= found.start() + found.bytes() > last.start();
        inner
    }

    /// Whether the samples, purged a while ago, are populated so much less than the rest of `whole`
    /// bytes that the program cannot be using the rest.
    fn is_idle(&self, whole: usize) -> bool {
        self.sampled * 4 * whole <= self.samples.count() * self.bytes
    }

    /// Whether most of the samples are populated where the rest is: only then can they tell
    /// anything later.
    fn is_telling(&self, whole: usize) -> bool {
        !self.huge && self.sampled * 2 * whole >= self.samples.count() * self.bytes
    }
}

impl<O: Os> PageHeap<O> {
    /// Makes the first `bytes` bytes of a span just given out zero.
    ///
    /// # Safety
    /// - `base` is the first byte of a span in use, the caller's, at least `bytes` long and unused
    ///   so far.
    pub unsafe fn zero_dirty(&self, base: NonNull<u8>, bytes: usize) {
        let start = base.as_ptr().addr();
        let Some(place) = self.locate(start) else {
            return;
        };
        let mut done = 0;
        let zero = |offset, bytes| {
            // SAFETY: within the span, which is unused: the caller's promise.
            done += self.zero_run(unsafe { Run::of(start + offset, bytes) });
        };
        place.arena.each_dirty_run(place.record(), bytes, zero);
        self.count_known_zero(bytes - done);
    }

    /// Counts `bytes` bytes that were requested as zero and known to be.
    pub fn count_known_zero(&self, bytes: usize) {
        self.zeroing.spared.fetch_add(bytes, Relaxed);
    }

    /// Makes a run zero that may be dirty. Returns how many bytes were written or purged.
    fn zero_run(&self, run: Run) -> usize {
        if run.bytes() < LEAST_ASKED {
            return self.write(run);
        }
        let row = self.predictor.row(run.bytes());
        match row.expect() {
            Expectation::Unused if self.give_back(run) => run.bytes(),
            Expectation::Full if self.seems_full(run) => self.write(run),
            _ if run.bytes() > MOST_BY_PAGE && self.os.answers() == Answers::Pages => {
                self.sample(run, row)
            }
            _ => self.ask(run, row),
        }
    }

    /// Writes a run that seems to be full. Of any other it asks about the head, which programs use
    /// most, and purges the rest; now and then it purges the head as well.
    fn sample(&self, run: Run, row: &Row) -> usize {
        let end = run.start() + MOST_UNASKED;
        if self.seems_full(run) {
            return self.write(run);
        }
        if row.is_time_to_purge() && self.give_back(run) {
            return run.bytes();
        }
        if !self.give_back(run.part(end..usize::MAX)) {
            return self.ask(run, row);
        }
        self.ask(run.part(0..end), row);
        run.bytes()
    }

    /// Writes zeros to the populated pages of a run.
    fn ask(&self, run: Run, row: &Row) -> usize {
        let mut scan = Scan::of(run, self.os.page_bytes());
        let visit = |found: Populated| {
            let mut part = run.part(found.start..found.start + found.bytes);
            scan.bytes += found.bytes;
            scan.sampled += scan.samples.among(part);
            if found.backing == Backing::HugePage {
                part = scan.note_huge(part);
            }
            let is_own = matches!(found.backing, Backing::Ram | Backing::HugePage);
            if is_own || !self.give_back(part) {
                self.write(part);
            }
        };
        let answer = self.populated(run, visit);
        self.zero_edges(run, &scan);
        match answer {
            Ok(()) => self.learn(run, row, &scan),
            Err(unknown) => scan.bytes += self.zero_unknown(run, unknown),
        }
        scan.bytes.min(run.bytes())
    }

    fn zero_edges(&self, run: Run, scan: &Scan) {
        let is_little = scan.bytes <= run.bytes() / EDGE_PART;
        for &(edge, _) in scan.edges.iter().filter(|(_, is_huge)| *is_huge) {
            if !is_little || !self.give_back(edge) {
                self.write(edge);
            }
        }
    }

    /// Asks the kernel about a run and the rest of its last page.
    fn populated(&self, run: Run, visit: impl FnMut(Populated)) -> Result<(), Unknown> {
        let bytes = self.whole_pages(run);
        // SAFETY: spans in use are committed, and hold whole pages.
        let answer = unsafe { self.os.populated(pointer(run.start()), bytes, visit) };
        // A kernel that could not tell about the first page was most likely not queried at all.
        let asked = !matches!(answer, Err(Unknown { from }) if from == run.start());
        self.zeroing.asked.fetch_add(usize::from(asked), Relaxed);
        answer
    }

    fn whole_pages(&self, run: Run) -> usize {
        run.bytes().next_multiple_of(self.os.page_bytes())
    }

    /// Remembers what was found in a run, which is zero now. Now and then purges its probe pages.
    /// Purges all of it if the probe pages tell often enough that the program does not use it, so
    /// that it is not written again and again.
    fn learn(&self, run: Run, row: &Row, scan: &Scan) {
        let whole = self.whole_pages(run);
        let is_long = scan.bytes > MOST_UNASKED;
        let finding = match scan.bytes {
            0 => Finding::Untouched,
            _ if is_long && row.is_probed() && scan.is_idle(whole) => Finding::Idle,
            all if all == whole => Finding::Full,
            _ => Finding::Mixed,
        };
        let is_sure = row.record(finding);
        // A refused purge leaves zeros as well.
        if finding != Finding::Idle {
            if is_long && row.is_time_to_probe() && scan.is_telling(whole) {
                row.note_probe();
                scan.samples
                    .pages()
                    .for_each(|page| _ = self.give_back(page));
            }
        } else if is_sure {
            row.forget();
            self.give_back(run);
        }
    }

    /// Whether a run that is expected to be full seems to be. Wrong at most about holes between two
    /// samples.
    fn seems_full(&self, run: Run) -> bool {
        let is_populated = |page: Run| {
            let mut found = false;
            self.populated(page, |_| found = true).is_ok() && found
        };
        run.bytes() <= MOST_UNASKED
            || ProbePages::of(run, self.os.page_bytes())
                .samples()
                .all(is_populated)
    }

    /// Makes zero what the kernel does not tell about: a long run by a purge, which costs little
    /// where nothing was touched, while writing would page in all of it.
    fn zero_unknown(&self, run: Run, unknown: Unknown) -> usize {
        self.zeroing.unknown.fetch_add(1, Relaxed);
        let rest = run.part(unknown.from..usize::MAX);
        if rest.bytes() <= MOST_WRITTEN || !self.give_back(rest) {
            self.write(rest);
        }
        rest.bytes()
    }

    /// Gives the pages of a run back to the kernel, the rest of its last page included. False if it
    /// refused.
    fn give_back(&self, run: Run) -> bool {
        let bytes = self.whole_pages(run);
        // SAFETY: a run is unused, and so is the end of its last page.
        let purged = unsafe { self.os.purge(pointer(run.start()), bytes) } == Purged::Zero;
        self.zeroing
            .purged
            .fetch_add(bytes * usize::from(purged), Relaxed);
        purged
    }

    fn write(&self, run: Run) -> usize {
        // SAFETY: a run is committed, and no other thread's.
        unsafe { clear(run.start() as *mut u8, run.bytes()) };
        self.zeroing.written.fetch_add(run.bytes(), Relaxed);
        run.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::is_zero;

    #[test]
    fn every_byte_and_no_other_is_cleared() {
        for (from, to) in [(0, 0), (1, 2), (15, 17), (16, 80), (3, 4093), (64, 4096)] {
            let mut memory = [7u8; 4096 + 64];
            // SAFETY: within the array.
            unsafe { os::clear_streaming(memory.as_mut_ptr().add(from), to - from) };
            let cleared = |index: usize| (from..to).contains(&index);
            let right = |(index, &byte): (usize, &u8)| (byte == 0) == cleared(index);
            assert!(memory.iter().enumerate().all(right), "{from}..{to}");
        }
    }

    #[test]
    fn long_and_short_are_cleared() {
        let mut memory = std::vec![7u8; STREAMED + 4096];
        // SAFETY: within the vector.
        unsafe { clear(memory.as_mut_ptr().add(1), STREAMED + 4094) };
        assert_eq!([memory[0], memory[STREAMED + 4095]], [7, 7]);
        assert!(is_zero(&memory[1..STREAMED + 4095]));
        // SAFETY: as above.
        unsafe { clear(memory.as_mut_ptr(), 1) };
        assert_eq!(memory[0], 0);
    }
}
