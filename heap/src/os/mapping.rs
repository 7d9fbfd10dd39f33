//! The kernel's calls about mappings, and anonymous mappings: made, removed, mapped afresh, and
//! mapped part by part at addresses that Neap chooses ([`claim`]).

use super::lock_order::assert_free;
use super::process::{self, limit_of, page_bytes};
use super::tagging;
use crate::base::sync::plain::{AtomicPtr, AtomicU8, AtomicU64, Ordering};
use core::ptr::{NonNull, null_mut};

/// The kernel (or a limit) refused memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// Why a part of a claimed range was not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// The kernel (or a limit) refused.
    OutOfMemory,
    /// Something else is mapped there.
    Taken,
}

impl From<OutOfMemory> for ClaimError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl From<ClaimError> for OutOfMemory {
    fn from(_: ClaimError) -> Self {
        Self
    }
}

/// What a part of a claimed range is mapped as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// As if by [`Os::reserve`](super::Os::reserve).
    Reserved,
    /// Committed at once.
    Committed,
    /// Committed at once. The part before it is mapped already and may be extended.
    Extended,
}

/// Why pages were not moved, or a range not mapped afresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemapError {
    /// The kernel refused. All ranges stay committed.
    Refused,
    /// The kernel refused, but had unmapped the target. Another thread may have mapped something
    /// there since, so no one may use the target any more.
    Lost,
}

impl RemapError {
    /// What a refusal means for a target of which `kept` says whether it is committed still.
    pub(super) fn refused_if(kept: bool) -> Self {
        if kept { Self::Refused } else { Self::Lost }
    }
}

/// Anonymous memory; `None` if the kernel refuses.
///
/// # Safety
/// - As `mmap(2)`.
pub(super) unsafe fn map(
    at: *mut u8,
    bytes: usize,
    access: i32,
    flags: i32,
) -> Option<NonNull<u8>> {
    assert_free();
    // SAFETY: the caller's promise.
    mapped(unsafe { kernel!(mmap, at, bytes, access, flags, NO_FILE, 0) })
}

/// The descriptor of no file.
const NO_FILE: i32 = -1;

/// What the kernel mapped, by its answer.
pub(super) fn mapped(answer: isize) -> Option<NonNull<u8>> {
    let at = core::ptr::with_exposed_provenance_mut(answer as usize);
    NonNull::new(at).filter(|_| !(-4095..=-1).contains(&answer))
}

/// `madvise(2)`: 0, or the negative number of an error.
///
/// # Safety
/// - As `madvise(2)`.
pub(super) unsafe fn advise(at: *mut u8, bytes: usize, advice: i32) -> isize {
    assert_free();
    // SAFETY: the caller's promise.
    unsafe { kernel!(madvise, at, bytes, advice) }
}

/// `mprotect(2)`. False if the kernel refuses.
///
/// # Safety
/// - As `mprotect(2)`.
pub(super) unsafe fn protect(at: *mut u8, bytes: usize, access: i32) -> bool {
    assert_free();
    // SAFETY: the caller's promise.
    unsafe { kernel!(mprotect, at, bytes, access) == 0 }
}

/// # Safety
/// - The range is mapped by this layer and out of use, or empty.
pub(super) unsafe fn unmap(at: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller's promise.
        unsafe { kernel!(munmap, at, bytes) };
    }
}

/// `mremap(2)`: 0, or the number of an error.
///
/// # Safety
/// - As `mremap(2)`.
pub(super) unsafe fn remap(
    old: *mut u8,
    old_bytes: usize,
    bytes: usize,
    flags: i32,
    new: *mut u8,
) -> i32 {
    assert_free();
    // SAFETY: the caller's promise.
    match unsafe { kernel!(mremap, old, old_bytes, bytes, flags, new) } {
        error @ -4095..=-1 => -error as i32,
        _ => 0,
    }
}

/// The flags with which memory is reserved.
pub(super) const RESERVED: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// What committed memory allows.
pub(super) fn committed() -> i32 {
    libc::PROT_READ | libc::PROT_WRITE | tagging::protection()
}

/// A mapping without access at an address of the kernel's choice.
pub(super) fn map_reserved(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new mapping takes nothing from anybody.
    unsafe { map(null_mut(), bytes, libc::PROT_NONE, RESERVED) }
}

/// Memory above the program break, at a multiple of `align`. Readable and writable.
pub(super) fn at_break(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let more = libc::intptr_t::try_from(bytes.checked_add(align)?).ok()?;
    // SAFETY: growing the heap takes nothing from others; the C library's own allocator expects
    // gaps.
    let start = unsafe { libc::sbrk(more) };
    if start.addr() == usize::MAX {
        return None;
    }
    NonNull::new(start.addr().next_multiple_of(align) as *mut u8)
}

/// Reserves at an address, if that is free.
fn reserve_at(wish: *mut u8, bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new mapping takes nothing from others: the address is a wish.
    let at = unsafe { map(wish, bytes, libc::PROT_NONE, RESERVED) }?;
    if at.as_ptr() == wish {
        return Some(at);
    }
    // SAFETY: mapped just above, and not shared.
    unsafe { unmap(at.as_ptr(), bytes) };
    None
}

/// Reserves at the last multiple of `align` before `near`, if that is free.
pub(super) fn reserve_below(near: NonNull<u8>, bytes: usize, align: usize) -> Option<NonNull<u8>> {
    reserve_at(near.as_ptr().map_addr(|at| at / align * align), bytes)
}

/// Reserves more than requested, then gives back what lies before and after the aligned part.
pub(super) fn reserve_and_trim(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let slack = align.checked_sub(page_bytes())?;
    let start = map_reserved(bytes.checked_add(slack)?)?;
    let before = (start.as_ptr() as usize).next_multiple_of(align) - start.as_ptr() as usize;
    // SAFETY: `before <= slack`, so head, aligned part and tail are the whole mapping made above.
    unsafe {
        let base = start.add(before);
        unmap(start.as_ptr(), before);
        unmap(base.add(bytes).as_ptr(), slack - before);
        Some(base)
    }
}

/// What becomes of advice that the kernel accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Advice {
    /// Not tested yet.
    Unknown,
    /// It is followed.
    Followed,
    /// Some of it is not followed, as in qemu-user.
    Ignored,
    /// It is followed, but a sandbox may kill for advice that other allocators do not give.
    Restricted,
}

/// Whether the answer is `wanted`. Tests once whether the kernel refuses to discard pages that no
/// process can have. Linux does, with `ENOMEM`. A sandbox in which Neap can run allows this,
/// because purges give the same advice.
#[inline(never)]
fn advice_is(wanted: Advice) -> bool {
    static ANSWER: AtomicU8 = AtomicU8::new(Advice::Unknown as u8);
    /// In the kernel's half of the address space, with or without a pointer's tag.
    const OF_NO_PROCESS: usize = 0usize.wrapping_sub(2 << 30);
    const BYTES: usize = 1 << 16;
    if ANSWER.load(Ordering::Relaxed) == Advice::Unknown as u8 {
        let at = core::ptr::without_provenance_mut(OF_NO_PROCESS);
        // SAFETY: no process has memory in the kernel's half, so nothing is discarded.
        let answer = unsafe { advise(at, BYTES, libc::MADV_DONTNEED) };
        // qemu-user answers 0, or `EINVAL` where an option limits the addresses.
        let is_refused = answer == -(libc::ENOMEM as isize);
        let advice = match (is_refused, process::queries_are_forbidden()) {
            (false, _) => Advice::Ignored,
            (true, true) => Advice::Restricted,
            (true, false) => Advice::Followed,
        };
        ANSWER.store(advice as u8, Ordering::Relaxed);
    }
    ANSWER.load(Ordering::Relaxed) == wanted as u8
}

/// Runs the test of [`advice_is`] now, instead of when its answer is first needed.
pub fn test_advice() {
    advice_is(Advice::Unknown);
}

/// Whether the kernel is known to follow the advice that it accepts. Only then does a page with
/// guard advice fault, and is a page with `MADV_WIPEONFORK` zero in children. Always false if Neap
/// might not query the kernel at the first call.
pub(super) fn follows_advice() -> bool {
    advice_is(Advice::Followed)
}

/// Whether the kernel may ignore advice that it accepts.
fn ignores_advice() -> bool {
    advice_is(Advice::Ignored)
}

/// Memory that reads as zero.
pub(super) fn map_committed(bytes: usize) -> Option<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping takes nothing from others.
    unsafe { map(null_mut(), bytes, access, RESERVED) }
}

/// A new page or more, all zero, that is all zero again in every child that has memory of its own.
fn map_wiped(bytes: usize) -> Option<NonNull<u8>> {
    let at = map_committed(bytes)?;
    // SAFETY: mapped just above.
    let advise = || unsafe { advise(at.as_ptr(), bytes, libc::MADV_WIPEONFORK) };
    let ready = follows_advice() && advise() == 0;
    if !ready {
        // SAFETY: mapped just above, and not shared.
        unsafe { unmap(at.as_ptr(), bytes) };
    }
    ready.then_some(at)
}

/// Notes memory that was mapped just now, or unmaps it if another thread was faster.
pub(super) fn publish<T>(place: &AtomicPtr<T>, mapped: NonNull<u8>, bytes: usize) {
    let ours = mapped.as_ptr().cast();
    if place
        .compare_exchange(null_mut(), ours, Ordering::AcqRel, Ordering::Relaxed)
        .is_err()
    {
        // SAFETY: mapped just above; no other thread has seen it.
        unsafe { unmap(mapped.as_ptr(), bytes) };
    }
}

/// A `T` that is mapped once, never unmapped, and all zero again in every child that has memory of
/// its own.
pub(super) struct Wiped<T>(AtomicPtr<T>);

impl<T: Sync + 'static> Wiped<T> {
    /// Not mapped yet.
    ///
    /// # Safety
    /// - Zeros are a valid `T`.
    pub(super) const unsafe fn new() -> Self {
        Wiped(AtomicPtr::new(null_mut()))
    }

    /// The value, if it is mapped.
    pub(super) fn find(&self) -> Option<&'static T> {
        // SAFETY: null, or a mapping that is never unmapped, of zeros at first.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The value, mapped in that many bytes if need be. `None` where the kernel cannot (before
    /// Linux 4.14).
    pub(super) fn open(&self, bytes: usize) -> Option<&'static T> {
        if self.find().is_none() {
            publish(&self.0, map_wiped(bytes)?, bytes);
        }
        self.find()
    }
}

/// Not in the `libc` crate for every C library.
const MREMAP_DONTUNMAP: i32 = 4;

/// As [`crate::os::Os::move_pages`].
///
/// # Safety
/// - Both ranges are committed, `bytes` long, disjoint, and no other thread uses either.
pub(super) unsafe fn move_pages(
    from: NonNull<u8>,
    to: NonNull<u8>,
    bytes: usize,
    most_pieces: usize,
) -> Result<(), RemapError> {
    // Once pages are moved away, qemu-user ignores `MADV_DONTNEED` about the range that they left.
    // SAFETY: the caller's promise: committed, and no other thread uses it.
    let can_move = || unsafe { are_mappings(from, bytes, most_pieces) };
    if is_limited() || ignores_advice() || !can_move() {
        return Err(RemapError::Refused);
    }
    let mut done = 0;
    while done < bytes {
        // SAFETY: the caller's promise; within both ranges.
        let moved = unsafe {
            let (source, target) = (from.add(done), to.add(done));
            let piece = mapping_bytes(source, bytes - done);
            move_mapping(source, target, piece).map(|()| done += piece)
        };
        if let Err(error) = moved {
            // SAFETY: the pieces before this one were moved; both places are committed.
            unsafe { from.copy_from_nonoverlapping(to, done) };
            return Err(error);
        }
    }
    Ok(())
}

/// Moves the pages of one mapping.
///
/// # Safety
/// - As [`move_pages`].
unsafe fn move_mapping(from: NonNull<u8>, to: NonNull<u8>, bytes: usize) -> Result<(), RemapError> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | MREMAP_DONTUNMAP;
    // SAFETY: the caller's promise: both ranges are committed and disjoint, and no other thread
    // uses them.
    let error = unsafe { remap(from.as_ptr(), bytes, bytes, flags, to.as_ptr()) };
    if error == 0 {
        return Ok(());
    }
    let target = to.as_ptr();
    // EINVAL: before Linux 5.7 there is no such move, and nothing was done. Where the process has
    // no mapping left, the kernel refuses before it looks at the target. A limit that was lowered
    // since may have cost the target, and what is mapped there now may be another thread's.
    let kept = error == libc::EINVAL || !is_limited();
    let untouched = kept && is_mapped(target);
    // SAFETY: the caller's promise.
    Err(unsafe { RemapError::refused_if(untouched || map_again(target, bytes)) })
}

/// Whether a range consists of at most `most` mappings of the kernel's.
///
/// # Safety
/// - The range is committed and no other thread uses it.
unsafe fn are_mappings(from: NonNull<u8>, bytes: usize, most: usize) -> bool {
    let mut seen = 0;
    for _ in 0..most {
        // SAFETY: the caller's promise; within the range.
        seen += unsafe { mapping_bytes(from.add(seen), bytes - seen) };
        if seen == bytes {
            return true;
        }
    }
    false
}

/// How many bytes of a range belong to its first mapping, found by bisection.
///
/// # Safety
/// - The range is committed and no other thread uses it.
unsafe fn mapping_bytes(from: NonNull<u8>, bytes: usize) -> usize {
    let page = page_bytes();
    // SAFETY: the caller's promise.
    let is_one = |bytes| unsafe { is_one_mapping(from, bytes) };
    if is_one(bytes) {
        return bytes;
    }
    let (mut one, mut several) = (1, bytes / page);
    while several - one > 1 {
        let middle = one.midpoint(several);
        match is_one(middle * page) {
            true => one = middle,
            false => several = middle,
        }
    }
    one * page
}

/// Whether memory of the process is known to be limited. Over a limit that was lowered the kernel
/// unmaps the target of a move, then refuses the move, and refuses to map anything there again. In
/// a sandbox, which may kill for the question, the kernel is not asked.
fn is_limited() -> bool {
    let resources = [libc::RLIMIT_AS, libc::RLIMIT_DATA];
    !process::queries_are_forbidden() && resources.into_iter().any(|each| limit_of(each).is_some())
}

/// As [`crate::os::Os::renew`].
///
/// # Safety
/// - The range is committed and no thread uses it.
pub(super) unsafe fn renew(addr: NonNull<u8>, bytes: usize) -> Result<(), RemapError> {
    let (start, access) = (addr.as_ptr(), committed());
    let flags = RESERVED | libc::MAP_FIXED;
    // SAFETY: the caller's promise: replaces memory of ours that no thread uses.
    if unsafe { map(start, bytes, access, flags) }.is_some() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    Err(unsafe { RemapError::refused_if(is_mapped(start) || map_again(start, bytes)) })
}

/// Whether a range is one mapping of the kernel's, which is all that one call can move. The caller
/// must know this first, because `MREMAP_FIXED` unmaps the target before it looks at the source.
/// Mappings part where pages were moved to, and where the program locked or advised its memory.
///
/// A growth that may not move fails for several mappings (`EFAULT`) before anything else is looked
/// at, for one because what follows is mapped.
///
/// # Safety
/// - The range is committed and no other thread uses it.
unsafe fn is_one_mapping(from: NonNull<u8>, bytes: usize) -> bool {
    let (start, page) = (from.as_ptr(), page_bytes());
    // SAFETY: changes nothing but where the address space beyond the range is free, and that is
    // undone.
    unsafe {
        match remap(start, bytes, bytes + page, 0, start) {
            0 => unmap(start.add(bytes), page),
            error => return error == libc::ENOMEM || error == libc::EAGAIN,
        }
    }
    true
}

/// Whether the page at `start` is mapped. The kernel unmaps all of a range or nothing. An `mremap`
/// to the same size would not tell: before Linux 5.16 it succeeds in a hole.
pub(super) fn is_mapped(start: *mut u8) -> bool {
    // SAFETY: the advice is what each mapping of ours has already, so nothing changes.
    unsafe { advise(start, page_bytes(), libc::MADV_NORMAL) == 0 }
}

/// Commits a range again that the kernel unmapped. False if it refuses, or something is mapped
/// there.
///
/// # Safety
/// - The range was committed, and is the caller's.
unsafe fn map_again(start: *mut u8, bytes: usize) -> bool {
    let flags = RESERVED | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: replaces no mapping.
    unsafe { map(start, bytes, committed(), flags) == NonNull::new(start) }
}

/// An odd number whose multiples look random in their upper bits.
const MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;

/// The state of the addresses that [`scattered`] chooses; 0: the kernel chooses.
#[unsafe(link_section = "neap_fork")]
static ANYWHERE: AtomicU64 = AtomicU64::new(0);

/// From now on, arenas lie at addresses that follow from `seed`.
pub fn scatter(seed: u64) {
    ANYWHERE.store(seed | 1, Ordering::Relaxed);
}

/// Reserves an arena at a multiple of `align` that the seed of [`scatter`] chooses, if that is
/// free.
pub(super) fn reserve_anywhere(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    reserve_at(scattered(bytes, align)?, bytes)
}

/// The next address that the seed of [`scatter`] chooses, if there is one.
fn scattered(bytes: usize, align: usize) -> Option<*mut u8> {
    const LEAST_BYTES: usize = 1 << 20;
    // Below the program's image, programs map over addresses of their own choice: clisp takes 16 to
    // 32 TiB.
    const LOWEST: usize = 88 << 40;
    const HIGHEST: usize = 127 << 40;
    let state = ANYWHERE.load(Ordering::Relaxed);
    if state == 0 || bytes < LEAST_BYTES {
        return None;
    }
    let next = state.wrapping_mul(MULTIPLIER);
    ANYWHERE.store(next ^ (next >> 32) << 1, Ordering::Relaxed);
    let room = (HIGHEST - LOWEST).checked_sub(bytes)? / align;
    let wish = LOWEST.next_multiple_of(align) + (next >> 16) as usize % room * align;
    Some(core::ptr::without_provenance_mut(wish))
}

/// As [`crate::os::Os::claim`].
///
/// The kernel fills the address space from the top downwards, or from a third of it upwards. A
/// range well below its newest mapping is beyond its reach in either case, until the program has
/// mapped twice the range's length. On x86-64, 1 TiB begins three to four TiB below: above the
/// program's image and break, and where sanitizers leave addresses to the program.
pub(super) fn claim(bytes: usize, align: usize, owner: usize, nth: usize) -> Option<NonNull<u8>> {
    if let Some(wish) = scattered(bytes, align) {
        return NonNull::new(wish);
    }
    let newest = map_reserved(page_bytes())?.as_ptr();
    // SAFETY: mapped just above, and not shared.
    unsafe { unmap(newest, page_bytes()) };
    let away = 3 + 2 * nth;
    if newest.addr() / bytes < 2 * away + 2 {
        return None;
    }
    // Two heaps in one process choose different ranges.
    let further = (owner as u64).wrapping_mul(MULTIPLIER) as usize >> 8;
    let base = newest.addr() - away * bytes - further % bytes;
    NonNull::new(core::ptr::without_provenance_mut(base / align * align))
}

/// As [`crate::os::Os::map_claimed`].
///
/// # Safety
/// - As there.
pub(super) unsafe fn map_claimed(
    addr: NonNull<u8>,
    bytes: usize,
    claim: Claim,
) -> Result<(), ClaimError> {
    let access = match claim {
        Claim::Reserved => libc::PROT_NONE,
        Claim::Committed | Claim::Extended => committed(),
    };
    const REFUSED: isize = -(libc::ENOMEM as isize);
    const LOCKED: isize = -(libc::EAGAIN as isize);
    let start = addr.as_ptr();
    // A wish first: filters of system calls know it. Linux 6.7 to 6.11 aligns long mappings instead
    // of granting some wishes. Earlier than 4.17, the second flag also means a wish.
    for flags in [0, libc::MAP_FIXED_NOREPLACE] {
        if flags != 0 && !process::may_query() {
            break;
        }
        // SAFETY: a new mapping takes nothing from others.
        let at = unsafe { kernel!(mmap, start, bytes, access, RESERVED | flags, NO_FILE, 0) };
        if at as usize == start.addr() {
            return Ok(());
        }
        if flags == 0 && at < 0 || matches!(at, REFUSED | LOCKED) {
            // SAFETY: the caller's promise.
            let extended = claim == Claim::Extended && unsafe { extend(addr, bytes) };
            return extended.then_some(()).ok_or(ClaimError::OutOfMemory);
        }
        // Something is there, or a filter refuses the second flag. Elsewhere there is room.
        if at > 0 {
            // SAFETY: mapped just above, and not shared.
            unsafe { unmap(core::ptr::with_exposed_provenance_mut(at as usize), bytes) };
        }
    }
    Err(ClaimError::Taken)
}

/// Extends the mapping that ends at `addr`, and commits what is new. That needs no further mapping,
/// so it may succeed where the process has as many as it may.
///
/// # Safety
/// - As [`map_claimed`].
unsafe fn extend(addr: NonNull<u8>, bytes: usize) -> bool {
    let page = page_bytes();
    let last = addr.as_ptr().wrapping_sub(page);
    // SAFETY: the caller's promise: the page before is the caller's; it is not moved.
    unsafe {
        if remap(last, page, page + bytes, 0, last) != 0 {
            return false;
        }
        let done = protect(addr.as_ptr(), bytes, committed());
        if !done {
            unmap(addr.as_ptr(), bytes);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::super::linux::Linux;
    use super::{is_mapped, *};
    use crate::os::child::{Limit, succeeds};
    use crate::os::{Os, Purged};

    const BYTES: usize = 4 << 20;

    fn reserved(align: usize) -> NonNull<u8> {
        Linux.reserve(BYTES, align).unwrap()
    }

    #[test]
    fn pages_move_mapping_by_mapping_and_of_too_many_stay() {
        let base = reserved(1 << 21);
        let (half, page) = (BYTES / 2, Linux.page_bytes());
        // SAFETY: a reservation of ours, used by no other thread; the two halves are disjoint.
        unsafe {
            let target = base.add(half);
            Linux.commit(base, BYTES).unwrap();
            base.as_ptr().write_bytes(1, half);
            assert!(is_one_mapping(base, half));
            assert_eq!(Linux.move_pages(base, target, half, 1), Ok(()));
            assert_eq!([base.read(), target.add(half - 1).read()], [0, 1]);
            base.as_ptr().write_bytes(2, half);
            // A program may give advice for a part of its block.
            let part = base.add(half / 2).as_ptr().cast();
            assert_eq!(libc::madvise(part, page, libc::MADV_DONTFORK), 0);
            assert_eq!(mapping_bytes(base, half), half / 2);
            assert_eq!(mapping_bytes(base.add(half / 2), half / 2), page);
            assert_eq!(
                Linux.move_pages(base, target, half, 2),
                Err(RemapError::Refused)
            );
            assert_eq!([base.read(), base.add(half - 1).read()], [2, 2]);
            assert_eq!([target.read(), target.add(half - 1).read()], [1, 1]);
            assert_eq!(Linux.move_pages(base, target, half, 3), Ok(()));
            assert_eq!([base.read(), base.add(half - 1).read()], [0, 0]);
            for offset in [0, half / 2 - 1, half / 2, half / 2 + page, half - 1] {
                assert_eq!(target.add(offset).read(), 2, "{offset}");
            }
            Linux.unmap(base, BYTES);
        }
    }

    /// qemu-user forgot the range, and left its pages as they were.
    #[test]
    fn a_range_that_pages_were_moved_from_is_purged() {
        let base = reserved(1 << 21);
        let half = BYTES / 2;
        // SAFETY: a reservation of ours, used by no other thread; the two halves are disjoint.
        unsafe {
            Linux.commit(base, BYTES).unwrap();
            base.as_ptr().write_bytes(1, half);
            let _ = Linux.move_pages(base, base.add(half), half, 1);
            base.as_ptr().write_bytes(2, half);
            assert_eq!(Linux.purge(base, half), Purged::Zero);
            assert_eq!([base.read(), base.add(half - 1).read()], [0, 0]);
            Linux.unmap(base, BYTES);
        }
    }

    /// qemu-user accepted guards and installed none.
    #[test]
    fn a_guard_that_is_installed_guards() {
        let base = reserved(1 << 21);
        // SAFETY: a reservation of ours, used by no other thread.
        unsafe {
            Linux.commit(base, BYTES).unwrap();
            if Linux.install_guard(base, Linux.page_bytes()).is_ok() {
                let write = || {
                    base.as_ptr().write_volatile(1);
                    true
                };
                assert!(!succeeds(Limit::None, write));
            }
            Linux.unmap(base, BYTES);
        }
    }

    #[test]
    fn the_target_of_a_failed_move_is_committed_again() {
        let base = reserved(1 << 21);
        let page = Linux.page_bytes();
        let (first, second) = (base.as_ptr(), base.as_ptr().wrapping_add(page));
        // SAFETY: a reservation of ours, used by no other thread.
        unsafe {
            Linux.commit(base, BYTES).unwrap();
            base.as_ptr().write_bytes(1, 2 * page);
            unmap(base.as_ptr(), page);
            assert!(!is_mapped(first) && is_mapped(second));
            assert!(map_again(first, page) && !map_again(second, page));
            assert!(is_mapped(first));
            assert_eq!([base.read(), base.add(page).read()], [0, 1]);
            base.write(1);
            Linux.unmap(base, BYTES);
        }
    }

    #[test]
    fn a_claimed_range_is_mapped_in_parts_beside_what_others_map() {
        let page = Linux.page_bytes();
        let base = Linux.claim(1 << 34, 1 << 21, 1, 7).unwrap();
        assert!(base.as_ptr().addr().is_multiple_of(1 << 21));
        // SAFETY: a claimed range, then parts of it that are mapped, used by no other thread.
        unsafe {
            let [second, third] = [1, 2].map(|part| base.add(part * BYTES));
            assert!(!is_mapped(base.as_ptr()));
            assert_eq!(Linux.map_claimed(base, BYTES, Claim::Committed), Ok(()));
            base.write(1);
            let beyond = Linux.map_claimed(third, page, Claim::Reserved);
            assert_eq!(beyond, Ok(()));
            for claim in [Claim::Reserved, Claim::Committed, Claim::Extended] {
                let taken = Linux.map_claimed(second, 2 * BYTES, claim);
                assert_eq!(taken, Err(ClaimError::Taken));
            }
            assert!(!is_mapped(second.as_ptr()));
            assert!(!extend(second, 2 * BYTES) && extend(second, BYTES));
            assert_eq!([base.read(), second.add(BYTES - 1).read()], [1, 0]);
            second.write(1);
            Linux.unmap(base, 2 * BYTES + page);
            // Over a limit there is no memory, whoever has the addresses.
            let refused = || {
                let claimed = Linux.map_claimed(base, BYTES, Claim::Committed);
                claimed == Err(ClaimError::OutOfMemory)
            };
            assert!(succeeds(Limit::MoreAddresses(1 << 20), refused));
        }
    }

    #[test]
    fn scattered_arenas_leave_low_addresses_to_programs() {
        let chosen = || {
            scatter(7);
            let wish = || scattered(1 << 30, 1 << 30).is_some_and(|wish| wish.addr() >> 40 >= 88);
            (0..1000).all(|_| wish())
        };
        assert!(succeeds(Limit::None, chosen));
    }

    /// A filter of system calls with this answer to a mapping that must not replace another.
    fn filter(answer: u32) -> bool {
        const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        const JUMP: u32 = libc::BPF_JMP | libc::BPF_K;
        const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
        let step = |code: u32, k: u32, jf: u8| libc::sock_filter {
            code: code as u16,
            jt: 0,
            jf,
            k,
        };
        let mut steps = [
            step(LOAD, 0, 0),
            step(JUMP | libc::BPF_JEQ, libc::SYS_mmap as u32, 3),
            // The low half of the fourth argument.
            step(LOAD, 40, 0),
            step(JUMP | libc::BPF_JSET, libc::MAP_FIXED_NOREPLACE as u32, 1),
            step(RETURN, answer, 0),
            step(RETURN, libc::SECCOMP_RET_ALLOW, 0),
        ];
        let filter = libc::sock_fprog {
            len: steps.len() as u16,
            filter: steps.as_mut_ptr(),
        };
        // SAFETY: plain numbers, and a filter that the kernel copies.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) == 0
        }
    }

    #[test]
    fn filters_that_refuse_the_second_flag_or_kill_for_it() {
        let base = map_reserved(BYTES).unwrap();
        // SAFETY: the kernel maps it elsewhere, and then it is unmapped.
        let claimed = || unsafe { Linux.map_claimed(base, BYTES, Claim::Committed) };
        let taken = Err(ClaimError::Taken);
        for (refusal, answer) in [
            (libc::ENOMEM, Err(ClaimError::OutOfMemory)),
            (libc::EAGAIN, Err(ClaimError::OutOfMemory)),
            (libc::EPERM, taken),
        ] {
            let works = || {
                let is_filtered = filter(libc::SECCOMP_RET_ERRNO | refusal as u32);
                process::note_filter();
                is_filtered && claimed() == answer
            };
            assert!(succeeds(Limit::None, works), "{refusal}");
        }
        process::note_filter();
        let unseen = || filter(libc::SECCOMP_RET_KILL_PROCESS) && claimed() == taken;
        // Under a filter from the start, no later one is noticed.
        assert!(!process::started_unfiltered() || succeeds(Limit::None, unseen));
        // SAFETY: mapped above.
        unsafe { unmap(base.as_ptr(), BYTES) };
    }
}
