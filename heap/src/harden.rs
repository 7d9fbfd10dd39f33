//! Blocks of slabs under `NEAP_HARDEN`: how they are chosen, what stands behind them, and what a
//! free looks at. `docs/harden.md` says what each measure stops.
//!
//! ```text
//!   | requested bytes | slack: zeros | canary: 8 bytes |     a block of the program's
//!   | zeros                          | canary or 0     |     a free block, or one that waits
//! ```
//!
//! The canary is a word that a reader without the process's secrets cannot make. It holds the
//! requested size, the form of the call, and whether the block was freed. A free checks the block's
//! own canary and slack, and what lies within [`BESIDE`] bytes of the block, as far as no block of
//! the program's is there. The caller of the free holds a lock, so no neighbour is freed meanwhile;
//! one may be handed out, and then its canary says so first.

use crate::base::sync::{AtomicU64, Ordering, fence, plain};
use crate::cache::heap::HEAP;
pub use crate::cache::measures::{Canary, Form, Measures};
use crate::cache::measures::{EARLY, SECRETS};
use crate::cache::misuse::{self, Call};
use crate::os::linux;
use crate::slab::Slab;
use crate::slab::class::Class;
use core::ptr;

/// Bytes of a canary.
const CANARY_BYTES: usize = size_of::<u64>();
/// How far from a block a free looks for stray writes, in bytes.
const BESIDE: usize = 32;
/// What fills a block that waits in the checking mode: as a pointer it leads nowhere.
const PATTERN: u8 = 0xdb;

/// What the blocks of a slab have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// All of their bytes are the program's.
    Open,
    /// No bytes, and no access.
    NoBytes,
    /// A canary at their end.
    Canary,
}

/// Prepares for measures: secrets, and which blocks are older.
pub(crate) fn prepare(measures: Measures) {
    SECRETS.draw();
    if measures.has(Measures::RANDOM) {
        linux::scatter(SECRETS.next());
    }
    if !is_on() {
        let base = HEAP.pages.primary_base.load(plain::Ordering::Relaxed);
        EARLY.set(base, HEAP.pages.primary_bytes());
    }
}

/// Whether anything of `NEAP_HARDEN` is in force that blocks of slabs have.
#[inline]
pub fn is_on() -> bool {
    HEAP.measures().harden()
}

/// A random number, if choices are to be random.
pub fn random() -> Option<usize> {
    let wanted = HEAP.measures().has(Measures::RANDOM);
    wanted.then(|| SECRETS.next() as usize)
}

/// What the block of `class` at `address` has.
#[inline]
pub fn seal(address: usize, class: Class) -> Seal {
    let measures = HEAP.measures();
    match measures.harden() && !EARLY.has(address) {
        true if HEAP.is_no_bytes(class) => Seal::NoBytes,
        true if measures.has(Measures::CANARY) => Seal::Canary,
        _ => Seal::Open,
    }
}

/// The class for `size` bytes at a multiple of `align` and what stands behind them; `None` if no
/// slab serves it. Blocks of the class of no bytes are multiples of 16 only.
pub(crate) fn class_for(size: usize, align: usize) -> Option<Class> {
    let measures = HEAP.measures();
    let no_bytes = Class::of_no_bytes().filter(|&class| HEAP.is_no_bytes(class));
    if size == 0 && align <= 16 && no_bytes.is_some() {
        return no_bytes;
    }
    let canary = match measures.has(Measures::CANARY) {
        true => CANARY_BYTES,
        false => 0,
    };
    let class = Class::of_layout(size.checked_add(canary)?, align.max(16))?;
    match HEAP.is_no_bytes(class) {
        true => Class::of_layout(class.bytes() + 1, align.max(16)),
        false => Some(class),
    }
}

/// A block of `size` bytes, by [`class_for`] of `class`. Null when out of memory.
pub(crate) fn allocate(size: usize, class: Class) -> *mut u8 {
    let measures = HEAP.measures();
    let block = match measures.has(Measures::RANDOM) {
        true => HEAP.take_any(class),
        false => HEAP.take_one(class),
    };
    if !block.is_null() {
        // SAFETY: a fresh block of that class.
        unsafe { hand_out(block, size, class, measures) };
    }
    block
}

/// Checks that nothing was written to a block while it was free, and sets its canary.
///
/// # Safety
/// - A block of `class` of the caller's, which no other thread has.
unsafe fn hand_out(block: *mut u8, size: usize, class: Class, measures: Measures) {
    let (address, bytes) = (block.addr(), class.bytes());
    let seal = seal(address, class);
    let held = held_bytes(seal, class);
    let checks = measures.has(Measures::ZERO) && !EARLY.has(address);
    if seal == Seal::Canary {
        // SAFETY: the word behind the block. Written first, because a read of an untouched page
        // costs a fault of its own.
        let word = unsafe { canary_at(address, bytes) };
        let canary = Canary::Live(Form::Malloc, size).word(address);
        let before = word.swap(canary, Ordering::AcqRel);
        let is_free = before == 0 || before == Canary::Freed.word(address);
        if checks && !is_free {
            misuse::written_freed(address, bytes, held);
        }
    }
    if checks {
        // SAFETY: the block's own bytes.
        if let Some(offset) = unsafe { first_other(address, held, 0) } {
            misuse::written_freed(address, bytes, offset);
        }
    }
}

/// Bytes of a block that its owner or the fill of a free block has.
fn held_bytes(seal: Seal, class: Class) -> usize {
    match seal {
        Seal::Open => class.bytes(),
        Seal::NoBytes => 0,
        Seal::Canary => class.bytes() - CANARY_BYTES,
    }
}

/// The word at the end of a block.
///
/// # Safety
/// - A block of `bytes` bytes with a place for a canary starts at `address`; its slab is in use.
#[inline]
unsafe fn canary_at<'a>(address: usize, bytes: usize) -> &'a AtomicU64 {
    debug_assert!(address.is_multiple_of(8) && bytes.is_multiple_of(8));
    let word = (address + bytes - CANARY_BYTES) as *const AtomicU64;
    // SAFETY: the caller's promise: the last word of a block, which only this file reaches.
    unsafe { &*word }
}

/// What the canary of a block says; `None` if it was overwritten.
///
/// # Safety
/// - As [`canary_at`].
unsafe fn canary_of(address: usize, class: Class) -> Option<Canary> {
    // SAFETY: the caller's promise.
    let word = unsafe { canary_at(address, class.bytes()) };
    Canary::read(word.load(Ordering::Acquire), address)
}

/// The offset of the first of `bytes` bytes, a multiple of 8, that is not `fill`.
///
/// # Safety
/// - They are of a free block of the caller's, and begin at a multiple of 8.
#[inline]
unsafe fn first_other(address: usize, bytes: usize, fill: u8) -> Option<usize> {
    debug_assert!(address.is_multiple_of(8) && bytes.is_multiple_of(8));
    let expected = u64::from_ne_bytes([fill; 8]);
    // SAFETY: the caller's promise.
    let words = unsafe { core::slice::from_raw_parts(address as *const u64, bytes / 8) };
    // Eight words at a time, because most blocks are as they were left.
    let (chunks, _) = words.as_chunks::<8>();
    let other = |chunk: &[u64; 8]| chunk.iter().fold(0, |sum, word| sum | (word ^ expected)) != 0;
    let from = chunks.iter().position(other).unwrap_or(chunks.len()) * 8;
    let at = from + words[from..].iter().position(|&word| word != expected)?;
    let byte = (words[at] ^ expected).to_le().trailing_zeros() as usize / 8;
    Some(at * 8 + byte)
}

/// The offset of the first of `bytes` bytes, a multiple of 8, that is not 0.
///
/// # Safety
/// - They may be read, and begin at a multiple of 8. Other threads may write to them meanwhile.
#[inline]
unsafe fn first_stray(address: usize, bytes: usize) -> Option<usize> {
    (0..bytes).step_by(8).find_map(|at| {
        // SAFETY: the caller's promise.
        let word = unsafe { ptr::read_volatile((address + at) as *const u64) };
        (word != 0).then(|| at + word.to_le().trailing_zeros() as usize / 8)
    })
}

/// How many bytes the program has of a block that is not freed: those that it requested, or all.
pub fn usable(call: Call, address: usize, class: Class) -> usize {
    match seal(address, class) {
        Seal::Open => class.bytes(),
        Seal::NoBytes => 0,
        // SAFETY: such a block starts there.
        Seal::Canary => match unsafe { canary_of(address, class) } {
            Some(Canary::Live(_, size)) => size,
            Some(Canary::Freed) => misuse::already_free(call, address),
            None => misuse::canary(call, address, held_bytes(Seal::Canary, class)),
        },
    }
}

/// Notes that a block, which stays where it is, has `size` bytes from now on. False if it has no
/// room for them.
///
/// # Safety
/// - A block of the caller's starts at `address`, in use.
pub(crate) unsafe fn resize(address: usize, class: Class, size: usize, align: usize) -> bool {
    let seal = seal(address, class);
    if seal == Seal::NoBytes || size == 0 || class_for(size, align) != Some(class) {
        return false;
    }
    if seal == Seal::Canary {
        // SAFETY: the caller's promise.
        let (held, word) =
            unsafe { (canary_of(address, class), canary_at(address, class.bytes())) };
        let Some(Canary::Live(form, held)) = held else {
            return false;
        };
        if HEAP.measures().has(Measures::ZERO) {
            // SAFETY: the caller's promise.
            unsafe { check_slack(Call::Realloc, address, held, held_bytes(seal, class)) };
        }
        if size < held {
            // SAFETY: bytes of the block that the program gives up.
            unsafe { ptr::write_bytes((address + size) as *mut u8, 0, held - size) };
        }
        word.store(Canary::Live(form, size).word(address), Ordering::Release);
    }
    true
}

/// Aborts if the bytes from the requested ones to the canary, at the offset `end`, are not zero.
///
/// # Safety
/// - A block in use of `size` bytes starts at `address`; `end` is a multiple of 8, and not 0.
#[inline]
unsafe fn check_slack(call: Call, address: usize, size: usize, end: usize) {
    debug_assert!(size <= end && end.is_multiple_of(8) && end > 0);
    let mut at = end;
    let mut others = 0;
    while at > size {
        at -= 8;
        // SAFETY: a word of the block.
        let word = unsafe { *((address + at) as *const u64) };
        let before = size.saturating_sub(at) as u32;
        others |= word.to_le() >> (8 * before);
    }
    if others != 0 {
        // SAFETY: as above.
        let is_other = |&at: &usize| unsafe { *((address + at) as *const u8) } != 0;
        let offset = (size..end).find(is_other).unwrap_or(size);
        misuse::overflow(call, address, size, offset);
    }
}

/// By which call the block of `class` at `address` was allocated; `None` if it has no canary that
/// says so.
///
/// # Safety
/// - A block of a slab starts there.
pub(crate) unsafe fn form_of(address: usize, class: Class) -> Option<Form> {
    if seal(address, class) != Seal::Canary {
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
pub(crate) unsafe fn set_form(address: usize, class: Class, form: Form) {
    if seal(address, class) != Seal::Canary {
        return;
    }
    // SAFETY: the caller's promise.
    let (said, word) = unsafe {
        let word = canary_at(address, class.bytes());
        (canary_of(address, class), word)
    };
    if let Some(Canary::Live(_, size)) = said {
        word.store(Canary::Live(form, size).word(address), Ordering::Release);
    }
}

/// Takes a block of a slab out of the program's hands: aborts if it is free already, or if
/// something was written past its end or beside it; then fills it.
///
/// # Safety
/// - The program frees the block `number` of this slab, and uses it no more.
/// - No thread frees another block of a slab meanwhile, because the caller holds a lock.
pub unsafe fn close(slab: &Slab, class: Class, number: usize) {
    let bytes = class.bytes();
    let address = slab.base() + number * bytes;
    if seal(address, class) == Seal::Canary {
        // SAFETY: the caller's promise.
        return unsafe { close_sealed(slab, class, number, address) };
    }
    if slab.is_free(class, number) {
        misuse::double_free(address, bytes);
    }
    if let (false, Some(fill)) = (HEAP.is_no_bytes(class), fill_of(address)) {
        // SAFETY: the caller's promise.
        unsafe { ptr::write_bytes(address as *mut u8, fill, bytes) };
    }
}

/// [`close`] of a block with a canary.
///
/// # Safety
/// - As [`close`].
unsafe fn close_sealed(slab: &Slab, class: Class, number: usize, address: usize) {
    let (bytes, measures) = (class.bytes(), HEAP.measures());
    // SAFETY: a block with a canary starts there, or a free one.
    let word = unsafe { canary_at(address, bytes) };
    let size = match Canary::read(word.load(Ordering::Acquire), address) {
        Some(Canary::Live(_, size)) => size,
        Some(Canary::Freed) => misuse::double_free(address, bytes),
        None if slab.is_free(class, number) => misuse::double_free(address, bytes),
        None => misuse::canary(Call::Free, address, bytes - CANARY_BYTES),
    };
    let mut held = bytes - CANARY_BYTES;
    if measures.has(Measures::ZERO) {
        // SAFETY: the block's own bytes.
        unsafe { check_slack(Call::Free, address, size, held) };
        check_beside(slab, class, number, size);
        // What is past the requested bytes is zero already.
        held = size;
    }
    if let Some(fill) = fill_of(address) {
        // SAFETY: the caller's promise.
        unsafe { ptr::write_bytes(address as *mut u8, fill, held) };
    }
    word.store(Canary::Freed.word(address), Ordering::Release);
}

/// What fills a freed block.
fn fill_of(address: usize) -> Option<u8> {
    let measures = HEAP.measures();
    match EARLY.has(address) && measures.harden() {
        true => None,
        false if measures.has(Measures::ZERO) => Some(0),
        false if measures.has(Measures::CHECK) => Some(PATTERN),
        false => None,
    }
}

/// Aborts if a block has changed since it was [closed](close).
///
/// # Safety
/// - It was closed, and nothing may use it since.
pub unsafe fn refuse_written(address: usize, class: Class) {
    let seal = seal(address, class);
    let bytes = held_bytes(seal, class);
    if let Some(fill) = fill_of(address) {
        // SAFETY: the block's bytes; the caller's promise.
        if let Some(offset) = unsafe { first_other(address, bytes, fill) } {
            misuse::written_freed(address, class.bytes(), offset);
        }
    }
    // SAFETY: as above.
    if seal == Seal::Canary && unsafe { canary_of(address, class) } != Some(Canary::Freed) {
        misuse::written_freed(address, class.bytes(), bytes);
    }
}

/// Aborts if something was written beside the block `number`, where no block is in use.
fn check_beside(slab: &Slab, class: Class, number: usize, size: usize) {
    let (bytes, blocks) = (class.bytes(), class.blocks());
    let address = slab.base() + number * bytes;
    let near = (bytes - CANARY_BYTES).min(BESIDE);
    let mut step = 1;
    loop {
        // SAFETY: blocks of a slab in use, whose pages may be read; words of them.
        unsafe {
            if step <= number {
                let start = address - step * bytes;
                refuse_stray(
                    start,
                    bytes,
                    bytes - CANARY_BYTES - near,
                    near,
                    (address, size),
                );
            }
            if number + step < blocks {
                refuse_stray(address + step * bytes, bytes, 0, near, (address, size));
            }
        }
        if step * bytes >= BESIDE {
            break;
        }
        step += 1;
    }
}

/// Aborts if a write beside the block `freed` changed the canary of the block at `start`, or, of a
/// free one, `near` bytes from the offset `from` on.
///
/// # Safety
/// - A block of `bytes` bytes with a place for a canary starts at `start`; its slab is in use. The
///   other two are multiples of 8 within it.
#[inline]
unsafe fn refuse_stray(
    start: usize,
    bytes: usize,
    from: usize,
    near: usize,
    freed: (usize, usize),
) {
    // SAFETY: the caller's promise.
    let word = unsafe { canary_at(start, bytes) };
    let is_free = |seen| seen == 0 || Canary::read(seen, start) == Some(Canary::Freed);
    let seen = word.load(Ordering::Acquire);
    let offset = match is_free(seen) {
        // SAFETY: the caller's promise.
        true => match unsafe { first_stray(start + from, near) } {
            Some(offset) => from + offset,
            None => return,
        },
        false if Canary::read(seen, start).is_some() => return,
        false => bytes - CANARY_BYTES,
    };
    // Unless it was handed out since.
    fence(Ordering::Acquire);
    let still = word.load(Ordering::Relaxed);
    if is_free(still) || Canary::read(still, start).is_none() {
        let (address, size) = freed;
        misuse::stray_write(address, size, (start + offset) as isize - address as isize);
    }
}
