//! What Neap asks of an operating system ([`Os`]), and what Linux does then.

use super::file::read_file;
use super::loader::keep_errno;
use super::lock_order::assert_free;
use super::mapping::{
    self, Claim, ClaimError, OutOfMemory, RESERVED, RemapError, at_break, follows_advice, map,
    map_reserved, reserve_and_trim, reserve_anywhere, reserve_below,
};
use super::pagemap::{self, Answers, Populated, Unknown};
use super::process::{self, clock_time, is_memory_locked, limit_of, usage};
use super::write_guard::{self, GuardRefused};
use super::{nodes, tagging};
use crate::base::sync::plain::{AtomicU8, AtomicUsize, Ordering};
use crate::base::units::HUGE_BYTES;
use core::ffi::CStr;
use core::ops::Range;
use core::ptr::NonNull;

pub use super::mapping::{scatter, test_advice};

/// The result of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purged {
    /// The pages read as zero from now on.
    Zero,
    /// The kernel refused (locked memory …): contents unchanged or unknown.
    MaybeDirty,
}

/// Advice to the kernel about huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Huge {
    /// `MADV_HUGEPAGE`.
    Want,
    /// `MADV_NOHUGEPAGE`.
    Avoid,
    /// Splits existing huge pages into ordinary ones at once. Otherwise the process keeps the
    /// purged parts of a huge page until memory is short, although they no longer count as
    /// resident.
    Split,
}

/// What Neap requires of an operating system. [`Linux`] is the real one, and what it does stands
/// here; the one of the tests does something of its own in each of these.
///
/// Addresses and lengths are multiples of [`Os::page_bytes`] unless said otherwise.
pub trait Os: Sync {
    /// Bytes in an OS page (4, 16 or 64 KiB), constant for the process.
    #[inline]
    fn page_bytes(&self) -> usize {
        process::page_bytes()
    }

    /// Reserves `bytes` of address space at a multiple of `align` (a power of two): no access, no
    /// commit charge.
    fn reserve(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        assert_free();
        if let Some(base) = reserve_anywhere(bytes, align) {
            return Some(base);
        }
        let first = map_reserved(bytes)?;
        if (first.as_ptr() as usize).is_multiple_of(align) {
            return Some(first);
        }
        // SAFETY: mapped just above, not used by anybody.
        unsafe { mapping::unmap(first.as_ptr(), bytes) };
        // Just below it there is room, as a rule, and so nothing over the limit on the address
        // space is asked for.
        reserve_below(first, bytes, align).or_else(|| reserve_and_trim(bytes, align))
    }

    /// The address of a range of `bytes` bytes, at a multiple of `align` (a power of two). As a
    /// rule, nothing is mapped there, and the kernel maps nothing there of its own choice. Each
    /// owner's ranges differ from other owners', and its `nth` from its earlier ones. Ranges of
    /// different lengths may overlap. `None` where addresses are few.
    fn claim(&self, bytes: usize, align: usize, owner: usize, nth: usize) -> Option<NonNull<u8>> {
        assert_free();
        mapping::claim(bytes, align, owner, nth)
    }

    /// Maps a part of a range from [`Os::claim`]; it reads as zero once committed, and is a
    /// reservation from now on, together with the parts beside it.
    ///
    /// # Safety
    /// - The part is in a claimed range. With [`Claim::Extended`], the page before it is the
    ///   caller's and in use by no one, or committed and as it was.
    unsafe fn map_claimed(
        &self,
        addr: NonNull<u8>,
        bytes: usize,
        claim: Claim,
    ) -> Result<(), ClaimError> {
        assert_free();
        // SAFETY: the caller's promise.
        unsafe { mapping::map_claimed(addr, bytes, claim) }
    }

    /// Gives a reservation back, or a part of one.
    ///
    /// # Safety
    /// - No thread uses the range, nor will.
    unsafe fn unmap(&self, base: NonNull<u8>, bytes: usize) {
        assert_free();
        // SAFETY: the caller's promise: out of use.
        unsafe { mapping::unmap(base.as_ptr(), bytes) };
    }

    /// Like [`Os::reserve`], for when no mapping can be added: moves the program break (`brk`),
    /// which extends an existing mapping. The range is committed at once. Never given back.
    fn reserve_at_break(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        assert_free();
        keep_errno(|| at_break(bytes, align))
    }

    /// Makes a reserved range readable and writable; it reads as zero if it has not been committed
    /// since reserve or uncommit.
    ///
    /// # Safety
    /// - The range lies in one reservation.
    unsafe fn commit(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the caller's promise: a range of one reservation.
        let permit = |access| unsafe { mapping::protect(addr.as_ptr(), bytes, access) };
        // Memory above the program break has no tags.
        let tags = tagging::protection();
        let is_permitted = permit(access | tags) || tags != 0 && permit(access);
        refused_if(!is_permitted)
    }

    /// Takes a range back to the state after `reserve`: contents lost, commit charge returned.
    ///
    /// # Safety
    /// - The range lies in one reservation and no thread uses it.
    unsafe fn uncommit(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
        // A new mapping, not `mprotect`: only that returns the commit charge.
        let flags = RESERVED | libc::MAP_FIXED;
        // SAFETY: the caller's promise: the range lies in one reservation and no thread uses it.
        let mapped = unsafe { map(addr.as_ptr(), bytes, libc::PROT_NONE, flags) };
        refused_if(mapped.is_none())
    }

    /// Gives the pages of a committed range back to the kernel; the range stays committed. Refused
    /// where the program locked memory.
    ///
    /// # Safety
    /// - The range is committed and no thread uses it.
    unsafe fn purge(&self, addr: NonNull<u8>, bytes: usize) -> Purged {
        if is_memory_locked() {
            return Purged::MaybeDirty;
        }
        // SAFETY: the caller's promise: committed, and no thread uses the contents.
        unsafe { discard(addr, bytes, libc::MADV_DONTNEED) }
    }

    /// The same, locked or not.
    ///
    /// # Safety
    /// - As [`Os::purge`].
    unsafe fn purge_locked(&self, addr: NonNull<u8>, bytes: usize) -> Purged {
        // SAFETY: as above.
        unsafe {
            match discard(addr, bytes, libc::MADV_DONTNEED) {
                Purged::MaybeDirty if follows_advice() => {
                    discard(addr, bytes, MADV_DONTNEED_LOCKED)
                }
                purged => purged,
            }
        }
    }

    /// Whether the program is known to have locked all its memory, so that no page may be purged.
    fn is_locked(&self) -> bool {
        is_memory_locked()
    }

    /// Advises the kernel on huge pages for a range. Failure is not an error.
    ///
    /// # Safety
    /// - The range lies in one reservation.
    unsafe fn advise_huge(&self, addr: NonNull<u8>, bytes: usize, huge: Huge) {
        let advise = |at: NonNull<u8>, bytes, advice| {
            // SAFETY: the caller's promise; the advice changes no contents.
            unsafe { mapping::advise(at.as_ptr(), bytes, advice) };
        };
        match huge {
            Huge::Want => advise(addr, bytes, libc::MADV_HUGEPAGE),
            Huge::Avoid => advise(addr, bytes, libc::MADV_NOHUGEPAGE),
            Huge::Split => (0..bytes).step_by(HUGE_BYTES).for_each(|at| {
                // The kernel splits a huge page of which a part is to be cold: 0.16 ms each,
                // measured. SAFETY: within the range.
                advise(unsafe { addr.add(at) }, self.page_bytes(), libc::MADV_COLD);
            }),
        }
    }

    /// Calls `visit` with every run of populated pages of a committed range, in the order of
    /// addresses. All others read as zero.
    ///
    /// # Safety
    /// - The range is committed.
    unsafe fn populated(
        &self,
        addr: NonNull<u8>,
        bytes: usize,
        visit: impl FnMut(Populated),
    ) -> Result<(), Unknown> {
        assert_free();
        // SAFETY: the caller's promise.
        unsafe { pagemap::populated(addr, bytes, visit) }
    }

    /// How [`Os::populated`] is answered.
    fn answers(&self) -> Answers {
        pagemap::answers()
    }

    /// Moves the pages of `from` to `to` without copying; `from` stays mapped and reads as zero. On
    /// an error the contents of `from` are what they were. Refused if `from` consists of more than
    /// `most_pieces` mappings of the kernel's, each of which takes a call of its own.
    ///
    /// # Safety
    /// - Both ranges are committed, `bytes` long, disjoint, and no other thread uses either.
    unsafe fn move_pages(
        &self,
        from: NonNull<u8>,
        to: NonNull<u8>,
        bytes: usize,
        most_pieces: usize,
    ) -> Result<(), RemapError> {
        // SAFETY: the caller's promise.
        unsafe { mapping::move_pages(from, to, bytes, most_pieces) }
    }

    /// Maps a committed range afresh: it stays committed and reads as zero, and its mapping can
    /// merge with its neighbours'. On an error its contents are unknown.
    ///
    /// # Safety
    /// - The range is committed and no thread uses it.
    unsafe fn renew(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), RemapError> {
        // SAFETY: the caller's promise.
        unsafe { mapping::renew(addr, bytes) }
    }

    /// Makes every access to a committed range fault, without a mapping of its own; its contents
    /// are lost. [`Os::purge`] leaves it so. [`Os::populated`] reports it as if it were in swap.
    ///
    /// # Safety
    /// - The range is committed and no thread uses it.
    unsafe fn install_guard(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), GuardRefused> {
        if !follows_advice() {
            return Err(GuardRefused);
        }
        // SAFETY: the caller's promise.
        unsafe {
            advise_guard(addr, bytes, MADV_GUARD_INSTALL).inspect_err(|_| {
                // The kernel installs guards up to the first page that it refuses.
                let _ = advise_guard(addr, bytes, MADV_GUARD_REMOVE);
            })
        }
    }

    /// Takes back what [`Os::install_guard`] did anywhere in a committed range; the guards' pages
    /// read as zero. Other pages stay as they are.
    ///
    /// # Safety
    /// - The range is committed.
    unsafe fn remove_guard(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), GuardRefused> {
        // SAFETY: the caller's promise.
        unsafe { advise_guard(addr, bytes, MADV_GUARD_REMOVE) }
    }

    /// Makes every write to a committed range fault, without a mapping of its own. The range was
    /// purged, or was such a guard. Registers at least `least`, which contains the range, and at
    /// most `within`. Returns the guard's [generation](Os::write_guards). [`Os::purge`] takes the
    /// guard away.
    ///
    /// # Safety
    /// - All three are the heap's, and no thread uses the range, which is committed.
    /// - No other thread calls this or [`Os::write_guards`] meanwhile.
    unsafe fn install_write_guard(
        &self,
        addr: NonNull<u8>,
        bytes: usize,
        within: Range<usize>,
        least: Range<usize>,
    ) -> Result<u64, GuardRefused> {
        assert_free();
        let guard = write_guard::Guard { start: addr, bytes };
        // SAFETY: the caller's promise.
        unsafe { write_guard::install(guard, within, least) }
    }

    /// Takes back what [`Os::install_write_guard`] did.
    ///
    /// # Safety
    /// - The range is committed, and no thread uses it.
    unsafe fn remove_write_guard(
        &self,
        addr: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), GuardRefused> {
        assert_free();
        // SAFETY: the caller's promise.
        unsafe { write_guard::remove(write_guard::Guard { start: addr, bytes }) }
    }

    /// The generation of the write guards that hold. All others are gone: in a fork's child, or
    /// because the program closed a descriptor, which this call notices only if the kernel
    /// `is_asked`.
    fn write_guards(&self, is_asked: bool) -> u64 {
        match is_asked {
            true => write_guard::generation_now(),
            false => write_guard::generation(),
        }
    }

    /// Makes every access to a committed range fault, by a mapping of its own. [`Os::commit`] takes
    /// it back.
    ///
    /// # Safety
    /// - The range is committed and no thread uses it.
    unsafe fn protect(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory> {
        // SAFETY: the caller's promise.
        refused_if(!unsafe { mapping::protect(addr.as_ptr(), bytes, libc::PROT_NONE) })
    }

    /// How many mappings the process may have (`vm.max_map_count`).
    fn most_mappings(&self) -> usize {
        match MOST_MAPPINGS.load(Ordering::Relaxed) {
            0 => ask_most_mappings(),
            known => known,
        }
    }

    /// Monotonic time in ms, cheap and coarse.
    fn now_ms(&self) -> u64 {
        let time = clock_time(libc::CLOCK_MONOTONIC_COARSE);
        time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
    }

    /// Whether the kernel uses huge pages wherever it can, unasked.
    fn has_huge_everywhere(&self) -> bool {
        // In a sandbox there is no answer, so that no advice follows from it.
        let may_ask = match HUGE.load(Ordering::Relaxed) {
            UNASKED => process::may_query(),
            _ => !process::queries_are_forbidden(),
        };
        let setting = c"/sys/kernel/mm/transparent_hugepage/enabled";
        may_ask && remembers(&HUGE, setting, b"[always]")
    }

    /// How many NUMA nodes are told apart; 1 before [`Os::learn_nodes`].
    fn nodes(&self) -> usize {
        nodes::count()
    }

    /// The number of the calling thread's node.
    fn node(&self) -> usize {
        nodes::current()
    }

    /// Asks the kernel for the number of nodes, if no earlier call has learnt it. `is_forking`
    /// tells whether a fork has begun to close locks.
    fn learn_nodes(&self, is_forking: fn() -> bool) {
        assert_free();
        nodes::learn(is_forking);
    }

    /// Whether every commit is charged against a limit (`vm.overcommit_memory` = 2).
    fn strict_commit(&self) -> bool {
        remembers(&STRICT, c"/proc/sys/vm/overcommit_memory", b"2")
    }

    /// `RLIMIT_AS` in bytes, if there is one.
    fn address_limit(&self) -> Option<usize> {
        assert_free();
        limit_of(libc::RLIMIT_AS)
    }

    /// `RLIMIT_DATA` in bytes, if there is one: all writable private memory counts against it.
    fn data_limit(&self) -> Option<usize> {
        assert_free();
        limit_of(libc::RLIMIT_DATA)
    }
}

/// Linux.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Os for Linux {}

/// The cached answer about `vm.overcommit_memory`.
#[unsafe(link_section = "neap_fork")]
static STRICT: AtomicU8 = AtomicU8::new(UNASKED);
/// Whether the kernel uses huge pages unasked.
static HUGE: AtomicU8 = AtomicU8::new(UNASKED);
const UNASKED: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// Not in the `libc` crate for every C library.
const MADV_DONTNEED_LOCKED: i32 = 24;

/// Linux 6.13; not in the `libc` crate for every C library.
const MADV_GUARD_INSTALL: i32 = 102;
const MADV_GUARD_REMOVE: i32 = 103;

/// `vm.max_map_count` once it was asked for.
static MOST_MAPPINGS: AtomicUsize = AtomicUsize::new(0);
/// The kernel's own default, for a process without /proc.
const USUAL_MAPPINGS: usize = 65_530;

/// # Safety
/// - The range is committed and no thread uses it.
unsafe fn discard(addr: NonNull<u8>, bytes: usize, advice: i32) -> Purged {
    // SAFETY: the caller's promise.
    match unsafe { mapping::advise(addr.as_ptr(), bytes, advice) } {
        0 => Purged::Zero,
        _ => Purged::MaybeDirty,
    }
}

fn refused_if(failed: bool) -> Result<(), OutOfMemory> {
    if failed { Err(OutOfMemory) } else { Ok(()) }
}

#[cold]
fn ask_most_mappings() -> usize {
    assert_free();
    let mut text = [0; 24];
    let read = read_file(c"/proc/sys/vm/max_map_count", &mut text);
    let digits = read.and_then(|read| core::str::from_utf8(&text[..read]).ok());
    let answer = digits.and_then(|digits| digits.trim().parse().ok());
    let answer = answer.unwrap_or(USUAL_MAPPINGS).max(1);
    MOST_MAPPINGS.store(answer, Ordering::Relaxed);
    answer
}

/// Advice about guards. Interrupted or short of memory for a moment, the kernel says so, and may be
/// asked again.
///
/// # Safety
/// - The range is committed; with [`MADV_GUARD_INSTALL`], no thread uses it.
unsafe fn advise_guard(addr: NonNull<u8>, bytes: usize, advice: i32) -> Result<(), GuardRefused> {
    const TRIES: usize = 8;
    for _ in 0..TRIES {
        // SAFETY: the caller's promise.
        match -unsafe { mapping::advise(addr.as_ptr(), bytes, advice) } as i32 {
            0 => return Ok(()),
            libc::EAGAIN | libc::EINTR => {}
            _ => break,
        }
    }
    Err(GuardRefused)
}

/// Whether a setting of the kernel begins so, as the first caller found it.
fn remembers(known: &AtomicU8, file: &CStr, begins: &[u8]) -> bool {
    match known.load(Ordering::Relaxed) {
        UNASKED => ask(known, file, begins),
        known => known == YES,
    }
}

#[cold]
fn ask(known: &AtomicU8, file: &CStr, begins: &[u8]) -> bool {
    assert_free();
    let mut text = [0; 8];
    let is_so = read_file(file, &mut text).is_some() && text.starts_with(begins);
    known.store(if is_so { YES } else { NO }, Ordering::Relaxed);
    is_so
}

/// Bytes of the process in RAM now; `None` without /proc.
pub fn resident_bytes() -> Option<usize> {
    let mut text = [0; 128];
    let read = read_file(c"/proc/self/statm", &mut text)?;
    let field = text[..read].split(|&byte| byte == b' ').nth(1)?;
    let pages = core::str::from_utf8(field).ok()?.parse::<usize>().ok()?;
    Some(pages * Linux.page_bytes())
}

/// The most bytes of the process that ever were in RAM at once.
pub fn peak_resident_bytes() -> Option<usize> {
    Some(usage().ru_maxrss as usize * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::child::{Limit, succeeds};
    use crate::os::loader;

    const BYTES: usize = 4 << 20;

    fn reserved(align: usize) -> NonNull<u8> {
        Linux.reserve(BYTES, align).unwrap()
    }

    #[test]
    fn reservations_are_aligned() {
        for shift in [12, 16, 21, 25, 30] {
            let base = reserved(1 << shift);
            assert!((base.as_ptr() as usize).is_multiple_of(1 << shift));
            // SAFETY: the reservation made above, then gone.
            unsafe {
                Linux.commit(base, BYTES).unwrap();
                base.add(BYTES - 1).write(1);
                Linux.unmap(base, BYTES);
            }
        }
        assert_eq!(Linux.reserve(usize::MAX / 4 * 2, 1 << 21), None);
    }

    /// Neighbours of a page that the program left locked.
    #[test]
    fn a_guard_that_is_refused_leaves_no_part() {
        let (base, page) = (reserved(1 << 16), Linux.page_bytes());
        // SAFETY: a reservation of ours, used by no other thread.
        unsafe {
            Linux.commit(base, BYTES).unwrap();
            let locked = base.add(2 * page).as_ptr().cast();
            if libc::mlock(locked, page) != 0 {
                std::eprintln!("SKIPPED: no page may be locked (raise ulimit -l)");
                return Linux.unmap(base, BYTES);
            }
            assert!(Linux.install_guard(base, 4 * page).is_err());
            (0..4).for_each(|number| base.add(number * page).write_volatile(1));
            Linux.unmap(base, BYTES);
        }
    }

    #[test]
    fn purged_and_recommitted_memory_is_zero() {
        let base = reserved(1 << 21);
        // SAFETY: a reservation of ours, used by no other thread.
        unsafe {
            Linux.commit(base, BYTES).unwrap();
            base.as_ptr().write_bytes(1, BYTES);
            assert_eq!(Linux.purge(base, BYTES / 2), Purged::Zero);
            assert_eq!([base.read(), base.add(BYTES / 2).read()], [0, 1]);
            Linux.uncommit(base, BYTES).unwrap();
            Linux.commit(base, BYTES).unwrap();
            assert_eq!(base.add(BYTES / 2).read(), 0);
            Linux.advise_huge(base, BYTES, Huge::Avoid);
            Linux.unmap(base, BYTES);
        }
    }

    #[test]
    fn reserved_memory_is_out_of_reach() {
        let base = reserved(1 << 21);
        // SAFETY: the child dies of the read, or the test fails.
        assert!(!succeeds(Limit::None, || unsafe {
            base.read_volatile() == 0
        }));
        // SAFETY: a reservation of ours; the child dies of the read, or the test fails.
        unsafe {
            Linux.commit(base, BYTES).unwrap();
            assert!(succeeds(Limit::None, || base.read_volatile() == 0));
            Linux.uncommit(base, BYTES).unwrap();
            assert!(!succeeds(Limit::None, || base.read_volatile() == 0));
            Linux.unmap(base, BYTES);
        }
    }

    #[test]
    fn locked_memory_is_purged_too() {
        let base = reserved(1 << 21);
        let page = Linux.page_bytes();
        // SAFETY: a reservation of ours, used by no other thread.
        unsafe {
            Linux.commit(base, BYTES).unwrap();
            base.write(1);
            if libc::mlock(base.as_ptr().cast(), page) == 0 {
                let purged = Linux.purge(base, page);
                // Before Linux 5.18 the kernel refuses, and says so.
                assert_eq!(base.read() == 0, purged == Purged::Zero);
            }
            Linux.unmap(base, BYTES);
        }
    }

    #[test]
    fn a_purge_the_kernel_refuses_is_maybe_dirty() {
        loader::set_errno(5);
        // SAFETY: no mapping is there, so nothing is purged.
        let purged = unsafe { Linux.purge(NonNull::new(0x1000 as *mut u8).unwrap(), 4096) };
        assert_eq!((purged, loader::errno()), (Purged::MaybeDirty, 5));
    }

    #[test]
    fn limits_are_seen() {
        assert!(succeeds(Limit::Address(1 << 40), || {
            Linux.address_limit() == Some(1 << 40) && Linux.reserve(2 << 40, 1 << 21).is_none()
        }));
    }

    #[test]
    fn clock_and_sizes() {
        let (page, now) = (Linux.page_bytes(), Linux.now_ms());
        assert!(page.is_power_of_two() && page >= 4096);
        assert!(now > 0 && Linux.now_ms() >= now);
        let (resident, peak) = (resident_bytes().unwrap(), peak_resident_bytes().unwrap());
        assert!(resident > 0 && resident.is_multiple_of(page) && peak > 0);
        let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
        assert_eq!(Linux.strict_commit(), mode.trim() == "2");
        assert!(crate::os::thread::heavy_barrier());
    }
}
