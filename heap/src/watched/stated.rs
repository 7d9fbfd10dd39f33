//! What callers state when they free a block: its size and alignment, and the form of `delete`.

use super::fences;
use super::seal;
use super::seal::{Seal, canary_of};
use super::stray::canary_at;
use crate::base::sync::Ordering;
use crate::cache::heap::{Found, HEAP};
use crate::cache::measures::{Canary, Form, Key, Measures};
use crate::cache::misuse::{self, Call};
use crate::cache::tags::{self, Unchecked};
use crate::hook;
use crate::os::loader;
use crate::slab::class::{Class, MAX_BLOCK};
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
    check_size(delete(form), block, size, align, sizes);
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
                seal::least_request(class)
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
                true if fences::is_fenced(&place) => seal::least_fenced_request(bytes),
                true if align <= MAX_BLOCK && bytes > MAX_BLOCK => seal::least_large_request(),
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

/// Notes by which call a block was allocated, where `delete` is to know.
pub fn mark(block: *mut u8, form: Form) {
    let address = tags::strip(block.addr());
    if !HEAP.measures().has(Measures::DELETES) || address == 0 {
        return;
    }
    match HEAP.find(address) {
        // SAFETY: allocated just now, for the caller.
        Found::Slab(_, class) => unsafe { set_form(address, class, form) },
        Found::Large(place) => fences::set_form(&place, form),
        _ => {}
    }
}

/// Aborts if another call than `form` allocated the block that this form of `delete` gives back.
/// What is no block's start is left to the free. Where an object may call operators of its own, the
/// blocks of its `new` are `malloc`'s, and nothing is certain.
pub(crate) fn refuse_other_form(block: *mut u8, form: Form) {
    let address = tags::strip(block.addr());
    let has_form = matches!(form, Form::New | Form::Array);
    if !has_form || !HEAP.measures().has(Measures::DELETES) {
        return;
    }
    let by = match HEAP.find(address) {
        Found::Slab(slab, class) if class.block_at(address - slab.base()).is_some() => {
            // SAFETY: a block starts there.
            unsafe { form_of(address, class) }
        }
        Found::Large(place) => Some(fences::form_of(&place)),
        _ => None,
    };
    let by = match by {
        None | Some(Form::Any) => return,
        Some(by) if by == form => return,
        Some(Form::Malloc) => "malloc",
        Some(Form::New) => "new",
        Some(Form::Array) => "new[]",
    };
    if !loader::may_be_own() {
        misuse::wrong_form(address, delete(form), by);
    }
}

/// The operator of this form. With an alignment, the form is not known.
fn delete(form: Form) -> &'static str {
    match form {
        Form::Array => "delete[]",
        _ => "delete",
    }
}

/// By which call the block of `class` at `address` was allocated; `None` if it has no canary that
/// says so.
///
/// # Safety
/// - A block of a slab starts there.
unsafe fn form_of(address: usize, class: Class) -> Option<Form> {
    if seal::of(address, class) != Seal::Canary {
        return None;
    }
    // SAFETY: the caller's promise.
    match unsafe { canary_of(address, class) } {
        Some(Canary::Live(form, _)) => Some(form),
        _ => None,
    }
}

/// Notes by which call a block was allocated.
///
/// # Safety
/// - The caller's block of a slab starts there, in use.
unsafe fn set_form(address: usize, class: Class, form: Form) {
    if seal::of(address, class) != Seal::Canary {
        return;
    }
    let _unchecked = Unchecked::begin();
    // SAFETY: the caller's promise.
    let (said, word) = unsafe {
        let word = canary_at(address, class.bytes());
        (canary_of(address, class), word)
    };
    if let Some(Canary::Live(_, size)) = said {
        let live = Key::of(address).word(Canary::Live(form, size));
        word.store(live, Ordering::Release);
    }
}
