//! x86-64: the unwind tables, or else the chain of frame pointers.

mod cache;
mod expression;
mod program;
mod rule;
mod tables;

pub(super) use cache::forget;

use super::{Frame, Left, chain};
use crate::objects;
use crate::peek::{Peek, far};
use core::arch::asm;
use neap_heap::os::areas;
use rule::{Base, Rule, Saved};

const WORD: usize = size_of::<usize>();

/// The frame of the function that this is inlined into.
#[inline(always)]
pub(super) fn here() -> Frame {
    let (pc, sp, fp);
    // SAFETY: copies registers.
    unsafe {
        asm!(
            "lea {pc}, [rip]",
            "mov {sp}, rsp",
            "mov {fp}, rbp",
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

/// Looks up the C library's function that finds unwind tables. If it was not known before, places
/// that had no table may have one now, so the cache forgets them.
pub(super) fn prepare() {
    if objects::look_up() {
        forget();
    }
}

impl Frame {
    /// An address inside the instruction by which the frame was left.
    fn instruction(&self) -> usize {
        match self.left {
            Left::Call => self.pc.wrapping_sub(1),
            Left::Signal => self.pc,
        }
    }
}

/// The frame that called `frame`.
#[inline]
pub(super) fn caller(frame: &Frame, peek: &mut Peek) -> Option<Frame> {
    match cache::find(frame.instruction()).unwrap_or_else(|| learn(frame)) {
        Rule::Simple { base, cfa, fp } => simple(frame, peek, base, cfa, fp),
        Rule::Program => compute(frame, peek),
        Rule::Chain => chain::caller(frame, peek, is_return_address),
        Rule::End => None,
    }
}

/// Reads the rule of a frame's function from the tables and caches it. Needs 3 KiB of stack, which
/// a coroutine's stack may not have.
#[cold]
#[inline(never)]
fn learn(frame: &Frame) -> Rule {
    let instruction = frame.instruction();
    let read = || Some(program::row_at(&tables::entry_of(instruction)?, instruction)?.rule());
    let rule = areas::on_stack(read).unwrap_or(Rule::Chain);
    cache::keep(instruction, rule);
    rule
}

/// The frame that called `frame`, whose rule is too long to be kept.
#[cold]
#[inline(never)]
fn compute(frame: &Frame, peek: &mut Peek) -> Option<Frame> {
    let instruction = frame.instruction();
    areas::on_stack(|| {
        let fde = &tables::entry_of(instruction)?;
        program::row_at(fde, instruction)?.caller(frame, peek, fde)
    })
}

#[inline]
fn simple(frame: &Frame, peek: &mut Peek, base: Base, cfa: i32, fp: Saved) -> Option<Frame> {
    let register = match base {
        Base::Sp => frame.sp,
        Base::Fp => frame.fp,
    };
    let cfa = register.checked_add_signed(cfa as isize)?;
    Some(Frame {
        pc: peek.read(cfa.checked_sub(WORD)?)?,
        sp: cfa,
        fp: match fp {
            Saved::Same => frame.fp,
            Saved::At(offset) => peek.read(cfa.checked_add_signed(offset as isize)?)?,
        },
        left: Left::Call,
    })
}

/// The code that a signal handler returns to: `mov rax, 15; syscall` (its first 8 bytes).
pub(super) const SIGNAL_RETURN: [u8; 8] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f];

/// Whether `pc` is a return address: a call ends there, or a signal handler returns there. An
/// address with a cached rule is one.
fn is_return_address(pc: usize) -> bool {
    cache::find(pc.wrapping_sub(1)).is_some()
        || far(pc.wrapping_sub(8)).is_some_and(|bytes| ends_in_call(&bytes))
        || far(pc) == Some(SIGNAL_RETURN)
}

/// Whether `code` ends in a call: `E8` with a 32-bit displacement, or `FF /2` of any length.
fn ends_in_call(code: &[u8; 8]) -> bool {
    let indirect = |length: usize| {
        let (opcode, operand) = (code[8 - length], code[9 - length]);
        opcode == 0xff && operand >> 3 & 7 == 2
    };
    code[3] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_from_other_code() {
        assert!(ends_in_call(&[0, 0, 0, 0xe8, 1, 2, 3, 4])); // call rel32
        assert!(ends_in_call(&[0, 0, 0, 0, 0, 0, 0xff, 0xd0])); // call rax
        assert!(ends_in_call(&[0, 0, 0, 0, 0, 0x41, 0xff, 0xd2])); // call r10
        assert!(ends_in_call(&[0, 0, 0, 0, 0, 0xff, 0x50, 8])); // call [rax + 8]
        assert!(ends_in_call(&[0, 0, 0xff, 0x15, 1, 2, 3, 4])); // call [rip + disp32]
        assert!(!ends_in_call(&[0; 8]));
        assert!(!ends_in_call(&[0, 0, 0, 0xe9, 1, 2, 3, 4])); // jmp rel32
        assert!(!ends_in_call(&[0, 0, 0, 0, 0, 0, 0xff, 0xe0])); // jmp rax
    }
}
