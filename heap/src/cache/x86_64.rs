//! The fast path on x86-64, the thread's slot, and the caller of `free`.
//!
//! ```text
//!   cache + tag*8                       a slice's tag is its class's magazine, in units of 8 bytes
//!     +0  top     past the newest       pop:        top <= bottom -> slow;  then as pop_sized from here on
//!     +8  limit   end of the room       push_freed: top >= limit or block == [top-8] -> slow;
//!                                                   [top] = block;  top += 8
//!     +16 bottom  oldest                pop_sized:  block = [top-8];  block == [top-24] -> slow;  top -= 8
//!   cache + countdowns + tag*8
//!     +0  bottom  while sampling        pop_sampling: top <= bottom -> slow;  until -= 1;
//!                                                     until < 0 -> slow;  then as pop
//!     +8  until   the next sample
//!   cache + starts + tag*4              the tag's divisibility test
//!   cache + below                       pop_sized: size >= below -> slow
//! ```
//!
//! `top` changes by one instruction that only the owner executes. x86 keeps stores in order, so a
//! thread that sees a new `top` also sees the entry below it.
//!
//! The thread's slot is an initial-exec word of thread-local storage. `fs` holds the thread
//! pointer, and the global offset table holds the slot's distance from it. The symbol's name
//! contains the version, so that two versions in one program do not share a slot.

use crate::base::sync::{AtomicU64, Ordering, light_barrier};
use crate::cache::countdown::Countdown;
use crate::cache::heap::{HEAP, Heap};
use crate::cache::magazine::{GUARD, Magazine, Start, Tag};
use crate::cache::thread_cache::{Cache, EMPTY};
use crate::os::linux::Linux;
use crate::pages::PageHeap;
use core::arch::{asm, global_asm};
use core::mem::offset_of;

/// Where the page heap keeps the primary arena's base and its number of slices.
const BASE_AT: usize = offset_of!(Heap, pages) + offset_of!(PageHeap<Linux>, primary_base);
const SLICES_AT: usize = offset_of!(Heap, pages) + offset_of!(PageHeap<Linux>, primary_slices);

global_asm!(
    concat!(".pushsection .tdata.", slot_name!(), ",\"awT\",@progbits"),
    ".p2align 3",
    concat!(".hidden ", slot_name!()),
    concat!(".globl ", slot_name!()),
    concat!(".type ", slot_name!(), ",@object"),
    concat!(".size ", slot_name!(), ",8"),
    concat!(slot_name!(), ":"),
    ".quad {empty}",
    ".popsection",
    empty = sym EMPTY,
);

// Moves the global offset table by a word (decision 6). Its entry with the slot's offset should not
// be at a multiple of 16, where blocks begin: a processor may let the load that begins each
// `malloc` wait for a program's store to a block whose address has the same low bits.
#[cfg(feature = "shifted")]
global_asm!(
    ".pushsection .data.rel.ro.neap_shifted,\"awR\",@progbits",
    ".p2align 3",
    ".quad 0",
    ".popsection",
);

/// The calling thread's cache, or one of the two sentinels.
#[inline(always)]
pub fn slot() -> *const Cache {
    let cache: *const Cache;
    // SAFETY: reads the thread's own slot, which holds a pointer from its first instant on. Not
    // `pure`: after `set` the next read must see the new value.
    unsafe {
        asm!(
            concat!("mov {cache}, qword ptr [rip + ", slot_name!(), "@GOTTPOFF]"),
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
pub unsafe fn set_slot(cache: *const Cache) {
    // SAFETY: writes the thread's own slot.
    unsafe {
        asm!(
            concat!("mov {offset}, qword ptr [rip + ", slot_name!(), "@GOTTPOFF]"),
            "mov qword ptr fs:[{offset}], {cache}",
            offset = out(reg) _,
            cache = in(reg) cache,
            options(nostack, preserves_flags),
        );
    }
}

/// Where the calling thread's slot is.
pub fn slot_address() -> usize {
    let slot: usize;
    // SAFETY: reads the distance, and the thread pointer, which `fs:0` holds.
    unsafe {
        asm!(
            concat!("mov {slot}, qword ptr [rip + ", slot_name!(), "@GOTTPOFF]"),
            "add {slot}, qword ptr fs:[0]",
            slot = out(reg) slot,
            options(nostack, readonly),
        );
    }
    slot
}

/// Takes a block for a request of `size` bytes; `None` if its magazine has none or holds it twice,
/// if requests of that size are not in the table, or if a drainer is at work or the
/// fast path is not on.
///
/// # Safety
/// - `cache` is the calling thread's own, or a sentinel.
#[inline(always)]
pub unsafe fn pop_sized(cache: &Cache, size: usize) -> Option<*mut u8> {
    if !serves(cache, size) {
        return None;
    }
    let tag = cache.tags[size];
    // While the bound is above 0, every class's top is above an entry or the guard. SAFETY: the
    // caller's promise.
    unsafe { take(cache, tag, top(cache, tag)) }
}

/// Whether [`pop_sized`] serves requests of `size` bytes. Then there is an entry or the guard below
/// the top of each class.
#[inline(always)]
pub fn serves(cache: &Cache, size: usize) -> bool {
    // SAFETY: only reads the cache's own word.
    unsafe {
        asm!(
            "cmp {size}, qword ptr [{cache} + {below_at}]",
            "jae {slow}",
            size = in(reg) size,
            cache = in(reg) cache,
            below_at = const offset_of!(Cache, below),
            slow = label { return false },
            options(nostack, readonly),
        );
    }
    // SAFETY: `below` is at most the table's length.
    unsafe { core::hint::assert_unchecked(size < cache.tags.len()) };
    true
}

/// Whether one of the [`GUARD`] words below the top of a magazine is this address.
///
/// # Safety
/// - There is an entry below the top, or the guard.
#[inline(always)]
pub unsafe fn may_be_recent(cache: &Cache, tag: Tag, address: usize) -> bool {
    // SAFETY: only reads entries, or words of the guard, which a drainer may be writing.
    unsafe {
        asm!(
            "cmp {address}, qword ptr [{top} - 8]",
            "je {found}",
            "cmp {address}, qword ptr [{top} - 16]",
            "je {found}",
            "cmp {address}, qword ptr [{top} - 24]",
            "je {found}",
            address = in(reg) address,
            top = in(reg) top(cache, tag),
            found = label { return true },
            options(nostack, readonly),
        );
    }
    false
}

/// Takes the newest block of a magazine; `None` if there is none, if it lies again two entries
/// below, or if the magazine is closed.
///
/// # Safety
/// - `cache` is the calling thread's own, or a sentinel.
#[inline(always)]
pub unsafe fn pop(cache: &Cache, tag: Tag) -> Option<*mut u8> {
    let top = top(cache, tag);
    // SAFETY: only reads the magazine's bottom; the tag is one of a magazine (see
    // `Cache::magazine`).
    unsafe {
        asm!(
            "cmp {top}, qword ptr [{cache} + {tag}*8 + {bottom_at}]",
            "jbe {slow}",
            top = in(reg) top,
            cache = in(reg) cache,
            tag = in(reg) tag.byte() as usize,
            bottom_at = const offset_of!(Magazine, bottom),
            slow = label { return None },
            options(nostack, readonly),
        );
    }
    // SAFETY: the caller's promise; the top stands above the bottom.
    unsafe { take(cache, tag, top) }
}

/// Takes the newest block of a magazine while the profiler counts what is given out; `None` if this
/// one is to be sampled, if there is none, or if the profiler does not sample.
///
/// # Safety
/// - `cache` is the calling thread's own, or a sentinel.
/// - `tag` is a class's.
#[inline(always)]
pub unsafe fn pop_sampling(cache: &Cache, tag: Tag) -> Option<*mut u8> {
    // SAFETY: the caller's promise.
    let countdown = unsafe { cache.countdown_of(tag) };
    debug_assert!(!cache.is_sentinel() || countdown.bottom.load(Ordering::Relaxed) == 0);
    let top = top(cache, tag);
    // SAFETY: reads the countdown of the tag's class (see `Cache::countdown_of`), and writes the
    // owner's own number, which a sentinel's bottom keeps from being reached: its magazines are
    // empty.
    unsafe {
        asm!(
            "cmp {top}, qword ptr [{cache} + {tag}*8 + {bottom_at}]",
            "jbe {slow}",
            "sub dword ptr [{cache} + {tag}*8 + {until_at}], 1",
            "js {slow}",
            top = in(reg) top,
            cache = in(reg) cache,
            tag = in(reg) tag.byte() as usize,
            bottom_at = const offset_of!(Cache, countdowns) + offset_of!(Countdown, bottom),
            until_at = const offset_of!(Cache, countdowns) + offset_of!(Countdown, until_sample),
            slow = label { return None },
            options(nostack),
        );
    }
    // SAFETY: the caller's promise; the top stands above the bottom.
    unsafe { take(cache, tag, top) }
}

/// A magazine's top. By hand, or compilers keep the offset in a register of its own for the next
/// form of pop.
#[inline(always)]
fn top(cache: &Cache, tag: Tag) -> usize {
    debug_assert!(core::ptr::from_ref(cache.magazine(tag)).is_aligned());
    let top: usize;
    // SAFETY: only reads the magazine's top; the tag is one of a magazine (see `Cache::magazine`).
    unsafe {
        asm!(
            "mov {top}, qword ptr [{cache} + {tag}*8]",
            top = lateout(reg) top,
            cache = in(reg) cache,
            tag = in(reg) tag.byte() as usize,
            options(nostack, preserves_flags, readonly),
        );
    }
    top
}

/// The newest block of a magazine whose top is `top`, and is above an entry or the guard; `None` if
/// it lies again two entries below, as in an empty magazine.
///
/// # Safety
/// - As [`pop`]; `top` is as it says.
#[inline(always)]
unsafe fn take(cache: &Cache, tag: Tag, top: usize) -> Option<*mut u8> {
    // SAFETY: entries between bottom and top are the owner's (see `Magazine::take`).
    let block = unsafe { *((top - 8) as *const *mut u8) };
    // SAFETY: only reads a word, an entry or one of the guard. By hand, because a drainer may be
    // writing a guard there.
    unsafe {
        asm!(
            "cmp {block}, qword ptr [{top} - {depth}]",
            "je {slow}",
            block = in(reg) block,
            top = in(reg) top,
            depth = const 8 * GUARD,
            slow = label { return None },
            options(nostack, readonly),
        );
    }
    // SAFETY: the owner's own word; one instruction, so no signal handler sees half of it.
    unsafe {
        asm!(
            "sub qword ptr [{cache} + {tag}*8], 8",
            cache = in(reg) cache,
            tag = in(reg) tag.byte() as usize,
            options(nostack),
        );
    }
    light_barrier();
    Some(block)
}

/// The instructions that push `$block`, between the function's start and its `true`. `$fit` tests
/// more than that a block starts there, by the operands `$with`.
///
/// Reads the arena's tag only if the slice is one of the arena's, whose table begins at its base;
/// reads the word below the top of the thread's own magazine, an entry or one of the guard (see
/// `Magazine`); writes the entry only below the limit, then the top. The cache in the slot is a
/// sentinel (always full) or the thread's own.
macro_rules! push {
    ($block:ident, [$($fit:literal),*], [$($with:tt)*]) => {
        asm!(
            // Which slice?
            "mov {base}, qword ptr [rip + {heap} + {base_at}]",
            "mov {word}, {block}",
            "sub {word}, {base}",
            "shr {word}, 16",
            "cmp {word}, qword ptr [rip + {heap} + {slices_at}]",
            "jae {slow}",
            "movzx {tag:e}, byte ptr [{base} + {word}]",
            // Does a block of its class start here? One multiplication tells (see `Starts`).
            concat!("mov {base}, qword ptr [rip + ", slot_name!(), "@GOTTPOFF]"),
            "mov {base}, qword ptr fs:[{base}]",
            "movzx {word:e}, {block:x}",
            "imul {word:e}, dword ptr [{base} + {tag}*4 + {starts_at}]",
            "cmp {word:e}, dword ptr [{base} + {tag}*4 + {limits_at}]",
            "jae {slow}",
            $($fit,)*
            // Push.
            "mov {word}, qword ptr [{base} + {tag}*8]",
            "cmp {word}, qword ptr [{base} + {tag}*8 + {limit_at}]",
            "jae {slow}",
            // Freed twice in a row?
            "cmp qword ptr [{word} - 8], {block}",
            "je {slow}",
            "mov qword ptr [{word}], {block}",
            "add qword ptr [{base} + {tag}*8], 8",
            block = in(reg) $block,
            base = out(reg) _,
            word = out(reg) _,
            tag = out(reg) _,
            heap = sym HEAP,
            base_at = const BASE_AT,
            slices_at = const SLICES_AT,
            limit_at = const offset_of!(Magazine, limit),
            starts_at = const offset_of!(Cache, starts),
            limits_at = const offset_of!(Cache, starts) + offset_of!(Start, limit),
            $($with)*
            slow = label { return false },
            options(nostack),
        )
    };
}

/// Pushes a block onto the calling thread's magazine of its class. False if that takes the slow
/// path: not in the primary arena, no block of a slab, no room, no cache, or freed by the call
/// before.
///
/// # Safety
/// - `block` is a block of this heap that is not given back, or no block of it at all.
#[inline(always)]
pub unsafe fn push_freed(block: *mut u8) -> bool {
    // SAFETY: as the macro says.
    unsafe { push!(block, [], []) };
    true
}

/// [`push_freed`] of a block that is said to hold `size` bytes. False as well if it holds less,
/// up to a multiple of 4 GiB.
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
                "cmp {size:e}, dword ptr [{base} + {tag}*4 + {bytes_at}]",
                "ja {slow}"
            ],
            [
                size = in(reg) size,
                bytes_at = const offset_of!(Cache, starts) + offset_of!(Start, bytes),
            ]
        );
    }
    true
}

/// Writes a word that no other thread writes to, and returns what it was. The page is written
/// first: if it was never touched, that costs one fault instead of two.
///
/// # Safety
/// - The caller may write the word.
#[inline(always)]
pub unsafe fn exchange_own(word: &AtomicU64, new: u64) -> u64 {
    // SAFETY: a word of the caller's; the instruction changes nothing but the flags.
    unsafe {
        core::arch::asm!("or qword ptr [{word}], 0", word = in(reg) word.as_ptr(), options(nostack));
    }
    let before = word.load(Ordering::Relaxed);
    word.store(new, Ordering::Release);
    before
}

/// Lets the processor fetch the bytes at an address into its caches. Any address will do.
#[inline(always)]
pub fn prefetch(address: *mut u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction reads nothing that the program sees.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

/// Defines `$name`, which jumps to `$slow` with the return address of the caller, which is on top
/// of the stack, as its second argument.
///
/// # Safety of the defined function
/// - As `$slow`.
macro_rules! with_caller {
    ($name:ident, $slow:path) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name(block: *mut u8) {
            core::arch::naked_asm!("mov rsi, [rsp]", "jmp {slow}", slow = sym $slow)
        }
    };
}
pub(crate) use with_caller;
