//! The kernel's version and settings, resource limits, and the control group's limits.

use super::trials::{Map, is_reserved};
use crate::table::{Finding, State};
use neap_shared::stats::Bytes;
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::{Path, PathBuf};

/// The findings.
pub fn findings() -> Vec<Finding> {
    let release = setting("/proc/sys/kernel/osrelease");
    let tried = "each facility below was tried, regardless of the version";
    let page = format!("{} KiB", page_size() / 1024);
    let most = setting("/proc/sys/vm/max_map_count");
    let few = "most mappings of a process; Neap commits in 2 MiB units to need few";
    vec![
        Finding::read("kernel", release, "no /proc", tried),
        Finding::is("OS page", page, "the smallest piece that goes back"),
        overcommit(),
        reservation(),
        Finding::read("max_map_count", most, "cannot be read", few),
        huge_pages(),
    ]
}

fn setting(file: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned())
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
    let largest = powers.find(|&power| is_reserved(1 << power));
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
    if settings.is_dir() {
        "not built in"
    } else {
        "/sys is not mounted, so the mode is unknown"
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
    let mut lines = entry.lines();
    let line = lines.find(|line| line.starts_with("AnonHugePages:"))?;
    Some(!line.contains(" 0 kB"))
}

/// The resource limits of this process, and whether the kernel tells of memory pressure.
pub fn limits() -> Vec<Finding> {
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

/// The memory limits of this process's control group.
pub fn of_group() -> Vec<Finding> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match Controller::find(&groups, &mounts) {
        Some(controller) => controller.findings(),
        None => vec![missing(&groups)],
    }
}

/// A process without a controller is in no group, or does not see its group's files.
fn missing(groups: &str) -> Finding {
    let alone = "only the system's memory bounds this process";
    let unseen = "if the group has a limit, Neap cannot see it: mount /sys/fs/cgroup";
    match group(groups) {
        None => Finding::absent("cgroup", "no memory controller", alone),
        Some(_) => Finding::absent("cgroup", "not mounted", unseen),
    }
}

/// The generation that counts this process's memory, and its group there. Version 1 if it has a
/// line for memory, else version 2.
fn group(groups: &str) -> Option<(Generation, &str)> {
    let mut second = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        match (fields.next(), fields.next()) {
            (Some(""), Some(group)) => second = second.or(Some((Generation::V2, group))),
            (Some(names), Some(group)) if names.split(',').any(|name| name == "memory") => {
                return Some((Generation::V1, group));
            }
            _ => {}
        }
    }
    second
}

/// The generation of control groups that counts memory here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generation {
    V1,
    V2,
}

/// The group that counts this process's memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Controller {
    generation: Generation,
    mount: PathBuf,
    group: PathBuf,
}

impl Controller {
    /// The group, by the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
    pub fn find(groups: &str, mounts: &str) -> Option<Self> {
        let (generation, group) = group(groups)?;
        let mount = mounts
            .lines()
            .find_map(|mount| generation.mounted_at(mount))?;
        Some(Self {
            generation,
            mount,
            group: PathBuf::from(group.trim_start_matches('/')),
        })
    }

    fn findings(&self) -> Vec<Finding> {
        let (version, files): (_, &[(&'static str, &str)]) = match self.generation {
            Generation::V1 => ("version 1", &[("cgroup limit", "memory.limit_in_bytes")]),
            Generation::V2 => (
                "version 2",
                &[
                    ("cgroup memory.max", "memory.max"),
                    ("cgroup memory.high", "memory.high"),
                ],
            ),
        };
        let place = Path::new("/").join(&self.group);
        let first = Finding::is("cgroup", version, format!("group {}", place.display()));
        [first]
            .into_iter()
            .chain(files.iter().map(|(name, file)| self.bound(name, file)))
            .collect()
    }

    /// The lowest limit of the group and its ancestors.
    fn bound(&self, name: &'static str, file: &str) -> Finding {
        let groups = self
            .group
            .ancestors()
            .map(|group| self.mount.join(group).join(file));
        let limits = groups.filter_map(|file| fs::read_to_string(file).ok());
        let limits = limits.filter_map(|text| text.trim().parse().ok());
        let least = limits.filter(|&bytes: &u64| bytes < UNLIMITED).min();
        let value = least.map_or("unlimited".to_owned(), |bytes| {
            format!("{} MiB", bytes >> 20)
        });
        Finding::is(name, value, "the memory of the group must fit")
    }
}

/// Version 1 writes the largest number of pages, in bytes, for "no limit".
const UNLIMITED: u64 = 1 << 62;

impl Generation {
    /// The mount point in a line of mountinfo, if the line is of this generation.
    fn mounted_at(self, line: &str) -> Option<PathBuf> {
        let (before, after) = line.split_once(" - ")?;
        let (kind, options) = after.split_once(' ')?;
        let fits = match self {
            Self::V2 => kind == "cgroup2",
            Self::V1 => {
                kind == "cgroup" && options.rsplit([' ', ',']).any(|option| option == "memory")
            }
        };
        fits.then(|| before.split(' ').nth(4).map(PathBuf::from))?
    }
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

    const V2: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
    const V1: &str = "33 24 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";

    #[test]
    fn the_second_version_has_one_line() {
        let found = Controller::find("0::/a/b\n", V2).unwrap();
        assert_eq!(
            found,
            Controller {
                generation: Generation::V2,
                mount: "/sys/fs/cgroup".into(),
                group: "a/b".into()
            }
        );
    }

    #[test]
    fn the_first_version_counts_where_it_has_memory() {
        let groups = "5:cpu,memory:/job\n0::/other\n";
        let found = Controller::find(groups, &format!("{V2}\n{V1}")).unwrap();
        assert_eq!(
            (found.generation, found.mount),
            (Generation::V1, "/sys/fs/cgroup/memory".into())
        );
        assert_eq!(found.group, Path::new("job"));
    }

    #[test]
    fn without_groups_there_is_nothing() {
        assert_eq!(Controller::find("", V2), None);
        assert_eq!(Controller::find("0::/\n", ""), None);
        assert_eq!(missing("").value, "no memory controller");
        assert_eq!(missing("0::/\n").value, "not mounted");
    }
}
