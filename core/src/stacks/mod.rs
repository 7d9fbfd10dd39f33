//! Stacks for coroutines: spans of the page heap with a guard at their low end.
//!
//! ```text
//!   base     limit                                   top
//!    | guard  | untouched … pages the coroutine used |      one OS page of guard; stacks grow down
//! ```
//!
//! - A stack of 64 KiB or more ([`Size`]) is a span of its own. Smaller ones are cells of one slice, cut when the first of
//!   them is asked for and given up when the last of them is.
//! - Every stack has a [`Record`] in metadata spans, type-stable: who holds an old pointer reads an old fact, never
//!   something else. What the page heap lets a user note for a span leads to it.
//! - An ended stack stays warm, its guard in place, in a list of its size that the last one leaves first. The list is
//!   bounded; a surplus goes back to the page heap at once, oldest first, without guards: nobody but this room knows of them,
//!   and zeroing a page behind one would fault.
//! - Guards are [`Os::install_guard`]'s, and where the kernel refuses, [`Os::protect`]'s: these cost two mappings each, so they
//!   are counted and have a bound ([`guard`]).
//!
//! The lock of the pool is not held while the kernel is asked for anything but metadata. What happens to a stack without it
//! happens to one that only this thread holds. `docs/decisions/0008-stacks.md` has the measurements behind the numbers.
//!
//! [`Os::install_guard`]: crate::os::Os::install_guard
//! [`Os::protect`]: crate::os::Os::protect

mod guard;
mod list;
mod pool;
mod record;
mod release;
mod size;
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
    /// Fewer than 8 KiB or more than 8 MiB were asked for.
    Size,
    /// The kernel or a limit refused memory.
    OutOfMemory,
    /// The kernel knows no guards without a mapping, and those that need one have used up their share of
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

/// What came of giving a stack back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotInUse;

/// A guard was hit: what is known of its stack.
#[derive(Clone, Copy, Debug)]
pub struct Overflow {
    /// Usable bytes of the stack.
    pub bytes: usize,
    /// The name its owner gave it: null, or a C string.
    pub owner: *const core::ffi::c_char,
    /// Whether the stack was in use, not idle.
    pub state: State,
}
