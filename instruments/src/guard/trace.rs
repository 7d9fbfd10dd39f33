//! Who did something to a block: the thread, and the calls that led there.

use crate::unwind;
use neap_heap::os::process;
use neap_heap::os::thread::thread_id;

/// Most return addresses of a trace.
const FRAMES: usize = 20;

/// A thread and its return addresses.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Trace {
    /// The thread's number; 0: none.
    pub(super) thread: u32,
    depth: u32,
    frames: [u64; FRAMES],
}

impl Trace {
    /// No thread.
    pub(super) const NONE: Trace = Trace {
        thread: 0,
        depth: 0,
        frames: [0; FRAMES],
    };

    /// The calls that led here. Without frames where the stack may not be walked. None in a
    /// sandbox, which may kill the process for asking who the thread is.
    #[inline(never)]
    pub(super) fn here() -> Trace {
        let mut trace = Trace::NONE;
        if process::queries_are_forbidden() {
            return trace;
        }
        trace.thread = thread_id().unsigned_abs();
        if crate::profile::may_look() {
            trace.depth = unwind::capture(&mut trace.frames) as u32;
        }
        trace
    }

    /// In a handler of signals: the calls that led to the instruction at `pc`, which it
    /// interrupted.
    #[inline(never)]
    pub(super) fn interrupted(pc: usize) -> Trace {
        let mut trace = Trace::here();
        let frames = trace.frames();
        let handler = frames
            .iter()
            .position(|&frame| unwind::is_signal_return(frame as usize));
        let from = handler.map_or(frames.len(), |at| at + 1);
        trace.frames.copy_within(from..trace.depth as usize, 0);
        trace.depth -= from as u32;
        if pc != 0 && trace.frames().first() != Some(&(pc as u64)) {
            trace.frames[0] = pc as u64;
            trace.depth = trace.depth.max(1);
        }
        trace
    }

    /// The return addresses, innermost first.
    pub(super) fn frames(&self) -> &[u64] {
        &self.frames[..self.depth as usize]
    }
}
