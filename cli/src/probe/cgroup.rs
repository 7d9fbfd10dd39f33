//! The memory limits of this process's control group.

use crate::table::Finding;
use std::fs;
use std::path::{Path, PathBuf};

/// The findings.
pub fn findings() -> Vec<Finding> {
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
    let lines = || {
        groups.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?, fields.next()?))
        })
    };
    let v1 = lines().find(|(names, _)| names.split(',').any(|name| name == "memory"));
    let v2 = || lines().find(|(names, _)| names.is_empty());
    match v1 {
        Some((_, group)) => Some((Generation::V1, group)),
        None => v2().map(|(_, group)| (Generation::V2, group)),
    }
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
