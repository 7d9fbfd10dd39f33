//! What can go wrong with a stack.

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
