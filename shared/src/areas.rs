//! Where the memory of any process is, by the kernel's text about its mappings, `/proc/PID/smaps`.

use core::ops::Range;

/// What a mapping holds, as far as its name and its shape tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The heap that grows by `brk`: the main one of glibc's `malloc`.
    Heap,
    /// A further heap of glibc's `malloc`, for threads.
    Arena,
    /// Private memory without a name: large blocks of `malloc`, other allocators' memory, and what
    /// the program maps itself.
    Anonymous,
    /// Private memory that the program has named.
    Named,
    /// The stack of a thread.
    Stack,
    /// A mapped file: code, constants and data.
    File,
    /// Memory that processes can share.
    Shared,
    /// The kernel's.
    Other,
}

impl Place {
    /// All, in the order of the tables.
    pub const ALL: [Place; 8] = [
        Place::Heap,
        Place::Arena,
        Place::Anonymous,
        Place::Named,
        Place::Stack,
        Place::File,
        Place::Shared,
        Place::Other,
    ];

    /// A few words.
    pub const fn words(self) -> &'static str {
        match self {
            Place::Heap => "heap (brk)",
            Place::Arena => "glibc's thread heaps",
            Place::Anonymous => "anonymous memory",
            Place::Named => "named by the program",
            Place::Stack => "stacks",
            Place::File => "mapped files",
            Place::Shared => "shared memory",
            Place::Other => "other",
        }
    }

    /// Whether `malloc` may have mapped it.
    pub const fn may_be_mallocs(self) -> bool {
        matches!(self, Place::Heap | Place::Arena | Place::Anonymous)
    }
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Its addresses.
    pub range: Range<u64>,
    /// What it holds.
    pub place: Place,
    /// The kernel's name for it; may be empty.
    pub name: &'a str,
    /// Resident bytes.
    pub resident: u64,
    /// Resident bytes, where a page that several processes share counts in parts.
    pub proportional: u64,
    /// Bytes in swap.
    pub swapped: u64,
    /// Resident bytes in huge pages.
    pub huge: u64,
}

/// glibc maps further heaps at multiples of this, each at most as large. A mapping may hold
/// several, or other memory beside them.
pub const ARENA: u64 = 64 << 20;
/// Longer stacks of threads are not told from other memory by the guard below them.
const LONGEST_STACK: u64 = 8 << 20;

/// The mappings in the text of smaps. Lines that make no sense are left out.
pub fn mappings(smaps: &str) -> impl Iterator<Item = Mapping<'_>> {
    let mut lines = smaps.lines().peekable();
    // Where a mapping without access ends.
    let mut guard = 0;
    core::iter::from_fn(move || {
        let mut mapping = lines.by_ref().find_map(|line| header(line, &mut guard))?;
        while let Some(line) = lines.next_if(|line| range(line).is_none()) {
            let add = |name, figure: &mut u64| {
                *figure = figure.saturating_add(field(line, name).unwrap_or(0));
            };
            add("Rss:", &mut mapping.resident);
            add("Pss:", &mut mapping.proportional);
            add("Swap:", &mut mapping.swapped);
            add("AnonHugePages:", &mut mapping.huge);
        }
        Some(mapping)
    })
}

/// The mapping in its first line. `guard`: the end of the last one without access.
fn header<'a>(line: &'a str, guard: &mut u64) -> Option<Mapping<'a>> {
    let range = range(line)?;
    let mut words = line.splitn(6, ' ');
    let access = words.nth(1)?;
    let name = words.nth(3).unwrap_or_default().trim();
    let length = range.end.saturating_sub(range.start);
    let place = match name {
        "[heap]" => Place::Heap,
        "" if access.ends_with('s') => Place::Shared,
        "" if range.start % ARENA == 0 && length <= ARENA && access == "rw-p" => Place::Arena,
        "" if *guard == range.start && length <= LONGEST_STACK && access == "rw-p" => Place::Stack,
        "" => Place::Anonymous,
        name if name.starts_with("[stack") => Place::Stack,
        name if name.contains("stack") && name.starts_with("[anon:") => Place::Stack,
        name if name.starts_with("[anon: glibc: malloc arena") => Place::Arena,
        name if name.starts_with("[anon: glibc: malloc") => Place::Anonymous,
        name if name.starts_with("[anon:") => Place::Named,
        name if SHARED.iter().any(|start| name.starts_with(start)) => Place::Shared,
        name if name.starts_with('/') => Place::File,
        _ => Place::Other,
    };
    if access.starts_with("---") {
        *guard = range.end;
    }
    Some(Mapping {
        range,
        place,
        name,
        resident: 0,
        proportional: 0,
        swapped: 0,
        huge: 0,
    })
}

/// How the names of memory begin that processes can share.
const SHARED: [&str; 5] = ["/dev/shm/", "/memfd:", "/dev/zero", "/SYSV", "[anon_shmem:"];

/// The addresses at the beginning of a line of `maps` or `smaps`.
pub fn range(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let number = |word| u64::from_str_radix(word, 16).ok();
    Some(number(start)?..number(end)?)
}

/// `Rss:                 128 kB`, in bytes.
pub fn field(line: &str, name: &str) -> Option<u64> {
    let words = line.strip_prefix(name)?.trim();
    let kib: u64 = words.strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortened mappings of a Python service with threads.
    const SMAPS: &str = "\
55d0c000-55d0e000 r-xp 00001000 08:01 77   /usr/bin/python3.11
Rss:  8 kB\nPss:  2 kB
55d0f000-55d8f000 rw-p 00000000 00:00 0    [heap]
Size:  512 kB\nRss:  400 kB\nPss:  400 kB\nSwap:  4 kB
7f0004000000-7f0004221000 rw-p 00000000 00:00 0 \nRss:  2000 kB\nAnonHugePages:  2048 kB
7f0004221000-7f0008000000 ---p 00000000 00:00 0 \nRss:  0 kB
7f0010000000-7f0010001000 ---p 00000000 00:00 0 \nRss:  0 kB
7f0010001000-7f0010801000 rw-p 00000000 00:00 0 \nRss:  12 kB
7f0011000000-7f0011100000 rw-p 00000000 00:00 0 \nRss:  1024 kB
7f0012000000-7f0012100000 rw-p 00000000 00:00 0  [anon:cpython: pymalloc]\nRss:  16 kB
7f0013000000-7f0013100000 rw-s 00000000 00:01 5  /memfd:a b (deleted)\nRss:  20 kB
7ffd0000-7ffd1000 rw-p 00000000 00:00 0    [stack]\nRss:  24 kB
no mapping
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]\nRss:  4 kB
";

    #[test]
    fn mappings_are_told_by_their_names_and_shapes() {
        let places = mappings(SMAPS).filter(|mapping| mapping.resident > 0);
        let places: std::vec::Vec<_> = places.map(|one| (one.place, one.resident >> 10)).collect();
        let expected = [
            (Place::File, 8),
            (Place::Heap, 400),
            (Place::Arena, 2000),
            (Place::Stack, 12),
            (Place::Anonymous, 1024),
            (Place::Named, 16),
            (Place::Shared, 20),
            (Place::Stack, 24),
            (Place::Other, 4),
        ];
        assert_eq!(places, expected);
        let sum = |of: fn(Mapping) -> u64| mappings(SMAPS).map(of).sum::<u64>() >> 10;
        assert_eq!(sum(|one| one.swapped), 4);
        assert_eq!(
            (sum(|one| one.huge), sum(|one| one.proportional)),
            (2048, 402)
        );
    }

    #[test]
    fn text_that_makes_no_sense_has_no_mappings() {
        for text in [
            "",
            "\n\n",
            "Rss: 4 kB\n",
            "x-y rw-p",
            "1-2",
            "1-2 rw-p\nRss: -4 kB",
        ] {
            assert!(mappings(text).all(|one| one.resident == 0), "{text}");
        }
    }
}
