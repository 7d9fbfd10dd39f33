//! The machine, as a recording describes it.

use crate::attach::kernel::field;
use crate::probe::bracketed;
use serde::{Deserialize, Serialize};
use std::fs;

/// A machine. Unknown fields are empty or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// Processors that this process may use.
    pub cpus: u64,
    /// RAM, in bytes.
    pub memory: u64,
    /// Bytes of an OS page.
    pub page_bytes: u64,
    /// `always`, `madvise` or `never`: when the kernel uses transparent huge pages.
    pub huge_pages: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let text = |file| fs::read_to_string(file).unwrap_or_default();
        Self {
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpus: std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u64),
            memory: total(&text("/proc/meminfo")),
            page_bytes: rustix::param::page_size() as u64,
            huge_pages: bracketed(&text("/sys/kernel/mm/transparent_hugepage/enabled"))
                .unwrap_or_default()
                .to_owned(),
        }
    }
}

/// Parses `MemTotal:  24576 kB`, in bytes.
fn total(text: &str) -> u64 {
    (text.lines().find_map(|line| field(line, "MemTotal:"))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory() {
        let machine = Machine::here();
        assert!(machine.memory > 1 << 20 && machine.page_bytes >= 4096 && machine.cpus > 0);
        assert!(!machine.kernel.is_empty());
    }

    #[test]
    fn the_memory_is_taken_out_of_its_line() {
        assert_eq!(
            total("MemFree: 1 kB\nMemTotal:       24576 kB\n"),
            24576 << 10
        );
        assert_eq!(total("MemTotal: much"), 0);
    }
}
