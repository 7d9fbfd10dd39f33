//! Which library's malloc the processes of a run use, judged from outside.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use super::tree::{files, maps, proportional_bytes};

/// Parts of allocators' file names.
const LIBRARIES: [&str; 6] = [
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libsnmalloc",
    "librpmalloc",
    "libneap",
];

/// A text in programs that have jemalloc linked in, as some Rust programs do. There is no such text
/// for mimalloc: CPython contains it without using it.
const JEMALLOC: &[u8] = b"<jemalloc>";

/// Why the processes do not show what the allocator does; `None` if they do. `is_own`: the
/// allocator is the C library, beside which no other may be mapped.
pub fn objection(processes: &[u32], is_own: bool) -> Option<String> {
    if processes.is_empty() {
        return Some("the library is mapped in no process of the subject".into());
    }
    let of_process = |&id: &u32| {
        let maps = maps(id)?;
        let other = is_own.then(|| other_library(&maps)).flatten();
        other
            .map(|file| format!("it has mapped {file}"))
            .or_else(|| linked(&fs::read_link(format!("/proc/{id}/exe")).ok()?))
    };
    processes.iter().find_map(of_process)
}

/// A process without the allocator may be a helper, such as a shell. The most bytes of a helper.
const HELPER_BYTES: u64 = 8 << 20;

/// Why processes that did not map the allocator matter; `None` if they are small.
pub fn stranger(processes: &[u32]) -> Option<String> {
    processes.iter().find_map(|&id| {
        let bytes = proportional_bytes(id);
        let name = fs::read_to_string(format!("/proc/{id}/comm")).ok()?;
        (bytes > HELPER_BYTES).then(|| {
            let megabytes = bytes / 1_000_000;
            format!(
                "{} holds {megabytes} MB without the library",
                name.trim_end()
            )
        })
    })
}

fn other_library(maps: &str) -> Option<String> {
    let mut names = files(maps).filter_map(|file| file.rsplit('/').next());
    let is_one = |name: &&str| LIBRARIES.iter().any(|part| name.starts_with(part));
    names.find(is_one).map(str::to_string)
}

/// The allocator that is linked into a program; each file is read once.
fn linked(program: &PathBuf) -> Option<String> {
    static KNOWN: Mutex<Option<HashMap<PathBuf, bool>>> = Mutex::new(None);
    let mut known = KNOWN.lock().ok()?;
    let has_it = *known
        .get_or_insert_default()
        .entry(program.clone())
        .or_insert_with(|| {
            let bytes = fs::read(program).unwrap_or_default();
            bytes.windows(JEMALLOC.len()).any(|part| part == JEMALLOC)
        });
    has_it.then(|| format!("{} has jemalloc linked in", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_allocator_is_an_objection_and_none_is_none() {
        let maps = "7f00-7f01 r-xp 0 08:01 1 /usr/lib/libc.so.6\n";
        assert_eq!(other_library(maps), None);
        let other = format!("{maps}7f02-7f03 r-xp 0 08:01 1 /usr/lib/libjemalloc.so.2\n");
        assert_eq!(other_library(&other).unwrap(), "libjemalloc.so.2");
        assert!(objection(&[], true).is_some());
        let held = vec![7u8; 2 * HELPER_BYTES as usize];
        let told = stranger(&[std::process::id()]).unwrap();
        assert!(told.ends_with("without the library"), "{told}");
        assert_eq!(held[held.len() / 2], 7);
        assert_eq!(stranger(&[]), None);
        assert_eq!(linked(&"/bin/sh".into()), None);
        let file = std::env::temp_dir().join(format!("neap-case-mark-{}", std::process::id()));
        fs::write(&file, b"\x7fELF <jemalloc>: %s").unwrap();
        assert!(linked(&file).unwrap().ends_with("has jemalloc linked in"));
        fs::remove_file(file).unwrap();
    }
}
