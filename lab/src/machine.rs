//! The kernel's data about this machine and this process.

use std::fs;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;

use crate::command::{finished, of_words};

/// The machine, for the head of every record.
pub fn describe() -> Vec<(&'static str, String)> {
    let known = |value: Option<String>| value.unwrap_or_else(|| "unknown".into());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let huge_pages = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
    vec![
        ("processor", known(field_of("/proc/cpuinfo", "model name"))),
        ("cores", cores.to_string()),
        ("memory", known(field_of("/proc/meminfo", "MemTotal"))),
        ("kernel", first_line("/proc/sys/kernel/osrelease")),
        ("thp", huge_pages),
        ("glibc", glibc_version()),
    ]
}

/// The version of the C library of this process.
pub fn glibc_version() -> String {
    // SAFETY: the function has no precondition and returns a static C string.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_string_lossy().into_owned()
}

/// The first line of a file in /proc or /sys; `unknown` if it cannot be read.
pub fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_string()
}

/// The value of `name` in a file of `name: value` lines.
pub fn field_of(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_string())
    })
}

/// The KiB of `name` in a file of `name: N kB` lines.
pub fn kib_of(path: &str, name: &str) -> Option<u64> {
    field_of(path, name)?
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()
}

/// Resident bytes of process `who`, a PID or `self`, read without disturbing it.
///
/// # Errors
/// If /proc cannot be read.
pub fn resident_bytes(who: &str) -> anyhow::Result<u64> {
    let kib = kib_of(&format!("/proc/{who}/smaps_rollup"), "Rss")
        .or_else(|| kib_of(&format!("/proc/{who}/status"), "VmRSS"));
    Ok(kib.with_context(|| format!("cannot read the resident size in /proc/{who}"))? * 1_024)
}

/// Resident KiB of process `who`, a PID or `self`: the second figure of its statm, which is cheap
/// enough to read many times per second.
///
/// # Errors
/// If /proc cannot be read.
pub fn resident_kib(who: &str) -> anyhow::Result<u64> {
    let statm = fs::read_to_string(format!("/proc/{who}/statm"))?;
    let pages = statm.split_whitespace().nth(1).context("a short statm")?;
    Ok(pages.parse::<u64>()? * crate::pagemap::page_size() / 1_024)
}

/// KiB of page tables of process `pid`.
///
/// # Errors
/// If /proc cannot be read.
pub fn tables_kib(pid: u32) -> anyhow::Result<u64> {
    kib_of(&format!("/proc/{pid}/status"), "VmPTE").context("cannot read VmPTE in /proc")
}

/// Peak resident KiB of process `pid` since its exec.
///
/// # Errors
/// If /proc cannot be read.
pub fn peak_resident_kib(pid: u32) -> anyhow::Result<u64> {
    kib_of(&format!("/proc/{pid}/status"), "VmHWM").context("cannot read VmHWM in /proc")
}

/// Minor and major page faults of process `pid` so far.
///
/// # Errors
/// If /proc cannot be read.
pub fn faults(pid: u32) -> anyhow::Result<(u64, u64)> {
    let stat = procfs::process::Process::new(pid as i32)?.stat()?;
    Ok((stat.minflt, stat.majflt))
}

/// What this process has used so far; does not allocate.
pub fn own_usage() -> libc::rusage {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is the one that the call fills in.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    usage
}

/// Minor and major page faults of this process so far; does not allocate.
pub fn own_faults() -> (u64, u64) {
    let usage = own_usage();
    (usage.ru_minflt as u64, usage.ru_majflt as u64)
}

/// The processor time in such a report.
pub fn processor_time(usage: &libc::rusage) -> Duration {
    let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, 1_000 * time.tv_usec as u32);
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// Bytes that this process can still use without swapping: the kernel's estimate, or a lower limit
/// of the cgroup.
///
/// # Errors
/// If /proc cannot be read.
pub fn available_bytes() -> anyhow::Result<u64> {
    let kib = kib_of("/proc/meminfo", "MemAvailable").context("no MemAvailable")?;
    let number =
        |file: &str| -> Option<u64> { first_line(&format!("/sys/fs/cgroup/{file}")).parse().ok() };
    let of_group =
        number("memory.max").map(|most| most.saturating_sub(number("memory.current").unwrap_or(0)));
    Ok((kib * 1_024).min(of_group.unwrap_or(u64::MAX)))
}

/// Today in UTC as `YYYY-MM-DD`.
pub fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.split('T').next().unwrap_or_default().to_string()
}

/// The git revision of the sources of this binary, with `-dirty` if they were modified.
pub fn revision() -> String {
    let mut git = of_words("git describe --always --dirty --abbrev=12");
    let told = finished(git.current_dir(env!("CARGO_MANIFEST_DIR")));
    told.map_or("unknown".into(), |told| told.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_size_a_peak_and_faults() {
        let me = std::process::id();
        let resident = resident_bytes("self").unwrap();
        let peak = peak_resident_kib(me).unwrap() * 1_024;
        assert!(
            resident > 100_000 && peak + (1 << 20) >= resident,
            "{resident} {peak}"
        );
        assert!(faults(me).unwrap().0 > 0);
        assert!(resident_kib("self").unwrap() > 100 && tables_kib(me).unwrap() > 4);
    }

    #[test]
    fn the_machine_has_all_its_lines() {
        let lines = describe();
        assert!(
            lines.iter().all(|(_, value)| !value.is_empty()),
            "{lines:?}"
        );
    }
}
