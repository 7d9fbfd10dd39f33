//! What tests do with the cache of the thread that they run in.

use crate::cache::heap::HEAP;
use crate::cache::machine;
use crate::cache::magazine::Tag;
use crate::cache::thread_cache::Cache;
use crate::init::at_thread_end;
use crate::slab::class::Class;

/// Makes a cache for the calling thread, which has none.
pub(crate) fn enter() -> Option<&'static Cache> {
    HEAP.enter(at_thread_end)
}

/// A block from the slow path. `cache` is the calling thread's own, as in all functions here.
pub(crate) fn refill(cache: &Cache, class: Class) -> *mut u8 {
    // SAFETY: the thread's own cache.
    unsafe { HEAP.refill(cache, class) }
}

/// Frees a block of [`refill`] by the slow path.
pub(crate) fn put(cache: &Cache, class: Class, block: *mut u8) {
    // SAFETY: the thread's own cache; tests free each block once.
    unsafe { HEAP.put(cache, class, block) };
}

/// The newest block, whatever the fast path may do.
pub(crate) fn pop_held(cache: &Cache, class: Class) -> Option<*mut u8> {
    // SAFETY: the thread's own cache.
    unsafe { cache.open().magazine(class).pop() }
}

/// The newest block by the fast path, for a size.
pub(crate) fn pop_sized(cache: &Cache, size: usize) -> Option<*mut u8> {
    // SAFETY: the thread's own cache.
    unsafe { machine::pop_sized(cache, size) }
}

/// The newest block by the fast path.
pub(crate) fn pop(cache: &Cache, class: Class) -> Option<*mut u8> {
    // SAFETY: the thread's own cache.
    unsafe { machine::pop(cache, Tag::of(class)) }
}
