//! The executable mappings of a process, parsed from the lines of `/proc/PID/maps` in a region.

use super::model::Mapping;

/// Mappings, sorted by address.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    mapped: Vec<Mapped>,
}

/// One mapping of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// The profile's view of it.
    pub mapping: Mapping,
    /// The file's inode number.
    pub inode: u64,
    /// The file was deleted, or another file has its name now.
    pub deleted: bool,
}

/// The kernel appends this to the name of a deleted file.
const DELETED: &str = " (deleted)";

impl Maps {
    /// The file mappings; malformed lines are skipped.
    pub fn parse(text: &str) -> Self {
        let mut mapped: Vec<Mapped> = text.lines().filter_map(line).collect();
        mapped.sort_by_key(|mapped| mapped.mapping.start);
        Self { mapped }
    }

    /// The mapping that contains an address.
    pub fn of(&self, address: u64) -> Option<(usize, &Mapped)> {
        let after = self
            .mapped
            .partition_point(|mapped| mapped.mapping.start <= address);
        let index = after.checked_sub(1)?;
        let mapped = &self.mapped[index];
        (address < mapped.mapping.end).then_some((index, mapped))
    }

    /// All mappings, sorted by address.
    pub fn all(&self) -> &[Mapped] {
        &self.mapped
    }
}

/// Parses `start-end rights offset device inode   path`; `None` unless it maps a file.
fn line(line: &str) -> Option<Mapped> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let mut words = rest.splitn(5, ' ');
    let _rights = words.next()?;
    let offset = hexadecimal(words.next()?)?;
    let _device = words.next()?;
    let inode = words.next()?.parse().ok()?;
    let path = words.next()?.trim_start();
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    let deleted = path.ends_with(DELETED);
    (path.starts_with('/') && start < end).then(|| Mapped {
        mapping: Mapping {
            start,
            end,
            offset,
            path: path.strip_suffix(DELETED).unwrap_or(path).to_owned(),
            build_id: String::new(),
        },
        inode,
        deleted,
    })
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
7f0000002000-7f0000003000 r-xp 00002000 08:01 77                         /usr/lib/a b.so (deleted)
00400000-00401000 r-xp 00001000 08:01 12                                 /bin/program
7f0000004000-7f0000005000 r-xp 00000000 00:00 0
7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0                          [vdso]
zzz
9-8 r-xp 00000000 08:01 12 /backwards
";

    #[test]
    fn files_are_found_by_address() {
        let maps = Maps::parse(TEXT);
        assert_eq!(maps.all().len(), 2);
        let (index, mapped) = maps.of(0x7f00_0000_2fff).unwrap();
        assert_eq!((index, mapped.inode, mapped.deleted), (1, 77, true));
        assert_eq!(mapped.mapping.path, "/usr/lib/a b.so");
        assert_eq!(maps.of(0x40_0000).unwrap().1.mapping.offset, 0x1000);
        assert!(maps.of(0x40_1000).is_none());
        assert!(maps.of(0).is_none());
    }
}
