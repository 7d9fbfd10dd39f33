//! By which form of `new` or `malloc` a block was allocated, for the forms of `delete`
//! (`NEAP_HARDEN`).

use super::fences;
use super::seal::{self, Seal, canary_of};
use super::stray::canary_at;
use crate::base::sync::Ordering;
use crate::cache::heap::{Found, HEAP};
use crate::cache::measures::{Canary, Form, Key, Measures};
use crate::cache::misuse;
use crate::cache::tags;
use crate::cache::tags::Unchecked;
use crate::os::operators;
use crate::slab::class::Class;

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
pub(crate) fn refuse_other(block: *mut u8, form: Form) {
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
    if !operators::may_be_own() {
        misuse::wrong_form(address, delete(form), by);
    }
}

/// The operator of this form. With an alignment, the form is not known.
pub(crate) fn delete(form: Form) -> &'static str {
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
