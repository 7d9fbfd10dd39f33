//! The slot on x86-64: `fs` holds the thread pointer, the global offset table the slot's distance
//! from it.

use crate::cache::thread::{Cache, EMPTY};
use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tdata.neap_slot_0_1,\"awT\",@progbits",
    ".p2align 3",
    ".hidden neap_slot_0_1",
    ".globl neap_slot_0_1",
    ".type neap_slot_0_1,@object",
    ".size neap_slot_0_1,8",
    "neap_slot_0_1:",
    ".quad {empty}",
    ".popsection",
    empty = sym EMPTY,
);

/// The calling thread's cache, or one of the two sentinels.
#[inline(always)]
pub fn get() -> *const Cache {
    let cache: *const Cache;
    // SAFETY: reads the thread's own slot, which holds a pointer from its first instant on. Not
    // `pure`: after `set` the next read must see the new value.
    unsafe {
        asm!(
            "mov {cache}, qword ptr [rip + neap_slot_0_1@GOTTPOFF]",
            "mov {cache}, qword ptr fs:[{cache}]",
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
pub unsafe fn set(cache: *const Cache) {
    // SAFETY: writes the thread's own slot.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + neap_slot_0_1@GOTTPOFF]",
            "mov qword ptr fs:[{offset}], {cache}",
            offset = out(reg) _,
            cache = in(reg) cache,
            options(nostack, preserves_flags),
        );
    }
}

/// Where the calling thread's slot is.
pub fn address() -> usize {
    let slot: usize;
    // SAFETY: reads the distance, and the thread pointer, which `fs:0` holds.
    unsafe {
        asm!(
            "mov {slot}, qword ptr [rip + neap_slot_0_1@GOTTPOFF]",
            "add {slot}, qword ptr fs:[0]",
            slot = out(reg) slot,
            options(nostack, readonly),
        );
    }
    slot
}
