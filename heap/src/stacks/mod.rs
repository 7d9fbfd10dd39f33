//! Stacks for coroutines: spans of the page heap with a guard at their low end.
//!
//! ```text
//!   base     limit                                   top
//!    | guard  | untouched … pages the coroutine used |      stacks grow down
//! ```
//!
//! - Every stack is a span of its own. All of the span that is not usable ([`Size`]) is the guard.
//! - Every stack has a [`StackRecord`] in metadata spans. Records are type-stable: a stale pointer
//!   still points to a record, whose contents may be out of date. The span's note in the page heap
//!   points to the record.
//! - An ended stack stays warm, its guard in place, in a LIFO list of its size. The list is
//!   bounded. A surplus goes back to the page heap at once, oldest first. Its guards are removed
//!   first, because only this layer knows of them, and zeroing a guarded page would fault.
//! - Guards come from [`Os::install_guard`]; if the kernel refuses, from
//!   [`Os::install_write_guard`]; if that is refused as well, from [`Os::protect`]. The last cost
//!   two mappings each, so [`guards`] counts and limits them.
//!
//! The pool's lock is held across no system calls but those for metadata and for write guards.
//! Without the lock, a thread changes only a stack that it alone holds.
//! `docs/decisions/0008-stacks.md` has the measurements behind the numbers.
//!
//! [`Os::install_write_guard`]: crate::os::Os::install_write_guard
//! [`Os::install_guard`]: crate::os::Os::install_guard
//! [`Os::protect`]: crate::os::Os::protect

mod guards;
mod pool;
mod record;
pub mod stack;
#[cfg(test)]
#[path = "../testing/stacks/mod.rs"]
mod tests;

pub use pool::Pool;
pub use record::{NotInUse, Overflow, Size, StackError, StackRecord, StackTotals, State, TAG};
