//! The fast path on x86-64.
//!
//! ```text
//!   cache + tag*8                       a slice's tag is its class's magazine, in units of 8 bytes
//!     +0  top     past the newest       pop:      top <= bottom -> slow;  block = [top-8];  top -= 8
//!     +8  bottom  oldest                release:  top >= limit or block == [top-8] -> slow;
//!     +16 limit   end of the room                 [top] = block;  top += 8
//!   cache + counted + tag*8
//!     +0  bottom  while sampling    pop_counted: top <= bottom -> slow;  ahead -= 1;  ahead < 0 -> slow;  then as pop
//!     +8  ahead   before a sample
//!   cache + starts + tag*4              the tag's divisibility test
//! ```
//!
//! `top` changes by one instruction that only the owner runs; x86 keeps stores in order, so whoever
//! sees a new `top` sees the entry below it.

use crate::base::sync::{Ordering, light_barrier};
use crate::cache::counted::Counted;
use crate::cache::heap::{HEAP, Heap};
use crate::cache::magazine::{Start, Tag};
use crate::cache::thread::Cache;
use crate::os::linux::Linux;
use crate::page::PageHeap;
use core::arch::asm;
use core::mem::offset_of;

/// Where the page heap keeps the primary arena's base and its number of slices.
const BASE_AT: usize = offset_of!(Heap, pages) + offset_of!(PageHeap<Linux>, primary_base);
const SLICES_AT: usize = offset_of!(Heap, pages) + offset_of!(PageHeap<Linux>, primary_slices);

/// Takes the newest block of a magazine; `None` if there is none or the magazine is closed.
#[inline(always)]
pub fn pop(cache: &Cache, tag: Tag) -> Option<*mut u8> {
    let top = cache.magazine(tag).top.load(Ordering::Relaxed);
    // SAFETY: only reads the magazine's bottom; the tag is one of a magazine (see `Cache::magazine`).
    unsafe {
        asm!(
            "cmp {top}, qword ptr [{cache} + {tag}*8 + 8]",
            "jbe {slow}",
            top = in(reg) top,
            cache = in(reg) cache,
            tag = in(reg) tag.0 as usize,
            slow = label { return None },
            options(nostack, readonly),
        );
    }
    Some(take(cache, tag, top))
}

/// Takes the newest block of a magazine while the profiler counts what is given out; `None` if this one is to be sampled, if
/// there is none, or if nothing is counted. For the owner only.
#[inline(always)]
pub fn pop_counted(cache: &Cache, tag: Tag) -> Option<*mut u8> {
    let counted = cache.counted_of(tag);
    debug_assert!(!cache.is_sentinel() || counted.bottom.load(Ordering::Relaxed) == 0);
    let top = cache.magazine(tag).top.load(Ordering::Relaxed);
    // SAFETY: reads what is counted of the tag's class (see `Cache::counted_of`), and writes the owner's own number, which
    // a sentinel's bottom keeps from being reached: its magazines are empty.
    unsafe {
        asm!(
            "cmp {top}, qword ptr [{cache} + {tag}*8 + {bottom_at}]",
            "jbe {slow}",
            "sub dword ptr [{cache} + {tag}*8 + {ahead_at}], 1",
            "js {slow}",
            top = in(reg) top,
            cache = in(reg) cache,
            tag = in(reg) tag.0 as usize,
            bottom_at = const offset_of!(Cache, counted) + offset_of!(Counted, bottom),
            ahead_at = const offset_of!(Cache, counted) + offset_of!(Counted, ahead),
            slow = label { return None },
            options(nostack),
        );
    }
    Some(take(cache, tag, top))
}

/// The newest block of a magazine with one, whose top is `top`.
#[inline(always)]
fn take(cache: &Cache, tag: Tag, top: usize) -> *mut u8 {
    // SAFETY: entries between bottom and top are the owner's (see `Magazine::pop`).
    let block = unsafe { *((top - 8) as *const *mut u8) };
    // SAFETY: the owner's own word; one instruction, so no signal handler sees half of it.
    unsafe {
        asm!(
            "sub qword ptr [{cache} + {tag}*8], 8",
            cache = in(reg) cache,
            tag = in(reg) tag.0 as usize,
            options(nostack),
        );
    }
    light_barrier();
    block
}

/// Pushes a block onto the calling thread's magazine of its class. False if that takes the slow path:
/// not in the primary arena, no block of a slab, no room, no cache, or freed by the call before.
///
/// # Safety
/// - `block` is a block of this heap that is not given back, or no block of it at all.
#[inline(always)]
pub unsafe fn release(block: *mut u8) -> bool {
    // SAFETY: reads the arena's tag only if the slice is one of the arena's, whose table begins at its
    // base; reads the word below the top of the thread's own magazine, which can be read even where
    // there is no entry (see `Magazine`); writes the entry only below the limit, then the top. The
    // cache in the slot is a sentinel (always full) or the thread's own.
    unsafe {
        asm!(
            // Which slice?
            "mov {base}, qword ptr [rip + {heap} + {base_at}]",
            "mov {word}, {block}",
            "sub {word}, {base}",
            "shr {word}, 16",
            "cmp {word}, qword ptr [rip + {heap} + {slices_at}]",
            "jae {slow}",
            "movzx {tag:e}, byte ptr [{base} + {word}]",
            // Does a block of its class start here? One multiplication tells (see `Divisor`).
            "mov {base}, qword ptr [rip + neap_slot_0_1@GOTTPOFF]",
            "mov {base}, qword ptr fs:[{base}]",
            "movzx {word:e}, {block:x}",
            "imul {word:e}, dword ptr [{base} + {tag}*4 + {starts_at}]",
            "cmp {word:e}, dword ptr [{base} + {tag}*4 + {limits_at}]",
            "jae {slow}",
            // Push.
            "mov {word}, qword ptr [{base} + {tag}*8]",
            "cmp {word}, qword ptr [{base} + {tag}*8 + 16]",
            "jae {slow}",
            // Freed twice in a row? Else the entry is stale, and the slow path pushes the block.
            "cmp qword ptr [{word} - 8], {block}",
            "je {slow}",
            "mov qword ptr [{word}], {block}",
            "add qword ptr [{base} + {tag}*8], 8",
            block = in(reg) block,
            base = out(reg) _,
            word = out(reg) _,
            tag = out(reg) _,
            heap = sym HEAP,
            base_at = const BASE_AT,
            slices_at = const SLICES_AT,
            starts_at = const offset_of!(Cache, starts),
            limits_at = const offset_of!(Cache, starts) + offset_of!(Start, limit),
            slow = label { return false },
            options(nostack),
        );
    }
    true
}
