//! The lines that the heap prints about a misuse before it aborts. `docs/misuse.md` quotes them.

use crate::os::process::fatal;
use crate::slab::Slab;
use crate::slab::class::Class;
use core::fmt;

/// The call that got the bad pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `free` and its variants.
    Free,
    /// `realloc` and its variants.
    Realloc,
    /// `malloc_usable_size`.
    UsableSize,
}

impl fmt::Display for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Call::Free => "free",
            Call::Realloc => "realloc",
            Call::UsableSize => "malloc_usable_size",
        })
    }
}

/// The messages: what happened, the function that says so, and its line.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*): $line:literal;)*) => {$(
        $(#[$doc])*
        #[cold]
        pub fn $name($($argument: $kind),*) -> ! {
            fatal(format_args!($line))
        }
    )*};
}

messages! {
    /// A block was given back twice.
    double_free(address: usize, bytes: usize):
        "double free of {address:#x} (a block of {bytes} bytes)";

    /// The address is in no arena.
    foreign(call: Call, address: usize):
        "{call} of {address:#x}, which is not inside any Neap arena (stack, static, or another allocator's memory)";

    /// The address is in a block, but not where it starts.
    interior(call: Call, address: usize, bytes: usize):
        "{call} of {address:#x}, which is inside a block of {bytes} bytes and not its start";

    /// The address is in an arena, where no block starts.
    no_block(call: Call, address: usize):
        "{call} of {address:#x}, where no block starts";

    /// A freed block was to be resized, or its size was asked for.
    already_free(call: Call, address: usize):
        "{call} of {address:#x}, a block that is already free";

    /// The pointer has another tag than the block.
    wrong_tag(call: Call, address: usize, bytes: usize):
        "{call} of {address:#x} by the pointer of another block, or of an earlier one there (a block of {bytes} bytes)";

    /// The alignment that `call` states cannot be the block's.
    wrong_alignment(call: &str, address: usize, said: usize):
        "{call} of {address:#x}, which is not at a multiple of {said} bytes";

    /// A freed block was written before it was given out again.
    written_freed(address: usize, bytes: usize, offset: usize):
        "write to {address:#x} after its free (a block of {bytes} bytes; byte {offset} has changed)";

    /// The bytes behind a block's end were written. `offset` counts from its start.
    overflow(call: Call, address: usize, size: usize, offset: usize):
        "{call} of {address:#x}, past whose end something was written (a block of {size} bytes; byte {offset} has changed)";

    /// The word behind a block was overwritten, so that its size is not known.
    canary(call: Call, address: usize, most: usize):
        "{call} of {address:#x}, past whose end something was written (a block of at most {most} bytes)";

    /// A block is given back by a form of `delete` that does not belong to its allocation.
    wrong_form(address: usize, delete: &str, by: &str):
        "{delete} of {address:#x}, a block of {by}";

    /// A stack is to be trimmed below a stack pointer that is not its own.
    outside_stack(top: usize, pointer: usize):
        "trim below {pointer:#x}, which is not in the stack that ends at {top:#x}";

    /// The pointer is not the top of a stack, or that stack is not in use.
    no_stack(top: usize):
        "{top:#x} is not the top of a stack in use";
}

/// The number of the block that starts at `address`; aborts if none does.
pub fn start_of(call: Call, slab: &Slab, class: Class, address: usize) -> usize {
    match class.block_at(address - slab.base()) {
        Some(block) => block,
        None => interior(call, address, class.bytes()),
    }
}

/// Aborts if the block is free, or none starts at the address.
#[inline]
pub(crate) fn refuse_free(call: Call, slab: &Slab, class: Class, address: usize) {
    let number = start_of(call, slab, class, address);
    if slab.is_free(class, number) {
        already_free(call, address);
    }
}

/// The size that `call` states cannot be the block's.
#[cold]
pub fn wrong_size(call: &str, address: usize, said: usize, low: usize, high: usize) -> ! {
    if low == high {
        fatal(format_args!(
            "{call} of {address:#x} with {said} bytes, but the block holds {high} bytes"
        ));
    }
    fatal(format_args!(
        "{call} of {address:#x} with {said} bytes, but the block holds {low} to {high} bytes"
    ))
}

/// Something was written beside a block, where no block of the program's is.
#[cold]
pub fn stray_write(address: usize, size: usize, distance: isize) -> ! {
    let side = if distance < 0 { "before" } else { "past" };
    let bytes = distance.unsigned_abs();
    fatal(format_args!(
        "free of {address:#x}, beside which something was written (a block of {size} bytes; {bytes} bytes {side} its start)"
    ))
}
