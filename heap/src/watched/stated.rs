//! The sizes and alignments that callers state when they free a block.

use super::fences;
use super::form;
use super::rule;
use super::seal::{self, Seal};
use crate::cache::heap::{Found, HEAP};
use crate::cache::measures::{Form, Measures};
use crate::cache::misuse::{self, Call};
use crate::cache::tags;
use crate::hook;
use crate::slab::class::MAX_BLOCK;
use crate::supply;

/// Aborts if a block that was requested with this size at this alignment cannot be this one.
pub(crate) fn check(call: &str, block: *mut u8, size: usize, align: usize) {
    check_size(call, block, size, align, Sizes::Requested);
}

/// [`check`] for the `delete` of a form. Deleting through a base class without a virtual destructor
/// states a size that is too small: only the modes refuse that.
pub(crate) fn check_deleted(block: *mut u8, size: usize, align: usize, form: Form) {
    let measures = HEAP.measures();
    let sizes = match measures.has(Measures::CHECK) || measures.has(Measures::DELETES) {
        true => Sizes::Requested,
        false => Sizes::UpToTheBlocks,
    };
    check_size(form::delete(form), block, size, align, sizes);
}

/// Which stated sizes are right.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizes {
    /// Those for which a request gets such a block.
    Requested,
    /// All that the block can hold.
    UpToTheBlocks,
}

/// Aborts if the block of the stated size, or one at the stated alignment, cannot be this one.
fn check_size(call: &str, block: *mut u8, size: usize, align: usize, sizes: Sizes) {
    let address = tags::strip(block.addr());
    let is_exact = supply::are_sizes_exact();
    let (low, high) = match HEAP.find(address) {
        Found::Sampled(_, class) => (0, class.bytes()),
        Found::Slab(slab, class) if seal::of(address, class) != Seal::Open => {
            misuse::start_of(Call::Free, slab, class, address);
            let size = seal::usable(Call::Free, address, class);
            (if is_exact { size } else { 0 }, size)
        }
        Found::Slab(_, class) => {
            // A stated alignment of 16 rounded a smaller size up to 16.
            let by_size = align <= 8 || (align == 16 && size >= 16);
            let low = if by_size && is_exact {
                rule::least_request(class)
            } else {
                0
            };
            (low, class.bytes())
        }
        // A large block's alignment may have made it large, whatever its size, or a realloc without
        // memory.
        Found::Large(place) => {
            let bytes = fences::bytes(Call::Free, &place, address);
            let low = match is_exact {
                true if fences::is_fenced(&place) => rule::least_fenced_request(bytes),
                true if align <= MAX_BLOCK && bytes > MAX_BLOCK => rule::least_large_request(),
                _ => 0,
            };
            (low, bytes)
        }
        Found::Guarded => (0, hook::instruments().guarded_bytes(Call::Free, address)),
        // Null, or what `free` itself reports.
        Found::Foreign | Found::NoBlock | Found::Stack => return,
    };
    let is_small = size < low && sizes == Sizes::Requested;
    if is_small || size > high {
        let low = if HEAP.is_in_pool(address) { high } else { low };
        misuse::wrong_size(call, address, size, low, high);
    }
    if align.is_power_of_two() && !address.is_multiple_of(align) {
        misuse::wrong_alignment(call, address, align);
    }
}
