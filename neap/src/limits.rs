//! Bounds on what the heap holds, in bytes. `None` means no limit, which is the default.
//!
//! ```
//! use neap::limits;
//!
//! limits::set_hard(Some(1 << 30)); // allocations beyond 1 GiB fail
//! limits::set_soft(Some(900 << 20)); // near 900 MiB, free pages return to the kernel at once
//! assert_eq!(limits::hard(), Some(1 << 30));
//! ```
//!
//! Pages that may be resident count: spans in use, and the dirty pages of free spans. A coroutine
//! stack counts as 8 KiB, because most of it is never touched. The heap's own tables do not count.

use neap_heap::cache::heap::HEAP;
use neap_heap::init;

/// The heap's value for no limit.
const NONE: usize = usize::MAX;

fn limit(bytes: usize) -> Option<usize> {
    (bytes != NONE).then_some(bytes)
}

/// Sets the hard limit. An allocation that would pass it, even with every free page returned to the
/// kernel, fails as if memory were exhausted.
pub fn set_hard(bytes: Option<usize>) {
    init::initialize();
    HEAP.pages.limits().set_hard(bytes.unwrap_or(NONE));
    HEAP.pages.heed_bounds();
}

/// The hard limit.
pub fn hard() -> Option<usize> {
    init::initialize();
    limit(HEAP.pages.limits().hard())
}

/// Sets the soft limit. From seven eighths of it on, free pages return to the kernel before their
/// time, if necessary all of them. No allocation fails.
pub fn set_soft(bytes: Option<usize>) {
    init::initialize();
    HEAP.pages.limits().set_soft(bytes.unwrap_or(NONE));
    HEAP.pages.heed_bounds();
}

/// The soft limit.
pub fn soft() -> Option<usize> {
    init::initialize();
    limit(HEAP.pages.limits().own_soft())
}

/// Sets how many bytes of free pages may be resident at once. Beyond that, the oldest return to the
/// kernel.
pub fn set_dirty(bytes: Option<usize>) {
    init::initialize();
    HEAP.pages.limits().set_dirty(bytes.unwrap_or(NONE));
    HEAP.pages.heed_bounds();
}

/// The limit on resident free pages.
pub fn dirty() -> Option<usize> {
    init::initialize();
    limit(HEAP.pages.limits().dirty())
}
