//! Coroutines of the `corosensei` crate on stacks of Neap.

use crate::stack::Stack;
use corosensei::stack::StackPointer;

// SAFETY: there is a guard at the low end, an OS page of 4,096 bytes at least above it (the
// smallest stack has two), both ends are OS page boundaries, and the memory is this value's alone
// until it is dropped.
unsafe impl corosensei::stack::Stack for Stack {
    fn base(&self) -> StackPointer {
        self.top().addr()
    }

    /// The guard's lowest byte: the trait includes the guard.
    fn limit(&self) -> StackPointer {
        self.guard()
    }
}
