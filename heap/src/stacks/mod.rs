//! Stacks for coroutines: spans of the page heap with a guard at their low end.
//!
//! ```text
//!   base     limit                                   top
//!    | guard  | untouched … pages the coroutine used |      one OS page of guard; stacks grow down
//! ```
//!
//! - A stack of 64 KiB or more ([`Size`]) is a span of its own. Smaller stacks are cells of one
//!   slice. The slice is cut for the first of them and given up with the last.
//! - Every stack has a [`Record`] in metadata spans. Records are type-stable: a stale pointer still
//!   points to a record, whose contents may be out of date. The span's note in the page heap points
//!   to its first record.
//! - An ended stack stays warm, its guard in place, in a LIFO list of its size. The list is
//!   bounded. A surplus goes back to the page heap at once, oldest first. Its guards are removed
//!   before, because only this room knows of them, and zeroing a guarded page would fault.
//! - Guards come from [`Os::install_guard`], or from [`Os::protect`] if the kernel refuses. The
//!   latter cost two mappings each, so [`guard`] counts and limits them.
//!
//! The pool's lock is not held across system calls, except those for metadata. Without the lock, a
//! thread changes only a stack that it alone holds. `docs/decisions/0008-stacks.md` has the
//! measurements behind the numbers.
//!
//! [`Os::install_guard`]: crate::os::Os::install_guard
//! [`Os::protect`]: crate::os::Os::protect

mod guard;
mod list;
pub mod overflow;
mod pool;
mod record;
mod release;
mod size;
pub mod stack;
mod store;
#[cfg(test)]
mod tests;
mod totals;

pub use pool::Pool;
pub use record::{Record, State};
pub use size::Size;
pub use totals::StackTotals;

/// The tag of a slice where a span of stacks starts.
pub const TAG: u8 = 252;

/// Why there is no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackError {
    /// The size is below 8 KiB or above 8 MiB.
    Size,
    /// The kernel or a limit refused memory.
    OutOfMemory,
    /// Every guard needs mappings on this kernel, and the guards have used up their share of
    /// `vm.max_map_count`.
    OutOfMappings,
}

impl core::fmt::Display for StackError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            Self::Size => "a stack has 8 KiB to 8 MiB",
            Self::OutOfMemory => "out of memory",
            Self::OutOfMappings => {
                "the guards of stacks have used up their share of vm.max_map_count"
            }
        })
    }
}

impl core::error::Error for StackError {}

/// The stack given back was not in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotInUse;

/// The stack whose guard a fault hit.
#[derive(Clone, Copy, Debug)]
pub struct Overflow {
    /// Usable bytes of the stack.
    pub bytes: usize,
    /// The owner's name for it: null, or a C string.
    pub owner: *const core::ffi::c_char,
    /// Whether the stack was in use or idle.
    pub state: State,
}
