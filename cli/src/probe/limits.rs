//! Resource limits and memory pressure.

use crate::table::Finding;
use rustix::process::{Resource, getrlimit};
use std::fs;

/// The findings.
pub fn findings() -> Vec<Finding> {
    vec![
        limit("RLIMIT_AS", Resource::As, "address space"),
        limit("RLIMIT_DATA", Resource::Data, "writable memory"),
        limit("RLIMIT_MEMLOCK", Resource::Memlock, "locked memory"),
        pressure(),
    ]
}

fn limit(name: &'static str, resource: Resource, what: &str) -> Finding {
    let value = match getrlimit(resource).current {
        None => "unlimited".to_owned(),
        Some(bytes) => format!("{} KiB", bytes / 1024),
    };
    Finding::is(name, value, format!("all {what} of a process must fit"))
}

/// Whether the kernel says how long tasks wait for memory, which the library reads.
fn pressure() -> Finding {
    let tried = fs::read("/proc/pressure/memory").map(drop);
    Finding::tried("pressure (PSI)", tried, "shows when memory is short")
}
