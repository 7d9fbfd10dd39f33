//! Resource limits and memory pressure.

use crate::table::Finding;
use rustix::process::{Resource, getrlimit};
use std::fs::OpenOptions;
use std::io::Write;

/// The findings.
pub fn findings() -> Vec<Finding> {
    vec![
        limit(
            "RLIMIT_AS",
            Resource::As,
            "all address space: arenas are cut to fit",
            "arenas may have full size",
        ),
        limit(
            "RLIMIT_DATA",
            Resource::Data,
            "all private writable memory: malloc returns NULL beyond it",
            "heaps may grow",
        ),
        limit(
            "RLIMIT_MEMLOCK",
            Resource::Memlock,
            "under mlockall, what is committed must fit",
            "mlockall may lock every page",
        ),
        pressure(),
    ]
}

fn limit(name: &'static str, resource: Resource, with: &str, without: &str) -> Finding {
    match getrlimit(resource).current {
        None => Finding::is(name, "unlimited", without),
        Some(bytes) => Finding::is(name, format!("{} KiB", bytes / 1024), with),
    }
}

/// Registers for notification of memory pressure, as the library does.
fn pressure() -> Finding {
    let tried = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/proc/pressure/memory")
        .and_then(|mut file| file.write_all(b"some 150000 2000000\0"));
    Finding::tried(
        "pressure (PSI)",
        tried,
        "a process can be told when memory grows short",
        "a process is not told when memory grows short",
    )
}
