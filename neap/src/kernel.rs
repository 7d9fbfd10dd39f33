//! What the program tells the heap about its own system calls. `libneap.so` sees these calls
//! itself. This crate exports no C names, so the program has to report them.

use core::ptr::NonNull;
use neap_heap::{init, mapped_over};

/// From now on the heap makes only system calls that every allocator makes, and runs no thread.
/// Call this before the process enters a sandbox (seccomp) that could kill it for other calls.
///
/// From then on the profiler and guarded samples do not start, and figures count every page that
/// may be resident as resident.
pub fn prepare_for_sandbox() {
    init::initialize();
    init::ask_no_more();
}

/// Tells the heap that the program mapped a file or shared memory over `memory`, which lies in a
/// block of its own, or that userfaultfd fills these pages. The heap maps the block afresh when it
/// is freed. Takes no lock.
///
/// # Safety
/// - `memory` lies in one live block that [`Neap`](crate::Neap) allocated for the caller.
pub unsafe fn note_mapped_over(memory: NonNull<[u8]>) {
    mapped_over::note(memory.addr().get(), memory.len());
}
