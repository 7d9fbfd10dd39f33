//! What Neap asks of an operating system.

use core::ops::Range;
use core::ptr::NonNull;

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
    /// As if by [`Os::reserve`].
    Reserved,
    /// Committed at once.
    Committed,
    /// The same; before it is a part that is mapped already and may be extended.
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

/// The kernel has no such guards, or not for this memory (for example, because it is locked).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardRefused;

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
    /// Splits existing huge pages into ordinary ones at once. Otherwise, if a huge page is given
    /// back in parts, the process keeps these parts until memory is short, whatever the resident
    /// size says.
    Split,
}

/// What backs populated pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// RAM.
    Ram,
    /// RAM, as a huge page.
    HugePage,
    /// RAM that is not the process's alone: the page of zeros, or one that `fork` left to both. A
    /// write would copy it.
    Shared,
    /// Swap: touching them waits for a disk.
    Swap,
}

/// A run of populated OS pages: not known to be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Populated {
    /// Address of the first.
    pub start: usize,
    /// Bytes of the run.
    pub bytes: usize,
    /// What backs them.
    pub backing: Backing,
}

/// How the kernel answers questions about populated pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// By runs: what is not populated costs next to nothing.
    Runs,
    /// Page by page, whether populated or not.
    Pages,
}

/// The kernel cannot say which pages are populated, from an address on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Everything before it was reported.
    pub from: usize,
}

/// What Neap requires of an operating system. `Linux` is the real one; tests have a fake.
///
/// Addresses and lengths are multiples of [`Os::page_bytes`] unless said otherwise.
pub trait Os: Sync {
    /// Bytes in an OS page (4, 16 or 64 KiB), constant for the process.
    fn page_bytes(&self) -> usize;
    /// Reserves `bytes` of address space at a multiple of `align` (a power of two): no access, no
    /// commit charge.
    fn reserve(&self, bytes: usize, align: usize) -> Option<NonNull<u8>>;
    /// The address of a range of `bytes` bytes, at a multiple of `align` (a power of two), of which
    /// nothing is mapped, as a rule, and where the kernel maps nothing of its own choice. Each
    /// owner's ranges differ from others', and its `nth` from those before. Ranges of different
    /// lengths may overlap. `None` where addresses are few.
    fn claim(&self, bytes: usize, align: usize, owner: usize, nth: usize) -> Option<NonNull<u8>>;
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
    ) -> Result<(), ClaimError>;
    /// Gives a reservation back, or a part of one.
    ///
    /// # Safety
    /// - No thread uses the range, nor will.
    unsafe fn unmap(&self, base: NonNull<u8>, bytes: usize);
    /// Like [`Os::reserve`], for when no mapping can be added: moves the program break (`brk`),
    /// which extends an existing mapping. The range is committed at once. Never given back.
    fn reserve_at_break(&self, bytes: usize, align: usize) -> Option<NonNull<u8>>;
    /// Makes a reserved range readable and writable; it reads as zero if it has not been committed
    /// since reserve or uncommit.
    ///
    /// # Safety
    /// - The range lies in one reservation.
    unsafe fn commit(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory>;
    /// Takes a range back to the state after `reserve`: contents lost, commit charge returned.
    ///
    /// # Safety
    /// - The range lies in one reservation and no thread uses it.
    unsafe fn uncommit(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory>;
    /// Gives the pages of a committed range back to the kernel; the range stays committed. Refused
    /// where the program locked memory.
    ///
    /// # Safety
    /// - The range is committed and no thread uses it.
    unsafe fn purge(&self, addr: NonNull<u8>, bytes: usize) -> Purged;
    /// The same, locked or not.
    ///
    /// # Safety
    /// - As [`Os::purge`].
    unsafe fn purge_locked(&self, addr: NonNull<u8>, bytes: usize) -> Purged;
    /// Whether the program is known to have locked all its memory, so that no page may be purged.
    fn is_locked(&self) -> bool;
    /// Advises the kernel on huge pages for a range. Failure is not an error.
    ///
    /// # Safety
    /// - The range lies in one reservation.
    unsafe fn advise_huge(&self, addr: NonNull<u8>, bytes: usize, huge: Huge);
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
    ) -> Result<(), Unknown>;
    /// How [`Os::populated`] is answered.
    fn answers(&self) -> Answers;
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
    ) -> Result<(), RemapError>;
    /// Maps a committed range afresh: it stays committed and reads as zero, and its mapping can
    /// merge with its neighbours'. On an error its contents are unknown.
    ///
    /// # Safety
    /// - The range is committed and no thread uses it.
    unsafe fn renew(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), RemapError>;
    /// Makes every access to a committed range fault, without a mapping of its own; its contents
    /// are lost. [`Os::purge`] leaves it so. [`Os::populated`] reports it as if it were in swap.
    ///
    /// # Safety
    /// - The range is committed and no thread uses it.
    unsafe fn install_guard(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), GuardRefused>;
    /// Takes back what [`Os::install_guard`] did anywhere in a committed range; the guards' pages
    /// read as zero. Other pages stay as they are.
    ///
    /// # Safety
    /// - The range is committed.
    unsafe fn remove_guard(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), GuardRefused>;
    /// Makes every write to a committed range fault, without a mapping of its own. The range was
    /// purged, or such a guard before. Registers up to all of `within` for that, but at least
    /// `least`, which contain the range. Returns the guard's [generation](Os::write_guards).
    /// [`Os::purge`] takes the guard away.
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
    ) -> Result<u64, GuardRefused>;
    /// Takes back what [`Os::install_write_guard`] did.
    ///
    /// # Safety
    /// - The range is committed, and no thread uses it.
    unsafe fn remove_write_guard(
        &self,
        addr: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), GuardRefused>;
    /// The generation of the write guards that hold. All others are gone: in a fork's child, or
    /// when the program closed a descriptor, which is noticed here if the kernel `is_asked`.
    fn write_guards(&self, is_asked: bool) -> u64;
    /// Makes every access to a committed range fault, by a mapping of its own. [`Os::commit`] takes
    /// it back.
    ///
    /// # Safety
    /// - The range is committed and no thread uses it.
    unsafe fn protect(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory>;
    /// How many mappings the process may have (`vm.max_map_count`).
    fn most_mappings(&self) -> usize;
    /// Monotonic time in ms, cheap and coarse.
    fn now_ms(&self) -> u64;
    /// Whether the kernel uses huge pages wherever it can, unasked.
    fn has_huge_everywhere(&self) -> bool;
    /// Whether every commit is charged against a limit (`vm.overcommit_memory` = 2).
    fn strict_commit(&self) -> bool;
    /// `RLIMIT_AS` in bytes, if there is one.
    fn address_limit(&self) -> Option<usize>;
    /// `RLIMIT_DATA` in bytes, if there is one: all writable private memory counts against it.
    fn data_limit(&self) -> Option<usize>;
}
