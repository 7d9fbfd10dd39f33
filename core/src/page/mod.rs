//! The page heap: arenas, slices, spans, zero state, fit, purge. Knows no size classes.

use crate::os::Os;
use core::ptr::NonNull;

/// What a span is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Use {
    /// One slice cut into equal blocks.
    Slab = 1,
    /// One large block.
    Large = 2,
    /// A coroutine stack.
    Stack = 3,
    /// Neap's own data.
    Meta = 4,
}
/// How many uses there are.
pub const USES: usize = 4;
