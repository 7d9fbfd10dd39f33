//! The memory and the stack that one input may take.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The C library's allocator, with a count of live bytes.
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
/// The most live bytes; more end the process.
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);

// SAFETY: all calls go to the C library's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        count(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

fn count(bytes: usize) {
    let live = LIVE
        .fetch_add(bytes, Ordering::Relaxed)
        .saturating_add(bytes);
    if live > MOST.load(Ordering::Relaxed) {
        MOST.store(usize::MAX, Ordering::Relaxed);
        panic!("the input takes {live} bytes of memory, the last request {bytes}");
    }
}

/// Calls `run`, which may allocate `bytes` bytes beyond what is live.
pub fn within(bytes: usize, run: impl FnOnce()) {
    let live = LIVE.load(Ordering::Relaxed);
    MOST.store(live.saturating_add(bytes), Ordering::Relaxed);
    run();
    MOST.store(usize::MAX, Ordering::Relaxed);
}

/// Lets libFuzzer's handler of SIGSEGV run on a stack of its own, so that it writes the input that
/// overflows the stack.
pub fn report_overflows() {
    const BYTES: usize = 256 << 10;
    let stack = libc::stack_t {
        ss_sp: Box::leak(vec![0_u8; BYTES].into_boxed_slice())
            .as_mut_ptr()
            .cast(),
        ss_flags: 0,
        ss_size: BYTES,
    };
    // SAFETY: the stack is never freed. libFuzzer keeps SA_ONSTACK when it replaces an action.
    unsafe {
        libc::sigaltstack(&stack, std::ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
    }
}
