//! What glibc's reporting functions say about a Neap heap.
//!
//! The counts that they share, so that programs which add them up stay right:
//! `arena` (slabs and everything not large) = `uordblks` (live) + `fordblks`
//! (free, and Neap's own data); `hblkhd` is the bytes of large blocks; `arena + hblkhd` is
//! the memory committed. Counts that Neap does not keep are 0.

use core::ffi::{c_int, c_void};
use core::fmt::{self, Write};
use libc::FILE;
use neap::front;
use neap::stats::Snapshot;

/// The heap in glibc's terms, in bytes except `large_blocks`.
struct Glibc {
    arena: u64,
    large_blocks: u64,
    large: u64,
    magazines: u64,
    live: u64,
    free: u64,
    trimmable: u64,
}

impl Glibc {
    /// The heap now.
    fn now() -> Self {
        Self::of(&front::snapshot())
    }

    /// Counters are read one by one while other threads run: every difference saturates.
    fn of(heap: &Snapshot) -> Self {
        let arena = heap.committed.saturating_sub(heap.large_bytes);
        let live = heap.live.saturating_sub(heap.large_bytes).min(arena);
        Self {
            arena,
            large_blocks: heap.large_blocks,
            large: heap.large_bytes,
            magazines: heap.magazines,
            live,
            free: arena - live,
            trimmable: heap.free_dirty,
        }
    }
}

/// `value` as the old `struct mallinfo` can say it: at most `INT_MAX`, instead of glibc's wrapping.
fn narrow(value: u64) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// `value` in bytes as a `size_t`, which has 64 bits wherever Neap runs.
fn wide(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The heap in glibc's terms; see the head of this file for what each field holds.
#[unsafe(no_mangle)]
extern "C" fn mallinfo2() -> libc::mallinfo2 {
    let heap = Glibc::now();
    libc::mallinfo2 {
        arena: wide(heap.arena),
        ordblks: 0,
        smblks: 0,
        hblks: wide(heap.large_blocks),
        hblkhd: wide(heap.large),
        usmblks: 0,
        fsmblks: wide(heap.magazines),
        uordblks: wide(heap.live),
        fordblks: wide(heap.free),
        keepcost: wide(heap.trimmable),
    }
}

/// [`mallinfo2`] in ints; what does not fit is `INT_MAX`.
#[unsafe(no_mangle)]
extern "C" fn mallinfo() -> libc::mallinfo {
    let heap = Glibc::now();
    libc::mallinfo {
        arena: narrow(heap.arena),
        ordblks: 0,
        smblks: 0,
        hblks: narrow(heap.large_blocks),
        hblkhd: narrow(heap.large),
        usmblks: 0,
        fsmblks: narrow(heap.magazines),
        uordblks: narrow(heap.live),
        fordblks: narrow(heap.free),
        keepcost: narrow(heap.trimmable),
    }
}

/// Text collected on the stack: a report must not allocate.
struct Page {
    text: [u8; 1024],
    used: usize,
}

impl Page {
    fn new() -> Self {
        Self {
            text: [0; 1024],
            used: 0,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.text[..self.used]
    }
}

impl Write for Page {
    /// Refuses what does not fit; the reports here have at most 12 numbers of 20 digits.
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = self
            .text
            .get_mut(self.used..self.used + more.len())
            .ok_or(fmt::Error)?;
        room.copy_from_slice(more.as_bytes());
        self.used += more.len();
        Ok(())
    }
}

/// The document of `malloc_info`, in glibc's elements as far as they have a meaning here.
fn xml(page: &mut Page) -> fmt::Result {
    let raw = front::snapshot();
    let heap = Glibc::of(&raw);
    writeln!(page, "<malloc version=\"1\" allocator=\"neap\">")?;
    writeln!(
        page,
        "<total type=\"rest\" count=\"0\" size=\"{}\"/>",
        heap.free
    )?;
    writeln!(
        page,
        "<total type=\"mmap\" count=\"{}\" size=\"{}\"/>",
        heap.large_blocks, heap.large
    )?;
    writeln!(
        page,
        "<system type=\"current\" size=\"{}\"/>",
        raw.committed
    )?;
    writeln!(page, "<aspace type=\"total\" size=\"{}\"/>", raw.reserved)?;
    writeln!(
        page,
        "<neap resident=\"{}\" live=\"{}\" peak=\"{}\"/>",
        raw.resident, raw.live, raw.peak_live
    )?;
    writeln!(page, "</malloc>")
}

/// Writes the state of the heap as XML to `stream`; `options` must be 0.
/// Returns 0, `EINVAL` for other options, or -1 if the stream refused.
///
/// # Safety
/// - `stream` is an open stream.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_info(options: c_int, stream: *mut FILE) -> c_int {
    if options != 0 {
        return libc::EINVAL;
    }
    let mut page = Page::new();
    if xml(&mut page).is_err() {
        return -1;
    }
    let bytes = page.bytes();
    // SAFETY: the bytes are initialised; the caller says that the stream is open.
    let written = unsafe { libc::fwrite(bytes.as_ptr().cast::<c_void>(), 1, bytes.len(), stream) };
    if written == bytes.len() { 0 } else { -1 }
}

/// The page of `malloc_stats`.
fn summary(page: &mut Page) -> fmt::Result {
    let heap = front::snapshot();
    writeln!(page, "neap: bytes reserved  {:>16}", heap.reserved)?;
    writeln!(page, "neap: bytes committed {:>16}", heap.committed)?;
    writeln!(page, "neap: bytes resident  {:>16}", heap.resident)?;
    writeln!(page, "neap: bytes live      {:>16}", heap.live)?;
    writeln!(page, "neap: peak live       {:>16}", heap.peak_live)?;
    writeln!(page, "neap: in magazines    {:>16}", heap.magazines)?;
    writeln!(page, "neap: large blocks    {:>16}", heap.large_blocks)
}

/// Writes a summary of the heap to standard error. Keeps `errno`.
#[unsafe(no_mangle)]
extern "C" fn malloc_stats() {
    let mut page = Page::new();
    if summary(&mut page).is_err() {
        return;
    }
    let bytes = page.bytes();
    // SAFETY: errno is the thread's own, and the bytes are initialised. A closed
    // or full descriptor loses the report: there is nobody to tell.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len());
        *libc::__errno_location() = errno;
    }
}
