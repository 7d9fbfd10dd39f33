//! What glibc's reporting functions say about a Neap heap, and its control functions.
//!
//! The counts that they share, so that programs which add them up stay right:
//! `arena` (slabs and everything not large) = `uordblks` (live) + `fordblks`
//! (free, and Neap's own data); `hblkhd` is the bytes of large blocks; `arena + hblkhd` is
//! the memory committed. Counts that Neap does not keep are 0.

use core::ffi::c_int;
use core::fmt::{self, Write};
use libc::FILE;
use neap_heap::os::linux;
use neap_heap::os::loader::{errno, set_errno};
use neap_heap::os::process::{Pieces, to_standard_error};
use neap_heap::reclaim::round;
use neap_instruments::survey::{self, Brief};
use neap_shared::stats::Text;

/// The heap in glibc's terms; see the head of this file for what each field holds. Counters are
/// read one by one while other threads run: every difference saturates.
fn in_glibc_terms(heap: &Brief) -> libc::mallinfo2 {
    let arena = heap.committed.saturating_sub(heap.large_bytes);
    let live = heap.live.saturating_sub(heap.large_bytes).min(arena);
    // A `size_t` has 64 bits wherever Neap runs.
    libc::mallinfo2 {
        arena: arena as usize,
        ordblks: 0,
        smblks: 0,
        hblks: heap.large_blocks as usize,
        hblkhd: heap.large_bytes as usize,
        usmblks: 0,
        fsmblks: heap.magazines as usize,
        uordblks: live as usize,
        fordblks: (arena - live) as usize,
        keepcost: heap.free_dirty as usize,
    }
}

/// The heap in glibc's terms.
#[unsafe(no_mangle)]
extern "C" fn mallinfo2() -> libc::mallinfo2 {
    in_glibc_terms(&survey::brief())
}

/// [`mallinfo2`] in ints; what does not fit is `INT_MAX`, instead of glibc's wrapping.
#[unsafe(no_mangle)]
extern "C" fn mallinfo() -> libc::mallinfo {
    let (heap, narrow) = (mallinfo2(), |value| {
        c_int::try_from(value).unwrap_or(c_int::MAX)
    });
    libc::mallinfo {
        arena: narrow(heap.arena),
        ordblks: 0,
        smblks: 0,
        hblks: narrow(heap.hblks),
        hblkhd: narrow(heap.hblkhd),
        usmblks: 0,
        fsmblks: narrow(heap.fsmblks),
        uordblks: narrow(heap.uordblks),
        fordblks: narrow(heap.fordblks),
        keepcost: narrow(heap.keepcost),
    }
}

/// The document of `malloc_info`, in glibc's elements as far as they have a meaning here.
fn xml(page: &mut impl Write) -> fmt::Result {
    let raw = survey::brief();
    let heap = in_glibc_terms(&raw);
    let resident = linux::resident_bytes().unwrap_or(0);
    write!(
        page,
        "<malloc version=\"1\" allocator=\"neap\">\n\
         <total type=\"rest\" count=\"0\" size=\"{}\"/>\n\
         <total type=\"mmap\" count=\"{}\" size=\"{}\"/>\n\
         <system type=\"current\" size=\"{}\"/>\n\
         <aspace type=\"total\" size=\"{}\"/>\n\
         <neap live=\"{}\" resident=\"{resident}\"/>\n\
         </malloc>\n",
        heap.fordblks, heap.hblks, heap.hblkhd, raw.committed, raw.reserved, raw.live
    )
}

/// Writes the state of the heap as XML to `stream`; `options` must be 0. Returns 0, `EINVAL` for
/// other options, or -1 if the stream refused. It is not a cancellation point, although writing to
/// a stream is one.
///
/// # Safety
/// - `stream` is an open stream.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_info(options: c_int, stream: *mut FILE) -> c_int {
    if options != 0 {
        return libc::EINVAL;
    }
    let mut send = |bytes: &[u8]| {
        // SAFETY: the bytes are initialised; the caller says that the stream is open.
        let sent = unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), stream) };
        match sent == bytes.len() {
            true => Ok(()),
            false => Err(fmt::Error),
        }
    };
    let mut page = Pieces::new(&mut send);
    let before = set_cancelling(CANCEL_DISABLE);
    let written = xml(&mut page).and_then(|()| page.flush());
    set_cancelling(before);
    match written {
        Ok(()) => 0,
        Err(fmt::Error) => -1,
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of Linux's C libraries.
const CANCEL_DISABLE: c_int = 1;

/// Sets whether the calling thread may be cancelled, and returns the earlier setting.
fn set_cancelling(state: c_int) -> c_int {
    let mut before = 0;
    // SAFETY: a valid state, and a buffer for the one before.
    unsafe { pthread_setcancelstate(state, &mut before) };
    before
}

/// Writes the page of `neap run --stats` to standard error. Keeps `errno`.
#[unsafe(no_mangle)]
extern "C" fn malloc_stats() {
    let before = errno();
    survey::with_snapshot(|heap| {
        let mut send = to_standard_error;
        let mut page = Pieces::new(&mut send);
        let written =
            writeln!(page, "neap: the heap now").and_then(|()| write!(page, "{}", Text(heap)));
        // A closed or full descriptor loses the report: nothing could read it.
        let _ = written.and_then(|()| page.flush());
    });
    set_errno(before);
}

/// The parameters of `mallopt` in glibc's `<malloc.h>`: 1 to 4, and -1 to -8.
const PARAMETERS: [core::ops::RangeInclusive<c_int>; 2] = [1..=4, -8..=-1];

/// Gives free memory back to the kernel; 1 if any was, else 0. glibc keeps `_keep` bytes at the top
/// of its heap; Neap has no top.
#[unsafe(no_mangle)]
extern "C" fn malloc_trim(_keep: usize) -> c_int {
    c_int::from(round::purge_all() > 0)
}

/// `M_TRIM_THRESHOLD`: free memory beyond this many bytes goes back to the kernel.
const TRIM_THRESHOLD: c_int = -1;

/// Accepts the parameters that glibc knows and returns 1; 0 for others. `M_TRIM_THRESHOLD` sets how
/// many bytes of free pages stay resident, -1 all; the others are ignored, because they tune
/// mechanisms that Neap does not have (its own options are `NEAP_*`).
#[unsafe(no_mangle)]
extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    if parameter == TRIM_THRESHOLD {
        // As in glibc: a negative number is a very large one.
        round::keep_free(value as isize as usize);
    }
    c_int::from(PARAMETERS.iter().any(|range| range.contains(&parameter)))
}
