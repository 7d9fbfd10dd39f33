//! Which pages of a block were written, according to the kernel. Shows how many bytes a `calloc`
//! zeroed itself.
//!
//! Userfaultfd's asynchronous write protection (Linux 6.7) marks pages. A write removes the mark
//! without stopping its thread, and `PAGEMAP_SCAN` lists the populated pages without the mark. Only
//! populated pages are marked. A mark on an unpopulated page would itself be an entry of the page
//! table, which an allocator that asks the kernel sees as a swapped page.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, ensure};
use neap_shared::userfaultfd;

use crate::pagemap::{PageMap, Wanted, page_size};

/// The features that marks need: the flag in a fault, unpopulated pages, no stop at a write.
const ASYNCHRONOUS_MARKS: u64 = userfaultfd::KNOWS_WRITES | 1 << 13 | 1 << 15;

const HUGE_PAGE: u64 = 2 << 20;

/// Memory straight from the kernel, unmapped when dropped.
struct Mapping {
    start: *mut u8,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> anyhow::Result<Mapping> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, kind, -1, 0) };
        ensure!(start != libc::MAP_FAILED, "no {len} bytes from the kernel");
        let start = start.cast();
        Ok(Mapping { start, len })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has `len` bytes, and writers hold it exclusively.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has `len` bytes, and is held exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it, and it is being dropped.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Room for the text of /proc/self/maps.
const MAPS_LEN: usize = 1 << 20;

/// A watch over private anonymous memory of this process. Memory mapped after its start needs no
/// marks: all its populated pages were written (or prefaulted) since.
pub struct Watch {
    pagemap: PageMap,
    /// Closing it removes all marks.
    marks: OwnedFd,
    /// Buffer for the maps, outside the heap under watch.
    maps: Mapping,
}

impl Watch {
    /// Prepares a watch.
    ///
    /// # Errors
    /// If this kernel has no marks, or refuses them.
    pub fn prepare() -> anyhow::Result<Watch> {
        Ok(Watch {
            pagemap: PageMap::open()?,
            marks: descriptor()?,
            maps: Mapping::new(MAPS_LEN)?,
        })
    }

    /// Starts: marks all pages populated now. It leaves the heap alone, so that the next block is
    /// the one that it would have been. From here on the kernel makes no new huge page, because the
    /// first byte written to one populates it as a whole. No other thread may map or unmap
    /// meanwhile.
    ///
    /// # Errors
    /// If the kernel refuses a mark.
    pub fn start(mut self) -> anyhow::Result<Watch> {
        huge_pages(HugePages::None)?;
        let len = read_maps(self.maps.bytes_mut())?;
        let maps = std::str::from_utf8(&self.maps.bytes()[..len]).context("odd names in maps")?;
        for (start, end) in maps.lines().filter_map(private_anonymous) {
            self.cover(start, end)
                .with_context(|| format!("in {start:x}-{end:x}"))?;
        }
        Ok(self)
    }

    fn cover(&self, start: u64, end: u64) -> anyhow::Result<()> {
        let range = [start, end - start, userfaultfd::WRITES, 0];
        ask(&self.marks, userfaultfd::REGISTER, range).context("userfaultfd refuses a mapping")?;
        // Marking a part of a huge page maps it by small pages, each with a mark of its own.
        self.pagemap
            .each_range(start, end, Wanted::Huge, |from, to| {
                (from..to)
                    .step_by(HUGE_PAGE as usize)
                    .try_for_each(|huge| self.pagemap.mark(huge, huge + page_size()))
            })?;
        self.pagemap.mark(start, end)
    }

    /// Bytes of the block that were written since the start, to the page. A page at an edge may be
    /// shared with other memory. It counts only if its neighbour within the block was written as
    /// well, because a block's header is not its contents.
    ///
    /// # Errors
    /// If the kernel cannot tell.
    pub fn written(&self, block: *const u8, len: usize) -> anyhow::Result<u64> {
        let page = page_size();
        let (start, end) = (block as u64, block as u64 + len as u64);
        let first = start / page * page;
        let ranges = self
            .pagemap
            .ranges(first, end.next_multiple_of(page), Wanted::Written)?;
        Ok(contents(&ranges, start, end, page))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // If this cannot be undone, the worker only loses huge pages.
        let _ = huge_pages(HugePages::AsConfigured);
    }
}

/// The length of the text of /proc/self/maps, read into `buffer`.
fn read_maps(buffer: &mut [u8]) -> anyhow::Result<usize> {
    let mut file = File::open("/proc/self/maps").context("cannot open /proc/self/maps")?;
    let mut len = 0;
    loop {
        ensure!(len < buffer.len(), "/proc/self/maps is too long");
        match file.read(&mut buffer[len..])? {
            0 => return Ok(len),
            read => len += read,
        }
    }
}

/// Bytes of `start..end` in `ranges` of whole pages, without header pages, as [`Watch::written`]
/// describes.
fn contents(ranges: &[(u64, u64)], start: u64, end: u64, page: u64) -> u64 {
    let inner = (start.next_multiple_of(page), end / page * page);
    let within = |&(from, to): &(u64, u64)| {
        let touches_inner = from < inner.1 && to > inner.0;
        let (low, high) = if touches_inner { (start, end) } else { inner };
        to.min(high).saturating_sub(from.max(low))
    };
    // Adjacent pages may come as two ranges.
    joined(ranges).iter().map(within).sum()
}

fn joined(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for &(from, to) in ranges {
        match joined.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// Fails unless all of the block is zero. Unpopulated pages are zero, and are left unpopulated if
/// the kernel can list the others.
///
/// # Errors
/// If a byte is not zero; the error names it.
///
/// # Safety
/// - `block` has `len` readable bytes, which no other thread writes meanwhile.
pub unsafe fn ensure_zero(block: *const u8, len: usize) -> anyhow::Result<()> {
    let (start, end) = (block as u64, block as u64 + len as u64);
    let page = page_size();
    let (first, last) = (start / page * page, end.next_multiple_of(page));
    let scanned = PageMap::open().and_then(|map| map.ranges(first, last, Wanted::Populated));
    for (from, to) in scanned.unwrap_or_else(|_| vec![(start, end)]) {
        let (from, to) = (from.max(start), to.min(end));
        // SAFETY: the range lies within the block, which the caller vouches for.
        let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, (to - from) as usize) };
        if let Some(at) = first_nonzero(bytes) {
            anyhow::bail!(
                "calloc's byte {} of {len} is not zero",
                from - start + at as u64
            );
        }
    }
    Ok(())
}

fn first_nonzero(bytes: &[u8]) -> Option<usize> {
    // Whole chunks compare as fast as memory is read.
    let chunk = bytes
        .chunks(4_096)
        .position(|c| c.iter().fold(0, |all, b| all | b) != 0)?;
    let start = chunk * 4_096;
    bytes[start..]
        .iter()
        .position(|&b| b != 0)
        .map(|at| start + at)
}

fn descriptor() -> anyhow::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | userfaultfd::USER_MODE_ONLY;
    // SAFETY: the call takes flags and gives a descriptor or -1.
    let number = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    let why = std::io::Error::last_os_error();
    let number = i32::try_from(number).ok().filter(|n| *n >= 0);
    let number = number.ok_or(why).context("userfaultfd")?;
    // SAFETY: the descriptor is new, and only this value owns it.
    let marks = unsafe { OwnedFd::from_raw_fd(number) };
    let told = "userfaultfd has no asynchronous marks (Linux 6.7)";
    let wanted = [userfaultfd::VERSION, ASYNCHRONOUS_MARKS, 0, 0];
    ask(&marks, userfaultfd::API, wanted).context(told)?;
    Ok(marks)
}

/// Makes a request. The program cannot observe asynchronous marks.
fn ask(marks: &OwnedFd, request: u32, mut words: [u64; 4]) -> std::io::Result<()> {
    // SAFETY: the arguments of all requests are at most these words.
    match unsafe { libc::ioctl(marks.as_raw_fd(), request as libc::Ioctl, &raw mut words) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Whether the kernel may make new huge pages.
#[derive(Clone, Copy)]
enum HugePages {
    None,
    AsConfigured,
}

fn huge_pages(rule: HugePages) -> anyhow::Result<()> {
    let disable = libc::c_ulong::from(matches!(rule, HugePages::None));
    let unused: libc::c_ulong = 0;
    // SAFETY: the call takes numbers and changes a rule of this process for later faults.
    let rc = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disable, unused, unused, unused) };
    ensure!(
        rc == 0,
        "PR_SET_THP_DISABLE: {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}

/// The range of a line of /proc/PID/maps that is private memory without a file and no stack.
fn private_anonymous(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let (range, rights, inode) = (fields.next()?, fields.next()?, fields.nth(2)?);
    let name = fields.next().unwrap_or("");
    let anonymous = inode == "0" && (["", "[heap]"].contains(&name) || name.starts_with("[anon:"));
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    (rights.ends_with('p') && anonymous).then_some((number(start)?, number(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(count: u64) -> Mapping {
        Mapping::new((count * page_size()) as usize).unwrap()
    }

    impl Mapping {
        fn range(&self) -> (u64, u64) {
            (self.start as u64, self.start as u64 + self.len as u64)
        }

        fn write(&self, page: usize) {
            // SAFETY: the tests name pages within the mapping, and hold no slice of it.
            unsafe {
                self.start
                    .add(page * page_size() as usize)
                    .write_volatile(1)
            };
        }

        fn read(&self, page: usize) -> u8 {
            // SAFETY: as above.
            unsafe { self.start.add(page * page_size() as usize).read_volatile() }
        }
    }

    /// A watch over one mapping, because other tests run in the same process. `None`, with a
    /// message, on an older kernel.
    fn watch(mapping: &Mapping) -> Option<Watch> {
        let watch = match Watch::prepare() {
            Ok(watch) => watch,
            Err(reason) => {
                eprintln!("skipped: {reason:#}");
                return None;
            }
        };
        let (start, end) = mapping.range();
        huge_pages(HugePages::None).unwrap();
        watch.cover(start, end).unwrap();
        Some(watch)
    }

    #[test]
    fn only_pages_written_under_the_watch_count() {
        let page = page_size();
        let old = pages(64);
        (0..8).for_each(|number| old.write(number));
        let Some(watch) = watch(&old) else { return };
        let new = pages(64);
        assert_eq!(watch.written(old.start, old.len).unwrap(), 0);
        // One populated before, one not, one only read, and one in a later mapping.
        old.write(3);
        old.write(20);
        assert_eq!(old.read(30) + old.read(4), 1);
        new.write(5);
        assert_eq!(watch.written(old.start, old.len).unwrap(), 2 * page);
        assert_eq!(watch.written(new.start, new.len).unwrap(), page);
    }

    #[test]
    fn a_huge_page_counts_by_its_small_pages() {
        let mapping = pages(3 * HUGE_PAGE / page_size());
        // SAFETY: advice about the test's own mapping.
        unsafe { libc::madvise(mapping.start.cast(), mapping.len, libc::MADV_HUGEPAGE) };
        let pages = mapping.len / page_size() as usize;
        (0..pages).for_each(|number| mapping.write(number));
        let Some(watch) = watch(&mapping) else { return };
        mapping.write(pages / 2);
        assert_eq!(
            watch.written(mapping.start, mapping.len).unwrap(),
            page_size()
        );
    }

    #[test]
    fn unpopulated_pages_stay_unpopulated_for_whoever_asks() {
        let mapping = pages(16);
        mapping.write(2);
        let Some(_watch) = watch(&mapping) else {
            return;
        };
        let (start, end) = mapping.range();
        let found = PageMap::open()
            .unwrap()
            .ranges(start, end, Wanted::Populated)
            .unwrap();
        let third = start + 2 * page_size();
        assert_eq!(found, [(third, third + page_size())]);
    }

    #[test]
    fn a_header_is_no_content() {
        // A block of 3 pages that starts 16 bytes after a page's start.
        let count = |ranges: &[(u64, u64)]| contents(ranges, 0x1010, 0x4010, 0x1000);
        assert_eq!(count(&[(0x1000, 0x2000)]), 0);
        assert_eq!(count(&[(0x1000, 0x2000), (0x4000, 0x5000)]), 0);
        assert_eq!(count(&[(0x2000, 0x3000)]), 0x1000);
        assert_eq!(count(&[(0x1000, 0x3000), (0x3000, 0x5000)]), 0x3000);
        assert_eq!(
            contents(&[(0x1000, 0x2000)], 0x1000, 0x2000, 0x1000),
            0x1000
        );
    }

    #[test]
    fn a_byte_that_is_not_zero_is_named() {
        let mapping = pages(8);
        // SAFETY: the mapping is readable, and no other thread writes it meanwhile.
        let check = || unsafe { ensure_zero(mapping.start, mapping.len) };
        check().unwrap();
        mapping.write(5);
        let error = check().unwrap_err().to_string();
        assert!(
            error.contains(&format!("byte {} ", 5 * page_size())),
            "{error}"
        );
    }

    #[test]
    fn maps_tell_anonymous_memory() {
        let heap = "55d0a000-55d0b000 rw-p 00000000 00:00 0                  [heap]";
        assert_eq!(private_anonymous(heap), Some((0x55d0_a000, 0x55d0_b000)));
        let named = "7f00-7f10 ---p 00000000 00:00 0 [anon:x y]";
        assert_eq!(private_anonymous(named), Some((0x7f00, 0x7f10)));
        for line in [
            "7f00-7f10 rw-s 00000000 00:01 9 /dev/zero (deleted)",
            "7f00-7f10 rw-p 00000000 08:01 11 /lib/libc.so.6",
            "7f00-7f10 rw-p 00000000 00:00 0 [stack]",
            "7f00-7f10 r--p 00000000 00:00 0 [vvar]",
        ] {
            assert_eq!(private_anonymous(line), None, "{line}");
        }
    }
}
