//! Determines which malloc a process really uses. A preload that fails prints one line to stderr
//! and exits with 0, so every run is checked.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::work::heap;

/// The file that contains this process's malloc and free.
///
/// # Errors
/// If they come from two files, or /proc cannot be read.
pub fn own_heap() -> anyhow::Result<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").context("cannot read /proc/self/maps")?;
    let home = |name: &CStr| {
        let address = heap::symbol(name).with_context(|| format!("no {name:?} in this process"))?;
        file_at(&maps, address as usize).with_context(|| format!("{name:?} lies in no mapped file"))
    };
    let malloc = home(c"malloc")?;
    for other in [c"free", c"calloc", c"realloc"] {
        let file = home(other)?;
        ensure!(
            file == malloc,
            "malloc is in {malloc:?}, {other:?} in {file:?}"
        );
    }
    Ok(malloc)
}

/// The file in the line of /proc/PID/maps that contains `address`.
fn file_at(maps: &str, address: usize) -> Option<PathBuf> {
    maps.lines().find_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        let path = line.find('/').map(|at| PathBuf::from(&line[at..]))?;
        range.contains(&address).then_some(path)
    })
}

/// Fails unless `found` is the file `expected`, after resolving symbolic links.
///
/// # Errors
/// If they are two files.
pub fn ensure_same(found: &Path, expected: &Path) -> anyhow::Result<()> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    ensure!(
        real(found) == real(expected),
        "the process uses the malloc of {found:?}, not of {expected:?}"
    );
    Ok(())
}

/// Fails unless the dynamic loader binds the malloc of `program` to `library` when that is
/// preloaded. `program` must end by itself.
///
/// # Errors
/// If it binds to another file, or the loader does not report the binding.
pub fn ensure_bound(program: &mut Command, library: &Path) -> anyhow::Result<()> {
    let output = program
        .env("LD_PRELOAD", library)
        .env("LD_BIND_NOW", "1")
        .env("LD_DEBUG", "bindings")
        .output()
        .with_context(|| format!("cannot run {program:?}"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    let Some(found) = bound_to(&log, Path::new(program.get_program())) else {
        bail!("the dynamic loader says nothing about malloc in {program:?}");
    };
    ensure_same(Path::new(found), library)
}

/// The file whose malloc `program` calls, from the loader's `log`. If a program takes malloc's
/// address, all references resolve to a stub in the program (Debian's python3). Another line then
/// tells where the stub leads.
fn bound_to<'a>(log: &'a str, program: &Path) -> Option<&'a str> {
    let mut targets = log.lines().filter_map(malloc_target);
    targets.find(|target| Path::new(target) != program)
}

/// The target in `binding file A [0] to B [0]: normal symbol `malloc'`.
fn malloc_target(line: &str) -> Option<&str> {
    let rest = line.split_once("binding file ")?.1;
    let (_, target) = rest.split_once(" to ")?;
    let (file, symbol) = target.split_once(" [0]: ")?;
    symbol.contains("symbol `malloc'").then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
7f0000000000-7f0000001000 r-xp 00000000 08:01 11 /usr/lib/a b/libone.so.1
7f0000002000-7f0000003000 rw-p 00000000 00:00 0
";

    #[test]
    fn maps_name_the_file_of_an_address() {
        let one = PathBuf::from("/usr/lib/a b/libone.so.1");
        assert_eq!(file_at(MAPS, 0x7f00_0000_0800), Some(one));
        assert_eq!(file_at(MAPS, 0x7f00_0000_1000), None);
        assert_eq!(file_at(MAPS, 0x7f00_0000_2800), None);
    }

    #[test]
    fn this_process_uses_the_c_library_and_nothing_else() {
        let file = own_heap().unwrap();
        assert!(file.to_string_lossy().contains("libc"), "{file:?}");
        assert!(ensure_same(&file, &file).is_ok());
        let wrong = ensure_same(&file, Path::new("/nowhere/libjemalloc.so.2")).unwrap_err();
        assert!(wrong.to_string().contains("libjemalloc"), "{wrong}");
    }

    #[test]
    fn the_loaders_log_is_understood() {
        let line = "  77:\tbinding file /bin/x [0] to /lib/libc.so.6 [0]: normal symbol `malloc' \
            [GLIBC_2.2.5]";
        assert_eq!(malloc_target(line), Some("/lib/libc.so.6"));
        assert_eq!(malloc_target(&line.replace("malloc", "malloc_trim")), None);
    }

    #[test]
    fn a_stub_that_a_program_lends_is_not_its_malloc() {
        let line =
            |from, to| format!("binding file {from} [0] to {to} [0]: normal symbol `malloc'\n");
        let log = line("/lib/libc.so.6", "/bin/x") + &line("/bin/x", "/lib/one.so");
        assert_eq!(bound_to(&log, Path::new("/bin/x")), Some("/lib/one.so"));
        assert_eq!(bound_to(&log, Path::new("/bin/y")), Some("/bin/x"));
    }
}
