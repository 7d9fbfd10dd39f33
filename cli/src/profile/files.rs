//! Finds a readable path to a mapping's file, which may be deleted, replaced, or in another mount
//! namespace.

use super::maps::Mapped;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The process whose files are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Its PID. The process may have ended, and another process may have reused the PID.
    pub pid: u32,
    /// When its mappings were recorded, in ms since 1970.
    pub began_ms: u64,
}

impl Origin {
    /// A path to exactly the mapped file, if there is one.
    pub fn file(self, mapped: &Mapped) -> Option<PathBuf> {
        let same = |path: &PathBuf| regular(path).is_some_and(|found| found.ino() == mapped.inode);
        let here = PathBuf::from(&mapped.mapping.path);
        let there = self.there(mapped);
        // For users who may follow it, the link leads even to deleted files.
        let (start, end) = (mapped.mapping.start, mapped.mapping.end);
        let link = PathBuf::from(format!("/proc/{}/map_files/{start:x}-{end:x}", self.pid));
        let found = [&here, &there, &link].into_iter().find(|path| same(path));
        match found {
            Some(path) => Some(path.clone()),
            None => self.unchanged(mapped, here, there),
        }
    }

    /// The path from the process's point of view.
    fn there(self, mapped: &Mapped) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.pid, mapped.mapping.path))
    }

    /// Some file systems report different inode numbers in `maps` and in `stat`. A file that had
    /// this name when the mappings were recorded, and has not changed since, is the mapped one.
    fn unchanged(self, mapped: &Mapped, here: PathBuf, there: PathBuf) -> Option<PathBuf> {
        let alive = Path::new(&format!("/proc/{}/root", self.pid)).exists();
        let path = if alive { there } else { here };
        let changed_ms = |found: Metadata| found.ctime().saturating_mul(1000);
        let old = regular(&path)
            .and_then(|found| u64::try_from(changed_ms(found)).ok())
            .is_some_and(|changed| changed < self.began_ms);
        (old && !mapped.deleted).then_some(path)
    }
}

/// The process chose the names in its region, so a device or a pipe must not be opened.
fn regular(path: &Path) -> Option<Metadata> {
    fs::metadata(path).ok().filter(Metadata::is_file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::model::Mapping;

    fn mapped(path: &Path, inode: u64, deleted: bool) -> Mapped {
        Mapped {
            mapping: Mapping {
                start: 0x1000,
                end: 0x2000,
                path: path.to_str().unwrap().to_owned(),
                ..Mapping::default()
            },
            inode,
            deleted,
        }
    }

    #[test]
    fn only_the_same_file_is_taken() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inode = file.path().metadata().unwrap().ino();
        let pid = std::process::id();
        let early = Origin { pid, began_ms: 1 };
        let late = Origin {
            pid,
            began_ms: u64::MAX,
        };
        let found =
            |origin: Origin, inode, deleted| origin.file(&mapped(file.path(), inode, deleted));
        assert_eq!(found(early, inode, false).as_deref(), Some(file.path()));
        assert_eq!(found(early, inode + 1, false), None);
        assert_eq!(found(late, inode + 1, true), None);
        let root = PathBuf::from(format!("/proc/{pid}/root{}", file.path().display()));
        assert_eq!(found(late, inode + 1, false), Some(root));
    }

    #[test]
    fn devices_are_not_opened() {
        let null = Path::new("/dev/null");
        let inode = null.metadata().unwrap().ino();
        let origin = Origin {
            pid: std::process::id(),
            began_ms: u64::MAX,
        };
        assert_eq!(origin.file(&mapped(null, inode, false)), None);
    }
}
