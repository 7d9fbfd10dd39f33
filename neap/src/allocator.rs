//! The Rust global allocator.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use neap_heap::{free, malloc, realloc};

/// Neap as a Rust program's allocator.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: neap::Neap = neap::Neap;
///
/// let words: Vec<String> = "from Neap's page heap".split(' ').map(String::from).collect();
/// assert_eq!(words.concat(), "fromNeap'spageheap");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Neap;

// SAFETY: blocks have the layout's size and alignment and stay put until given back; no function
// here unwinds. Fallible calls return null.
unsafe impl GlobalAlloc for Neap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        malloc::allocate_layout(layout.size(), layout.align())
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { free::free(block) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        malloc::allocate_layout_zeroed(layout.size(), layout.align())
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { realloc::reallocate_layout(block, size, layout.align()) }
    }
}

/// The bytes of `block` that its owner may use: at least as many as were requested.
///
/// # Safety
/// - [`Neap`] allocated `block`, and it is not freed.
pub unsafe fn usable_size(block: NonNull<u8>) -> usize {
    // SAFETY: the caller's promise.
    unsafe { free::usable_size(block.as_ptr()) }
}
