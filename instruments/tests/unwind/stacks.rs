//! Stacks that do not belong to a thread: a coroutine's between two guards, and a raw `clone`'s.

use super::library::{Build, Library};
use super::{look, look_alone, seen};
use neap_heap::stacks::stack::Stack;
use std::cell::Cell;
use std::hint::black_box;

const BYTES: usize = 64 << 10;

thread_local! {
    static LIBRARY: Cell<Option<Library>> = const { Cell::new(None) };
}

extern "C" fn descend_here() {
    LIBRARY.get().unwrap().descend(9, look_alone);
    // This keeps the call above from becoming a jump.
    black_box(());
}

/// A stack whose upper neighbour is another, so that a guard is right above it.
fn below_a_guard(stacks: &[Stack]) -> &Stack {
    let is_above = |stack: &Stack, other: &Stack| other.guard() == stack.top();
    let has_neighbour = |stack: &&Stack| stacks.iter().any(|other| is_above(stack, other));
    stacks.iter().find(has_neighbour).expect("neighbours")
}

#[test]
fn a_walk_ends_at_the_guard_above_a_coroutines_stack() {
    let Some(library) = Library::new(Build::Tables) else {
        return;
    };
    LIBRARY.set(Some(library));
    let stacks: Vec<_> = (0..16).map(|_| Stack::new(BYTES).unwrap()).collect();
    let stack = below_a_guard(&stacks);
    for _ in 0..2 {
        library.special(c"with_stack", descend_here, stack.top().addr().get());
        let (ours, _) = seen();
        // Ten of the recursion, the callback, and the function that has no table.
        assert!(ours.len() >= 12, "{ours:x?}");
        let first_on_it = ours
            .iter()
            .position(|&frame| library.is_in(frame, c"with_stack"));
        assert_eq!(first_on_it, Some(ours.len() - 1), "{ours:x?}");
    }
}

extern "C" fn on_raw_clone(_: *mut libc::c_void) -> libc::c_int {
    LIBRARY.get().unwrap().descend(9, look);
    0
}

/// It shares the memory of the thread that waits for it, thread-local storage included.
#[test]
fn a_raw_clone_is_walked_to_its_start() {
    let Some(library) = Library::new(Build::Tables) else {
        return;
    };
    LIBRARY.set(Some(library));
    // libgcc allocates on first use; not on a thread like that.
    look();
    let mut stack = vec![0_u128; 16 << 10];
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: a stack of its own; the parent waits until the child has ended.
    let child = unsafe { libc::clone(on_raw_clone, top.cast(), flags, std::ptr::null_mut()) };
    assert!(child > 0);
    let mut status = -1;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    let (ours, theirs) = seen();
    assert!(ours.len() >= 12);
    assert_eq!(ours, theirs);
}
