//! The only room that speaks to the kernel.
//!
//! Every function here keeps the caller's `errno`.

#[cfg(test)]
pub mod child;
pub mod errno;
#[cfg(test)]
pub mod fake;
pub mod fatal;
pub mod linux;
pub mod lock;
#[cfg(loom)]
mod lock_loom;
pub mod thread;

use core::ptr::NonNull;

/// The kernel (or a limit) refused memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// What a purge left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purged {
    /// The pages read as zero from now on.
    Zero,
    /// The kernel refused (locked memory …): contents unchanged or unknown.
    MaybeDirty,
}

/// What the kernel is told about huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Huge {
    /// `MADV_HUGEPAGE`.
    Want,
    /// `MADV_NOHUGEPAGE`.
    Avoid,
}

/// What stands behind populated pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// RAM.
    Ram,
    /// RAM, as a huge page.
    HugePage,
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
    /// What stands behind them.
    pub backing: Backing,
}

/// Nobody can say which pages are populated, from an address on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Everything before it was told.
    pub from: usize,
}

/// What Neap asks of an operating system. `Linux` is the real one; tests have a fake.
///
/// Addresses and lengths are multiples of [`Os::page_bytes`] unless said otherwise.
pub trait Os: Sync {
    /// Bytes in an OS page (4, 16 or 64 KiB), constant for the process.
    fn page_bytes(&self) -> usize;
    /// Reserves `bytes` of address space at a multiple of `align` (a power of two): no access, no commit charge.
    fn reserve(&self, bytes: usize, align: usize) -> Option<NonNull<u8>>;
    /// Gives a whole reservation back.
    ///
    /// # Safety
    /// - `base` and `bytes` are exactly one earlier reservation that nobody uses any more.
    unsafe fn release(&self, base: NonNull<u8>, bytes: usize);
    /// Makes a reserved range readable and writable; it reads as zero if it never was committed since reserve or uncommit.
    ///
    /// # Safety
    /// - The range lies in one reservation.
    unsafe fn commit(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory>;
    /// Takes a range back to the state after `reserve`: contents lost, commit charge returned.
    ///
    /// # Safety
    /// - The range lies in one reservation and nobody uses it.
    unsafe fn uncommit(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory>;
    /// Gives the pages of a committed range back to the kernel; the range stays committed.
    ///
    /// # Safety
    /// - The range is committed and nobody uses it.
    unsafe fn purge(&self, addr: NonNull<u8>, bytes: usize) -> Purged;
    /// Advises the kernel on huge pages for a committed range. Failure is not an error.
    ///
    /// # Safety
    /// - The range is committed.
    unsafe fn advise_huge(&self, addr: NonNull<u8>, bytes: usize, huge: Huge);
    /// Calls `visit` with every run of populated pages of a committed range, in the order of addresses. All
    /// others read as zero.
    ///
    /// # Safety
    /// - The range is committed.
    unsafe fn populated(
        &self,
        addr: NonNull<u8>,
        bytes: usize,
        visit: impl FnMut(Populated),
    ) -> Result<(), Unknown>;
    /// Moves the pages of `from` to `to` without copying; `from` stays mapped and reads as zero. On an error
    /// both stay committed, and the contents of `from` what they were.
    ///
    /// # Safety
    /// - Both ranges are committed, `bytes` long, disjoint, and nobody else uses either.
    unsafe fn move_pages(
        &self,
        from: NonNull<u8>,
        to: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), OutOfMemory>;
    /// Maps a committed range afresh: it stays committed and reads as zero, and its mapping can merge with
    /// its neighbours'. On an error it is committed all the same, its contents unknown.
    ///
    /// # Safety
    /// - The range is committed and nobody uses it.
    unsafe fn renew(&self, addr: NonNull<u8>, bytes: usize) -> Result<(), OutOfMemory>;
    /// Monotonic time in ms, cheap and coarse.
    fn now_ms(&self) -> u64;
    /// Whether every commit is charged against a limit (`vm.overcommit_memory` = 2).
    fn strict_commit(&self) -> bool;
    /// `RLIMIT_AS` in bytes, if there is one.
    fn address_limit(&self) -> Option<usize>;
}
