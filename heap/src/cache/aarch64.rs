//! The thread's slot on aarch64, and the caller of `free`.
//!
//! The slot is an initial-exec word of thread-local storage. `tpidr_el0` holds the thread pointer,
//! and the global offset table holds the slot's distance from it. The symbol's name contains the
//! version, so that two versions in one program do not share a slot.

use crate::cache::thread_cache::{Cache, EMPTY};
use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tdata.neap_slot_0_1,\"awT\",%progbits",
    ".p2align 3",
    ".hidden neap_slot_0_1",
    ".globl neap_slot_0_1",
    ".type neap_slot_0_1,%object",
    ".size neap_slot_0_1,8",
    "neap_slot_0_1:",
    ".quad {empty}",
    ".popsection",
    empty = sym EMPTY,
);

/// The calling thread's cache, or one of the two sentinels.
#[inline(always)]
pub fn slot() -> *const Cache {
    let cache: *const Cache;
    // SAFETY: reads the thread's own slot, which holds a pointer from its first instant on.
    unsafe {
        asm!(
            "mrs {thread}, tpidr_el0",
            "adrp {cache}, :gottprel:neap_slot_0_1",
            "ldr {cache}, [{cache}, :gottprel_lo12:neap_slot_0_1]",
            "ldr {cache}, [{thread}, {cache}]",
            thread = out(reg) _,
            cache = out(reg) cache,
            options(nostack, preserves_flags, readonly),
        );
    }
    cache
}

/// Changes the calling thread's cache.
///
/// # Safety
/// - `cache` stays valid until the slot is set again or the thread has ended.
pub unsafe fn set_slot(cache: *const Cache) {
    // SAFETY: writes the thread's own slot.
    unsafe {
        asm!(
            "mrs {thread}, tpidr_el0",
            "adrp {offset}, :gottprel:neap_slot_0_1",
            "ldr {offset}, [{offset}, :gottprel_lo12:neap_slot_0_1]",
            "str {cache}, [{thread}, {offset}]",
            thread = out(reg) _,
            offset = out(reg) _,
            cache = in(reg) cache,
            options(nostack, preserves_flags),
        );
    }
}

/// Where the calling thread's slot is.
pub fn slot_address() -> usize {
    let slot: usize;
    // SAFETY: reads the distance and the thread pointer.
    unsafe {
        asm!(
            "mrs {thread}, tpidr_el0",
            "adrp {slot}, :gottprel:neap_slot_0_1",
            "ldr {slot}, [{slot}, :gottprel_lo12:neap_slot_0_1]",
            "add {slot}, {thread}, {slot}",
            thread = out(reg) _,
            slot = out(reg) slot,
            options(nostack, preserves_flags, readonly),
        );
    }
    slot
}

/// Defines `$name`, which jumps to `$slow` with the return address of the caller, which is in the
/// link register, as its second argument.
macro_rules! with_caller {
    ($name:ident, $slow:path) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name(block: *mut u8) {
            core::arch::naked_asm!("mov x1, x30", "b {slow}", slow = sym $slow)
        }
    };
}
pub(crate) use with_caller;
