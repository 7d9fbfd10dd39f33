//! The chain of frame pointers: each points to the caller's, which is next to the return address.

use super::{Frame, Left};
use crate::peek::Peek;

/// The largest frame accepted; a frame pointer that leads further is garbage.
const MOST_BYTES: usize = 1 << 20;
const WORD: usize = size_of::<usize>();

/// The frame that called `frame`, if the frame pointer leads up the stack to a value that `accepts`
/// recognises as a return address.
pub(super) fn caller(
    frame: &Frame,
    peek: &mut Peek,
    accepts: impl FnOnce(usize) -> bool,
) -> Option<Frame> {
    let growth = frame.fp.checked_sub(frame.sp)?;
    if growth > MOST_BYTES {
        return None;
    }
    let fp = peek.near(frame.fp)?;
    let pc = peek.near(frame.fp.checked_add(WORD)?)?;
    accepts(pc).then_some(Frame {
        pc,
        sp: frame.fp.checked_add(2 * WORD)?,
        fp,
        left: Left::Call,
    })
}
