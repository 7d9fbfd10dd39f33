//! Fallback for architectures without an unwinder.

use super::Frame;
use crate::peek::Peek;

/// The code after a signal is unknown; this value never matches.
pub(super) const SIGNAL_RETURN: [u8; 8] = [0; 8];

/// Not used by [`caller`].
#[inline(always)]
pub(super) fn here() -> Frame {
    Frame {
        pc: 0,
        sp: 0,
        fp: 0,
        left: super::Left::Signal,
    }
}

/// Always `None`.
pub(super) fn caller(frame: &Frame, peek: &mut Peek) -> Option<Frame> {
    super::chain::caller(frame, peek, |_| false)
}

/// Nothing is looked up here.
pub(super) fn prepare() {}

/// No rules are cached here.
pub(super) fn forget() {}
