//! A walk allocates nothing, and keeps `errno`.

use super::library::{Build, Library};
use neap_instruments::unwind::capture;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which notes calls that must not happen.
struct Watched;

#[global_allocator]
static WATCHED: Watched = Watched;

thread_local! {
    static WATCHING: Cell<bool> = const { Cell::new(false) };
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

// SAFETY: the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if WATCHING.get() {
            CALLS.set(CALLS.get() + 1);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

extern "C" fn walk_watched() {
    let mut frames = [0; 64];
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = 4321 };
    WATCHING.set(true);
    let taken = capture(&mut frames);
    WATCHING.set(false);
    assert_eq!(taken, 64);
    // SAFETY: as above.
    assert_eq!(unsafe { *libc::__errno_location() }, 4321);
}

#[test]
fn a_walk_allocates_nothing_and_keeps_errno() {
    for build in [Build::Tables, Build::Pointers] {
        let Some(library) = Library::new(build) else {
            return;
        };
        // Of many pages, through a handler of signals, not met before.
        library.climb(&[[1; 20], [5; 20], [0; 20]].concat(), walk_watched);
        assert_eq!(CALLS.get(), 0);
    }
}
