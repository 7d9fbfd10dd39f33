//! Magazines: a thread's stacks of free block addresses, and the fast path.
//!
//! ```text
//!   floor            bottom == floor, unless closed      top              limit == end
//!     |  oldest blocks ............ newest blocks          |  free entries   |
//!     +--------------------------------------------------------------------+
//! ```
//!
//! Only the owner writes `top`; its fast path does so with one store. `bottom` and `limit` are
//! written only under the cache's lock, by the owner's slow path or by a drainer
//! ([`super::drain`]); the fast path reads them. A closed magazine sends every call to the slow
//! path.

use crate::base::sync::{AtomicUsize, Ordering, light_barrier, plain};
use crate::slab::class::{BUILT_IN, Starts};
use crate::slab::class::{CLASSES, Class, TABLE_BYTES};

/// The tag byte of a slice. 0: no block starts here. Otherwise it is the offset of the magazine of
/// its blocks, in units of 8 bytes, so that `free` needs no shift.
///
/// No other byte is a tag: a cache has a magazine for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(u8);

/// Bytes of a [`Magazine`] in units of 8.
const STRIDE: usize = size_of::<Magazine>() / 8;

impl Tag {
    /// No block starts in this slice.
    pub const NONE: Tag = Tag(0);
    /// A large block starts at this slice's start.
    pub const LARGE: Tag = Tag(255);
    /// A slab of blocks that the profiler sampled.
    pub const SAMPLED: Tag = Tag(249);
    /// A large block between two guards lies in the span that starts here.
    pub const FENCED: Tag = Tag(243);
    /// A slab that the program mapped something over.
    pub const MAPPED: Tag = Tag(246);
    /// A coroutine stack starts at this slice's start.
    pub const STACK: Tag = Tag(252);

    /// The tag of a slab of `class`.
    pub const fn of(class: Class) -> Tag {
        Tag((class.index() * STRIDE) as u8)
    }

    /// The tag whose byte is in the table of an arena.
    ///
    /// # Safety
    /// - `byte` is what [`Tag::byte`] gave.
    #[inline(always)]
    pub const unsafe fn from_byte(byte: u8) -> Tag {
        debug_assert!((byte as usize).is_multiple_of(STRIDE));
        Tag(byte)
    }

    /// Its byte in the table of an arena.
    #[inline(always)]
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// The class, if the tag is a slab's.
    pub const fn class(self) -> Option<Class> {
        let index = self.0 as usize / STRIDE;
        if index >= 1 && index <= CLASSES {
            Some(Class::known(index))
        } else {
            None
        }
    }
}

/// Magazines of a cache: one for every tag, those of no class always empty and always full.
pub const MAGAZINES: usize = Tag::LARGE.0 as usize / STRIDE + 1;

const _: () = assert!(CLASSES * STRIDE < Tag::FENCED.0 as usize && STRIDE == 3);

/// The tag for a C request of up to [`TABLE_BYTES`], for the classes that are built in.
pub const TAGS_BY_SIZE: [Tag; TABLE_BYTES + 1] = {
    let mut tags = [Tag::NONE; TABLE_BYTES + 1];
    let mut size = 0;
    while size <= TABLE_BYTES {
        tags[size] = Tag::of(Class::of_size(size));
        size += 1;
    }
    tags
};

/// What `free` must know about a tag: the test whether a block starts at an offset, see [`Starts`];
/// 0 for tags of no class, a test that no offset passes. As long as half a magazine, so that a tag
/// finds it without a shift.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Start {
    /// The constant.
    pub test: u32,
    /// What the product must be below.
    pub limit: u32,
    /// Bytes of a block. Not for `free`, but for `calloc`.
    pub bytes: u32,
}

impl Start {
    /// See [`Starts::block_at`].
    #[inline(always)]
    pub fn block_at(self, offset: usize) -> Option<usize> {
        let Start { test, limit, .. } = self;
        Starts { test, limit }.block_at(offset)
    }
}

/// The starts of all tags, for the classes that are built in.
pub const STARTS: [Start; MAGAZINES] = {
    let mut starts = [Start {
        test: 0,
        limit: 0,
        bytes: 0,
    }; MAGAZINES];
    let mut index = 1;
    while index <= CLASSES {
        let Starts { test, limit } = BUILT_IN.starts[index];
        let bytes = BUILT_IN.sizes[index] as u32;
        starts[index] = Start { test, limit, bytes };
        index += 1;
    }
    starts
};

const _: () = assert!(size_of::<Start>() * 2 == size_of::<Magazine>());

/// Words below a magazine's oldest entry that read 0. See [`Magazine`].
pub const GUARD: usize = 3;

/// Where the top of a magazine without an array points, past its guard.
pub fn no_entries() -> usize {
    static NO_ENTRIES: [usize; GUARD] = [0; GUARD];
    NO_ENTRIES.as_ptr_range().end.addr()
}

/// A word of an array or of its guard. Owner and drainers reach it by loads and stores of a whole
/// word: the owner compares with words that a drainer makes the guard.
///
/// # Safety
/// - The word at `address` is one of an array or its guard, and stays so for `'a`.
#[inline(always)]
pub(super) unsafe fn word<'a>(address: usize) -> &'a plain::AtomicPtr<u8> {
    debug_assert!(address.is_multiple_of(align_of::<usize>()) && address != 0);
    // SAFETY: the caller's promise: aligned, and reached by atomic operations alone while owner and
    // drainers may both reach it.
    unsafe { &*(address as *const plain::AtomicPtr<u8>) }
}

/// One class's stack of free blocks. All zero: empty and full, for pops that look at the bottom
/// first.
///
/// A pop refuses a block that is also two entries below. Below the oldest entry are [`GUARD`] words
/// that read 0. So in an empty magazine the newest entry and the entry two below both read 0, and
/// one compare detects both cases. `free` compares with the newest entry, so a block freed twice in
/// a row is not pushed.
#[repr(C)]
pub struct Magazine {
    /// Address past the newest entry.
    pub(crate) top: AtomicUsize,
    /// Entries below this address may be pushed. Beside the top: AArch64 loads both at once.
    pub(crate) limit: AtomicUsize,
    /// Entries at and above this address may be popped by the fast path.
    pub(crate) bottom: AtomicUsize,
}

impl Magazine {
    /// Empty and full.
    #[cfg(not(loom))]
    pub const fn closed() -> Magazine {
        Magazine {
            top: AtomicUsize::new(0),
            bottom: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
        }
    }

    /// Takes the newest block, or `None` if there is none or the magazine is closed.
    ///
    /// # Safety
    /// - The calling thread owns the magazine: it is one of its cache, or of a sentinel.
    #[inline(always)]
    pub unsafe fn pop(&self) -> Option<*mut u8> {
        // SAFETY: the caller's promise, and the bottom that is published.
        unsafe { self.pop_above(self.bottom.load(Ordering::Relaxed)) }
    }

    /// Takes the newest block if it lies at or above `bottom`.
    ///
    /// # Safety
    /// - As [`Magazine::pop`].
    /// - `bottom` was published since this thread's last pop or before.
    #[inline(always)]
    pub unsafe fn pop_above(&self, bottom: usize) -> Option<*mut u8> {
        let top = self.top.load(Ordering::Relaxed);
        if top <= bottom {
            return None;
        }
        // SAFETY: entries between bottom and top were pushed by this thread or its refill, and a
        // drainer takes only entries below the bottom it has published (see `drain`).
        unsafe { self.take(top) }
    }

    /// Takes the newest block; `None` if there is none, or if it lies again two entries below.
    ///
    /// # Safety
    /// - As [`Magazine::pop`].
    /// - `top` is the magazine's top, and there is an entry below it, or the guard.
    #[inline(always)]
    pub unsafe fn take(&self, top: usize) -> Option<*mut u8> {
        debug_assert_eq!(top, self.top.load(Ordering::Relaxed));
        // SAFETY: entries, or words of the guard, which has GUARD of them.
        let below = |words: usize| unsafe { word(top - 8 * words) }.load(plain::Ordering::Relaxed);
        let (block, two_below) = (below(1), below(GUARD));
        if block == two_below {
            return None;
        }
        self.top.store(top - 8, Ordering::Relaxed);
        light_barrier();
        Some(block)
    }

    /// The newest block, if there is one and the magazine is not closed.
    ///
    /// # Safety
    /// - As [`Magazine::pop`].
    #[inline(always)]
    pub unsafe fn newest(&self) -> Option<*mut u8> {
        let top = self.top.load(Ordering::Relaxed);
        if top <= self.bottom.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: an entry above the bottom, which the owner alone writes.
        Some(unsafe { word(top - 8) }.load(plain::Ordering::Relaxed))
    }

    /// Whether the block is among the [`GUARD`] newest ones. Not for a closed magazine.
    ///
    /// # Safety
    /// - As [`Magazine::pop`].
    #[inline(always)]
    pub unsafe fn is_recent(&self, block: *mut u8) -> bool {
        let top = self.top.load(Ordering::Relaxed);
        if top <= self.bottom.load(Ordering::Relaxed) {
            return false;
        }
        // SAFETY: an entry above the bottom.
        unsafe { self.may_be_recent(block.addr()) && self.is_above_bottom(block) }
    }

    /// Whether one of the [`GUARD`] words below the top is this address.
    ///
    /// # Safety
    /// - As [`Magazine::pop`]; there is an entry below the top, or the guard.
    #[inline(always)]
    pub unsafe fn may_be_recent(&self, address: usize) -> bool {
        let top = self.top.load(Ordering::Relaxed);
        // SAFETY: entries, or words of the guard.
        let at = |words: usize| unsafe { word(top - 8 * words) }.load(plain::Ordering::Relaxed);
        (1..=GUARD).any(|words| at(words).addr() == address)
    }

    /// [`Magazine::is_recent`] of a block that is at one of these words. Below the bottom a drainer
    /// may have left what it took.
    ///
    /// # Safety
    /// - As [`Magazine::pop`]; the magazine has entries.
    #[cold]
    #[inline(never)]
    unsafe fn is_above_bottom(&self, block: *mut u8) -> bool {
        let top = self.top.load(Ordering::Relaxed);
        let bottom = self.bottom.load(Ordering::Relaxed);
        (1..=GUARD).map(|words| top - 8 * words).any(|at| {
            // SAFETY: as in `is_recent`.
            at >= bottom && unsafe { word(at) }.load(plain::Ordering::Relaxed) == block
        })
    }

    /// Whether a block can be pushed.
    #[inline(always)]
    pub fn has_room(&self) -> bool {
        self.top.load(Ordering::Relaxed) < self.limit.load(Ordering::Relaxed)
    }

    /// The word below the top: the newest block, or, where there is none, the guard's last word.
    ///
    /// # Safety
    /// - The magazine has an array.
    #[inline(always)]
    pub unsafe fn below_top(&self) -> *mut u8 {
        let top = self.top.load(Ordering::Relaxed);
        debug_assert_ne!(top, 0);
        // SAFETY: an entry of the array, or the guard's last word.
        unsafe { word(top - 8) }.load(plain::Ordering::Relaxed)
    }

    /// Adds a block; false if the magazine is full or closed.
    ///
    /// # Safety
    /// - As [`Magazine::pop`].
    /// - `block` is a block of the magazine's class that nothing uses any more.
    #[inline(always)]
    pub unsafe fn push(&self, block: *mut u8) -> bool {
        let top = self.top.load(Ordering::Relaxed);
        if top >= self.limit.load(Ordering::Relaxed) {
            return false;
        }
        // SAFETY: below limit the array has room, and only the owner writes at or above top.
        unsafe { word(top) }.store(block, plain::Ordering::Relaxed);
        // Release: a drainer that sees the new top sees the entry.
        self.top.store(top + 8, Ordering::Release);
        light_barrier();
        true
    }
}
