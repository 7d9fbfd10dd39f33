//! Memory tags of AArch64 (MTE). Each 16 bytes of tagged memory have a tag of 4 bits. An access by
//! a pointer with another tag is a fault (SIGSEGV, `SEGV_MTESERR`). The heap's own pointers have
//! the tag 0.
//!
//! On machines without tags [`is_on`] is the constant `false`, and nothing here costs an
//! instruction.

use super::arch::{load_tag, random_tag, set_unchecked, store_tag};
use super::process;
use super::process::auxiliary;
use crate::base::sync::plain::{AtomicBool, Ordering};

/// Bytes that share a tag.
pub const GRANULE: usize = 16;

/// How many tags there are.
pub const TAGS: u64 = if HAS_TAGS { 16 } else { 1 };

const HAS_TAGS: bool = cfg!(target_arch = "aarch64");

/// Bits 56 to 59 of a pointer.
const TAG_SHIFT: u32 = 56;
const TAG_BITS: usize = 15 << TAG_SHIFT;

static ON: AtomicBool = AtomicBool::new(false);

/// Whether memory is tagged.
#[inline(always)]
pub fn is_on() -> bool {
    HAS_TAGS && ON.load(Ordering::Relaxed)
}

/// Switches the checks on, for the calling thread and for all threads and forks that it makes from
/// now on, where the machine and the kernel have them.
#[cold]
pub fn start() {
    const HWCAP2_MTE: usize = 1 << 18;
    const SET_TAGGED_ADDR_CTRL: usize = 55;
    const ENABLE: usize = 1;
    const SYNCHRONOUS: usize = 1 << 1;
    /// Which tags the processor may choose: all but 0.
    const CHOICES: usize = 0xfffe << 3;
    let machine = auxiliary(libc::AT_HWCAP2);
    if !HAS_TAGS || machine & HWCAP2_MTE == 0 || process::queries_are_forbidden() {
        return;
    }
    let control = ENABLE | SYNCHRONOUS | CHOICES;
    // SAFETY: plain numbers.
    let answer = unsafe { kernel!(prctl, SET_TAGGED_ADDR_CTRL, control, 0, 0, 0) };
    ON.store(answer == 0, Ordering::Relaxed);
}

/// What `mprotect` and `mmap` are to allow about memory besides access.
#[inline]
pub(super) fn protection() -> i32 {
    const PROT_MTE: i32 = 0x20;
    if is_on() { PROT_MTE } else { 0 }
}

/// A pointer's address.
#[inline(always)]
pub fn strip(address: usize) -> usize {
    if is_on() {
        address & !TAG_BITS
    } else {
        address
    }
}

/// The tag of a pointer, or of a number whose bits 56 to 59 it is.
#[inline(always)]
pub fn tag_of(pointer: usize) -> u8 {
    ((pointer & TAG_BITS) >> TAG_SHIFT) as u8
}

/// The tag of the memory at `address`; 0 if the memory has none.
///
/// # Safety
/// - Memory is tagged, and the address is of a page that may be read.
#[inline]
pub unsafe fn tag_at(address: usize) -> u8 {
    debug_assert!(is_on());
    // SAFETY: the page may be read.
    tag_of(unsafe { load_tag(address) })
}

/// A pointer to `address` with a random tag, which is none of `excluded` (a bit for each tag). It
/// is 0 if these are all.
///
/// # Safety
/// - Memory is tagged.
#[inline]
pub unsafe fn choose(address: usize, excluded: u16) -> usize {
    debug_assert!(is_on());
    // SAFETY: the processor has the instruction.
    unsafe { random_tag(address, excluded.into()) }
}

/// Gives memory the tag of the pointer to it.
///
/// # Safety
/// - Memory is tagged. The bytes at the pointer's address are the caller's, and begin and end at
///   multiples of [`GRANULE`].
#[inline]
pub unsafe fn paint(pointer: usize, bytes: usize) {
    debug_assert!(is_on() && (pointer | bytes).is_multiple_of(GRANULE));
    for at in (pointer..pointer + bytes).step_by(GRANULE) {
        // SAFETY: within the caller's bytes.
        unsafe { store_tag(at) };
    }
}

/// While it lives, the calling thread's accesses are not checked.
pub struct Unchecked {
    /// What was in force before: the register TCO.
    before: u64,
}

impl Unchecked {
    /// From now on.
    #[inline(always)]
    pub fn begin() -> Unchecked {
        const UNCHECKED: u64 = 1 << 25;
        let before = match is_on() {
            // SAFETY: where memory is tagged, the processor has the register.
            true => unsafe { set_unchecked(UNCHECKED) },
            false => 0,
        };
        Unchecked { before }
    }
}

impl Drop for Unchecked {
    #[inline(always)]
    fn drop(&mut self) {
        if is_on() {
            // SAFETY: where memory is tagged, the processor has the register.
            unsafe { set_unchecked(self.before) };
        }
    }
}
