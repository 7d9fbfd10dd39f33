//! The fast path of `malloc` and `free` on AArch64, the thread's slot, and the caller of `free`.
//!
//! ```text
//!   cache + 0, + 16                     the bound of sizes, the address of the tags by size
//!   cache + tag*8                       a slice's tag is its class's magazine, in units of 8 bytes
//!     +0  top     past the newest       pop_sized:  size >= bound -> slow;  block = [top-8];
//!                                                   block == 0 -> slow;  top -= 8
//!     +8  limit   end of the room       push_freed: top >= limit or block is [top-8] or [top-16]
//!                                                   -> slow;  [top] = block;  top += 8
//!   cache + starts + tag*4              the tag's divisibility test
//! ```
//!
//! The guard below an empty magazine reads 0. `free` detects a block freed twice with one other
//! between. On x86-64 `malloc` does. Here a load of two words costs `free` one instruction more,
//! and saves `malloc` two.
//!
//! The bound is loaded with acquire: a drainer writes guards before it raises the bound, and a
//! later load must see them. The top is stored with release: a drainer that sees it sees the entry.
//!
//! The slot is an initial-exec word of thread-local storage. `tpidr_el0` holds the thread pointer,
//! and the global offset table holds the slot's distance from it. The symbol's name contains the
//! version, so that two versions in one program do not share a slot.
//!
//! The feature `near` says that the program is shorter than 1 MiB, as `libneap.so` is. Then one
//! instruction finds a word of its data instead of two.

use crate::cache::heap::{HEAP, Heap};
use crate::cache::magazine::{Magazine, Start};
use crate::cache::thread_cache::{Cache, EMPTY};
use crate::os::linux::Linux;
use crate::pages::PageHeap;
use core::arch::{asm, global_asm};
use core::mem::offset_of;

/// Where the page heap keeps the primary arena's base, and behind it its number of slices.
const BASE_AT: usize = offset_of!(Heap, pages) + offset_of!(PageHeap<Linux>, primary_base);
const SLICES_AT: usize = offset_of!(Heap, pages) + offset_of!(PageHeap<Linux>, primary_slices);
const _: () = assert!(SLICES_AT == BASE_AT + 8);

// What the instructions below load at once, or without an offset.
const _: () = assert!(offset_of!(Cache, magazines) == 0 && offset_of!(Magazine, top) == 0);
const _: () = assert!(offset_of!(Magazine, limit) == 8 && offset_of!(Magazine, bottom) == 16);
const _: () = assert!(offset_of!(Start, test) == 0 && offset_of!(Start, limit) == 4);

/// Loads the slot's distance from the thread pointer.
#[cfg(not(feature = "near"))]
macro_rules! distance {
    ($register:literal) => {
        concat!(
            "adrp ",
            $register,
            ", :gottprel:",
            slot_name!(),
            "\n",
            "ldr ",
            $register,
            ", [",
            $register,
            ", :gottprel_lo12:",
            slot_name!(),
            "]",
        )
    };
}
#[cfg(feature = "near")]
macro_rules! distance {
    ($register:literal) => {
        concat!("ldr ", $register, ", :gottprel:", slot_name!())
    };
}

/// Loads the address of the primary arena's base.
#[cfg(not(feature = "near"))]
macro_rules! arena {
    ($register:literal) => {
        concat!(
            "adrp ",
            $register,
            ", {heap} + {base_at}\n",
            "add ",
            $register,
            ", ",
            $register,
            ", :lo12:{heap} + {base_at}",
        )
    };
}
#[cfg(feature = "near")]
macro_rules! arena {
    ($register:literal) => {
        concat!("adr ", $register, ", {heap} + {base_at}")
    };
}

global_asm!(
    concat!(".pushsection .tdata.", slot_name!(), ",\"awT\",%progbits"),
    ".p2align 3",
    concat!(".hidden ", slot_name!()),
    concat!(".globl ", slot_name!()),
    concat!(".type ", slot_name!(), ",%object"),
    concat!(".size ", slot_name!(), ",8"),
    concat!(slot_name!(), ":"),
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
            distance!("{cache}"),
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
            distance!("{offset}"),
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
            distance!("{slot}"),
            "add {slot}, {thread}, {slot}",
            thread = out(reg) _,
            slot = out(reg) slot,
            options(nostack, preserves_flags, readonly),
        );
    }
    slot
}

/// Takes a block for a request of `size` bytes; `None` if its magazine has none, if requests of
/// that size are not in the table, or if a drainer is at work or the fast path is not on.
///
/// # Safety
/// - `cache` is the calling thread's own, or a sentinel.
#[inline(always)]
pub unsafe fn pop_sized(cache: &Cache, size: usize) -> Option<*mut u8> {
    // SAFETY: only reads the cache's own word.
    unsafe {
        asm!(
            "ldar {bound}, [{cache}]",
            "cmp {size}, {bound}",
            "b.hs {slow}",
            bound = out(reg) _,
            size = in(reg) size,
            cache = in(reg) cache,
            slow = label { return None },
            options(nostack, readonly),
        );
    }
    debug_assert!(size < cache.tags.len());
    let (block, top, tag): (*mut u8, usize, usize);
    // SAFETY: reads the size's tag, its magazine's top, and the word below: while the bound is
    // above 0, every class's top is above an entry or the guard. Entries above the bottom are the
    // owner's.
    unsafe {
        asm!(
            "ldr {tag}, [{cache}, #{tags_at}]",
            "ldrb {tag:w}, [{tag}, {size}]",
            "ldr {top}, [{cache}, {tag}, lsl #3]",
            "ldr {block}, [{top}, #-8]!",
            tag = out(reg) tag,
            top = out(reg) top,
            block = lateout(reg) block,
            size = in(reg) size,
            cache = in(reg) cache,
            tags_at = const offset_of!(Magazine, bottom),
            options(nostack, preserves_flags, readonly),
        );
    }
    if block.is_null() {
        return None;
    }
    // SAFETY: the owner's own word.
    unsafe {
        asm!(
            "str {top}, [{cache}, {tag}, lsl #3]",
            top = in(reg) top,
            cache = in(reg) cache,
            tag = in(reg) tag,
            options(nostack, preserves_flags),
        );
    }
    Some(block)
}

/// The instructions that push `$block`, between the function's start and its `true`. `$fit` tests
/// more than that a block starts there, by the operands `$with`; `{word}` is then the address of
/// the class in the table of starts, short of its offset.
///
/// Reads the arena's tag only if the slice is one of the arena's, whose table begins at its base;
/// reads the two words below the top of the thread's own magazine, entries or words of the guard
/// (see `Magazine`); writes the entry only below the limit, then the top. The cache in the slot is
/// a sentinel (always full) or the thread's own.
macro_rules! push {
    ($block:ident, [$($fit:literal),*], [$($with:tt)*]) => {
        asm!(
            // Which slice?
            arena!("{base}"),
            "ldp {base}, {word}, [{base}]",
            "sub {tag}, {block}, {base}",
            "lsr {tag}, {tag}, #16",
            "cmp {tag}, {word}",
            "b.hs {slow}",
            "ldrb {tag:w}, [{base}, {tag}]",
            // Does a block of its class start here? One multiplication tells (see `Starts`). The
            // constant and the limit of the product are the halves of a word.
            "mrs {base}, tpidr_el0",
            distance!("{word}"),
            "ldr {base}, [{base}, {word}]",
            "add {word}, {base}, {tag}, lsl #2",
            $($fit,)*
            "ldr {word}, [{word}, #{starts_at}]",
            "and {other:w}, {block:w}, #0xffff",
            "mul {other:w}, {other:w}, {word:w}",
            "cmp {other}, {word}, lsr #32",
            // Is there room? If no block starts here, the carry says no as well (#2).
            "add {tag}, {base}, {tag}, lsl #3",
            "ldp {base}, {word}, [{tag}]",
            "ccmp {base}, {word}, #2, lo",
            "b.hs {slow}",
            // Was it freed just before, or with one other between?
            "ldp {word}, {other}, [{base}, #-16]",
            "cmp {word}, {block}",
            "ccmp {other}, {block}, #4, ne",
            "b.eq {slow}",
            "str {block}, [{base}], #8",
            "stlr {base}, [{tag}]",
            block = in(reg) $block,
            base = out(reg) _,
            word = out(reg) _,
            other = out(reg) _,
            tag = out(reg) _,
            heap = sym HEAP,
            base_at = const BASE_AT,
            starts_at = const offset_of!(Cache, starts),
            $($with)*
            slow = label { return false },
            options(nostack),
        )
    };
}

/// Pushes a block onto the calling thread's magazine of its class. False if that takes the slow
/// path: not in the primary arena, no block of a slab, no room, no cache, or freed by the call
/// before or the one before that.
///
/// # Safety
/// - `block` is a block of this heap that is not given back, or no block of it at all.
#[inline(always)]
pub unsafe fn push_freed(block: *mut u8) -> bool {
    // SAFETY: as the macro says.
    unsafe { push!(block, [], []) };
    true
}

/// [`push_freed`] of a block that is said to hold `size` bytes. False as well if it holds less.
///
/// # Safety
/// - As [`push_freed`].
#[inline(always)]
pub unsafe fn push_deleted(block: *mut u8, size: usize) -> bool {
    // SAFETY: as the macro says; the class's bytes stand beside its test.
    unsafe {
        push!(
            block,
            [
                "ldr {other:w}, [{word}, #{bytes_at}]",
                "cmp {size}, {other}",
                "b.hi {slow}"
            ],
            [
                size = in(reg) size,
                bytes_at = const offset_of!(Cache, starts) + offset_of!(Start, bytes),
            ]
        );
    }
    true
}

/// Lets the processor fetch the bytes at an address into its caches. Any address will do.
#[inline(always)]
pub fn prefetch(address: *mut u8) {
    // SAFETY: the instruction reads nothing that the program sees.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{address}]", address = in(reg) address,
            options(nostack, readonly, preserves_flags));
    }
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
