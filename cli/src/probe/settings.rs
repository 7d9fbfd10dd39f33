//! The kernel's version, and the settings that affect Neap.

use super::map::Map;
use crate::table::{Finding, State};
use neap_shared::stats::Bytes;
use rustix::param::page_size;
use std::fs;
use std::path::Path;

/// The findings.
pub fn findings() -> Vec<Finding> {
    vec![
        kernel(),
        page(),
        overcommit(),
        reservation(),
        mappings(),
        huge_pages(),
    ]
}

fn setting(file: &str) -> Option<String> {
    fs::read_to_string(file)
        .ok()
        .map(|text| text.trim().to_owned())
}

fn kernel() -> Finding {
    let release = setting("/proc/sys/kernel/osrelease");
    let meaning = "each facility below was tried, regardless of the version";
    Finding::read("kernel", release, "no /proc", meaning)
}

fn page() -> Finding {
    let size = format!("{} KiB", page_size() / 1024);
    Finding::is("OS page", size, "the smallest piece that goes back")
}

fn overcommit() -> Finding {
    let mode = setting("/proc/sys/vm/overcommit_memory");
    let meaning = match mode.as_deref() {
        Some("0") => "heuristic: memory is promised freely, within reason",
        Some("1") => "always: memory is promised without limit",
        Some("2") => {
            "strict: what is committed counts against a limit, so malloc can return NULL early"
        }
        _ => "unknown: treated as strict",
    };
    Finding::read("overcommit", mode, "cannot be read", meaning)
}

/// The largest power of two that can be reserved at once.
fn reservation() -> Finding {
    let mut powers = (20..=46).rev();
    let largest = powers.find(|&power| Map::reserved(1 << power).is_ok());
    let size = largest.map_or(String::new(), |power| Bytes(1 << power).to_string());
    let (state, meaning) = match largest {
        Some(36..) => (State::Ok, "room for arenas of full size"),
        Some(_) => (State::Absent, "arenas are smaller, and more of them"),
        None => (
            State::Absent,
            "not even 1 MiB: programs will run out of memory",
        ),
    };
    Finding::new("address space", state, size, meaning)
}

fn mappings() -> Finding {
    let most = setting("/proc/sys/vm/max_map_count");
    let meaning = "most mappings of a process; Neap commits in 2 MiB units to need few";
    Finding::read("max_map_count", most, "cannot be read", meaning)
}

/// Requests a 2 MiB page and looks for it in the process's own maps.
fn huge_pages() -> Finding {
    let mode = setting("/sys/kernel/mm/transparent_hugepage/enabled");
    let mode = mode
        .as_deref()
        .and_then(bracketed)
        .unwrap_or_else(|| unset(Path::new("/sys/kernel")))
        .to_owned();
    let (state, meaning) = match gets_huge_page() {
        Some(true) => (
            State::Ok,
            "granted on request: dense spans take fewer faults",
        ),
        Some(false) => (
            State::Absent,
            "not granted on request: every span uses OS pages",
        ),
        None => (State::Is, "cannot be seen from here whether one is given"),
    };
    Finding::new("huge pages", state, mode, meaning)
}

/// What a missing setting means. A container may not see the kernel's `settings` at all.
fn unset(settings: &Path) -> &'static str {
    match settings.is_dir() {
        true => "not built in",
        false => "/sys is not mounted, so the mode is unknown",
    }
}

/// The chosen word of `always [madvise] never`.
pub fn bracketed(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

fn gets_huge_page() -> Option<bool> {
    const HUGE: usize = 2 << 20;
    let map = Map::pages(2 * HUGE / page_size()).ok()?;
    let _ = map.advise(libc::MADV_HUGEPAGE);
    let aligned = (map.base() as usize).next_multiple_of(HUGE) - map.base() as usize;
    map.touch(aligned / page_size());
    let smaps = fs::read_to_string("/proc/self/smaps").ok()?;
    let start = format!("{:x}-", map.base() as usize);
    let entry = smaps.split_once(&format!("\n{start}"))?.1;
    let line = entry
        .lines()
        .find(|line| line.starts_with("AnonHugePages:"))?;
    Some(!line.contains(" 0 kB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_not_called_absent() {
        assert_eq!(unset(Path::new("/")), "not built in");
        assert!(unset(Path::new("/no/such")).contains("unknown"));
    }

    #[test]
    fn the_chosen_mode_stands_in_brackets() {
        assert_eq!(bracketed("always [madvise] never"), Some("madvise"));
        assert_eq!(bracketed("always"), None);
    }
}
