//! The C heap as a compiled C program uses it: calls through the dynamic symbol table, so that a
//! preloaded library serves them.

use std::ffi::c_void;

use super::classes;

/// Hides `p` from the optimiser, which otherwise removes a `malloc` whose block is only freed.
/// Costs no instruction.
#[inline(always)]
pub fn escape(p: *mut u8) {
    // SAFETY: the assembly is empty; naming the register is its only effect.
    unsafe { core::arch::asm!("/* {0} */", in(reg) p, options(nostack, preserves_flags)) }
}

/// A block of `size` bytes; null if memory is short.
#[inline(always)]
pub fn malloc(size: usize) -> *mut u8 {
    // SAFETY: malloc has no precondition.
    let p = unsafe { libc::malloc(size) }.cast();
    escape(p);
    p
}

/// A zeroed block of `size` bytes; null if memory is short.
#[inline(always)]
pub fn calloc(size: usize) -> *mut u8 {
    // SAFETY: calloc has no precondition.
    let p = unsafe { libc::calloc(1, size) }.cast();
    escape(p);
    p
}

/// # Safety
/// - `p` came from this heap and has not been freed since, or is null.
/// - `p` is not used after the call unless the result is null.
#[inline(always)]
pub unsafe fn realloc(p: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise is realloc's precondition.
    let q = unsafe { libc::realloc(p.cast(), size) }.cast();
    escape(q);
    q
}

/// # Safety
/// - `p` came from this heap and has not been freed since, or is null.
/// - `p` is not used after the call.
#[inline(always)]
pub unsafe fn free(p: *mut u8) {
    // SAFETY: the caller's promise is free's precondition.
    unsafe { libc::free(p.cast()) }
}

/// The C heap, for the measurements of [`classes`].
pub struct Questioned;

impl classes::Heap for Questioned {
    fn take(&self, size: usize) -> *mut u8 {
        malloc(size)
    }

    unsafe fn usable(&self, block: *mut u8) -> usize {
        // SAFETY: the caller's promise.
        unsafe { libc::malloc_usable_size(block.cast()) }
    }

    unsafe fn give(&self, block: *mut u8, _size: usize) {
        // SAFETY: the caller's promise.
        unsafe { free(block) }
    }
}

/// C++ `operator new(size_t)`.
pub type OperatorNew = unsafe extern "C" fn(usize) -> *mut c_void;
/// C++ `operator delete(void*)`.
pub type OperatorDelete = unsafe extern "C" fn(*mut c_void);

/// The process's C++ operators, if a loaded library defines them.
pub fn operators() -> Option<(OperatorNew, OperatorDelete)> {
    let new = symbol(c"_Znwm")?;
    let delete = symbol(c"_ZdlPv")?;
    // SAFETY: the Itanium C++ ABI fixes the types behind these two mangled names.
    unsafe {
        Some((
            std::mem::transmute::<*mut c_void, OperatorNew>(new),
            std::mem::transmute::<*mut c_void, OperatorDelete>(delete),
        ))
    }
}

/// The address that the dynamic loader returns for `name` in this process.
pub fn symbol(name: &std::ffi::CStr) -> Option<*mut c_void> {
    // SAFETY: `name` is a C string, and RTLD_DEFAULT is a valid handle.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// A block that remembers what was written to it, to detect a heap that returns overlapping blocks
/// or writes to live ones.
#[derive(Clone, Copy)]
pub struct Block {
    start: *mut u8,
    size: usize,
}

// SAFETY: a block belongs to the thread that holds it; the heap allows a free from any thread.
unsafe impl Send for Block {}

// SAFETY: a shared reference to a block only allows copying its address.
unsafe impl Sync for Block {}

impl Block {
    /// No block.
    pub const NONE: Block = Block {
        start: std::ptr::null_mut(),
        size: 0,
    };

    /// Takes a block of at least 8 bytes and writes `stamp` to its first and last word. The stamps
    /// of live blocks must differ.
    ///
    /// # Panics
    /// If the heap has no memory.
    #[inline(always)]
    pub fn take(size: usize, stamp: u64) -> Block {
        Block::stamped(malloc(size), size, stamp)
    }

    /// The same for a new block at `start`, which is null if the heap has no memory.
    ///
    /// # Panics
    /// If `start` is null.
    #[inline(always)]
    pub fn stamped(start: *mut u8, size: usize, stamp: u64) -> Block {
        debug_assert!(size >= 8, "a block carries a stamp of 8 bytes");
        assert!(!start.is_null(), "malloc({size}) failed");
        // SAFETY: the block has `size >= 8` bytes; unaligned writes need no alignment.
        unsafe {
            start.add(size - 8).cast::<u64>().write_unaligned(stamp);
            start.cast::<u64>().write_unaligned(stamp);
        }
        Block { start, size }
    }

    /// Takes a block and writes all of it.
    ///
    /// # Panics
    /// If the heap has no memory.
    pub fn written(size: usize, stamp: u64) -> Block {
        let block = Block::take(size, stamp);
        // SAFETY: the block has `size` bytes, of which the first and the last 8 hold its stamp.
        unsafe {
            block
                .start
                .add(8)
                .write_bytes(0x5a, size.saturating_sub(16))
        };
        block
    }

    /// The block of `size` bytes that was taken at `start`.
    pub fn at(start: *mut u8, size: usize) -> Block {
        Block { start, size }
    }

    /// Checks both words and frees the block.
    ///
    /// # Panics
    /// If the block no longer holds `stamp`.
    ///
    /// # Safety
    /// - The block was taken and not given before (copies count as one block).
    #[inline(always)]
    pub unsafe fn give(self, stamp: u64) {
        // SAFETY: the caller gives a live block, and gives it once.
        unsafe {
            self.check(stamp);
            free(self.start);
        }
    }

    /// Checks both words.
    ///
    /// # Panics
    /// If the block no longer holds `stamp`.
    ///
    /// # Safety
    /// - The block was taken and not given.
    #[inline(always)]
    pub unsafe fn check(self, stamp: u64) {
        // SAFETY: the block is live, so its first and last word are readable.
        let [first, last] = unsafe {
            [self.start, self.start.add(self.size - 8)]
                .map(|word| word.cast::<u64>().read_unaligned())
        };
        assert!(
            first == stamp && last == stamp,
            "a live block was overwritten"
        );
    }

    /// The address of the block's first byte.
    pub fn start(self) -> *mut u8 {
        self.start
    }
}
