//! The record of one stack.

use super::size::Size;
use crate::base::sync::plain::{
    AtomicPtr, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use core::ffi::c_char;
use core::ptr::{NonNull, null_mut};

/// The tag of a slice where a span of stacks starts.
pub const TAG: u8 = 252;

/// The owner of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// None: the record has no memory.
    Blank = 0,
    /// The pool: a cell of a slice, its guard in place, not used since its last purge. In its
    /// size's list of spare cells.
    Spare = 1,
    /// The program.
    Used = 2,
    /// The pool: an ended stack, still warm. In its size's list of idle stacks.
    Idle = 3,
    /// One thread, which is giving it back.
    Leaving = 4,
}

/// How a stack is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Guard {
    /// Not at all.
    None = 0,
    /// By advice to the kernel.
    Advice = 1,
    /// By a mapping of its own.
    Mapping = 2,
}

/// The record of one stack. Zeroed memory is a blank record. All fields are separate words, because
/// a fault handler reads them without the lock.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Record {
    /// The guard's first byte. Set before any other thread sees the record; constant as long as the
    /// span is the stack's.
    base: AtomicUsize,
    /// The user's name for the stack: null, or a C string that outlives its use.
    owner: AtomicPtr<c_char>,
    /// Neighbours in a list; guarded by the pool's lock.
    pub(super) older: AtomicPtr<Record>,
    pub(super) newer: AtomicPtr<Record>,
    /// When the stack ended, in ms. Written while [`State::Leaving`].
    ended_at: AtomicU64,
    /// Bytes of address space given back since the last trim. Written while [`State::Leaving`].
    untrimmed: AtomicUsize,
    state: AtomicU8,
    guard: AtomicU8,
    size: AtomicU8,
}

const _: () = assert!(size_of::<Record>() == 64);

impl Record {
    /// Initialises the record of a new stack at `base`.
    pub(super) fn begin(&self, base: usize, size: Size) {
        self.base.store(base, Relaxed);
        self.size.store(size.number() as u8, Relaxed);
        self.owner.store(null_mut(), Relaxed);
        self.untrimmed.store(0, Relaxed);
    }

    /// Address of the guard's first byte.
    pub fn base(&self) -> usize {
        self.base.load(Relaxed)
    }

    /// The stack's size.
    pub fn size(&self) -> Size {
        Size::numbered(usize::from(self.size.load(Relaxed)))
    }

    /// One past the highest byte.
    pub fn top(&self) -> usize {
        self.base() + self.size().bytes()
    }

    /// The stack's owner.
    pub fn state(&self) -> State {
        match self.state.load(Acquire) {
            1 => State::Spare,
            2 => State::Used,
            3 => State::Idle,
            4 => State::Leaving,
            _ => State::Blank,
        }
    }

    pub(super) fn set_state(&self, state: State) {
        self.state.store(state as u8, Release);
    }

    /// Takes a stack out of use. Of several concurrent callers, one gets true.
    pub(super) fn leave_use(&self) -> bool {
        let (used, leaving) = (State::Used as u8, State::Leaving as u8);
        self.state
            .compare_exchange(used, leaving, AcqRel, Relaxed)
            .is_ok()
    }

    pub(super) fn guard(&self) -> Guard {
        match self.guard.load(Relaxed) {
            1 => Guard::Advice,
            2 => Guard::Mapping,
            _ => Guard::None,
        }
    }

    pub(super) fn set_guard(&self, guard: Guard) {
        self.guard.store(guard as u8, Relaxed);
    }

    /// The user's name for the stack: null, or a C string.
    pub fn owner(&self) -> *const c_char {
        self.owner.load(Relaxed)
    }

    /// Names the stack. The string must stay valid as long as the stack is in use.
    pub fn set_owner(&self, name: *const c_char) {
        self.owner.store(name.cast_mut(), Relaxed);
    }

    pub(super) fn ended_at(&self) -> u64 {
        self.ended_at.load(Relaxed)
    }

    pub(super) fn set_ended_at(&self, ms: u64) {
        self.ended_at.store(ms, Relaxed);
    }

    /// Notes that the stack ended once more without a trim. True if a trim is due: after `most`
    /// bytes of address space.
    pub(super) fn is_due(&self, most: usize) -> bool {
        let bytes = self.untrimmed.load(Relaxed) + self.size().bytes();
        let due = bytes >= most;
        self.untrimmed.store(if due { 0 } else { bytes }, Relaxed);
        due
    }
}

/// A record's address.
pub(super) fn pointer(record: &Record) -> *mut Record {
    core::ptr::from_ref(record).cast_mut()
}

/// # Safety
/// - `at` is null or the address of a record. Records stay records as long as the heap.
pub(super) unsafe fn record<'h>(at: *mut Record) -> Option<&'h Record> {
    // SAFETY: the caller's promise.
    NonNull::new(at).map(|at| unsafe { at.as_ref() })
}

/// The stack whose guard a fault hit.
#[derive(Clone, Copy, Debug)]
pub struct Overflow {
    /// Usable bytes of the stack.
    pub bytes: usize,
    /// The owner's name for it: null, or a C string.
    pub owner: *const c_char,
    /// Whether the stack was in use or idle.
    pub state: State,
}
