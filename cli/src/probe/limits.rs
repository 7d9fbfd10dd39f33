//! Resource limits and memory pressure.

use crate::table::{Finding, State};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::mem;

/// The findings.
pub fn findings() -> Vec<Finding> {
    vec![
        limit(
            "RLIMIT_AS",
            libc::RLIMIT_AS,
            "all address space: arenas are cut to fit",
            "arenas may have full size",
        ),
        limit(
            "RLIMIT_DATA",
            libc::RLIMIT_DATA,
            "all private writable memory: malloc returns NULL beyond it",
            "heaps may grow",
        ),
        limit(
            "RLIMIT_MEMLOCK",
            libc::RLIMIT_MEMLOCK,
            "under mlockall, what is committed must fit",
            "mlockall may lock every page",
        ),
        pressure(),
    ]
}

fn limit(
    name: &'static str,
    resource: libc::__rlimit_resource_t,
    with: &str,
    without: &str,
) -> Finding {
    // SAFETY: rlimit is plain numbers, for which zero bytes are a value.
    let mut limit: libc::rlimit = unsafe { mem::zeroed() };
    // SAFETY: `limit` is a place for one rlimit.
    if unsafe { libc::getrlimit(resource, &raw mut limit) } != 0 {
        return Finding::new(
            name,
            State::Absent(io::Error::last_os_error().to_string()),
            "cannot be asked",
        );
    }
    match limit.rlim_cur {
        libc::RLIM_INFINITY => Finding::new(name, State::Is("unlimited".to_owned()), without),
        bytes => Finding::new(name, State::Is(format!("{} KiB", bytes / 1024)), with),
    }
}

/// Registers for notification of memory pressure, as the library does.
fn pressure() -> Finding {
    let tried = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/proc/pressure/memory")
        .and_then(|mut file| file.write_all(b"some 150000 2000000\0"));
    let (state, meaning) = match tried {
        Ok(()) => (
            State::Ok(String::new()),
            "a process can be told when memory grows short",
        ),
        Err(error) => (
            State::Absent(error.to_string()),
            "a process is not told when memory grows short",
        ),
    };
    Finding::new("pressure (PSI)", state, meaning)
}
