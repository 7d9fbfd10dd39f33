//! When free pages return to the kernel.
//!
//! A page that stays free returns to the kernel a [decay time](set_decay), one second unless set,
//! after the program last freed memory, and after two at the latest. A Rust program's own
//! allocations and frees do this work, unless the program [enables a thread](enable_thread) for it.
//!
//! ```
//! use neap::purge;
//! use std::time::Duration;
//!
//! purge::enable_thread();
//! purge::set_decay(Duration::from_millis(200));
//! drop(vec![1u8; 64 << 20]);
//! println!("{} bytes returned now", purge::all());
//! ```

use core::time::Duration;
use neap_heap::cache::heap::HEAP;
use neap_heap::init;
use neap_heap::reclaim::{round, start, thread};

/// The longest decay time: one hour.
const LONGEST_MS: u128 = 3_600_000;

/// Enables the purge thread, which returns free pages even while the program sleeps, and answers
/// `neap stat`, `neap top` and `neap profile`. It starts once the heap has grown past 4 MiB. The
/// environment variable `NEAP_PURGE_THREAD` takes precedence over this call.
///
/// For programs whose allocator is [`Neap`](crate::Neap). Under `libneap.so` the library decides.
pub fn enable_thread() {
    init::initialize();
    start::enable_thread();
}

/// Returns all free pages to the kernel now: empties all threads' magazines, frees empty slabs, and
/// purges every free page, including those inside partly used slabs. The result is the number of
/// bytes.
pub fn all() -> usize {
    init::initialize();
    round::purge_all()
}

/// Sets the decay time: how long a free page may stay resident. The maximum is one hour; with zero,
/// free pages return at once.
pub fn set_decay(time: Duration) {
    init::initialize();
    HEAP.pages
        .limits()
        .set_decay_ms(time.as_millis().min(LONGEST_MS) as u64);
    HEAP.pages.heed_bounds();
}

/// The decay time.
pub fn decay() -> Duration {
    init::initialize();
    Duration::from_millis(HEAP.decay_ms())
}

/// Keeps up to `bytes` bytes of free pages resident, whatever their age; `usize::MAX` keeps all of
/// them. [Limits](crate::limits) and [`all`] still take them.
pub fn keep_resident(bytes: usize) {
    init::initialize();
    round::keep_free(bytes);
}

/// Ends the purge thread, and keeps it away while the result lives. For some namespaces,
/// `unshare(2)` and `setns(2)` require a process with a single thread.
#[must_use = "the thread may start again as soon as this is dropped"]
pub fn pause() -> Pause {
    Pause(thread::hold())
}

/// Keeps the purge thread away; see [`pause`].
#[derive(Debug)]
pub struct Pause(thread::Hold);
