//! Expressions: how a table says where a value is when a register and an offset do not suffice.
//! Examples are a signal's frame, a function that aligns its stack, a coroutine's first frame and a
//! linker's stub.

use super::super::Frame;
use super::tables::Fde;
use crate::peek::Peek;
use gimli::{EndianSlice, NativeEndian, Operation, Register, UnwindExpression, X86_64};

/// Most values on an expression's stack.
const MOST: usize = 8;

/// The register's value in `frame`, if it is one of the three that are known.
pub(super) fn register(frame: &Frame, register: Register) -> Option<usize> {
    match register {
        X86_64::RSP => Some(frame.sp),
        X86_64::RBP => Some(frame.fp),
        X86_64::RA => Some(frame.pc),
        _ => None,
    }
}

/// Evaluates an expression, with `first` on its stack. `None` if it needs an unknown value.
pub(super) fn value(
    frame: &Frame,
    peek: &mut Peek,
    fde: &Fde,
    expression: UnwindExpression<usize>,
    first: Option<usize>,
) -> Option<usize> {
    let mut values = Values {
        held: [0; MOST],
        holds: 0,
    };
    if let Some(first) = first {
        values.push(first)?;
    }
    let encoding = fde.entry.cie().encoding();
    let mut operations = expression.get(&fde.section).ok()?.operations(encoding);
    while let Some(operation) = operations.next().ok()? {
        values.apply(frame, peek, &operation)?;
    }
    values.pop()
}

struct Values {
    held: [usize; MOST],
    holds: usize,
}

impl Values {
    fn push(&mut self, value: usize) -> Option<()> {
        *self.held.get_mut(self.holds)? = value;
        self.holds += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<usize> {
        self.holds = self.holds.checked_sub(1)?;
        Some(self.held[self.holds])
    }

    fn apply(
        &mut self,
        frame: &Frame,
        peek: &mut Peek,
        operation: &Operation<EndianSlice<'static, NativeEndian>>,
    ) -> Option<()> {
        let result = match *operation {
            Operation::RegisterOffset {
                register: base,
                offset,
                ..
            } => register(frame, base)?.wrapping_add_signed(offset as isize),
            Operation::UnsignedConstant { value } => value as usize,
            Operation::SignedConstant { value } => value as usize,
            Operation::Deref { size: 8, .. } => peek.read(self.pop()?)?,
            Operation::PlusConstant { value } => self.pop()?.wrapping_add(value as usize),
            Operation::Nop => return Some(()),
            _ => {
                let (second, first) = (self.pop()?, self.pop()?);
                of_two(operation, first, second)?
            }
        };
        self.push(result)
    }
}

fn of_two(
    operation: &Operation<EndianSlice<'static, NativeEndian>>,
    first: usize,
    second: usize,
) -> Option<usize> {
    Some(match operation {
        Operation::Plus => first.wrapping_add(second),
        Operation::Minus => first.wrapping_sub(second),
        Operation::And => first & second,
        Operation::Shl => first.checked_shl(u32::try_from(second).ok()?)?,
        Operation::Ge => usize::from(first as isize >= second as isize),
        _ => return None,
    })
}
