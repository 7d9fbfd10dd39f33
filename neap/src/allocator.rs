//! The Rust global allocator.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use neap_heap::cache::heap::HEAP;
use neap_heap::watched::harden::Measures;
use neap_heap::{free, init, malloc};

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
    #[unsafe(link_section = "neap_text")]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        malloc::allocate_layout(layout.size(), layout.align())
    }

    #[inline]
    #[unsafe(link_section = "neap_text")]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { free::free(block) }
    }

    #[inline]
    #[unsafe(link_section = "neap_text")]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        malloc::allocate_layout_zeroed(layout.size(), layout.align())
    }

    #[inline]
    #[unsafe(link_section = "neap_text")]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { malloc::reallocate_layout(block, size, layout.align()) }
    }
}

/// [`Neap`] with all measures against memory errors, from the program's first allocation on.
///
/// A write past the end of a block, to a freed block or beside one, a second free and a free of
/// what is no block end the program, most of them at the next free. Large blocks lie between pages
/// that cannot be accessed. It is slower than [`Neap`] and takes more memory: `docs/harden.md` in
/// the repository says how much, and what is not detected. Under [`Neap`], the environment variable
/// `NEAP_HARDEN` chooses the same for one run.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: neap::Hardened = neap::Hardened;
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Hardened;

impl Hardened {
    /// Takes the measures, before the process's first block exists.
    #[inline]
    fn begin() {
        #[cold]
        fn take_measures() {
            init::take_measures(Measures::ALL);
        }
        if !HEAP.measures().has(Measures::ALL) {
            take_measures();
        }
    }
}

// SAFETY: as of `Neap`, whose functions it calls.
unsafe impl GlobalAlloc for Hardened {
    #[inline]
    #[unsafe(link_section = "neap_text")]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Hardened::begin();
        // SAFETY: the caller's promise.
        unsafe { Neap.alloc(layout) }
    }

    #[inline]
    #[unsafe(link_section = "neap_text")]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { Neap.dealloc(block, layout) }
    }

    #[inline]
    #[unsafe(link_section = "neap_text")]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Hardened::begin();
        // SAFETY: the caller's promise.
        unsafe { Neap.alloc_zeroed(layout) }
    }

    #[inline]
    #[unsafe(link_section = "neap_text")]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { Neap.realloc(block, layout, size) }
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
