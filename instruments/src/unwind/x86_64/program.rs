//! An entry's program: instructions that say, for each place in a function, where its caller's
//! registers are.
//!
//! Of each row, only the CFA, the frame pointer and the return address are kept, because the walk
//! needs no more.

use super::super::{Frame, Left};
use super::expression;
use super::rule::{Base, Rule};
use super::tables::{Bytes, Fde};
use crate::peek::Peek;
use gimli::{CallFrameInstruction, CallFrameInstructionIter, Register, UnwindExpression, X86_64};

/// Most rows that a program may push at once; compilers push one.
const MOST_KEPT: usize = 4;

/// A row's rule for the CFA.
#[derive(Clone, Copy)]
enum Cfa {
    Plus(Register, i64),
    Expression(UnwindExpression<usize>),
}

/// A row's rule for a register of the caller.
#[derive(Clone, Copy)]
enum Where {
    Same,
    Undefined,
    /// In memory, at this offset from the CFA.
    At(i64),
    /// The CFA plus this offset.
    Plus(i64),
    /// In memory, at an expression's value.
    AtExpression(UnwindExpression<usize>),
    /// Encoded in a way that this module does not understand.
    Unknown,
}

/// The program's rules for one place.
#[derive(Clone, Copy)]
pub(super) struct Row {
    cfa: Cfa,
    fp: Where,
    pc: Where,
}

/// The row of the code at `address`.
pub(super) fn row_at(fde: &Fde, address: usize) -> Option<Row> {
    let cie = fde.entry.cie();
    let nothing = Row {
        cfa: Cfa::Plus(X86_64::RSP, 0),
        fp: Where::Same,
        pc: Where::Unknown,
    };
    let mut run = Run {
        row: nothing,
        initial: nothing,
        kept: [nothing; MOST_KEPT],
        keeps: 0,
        place: fde.entry.initial_address(),
        code: cie.code_alignment_factor(),
        data: cie.data_alignment_factor(),
    };
    run.until(address as u64, cie.instructions(&fde.section, &fde.bases))?;
    run.initial = run.row;
    run.until(
        address as u64,
        fde.entry.instructions(&fde.section, &fde.bases),
    )?;
    Some(run.row)
}

/// A running program.
struct Run {
    row: Row,
    /// The row before the entry's own instructions.
    initial: Row,
    kept: [Row; MOST_KEPT],
    keeps: usize,
    /// The address from which the row holds.
    place: u64,
    code: u64,
    data: i64,
}

impl Run {
    /// Runs the instructions that apply at `address` or before. `None` if one is not understood.
    fn until(
        &mut self,
        address: u64,
        mut instructions: CallFrameInstructionIter<'_, Bytes>,
    ) -> Option<()> {
        while let Some(instruction) = instructions.next().ok()? {
            match instruction {
                CallFrameInstruction::SetLoc { address } => self.place = address,
                CallFrameInstruction::AdvanceLoc { delta } => {
                    let bytes = u64::from(delta).wrapping_mul(self.code);
                    self.place = self.place.wrapping_add(bytes);
                }
                other => self.apply(other)?,
            }
            if self.place > address {
                break;
            }
        }
        Some(())
    }

    fn apply(&mut self, instruction: CallFrameInstruction<usize>) -> Option<()> {
        use CallFrameInstruction as Is;
        match instruction {
            Is::RememberState => self.remember()?,
            Is::RestoreState => self.recall()?,
            Is::Nop | Is::ArgsSize { .. } => {}
            Is::DefCfa { .. }
            | Is::DefCfaSf { .. }
            | Is::DefCfaRegister { .. }
            | Is::DefCfaOffset { .. }
            | Is::DefCfaOffsetSf { .. }
            | Is::DefCfaExpression { .. } => self.row.cfa = self.cfa_of(instruction)?,
            other => {
                let (register, place) = self.place_of(other)?;
                self.set(register, place);
            }
        }
        Some(())
    }

    fn remember(&mut self) -> Option<()> {
        *self.kept.get_mut(self.keeps)? = self.row;
        self.keeps += 1;
        Some(())
    }

    fn recall(&mut self) -> Option<()> {
        self.keeps = self.keeps.checked_sub(1)?;
        self.row = self.kept[self.keeps];
        Some(())
    }

    fn set(&mut self, register: Register, place: Where) {
        match register {
            X86_64::RBP => self.row.fp = place,
            X86_64::RA => self.row.pc = place,
            _ => {}
        }
    }

    /// The rule for the CFA after an instruction.
    fn cfa_of(&self, instruction: CallFrameInstruction<usize>) -> Option<Cfa> {
        use CallFrameInstruction as Is;
        let now = match self.row.cfa {
            Cfa::Plus(register, offset) => Some((register, offset)),
            Cfa::Expression(_) => None,
        };
        Some(match instruction {
            Is::DefCfa { register, offset } => Cfa::Plus(register, offset as i64),
            Is::DefCfaSf {
                register,
                factored_offset,
            } => Cfa::Plus(register, factored_offset.wrapping_mul(self.data)),
            Is::DefCfaRegister { register } => Cfa::Plus(register, now?.1),
            Is::DefCfaOffset { offset } => Cfa::Plus(now?.0, offset as i64),
            Is::DefCfaOffsetSf { factored_offset } => {
                Cfa::Plus(now?.0, factored_offset.wrapping_mul(self.data))
            }
            Is::DefCfaExpression { expression } => Cfa::Expression(expression),
            _ => return None,
        })
    }

    /// The register that an instruction names, and its rule.
    fn place_of(&self, instruction: CallFrameInstruction<usize>) -> Option<(Register, Where)> {
        use CallFrameInstruction as Is;
        let factored = |offset: i64| offset.wrapping_mul(self.data);
        Some(match instruction {
            Is::Undefined { register } => (register, Where::Undefined),
            Is::SameValue { register } => (register, Where::Same),
            Is::Offset {
                register,
                factored_offset,
            } => (register, Where::At(factored(factored_offset as i64))),
            Is::OffsetExtendedSf {
                register,
                factored_offset,
            } => (register, Where::At(factored(factored_offset))),
            Is::ValOffset {
                register,
                factored_offset,
            } => (register, Where::Plus(factored(factored_offset as i64))),
            Is::ValOffsetSf {
                register,
                factored_offset,
            } => (register, Where::Plus(factored(factored_offset))),
            Is::Register { dest_register, .. } => (dest_register, Where::Unknown),
            Is::Expression {
                register,
                expression,
            } => (register, Where::AtExpression(expression)),
            Is::ValExpression { register, .. } => (register, Where::Unknown),
            Is::Restore { register } => (register, self.initial_of(register)),
            _ => return None,
        })
    }

    fn initial_of(&self, register: Register) -> Where {
        match register {
            X86_64::RBP => self.initial.fp,
            X86_64::RA => self.initial.pc,
            _ => Where::Same,
        }
    }
}

impl Row {
    /// The row as a rule for the cache.
    pub(super) fn rule(&self) -> Rule {
        let fp = match (self.pc, self.fp) {
            (Where::Undefined, _) => return Rule::End,
            (Where::At(-8), Where::Same | Where::Undefined) => None,
            (Where::At(-8), Where::At(offset)) => Some(offset),
            _ => return Rule::Program,
        };
        match self.cfa {
            Cfa::Plus(X86_64::RSP, offset) => Rule::simple(Base::Sp, offset, fp),
            Cfa::Plus(X86_64::RBP, offset) => Rule::simple(Base::Fp, offset, fp),
            _ => Rule::Program,
        }
    }

    /// The frame that called `frame`, by this row, which is the frame's.
    pub(super) fn caller(&self, frame: &Frame, peek: &mut Peek, fde: &Fde) -> Option<Frame> {
        let cfa = match self.cfa {
            Cfa::Plus(register, offset) => {
                expression::register(frame, register)?.checked_add_signed(offset as isize)?
            }
            Cfa::Expression(expression) => expression::value(frame, peek, fde, expression, None)?,
        };
        let mut read = |place| match place {
            Where::Same => Some(None),
            Where::Undefined | Where::Unknown => None,
            Where::At(offset) => {
                let address = cfa.checked_add_signed(offset as isize)?;
                Some(Some(peek.read(address)?))
            }
            Where::Plus(offset) => Some(Some(cfa.checked_add_signed(offset as isize)?)),
            Where::AtExpression(expression) => {
                let address = expression::value(frame, peek, fde, expression, Some(cfa))?;
                Some(Some(peek.read(address)?))
            }
        };
        Some(Frame {
            pc: read(self.pc)??,
            sp: cfa,
            fp: read(self.fp).flatten().unwrap_or(frame.fp),
            left: match fde.entry.is_signal_trampoline() {
                true => Left::Signal,
                false => Left::Call,
            },
        })
    }
}

const _: () = assert!(
    size_of::<usize>() == 8,
    "return addresses are told as 8 bytes below the CFA"
);
