//! AArch64: the chain of frame pointers, which its calling convention requires of every function
//! that calls another.

use super::{Frame, Left, chain};
use crate::peek::Peek;
use core::arch::asm;

/// The code that a signal handler returns to: `mov x8, 139; svc 0`.
pub(super) const SIGNAL_RETURN: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];

/// The frame of the function that this is inlined into.
#[inline(always)]
pub(super) fn here() -> Frame {
    let (pc, sp, fp);
    // SAFETY: copies registers.
    unsafe {
        asm!(
            "adr {pc}, .",
            "mov {sp}, sp",
            "mov {fp}, x29",
            pc = out(reg) pc,
            sp = out(reg) sp,
            fp = out(reg) fp,
            options(nomem, nostack, preserves_flags),
        );
    }
    Frame {
        pc,
        sp,
        fp,
        left: Left::Signal,
    }
}

/// The frame that called `frame`.
pub(super) fn caller(frame: &Frame, peek: &mut Peek) -> Option<Frame> {
    let caller = chain::caller(frame, peek, |pc| is_code(without_signature(pc)))?;
    Some(Frame {
        pc: without_signature(caller.pc),
        ..caller
    })
}

fn is_code(pc: usize) -> bool {
    pc != 0 && pc.is_multiple_of(4)
}

/// A return address without the signature that `paciasp` put into it.
fn without_signature(pc: usize) -> usize {
    let stripped;
    // SAFETY: `xpaclri`, a no-op on older processors; changes only the link register.
    unsafe {
        asm!("hint #7", inout("x30") pc => stripped, options(nomem, nostack, preserves_flags));
    }
    stripped
}

/// The chain needs nothing of the C library.
pub(super) fn prepare() {}

/// No rules are cached here.
pub(super) fn forget() {}
