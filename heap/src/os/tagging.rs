//! Memory tags of AArch64 (MTE). Each 16 bytes of tagged memory have a tag of 4 bits. An access by
//! a pointer with another tag is a fault (SIGSEGV, `SEGV_MTESERR`). The heap's own pointers have
//! the tag 0.
//!
//! `untagged.rs` stands here for machines without tags.

use super::arch::call_long;
use super::process::auxiliary;
use super::sandbox;
use crate::base::sync::plain::{AtomicBool, Ordering};
use core::arch::asm;

/// Bytes that share a tag.
pub const GRANULE: usize = 16;

/// How many tags there are.
pub const TAGS: u64 = 16;

/// Bits 56 to 59 of a pointer.
const TAG_SHIFT: u32 = 56;
const TAG_BITS: usize = 15 << TAG_SHIFT;

static ON: AtomicBool = AtomicBool::new(false);

/// Whether memory is tagged.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
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
    if machine & HWCAP2_MTE == 0 || sandbox::is_forbidden() {
        return;
    }
    let control = ENABLE | SYNCHRONOUS | CHOICES;
    // SAFETY: plain numbers.
    let answer = unsafe { call_long(libc::SYS_prctl, [SET_TAGGED_ADDR_CTRL, control, 0, 0, 0, 0]) };
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
    let mut pointer = address;
    // SAFETY: the caller's promise; reads no bytes.
    unsafe {
        asm!(
            ".arch_extension memtag",
            "ldg {0}, [{0}]",
            inout(reg) pointer,
            options(nostack, preserves_flags, readonly),
        );
    }
    tag_of(pointer)
}

/// A pointer to `address` with a random tag, which is none of `excluded` (a bit for each tag). It
/// is 0 if these are all.
///
/// # Safety
/// - Memory is tagged.
#[inline]
pub unsafe fn choose(address: usize, excluded: u16) -> usize {
    debug_assert!(is_on());
    let pointer;
    // SAFETY: the caller's promise: the processor has the instruction.
    unsafe {
        asm!(
            ".arch_extension memtag",
            "irg {0}, {1}, {2}",
            out(reg) pointer,
            in(reg) address,
            in(reg) u64::from(excluded),
            options(nostack, preserves_flags, nomem),
        );
    }
    pointer
}

/// Gives memory the tag of the pointer to it.
///
/// # Safety
/// - Memory is tagged. The bytes at the pointer's address are the caller's, and begin and end at
///   multiples of [`GRANULE`].
#[inline]
pub unsafe fn paint(pointer: usize, bytes: usize) {
    debug_assert!(is_on() && (pointer | bytes).is_multiple_of(GRANULE));
    let (mut at, end) = (pointer, pointer + bytes);
    // SAFETY: the caller's promise: changes no bytes.
    unsafe {
        while end - at >= 2 * GRANULE {
            asm!(".arch_extension memtag", "st2g {0}, [{0}]", in(reg) at, options(nostack));
            at += 2 * GRANULE;
        }
        if at != end {
            asm!(".arch_extension memtag", "stg {0}, [{0}]", in(reg) at, options(nostack));
        }
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
        if !is_on() {
            return Unchecked { before: 0 };
        }
        let before;
        // By number, for assemblers without tags. SAFETY: the processor has the register.
        unsafe {
            asm!(
                "mrs {0}, s3_3_c4_c2_7",
                "msr s3_3_c4_c2_7, {1}",
                out(reg) before,
                in(reg) 1u64 << 25,
                options(nostack, preserves_flags),
            );
        }
        Unchecked { before }
    }
}

impl Drop for Unchecked {
    #[inline(always)]
    fn drop(&mut self) {
        if is_on() {
            // SAFETY: as above.
            unsafe {
                asm!(
                    "msr s3_3_c4_c2_7, {0}",
                    in(reg) self.before,
                    options(nostack, preserves_flags),
                );
            }
        }
    }
}
