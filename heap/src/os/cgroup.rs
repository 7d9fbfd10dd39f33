//! The memory limits of the control group that the process is in, the memory pressure that the
//! kernel reports, and the inquiries that read them.
//!
//! Supports both versions of control groups: 2 with `memory.max` and `memory.high`, 1 with
//! `memory.limit_in_bytes`. A group's ancestors limit it as well, so the one with the least room
//! counts. A group's use is all that the kernel counts, except file pages on the kernel's lists and
//! reclaimable slabs, which the kernel drops by itself. Anonymous memory, `tmpfs`, memfds, locked
//! files and page tables are in use. See cgroups(7), and `Documentation/admin-guide/cgroup-v2.rst`
//! and `accounting/psi.rst` of the kernel.
//!
//! One thread at a time reads such a file. The kernel may take milliseconds to answer: for
//! `memory.stat` it sums up the counters of all processors. So the reader holds no lock meanwhile
//! that any thread or fork waits for. A child that is made meanwhile inherits the descriptor, which
//! `exec` closes.

use super::file::{self, OpenFile};
use super::lock::{FutexGuard, FutexLock, Rank};
use crate::os::areas::Late;
use bytemuck::Zeroable;
use core::ffi::CStr;

/// The limit that leaves a group the least room, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// Most that the group may use.
    pub limit: usize,
    /// What the group uses and the kernel cannot drop.
    pub used: usize,
}

impl GroupLimit {
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.used)
    }
}

/// Most bytes of a path of ours.
const PATH_BYTES: usize = 1024;
/// Most ancestors that are looked at.
const MOST_LEVELS: usize = 16;
/// A limit of version 1 from here on means none.
const NO_LIMIT: usize = 1 << 60;

/// Tasks are short of memory if they waited for it during this share of the last ten seconds, in
/// hundredths of a percent.
const SHORT: usize = 1000;
/// A machine has little memory left if less than this part of it is available.
const LITTLE_PART: usize = 16;

/// How Neap finds the groups of one version, and what their files are called.
struct Version {
    /// What stands before a group's path in `/proc/self/cgroup`: nothing in version 2.
    controller: &'static [u8],
    /// Where its groups are mounted on all known systems; mixed systems mount version 2 elsewhere.
    mounts: &'static [&'static [u8]],
    limits: &'static [&'static [u8]],
    /// The file that says what the group uses in total.
    used: &'static [u8],
    /// The lines of `memory.stat` that say how much of this use the kernel can drop.
    droppable: &'static [&'static [u8]],
}

const ONE: &Version = &Version {
    controller: b"memory",
    mounts: &[b"/sys/fs/cgroup/memory"],
    limits: &[b"/memory.limit_in_bytes"],
    used: b"/memory.usage_in_bytes",
    droppable: &[b"total_inactive_file ", b"total_active_file "],
};
const TWO: &Version = &Version {
    controller: b"",
    mounts: &[b"/sys/fs/cgroup", b"/sys/fs/cgroup/unified"],
    limits: &[b"/memory.max", b"/memory.high"],
    used: b"/memory.current",
    droppable: &[b"inactive_file ", b"active_file ", b"slab_reclaimable "],
};

/// Room to read and to build paths in. Not on the stack, because the caller's may be a coroutine's.
struct Work {
    group: [u8; 2048],
    path: [u8; PATH_BYTES],
    text: [u8; 4096],
}

// SAFETY: integers only, and 0 is a value of each.
unsafe impl Zeroable for Work {}

/// guarded by: the [`Inquiry`]
static WORK: Late<Work> = Late::new();

/// Reads the files of an inquiry.
struct Desk<'a> {
    inquiry: &'a Inquiry,
    path: &'a mut [u8; PATH_BYTES],
    text: &'a mut [u8],
}

impl<'a> Desk<'a> {
    /// A desk, and room for the text that names the process's groups. `None` if there is no memory
    /// for them.
    fn open(inquiry: &'a mut Inquiry) -> Option<(Self, &'a mut [u8])> {
        // SAFETY: one thread has the inquiry, of which this is the only borrow.
        let Work { group, path, text } = unsafe { WORK.open()?.as_mut() };
        let desk = Desk {
            inquiry,
            path,
            text,
        };
        Some((desk, group))
    }

    fn read(&mut self, path: &[&[u8]]) -> Option<&[u8]> {
        let read = self.inquiry.read(joined(self.path, path)?, self.text)?;
        Some(&self.text[..read])
    }

    /// Whether a file exists whose text is `wanted`.
    fn has(&mut self, path: &[&[u8]], wanted: fn(&[u8]) -> bool) -> bool {
        self.read(path).is_some_and(wanted)
    }
}

/// A path of these parts; `None` if they are too long.
fn joined<'r>(room: &'r mut [u8; PATH_BYTES], parts: &[&[u8]]) -> Option<&'r CStr> {
    let mut len = 0;
    for part in parts {
        let end = len + part.len();
        room[..PATH_BYTES - 1]
            .get_mut(len..end)?
            .copy_from_slice(part);
        len = end;
    }
    room[len] = 0;
    CStr::from_bytes_until_nul(room).ok()
}

/// The limit cannot be determined now, for example because the process has no descriptor left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered;

/// The limit that leaves the process's group the least room; `None` when there is no limit.
pub fn group_limit(inquiry: &mut Inquiry) -> Result<Option<GroupLimit>, Unanswered> {
    let (mut desk, group) = Desk::open(inquiry).ok_or(Unanswered)?;
    let read = desk.inquiry.read(GROUPS, group).ok_or(Unanswered)?;
    let mut tightest = |version| tightest(version, group_in(&group[..read], version)?, &mut desk);
    let limits = [tightest(TWO), tightest(ONE)];
    Ok(limits.into_iter().flatten().min_by_key(GroupLimit::room))
}

/// Names the process's groups.
const GROUPS: &CStr = c"/proc/self/cgroup";

/// The group's path in `/proc/self/cgroup`: lines of `number:controllers:path`, version 2 without
/// controllers.
fn group_in<'t>(text: &'t [u8], version: &Version) -> Option<&'t [u8]> {
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(3, |&byte| byte == b':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let mut names = controllers.split(|&byte| byte == b',');
        let ours = names.any(|name| name == version.controller);
        ours.then_some(path)
    })
}

/// The tightest limit of a group and its ancestors.
fn tightest(version: &Version, group: &[u8], desk: &mut Desk<'_>) -> Option<GroupLimit> {
    let mut of_mount = |mount: &&[u8]| {
        levels(group)
            .take(MOST_LEVELS)
            .filter_map(|level| limit_at(version, [mount, level], desk))
            .min_by_key(GroupLimit::room)
    };
    version.mounts.iter().find_map(&mut of_mount)
}

/// A group's path, then its ancestors', up to the root, which is empty.
fn levels(group: &[u8]) -> impl Iterator<Item = &[u8]> {
    let first = group.strip_suffix(b"/").unwrap_or(group);
    core::iter::successors(Some(first), |path| {
        let slash = path.iter().rposition(|&byte| byte == b'/')?;
        Some(&path[..slash])
    })
}

fn limit_at(
    version: &Version,
    [mount, level]: [&[u8]; 2],
    desk: &mut Desk<'_>,
) -> Option<GroupLimit> {
    let mut number_in = |name: &&[u8]| number(desk.read(&[mount, level, name])?);
    let limit = version.limits.iter().filter_map(&mut number_in).min()?;
    if limit >= NO_LIMIT {
        return None;
    }
    let used = number_in(&version.used)?;
    let figures = desk.read(&[mount, level, b"/memory.stat"])?;
    Some(GroupLimit {
        limit,
        used: used.saturating_sub(droppable_in(figures, version)),
    })
}

/// How much of what a group uses the kernel can drop.
fn droppable_in(figures: &[u8], version: &Version) -> usize {
    let lines = version.droppable.iter();
    lines
        .filter_map(|name| line_of(figures, name).and_then(number))
        .sum()
}

/// What follows `name` in the line that begins with it.
fn line_of<'t>(text: &'t [u8], name: &[u8]) -> Option<&'t [u8]> {
    text.split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(name))
}

/// The number that a text begins with; `None` for anything else, as `max`.
fn number(text: &[u8]) -> Option<usize> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    core::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

/// Whether the process is short of memory: tasks wait for it, and either the machine has little
/// left or the tasks belong to the process's own group (of version 2). Otherwise other groups have
/// reached their own limits.
pub fn is_short_of_memory(inquiry: &mut Inquiry) -> bool {
    let Some((mut desk, group)) = Desk::open(inquiry) else {
        return false;
    };
    // The machine's pressure includes that of every group.
    if !desk.has(&[b"/proc/pressure/memory"], is_stalled) {
        return false;
    }
    desk.has(&[b"/proc/meminfo"], has_little_left)
        || (desk.inquiry.read(GROUPS, group))
            .and_then(|read| group_in(&group[..read], TWO))
            .is_some_and(|own| is_group_stalled(own, &mut desk))
}

/// Whether tasks of a group of version 2 wait for memory. Excludes the root group, which stands for
/// the whole machine and is the only one without `cgroup.events`.
fn is_group_stalled(group: &[u8], desk: &mut Desk<'_>) -> bool {
    let group = group.strip_suffix(b"/").unwrap_or(group);
    TWO.mounts.iter().any(|mount| {
        desk.read(&[mount, group, b"/cgroup.events"]).is_some()
            && desk.has(&[mount, group, b"/memory.pressure"], is_stalled)
    })
}

/// Whether the text of a pressure file reports that tasks wait for much of the time.
fn is_stalled(text: &[u8]) -> bool {
    pressure_in(text).is_some_and(|share| share >= SHORT)
}

/// Whether `/proc/meminfo` reports little memory that is available without swapping.
fn has_little_left(text: &[u8]) -> bool {
    let kib = |name| number(line_of(text, name)?.trim_ascii_start());
    match (kib(b"MemTotal:"), kib(b"MemAvailable:")) {
        (Some(all), Some(available)) => available < all / LITTLE_PART,
        _ => false,
    }
}

/// How much of the last ten seconds some task waited for memory, in hundredths of a percent.
fn pressure_in(text: &[u8]) -> Option<usize> {
    let average = line_of(text, b"some avg10=")?;
    let whole = number(average)?;
    let point = average.iter().position(|&byte| byte == b'.')?;
    let hundredths = number(average.get(point + 1..point + 3)?)?;
    Some(whole * 100 + hundredths)
}

/// Held by the thread that asks. No thread waits for it.
#[unsafe(link_section = "neap_fork")]
static ASKING: FutexLock = FutexLock::new(Rank::Apart);

/// The right to ask.
#[derive(Debug)]
pub struct Inquiry {
    _guard: FutexGuard<'static>,
}

impl Inquiry {
    /// `None` while another thread asks, or an interrupted call of this one.
    pub fn begin() -> Option<Inquiry> {
        ASKING.try_lock().map(|guard| Inquiry { _guard: guard })
    }

    /// Reads a small file into `buffer`. Returns the number of bytes read, or `None` if the file
    /// cannot be opened or read now.
    pub fn read(&self, path: &CStr, buffer: &mut [u8]) -> Option<usize> {
        let file = OpenFile::of(file::open_read(path)?)?;
        let read = file::read_some(file.descriptor, buffer);
        file.close();
        read
    }
}

/// In a fork's child: ends the inquiry of a thread that stayed in the parent.
pub fn end_inherited() {
    ASKING.free_if_left();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::cgroup::end_inherited;
    use crate::os::child::{Limit, succeeds};
    use std::vec::Vec;

    const MIXED: &[u8] = b"5:cpu,cpuacct:/a\n4:memory:/box/1\n0::/slice/app.scope\n";

    #[test]
    fn groups_are_found_by_version() {
        assert_eq!(group_in(MIXED, ONE), Some(&b"/box/1"[..]));
        assert_eq!(group_in(MIXED, TWO), Some(&b"/slice/app.scope"[..]));
        assert_eq!(group_in(b"0::/\n", ONE), None);
    }

    #[test]
    fn levels_go_up_to_the_root() {
        let up = |path: &'static [u8]| levels(path).collect::<Vec<_>>();
        assert_eq!(up(b"/a/b"), [&b"/a/b"[..], b"/a", b""]);
        assert_eq!(up(b"/"), [&b""[..]]);
    }

    #[test]
    fn numbers_and_lines_are_read() {
        assert_eq!(number(b"1048576\n"), Some(1 << 20));
        assert_eq!(number(b"max\n"), None);
        assert_eq!(line_of(b"file 1\nanon 77\n", b"anon "), Some(&b"77"[..]));
    }

    #[test]
    fn files_that_the_kernel_can_drop_are_not_in_use() {
        let two = b"anon 900\nfile 70\nshmem 30\ninactive_anon 900\nactive_anon 4\n\
            inactive_file 20\nactive_file 10\nslab_reclaimable 5\n";
        assert_eq!(droppable_in(two, TWO), 35);
        let one = b"cache 50\ninactive_file 9\ntotal_cache 70\ntotal_shmem 30\n\
            total_inactive_file 20\ntotal_active_file 10\n";
        assert_eq!(droppable_in(one, ONE), 30);
    }

    #[test]
    fn pressure_is_in_hundredths_of_a_percent() {
        let text =
            b"some avg10=12.05 avg60=1.35 avg300=30.06 total=528116587\nfull avg10=0.00 avg60=0\n";
        assert_eq!(pressure_in(text), Some(1205));
        assert_eq!(pressure_in(b"nothing"), None);
    }

    #[test]
    fn little_memory_is_left_below_a_sixteenth() {
        let text =
            |kib| std::format!("MemTotal:  1600 kB\nMemFree: 5 kB\nMemAvailable:  {kib} kB\n");
        assert!(has_little_left(text(99).as_bytes()));
        assert!(!has_little_left(text(100).as_bytes()));
        assert!(!has_little_left(b"MemTotal: 1600 kB\n"));
    }

    #[test]
    fn what_the_kernel_says_makes_sense() {
        let mut inquiry = Inquiry::begin().expect("no other test asks");
        if let Ok(Some(told)) = group_limit(&mut inquiry) {
            assert!(told.limit > 0 && told.used > 0);
        }
        let mut text = [0; 256];
        if let Some(read) = inquiry.read(c"/proc/pressure/memory", &mut text) {
            assert!(pressure_in(&text[..read]).is_some_and(|share| share <= 10_000));
        }
        let read = inquiry.read(c"/proc/meminfo", &mut text);
        assert!(line_of(&text[..read.unwrap()], b"MemAvailable:").is_some());
    }

    #[test]
    fn without_a_descriptor_nothing_is_known() {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        assert!(succeeds(Limit::None, || {
            // SAFETY: reads one structure of ours; the child is on its own.
            let limited = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) } == 0;
            end_inherited();
            let inquiry = Inquiry::begin();
            limited
                && inquiry.is_some_and(|mut inquiry| group_limit(&mut inquiry) == Err(Unanswered))
        }));
    }

    #[test]
    fn a_path_too_long_is_no_path() {
        let mut path = [0; PATH_BYTES];
        let mut set = |parts: &[&[u8]]| joined(&mut path, parts).map(CStr::to_owned);
        assert!(set(&[&[b'a'; 1000], &[b'b'; 23]]).is_some());
        assert!(set(&[&[b'a'; 1000], &[b'b'; 24]]).is_none());
        assert_eq!(set(&[b"/a", b"/b"]).as_deref(), Some(c"/a/b"));
    }
}
