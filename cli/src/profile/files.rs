//! Where the file of a mapping can be read: it may be gone, replaced, or in another mount namespace.

use super::maps::Mapped;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is known about the process whose files are looked for.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Its number; it may have ended, and another process may have the number now.
    pub pid: u32,
    /// When its mappings were written down, in ms since 1970.
    pub began_ms: u64,
}

impl Origin {
    /// A path to the very file that is mapped, or none.
    pub fn file(self, mapped: &Mapped) -> Option<PathBuf> {
        let same = |path: &PathBuf| regular(path).is_some_and(|found| found.ino() == mapped.inode);
        let here = PathBuf::from(&mapped.mapping.path);
        let there = self.there(mapped);
        // The link leads to files without a name, too, for those who may follow it.
        let (start, end) = (mapped.mapping.start, mapped.mapping.end);
        let link = PathBuf::from(format!("/proc/{}/map_files/{start:x}-{end:x}", self.pid));
        let found = [&here, &there, &link].into_iter().find(|path| same(path));
        match found {
            Some(path) => Some(path.clone()),
            None => self.unchanged(mapped, here, there),
        }
    }

    /// The path as the process sees it.
    fn there(self, mapped: &Mapped) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.pid, mapped.mapping.path))
    }

    /// Some file systems number a file otherwise in `maps` than in `stat`. A file that had its name when the mappings
    /// were written down, and did not change since, is the one.
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

/// The names in a region are the process's: a device or a pipe must not be opened.
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
