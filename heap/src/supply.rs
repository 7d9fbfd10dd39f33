//! Blocks of slabs past the fast path: to a thread whose magazine is empty, and back from one whose
//! magazine is full. What the modes do besides is in [`crate::watched`].

use crate::base::sync::{AtomicBool, Ordering};
use crate::cache::flush::give_one;
use crate::cache::heap::{HEAP, Known};
use crate::cache::machine;
use crate::cache::magazine::Tag;
use crate::cache::misuse::{self, Call};
use crate::cache::thread_cache::Cache;
use crate::init::current;
use crate::mapped_over;
use crate::slab::Slab;
use crate::slab::class::Class;
use core::ptr::{self, NonNull};

/// How many times as large as its class a block may be while writable memory is scarce. A new slab
/// would take 64 KiB.
const SCANT_WASTE: usize = 8;

/// Whether each block of a slab is of the class that its size requires.
static SIZES_ARE_EXACT: AtomicBool = AtomicBool::new(true);

/// Notes that some block is in a class larger than its size requires: no smaller one was left, or a
/// realloc could not move it. From then on only sizes that are too large are misuse.
pub(crate) fn sizes_are_loose() {
    SIZES_ARE_EXACT.store(false, Ordering::Relaxed);
}

/// Whether no block is in a class larger than its size requires.
pub(crate) fn are_sizes_exact() -> bool {
    SIZES_ARE_EXACT.load(Ordering::Relaxed)
}

/// Which bytes of a block are to be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The requested ones.
    Asked,
    /// All usable ones.
    Usable,
}

impl Extent {
    pub(crate) fn bytes(self, size: usize, class: Class) -> usize {
        match self {
            Extent::Asked => size,
            Extent::Usable => class.bytes(),
        }
    }
}

/// Makes the first `bytes` bytes of a block zero.
#[inline(always)]
pub(crate) fn zeroed(block: *mut u8, bytes: usize) -> *mut u8 {
    if !block.is_null() {
        // SAFETY: a fresh block of at least that many bytes.
        unsafe { ptr::write_bytes(block, 0, bytes) };
    }
    block
}

/// A block of `class` for a thread whose magazine is empty, or which has no cache. Null when out of
/// memory.
#[inline(never)]
pub(crate) fn take(cache: Option<&'static Cache>, class: Class) -> *mut u8 {
    match cache {
        // SAFETY: the calling thread's own cache.
        Some(cache) => unsafe { HEAP.refill(cache, class) },
        None if HEAP.pages.is_scant() => take_scantily(class),
        None => HEAP.take_one(class),
    }
}

/// What `take` gives for a request of `size` bytes once caches and free spans have given memory
/// back, because it gave none before; else a block of a class larger than `smallest`, if there is
/// one to name. Null when out of memory.
#[cold]
#[inline(never)]
pub(crate) fn take_after_relief(
    take: &dyn Fn() -> *mut u8,
    size: usize,
    smallest: Option<Class>,
) -> *mut u8 {
    let mut block = ptr::null_mut();
    if HEAP.relieve(size) {
        block = take();
    }
    if let (true, Some(smallest)) = (block.is_null(), smallest) {
        block = take_larger(smallest, usize::MAX);
    }
    if block.is_null() {
        HEAP.pressure.refused.fetch_add(1, Ordering::Relaxed);
    }
    block
}

/// A block of a class larger than `class`, of at most `most` bytes, that has a free one: better
/// than none. Its place is a multiple of all that a block of `class` is a multiple of. Null if
/// there is none.
#[cold]
pub(crate) fn take_larger(class: Class, most: usize) -> *mut u8 {
    let sizes = class.bytes() + 1..=most;
    let larger = Class::all().filter(|other| sizes.contains(&other.bytes()));
    let fitting = larger.filter(|other| other.alignment() >= class.alignment());
    let mut blocks = fitting.map(|other| (HEAP.take_listed(other), other));
    match blocks.find(|(block, _)| !block.is_null()) {
        Some((block, other)) => {
            sizes_are_loose();
            let (held, beyond) = (class.bytes(), other.bytes() - class.bytes());
            // `calloc` knows of `class` only, and all usable bytes of its blocks are zero.
            // SAFETY: a fresh block of `other`.
            unsafe { ptr::write_bytes(block.add(held), 0, beyond) };
            block
        }
        None => ptr::null_mut(),
    }
}

/// A block of an existing slab, at most [`SCANT_WASTE`] times as large, or else of a new slab.
#[cold]
fn take_scantily(class: Class) -> *mut u8 {
    match HEAP.take_listed(class) {
        block if block.is_null() => {}
        block => return block,
    }
    match take_larger(class, class.bytes() * SCANT_WASTE) {
        block if block.is_null() => HEAP.take_one(class),
        block => block,
    }
}

/// A block of `class` whose first `bytes` bytes are zero, from the calling thread's magazine, or
/// from a slab whose next block is probably fresh. `None` if neither has one.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
pub(crate) fn take_zero(class: Class, bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: the calling thread's own cache, or a sentinel.
    let (block, known) = match unsafe { machine::pop(current(), Tag::of(class)) } {
        Some(block) => (block, Known::Unknown),
        // Without a cache, the block comes from `take`, which minds scant memory.
        None if current().is_sentinel() || !HEAP.depots.next_is_fresh(class) => return None,
        None => HEAP.take_known(class),
    };
    if known == Known::Unknown && !block.is_null() {
        // SAFETY: a fresh block of `class`.
        unsafe { ptr::write_bytes(block, 0, bytes) };
    }
    NonNull::new(block)
}

/// Takes back a block of a slab that the program freed. Aborts if none starts there, or if it is
/// free.
///
/// # Safety
/// - As [`crate::free::free`]; `block` is in this slab of `class`, and `cache` is the calling
///   thread's, if it has one.
#[inline(always)]
pub(crate) unsafe fn take_back(
    cache: Option<&'static Cache>,
    slab: &'static Slab,
    class: Class,
    block: *mut u8,
) {
    let address = block.addr();
    let number = misuse::start_of(Call::Free, slab, class, address);
    if slab.is_free(class, number) {
        misuse::double_free(address, class.bytes());
    }
    let restore = || {
        // SAFETY: the caller's promise.
        unsafe { mapped_over::restore(address, slab, class, Some(class.bytes())) }
    };
    if mapped_over::is_noted() && !restore() {
        return;
    }
    match cache {
        // SAFETY: the thread's own cache, and the caller's promise.
        Some(cache) => unsafe { HEAP.put(cache, class, block) },
        // SAFETY: the caller's promise.
        None => unsafe { give_one(&HEAP, address) },
    }
}

/// What a realloc to `size` bytes returns if there is no memory to move the block, which holds
/// `held` bytes, to. A smaller size must not fail: then the block stays where it is.
#[cold]
pub(crate) fn unmoved(block: *mut u8, held: usize, size: usize) -> *mut u8 {
    if size > held {
        return ptr::null_mut();
    }
    sizes_are_loose();
    block
}

/// Aborts if the block is known to be free: its bit is set, or it is one of the newest of this
/// thread's magazine.
#[inline(always)]
pub(crate) fn refuse_freed(block: *mut u8, slab: &Slab, class: Class) {
    let number = misuse::start_of(Call::Realloc, slab, class, block.addr());
    // SAFETY: the calling thread's own cache, or a sentinel.
    let is_recent = || unsafe { current().magazine(Tag::of(class)).is_recent(block) };
    if slab.is_free(class, number) || is_recent() {
        misuse::already_free(Call::Realloc, block.addr());
    }
}
