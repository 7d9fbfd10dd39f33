//! Guarded allocations: now and then one gets a page of its own between two that no access may
//! touch. An access beyond it or after its free writes a report to standard error, and then the
//! process ends by SIGSEGV, or its own handler runs. `docs/guard.md` has the details.
//!
//! ```
//! use neap::guard;
//! use std::time::Duration;
//!
//! assert!(guard::start(Duration::from_millis(20)));
//! guard::stop();
//! ```

use core::time::Duration;
use neap_heap::init;
use neap_instruments::guard;

/// Guards an allocation of each thread, once in `interval` on average; with an interval of zero,
/// every allocation of at most a page for which there is room. A handler of SIGSEGV that the
/// program installs later keeps Neap from reporting, until the next guarded block puts Neap's in
/// front again, once for the process. False if there is no memory for the pool, which takes 2 MiB
/// of address space. Also false if the process may be in a sandbox: with `NEAP_KERNEL_QUERIES=0`,
/// after [`crate::prepare_for_sandbox`], and once Neap has seen a filter of system calls that was
/// not there at the start.
///
/// Threads whose calls all take the fast path are reached only while the purge thread runs
/// ([`crate::purge::enable_thread`]).
pub fn start(interval: Duration) -> bool {
    init::initialize();
    let ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX - 1);
    guard::set_interval(Some(ms.max(u64::from(!interval.is_zero()))))
}

/// Guards no further allocation. What is guarded stays so.
pub fn stop() {
    init::initialize();
    guard::set_interval(None);
}
