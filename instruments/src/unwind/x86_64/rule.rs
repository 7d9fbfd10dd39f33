//! A cached rule: how to step from a place in the code to its caller, in one word.
//!
//! ```text
//!   bits  0..3   kind: 1 End, 2 Chain, 3 Program, 4 Simple from sp, 5 Simple from fp
//!   bits  8..32  where the frame pointer is saved, from the CFA; 0: it is not
//!   bits 32..64  the CFA, from its base
//! ```

/// How to step to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The frame has no caller.
    End,
    /// No table covers it: follow the chain of frame pointers.
    Chain,
    /// This type cannot express the table's rule: run the program again.
    Program,
    /// The return address is right below the CFA (the caller's stack pointer).
    Simple {
        /// The register that the CFA is relative to.
        base: Base,
        /// Offset of the CFA from it, in bytes.
        cfa: i32,
        /// The caller's frame pointer.
        fp: Saved,
    },
}

/// A register that a CFA is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The stack pointer.
    Sp,
    /// The frame pointer.
    Fp,
}

/// Where a register of the caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saved {
    /// In the register.
    Same,
    /// In memory, at this offset from the CFA.
    At(i32),
}

const KIND: u64 = 7;
const SAVED_SHIFT: u32 = 8;
const SAVED_BITS: u32 = 24;
const CFA_SHIFT: u32 = 32;

impl Rule {
    /// A simple rule, or [`Rule::Program`] if its numbers do not fit.
    pub(super) fn simple(base: Base, cfa: i64, fp: Option<i64>) -> Rule {
        let rule = || {
            let fp = match fp {
                None => Saved::Same,
                Some(offset) => Saved::At(saved_offset(offset)?),
            };
            let cfa = i32::try_from(cfa).ok()?;
            Some(Rule::Simple { base, cfa, fp })
        };
        rule().unwrap_or(Rule::Program)
    }

    pub(super) fn word(self) -> u64 {
        match self {
            Rule::End => 1,
            Rule::Chain => 2,
            Rule::Program => 3,
            Rule::Simple { base, cfa, fp } => {
                let kind = match base {
                    Base::Sp => 4,
                    Base::Fp => 5,
                };
                let saved = match fp {
                    Saved::Same => 0,
                    Saved::At(offset) => (offset as u32) << (32 - SAVED_BITS),
                };
                kind | u64::from(saved) | u64::from(cfa as u32) << CFA_SHIFT
            }
        }
    }

    /// The rule of a word that [`Rule::word`] gave; an arbitrary rule for any other word.
    #[inline]
    pub(super) fn of_word(word: u64) -> Rule {
        let base = match word & KIND {
            1 => return Rule::End,
            3 => return Rule::Program,
            4 => Base::Sp,
            5 => Base::Fp,
            _ => return Rule::Chain,
        };
        let fp = match word as u32 as i32 >> SAVED_SHIFT {
            0 => Saved::Same,
            offset => Saved::At(offset),
        };
        let cfa = (word >> CFA_SHIFT) as u32 as i32;
        Rule::Simple { base, cfa, fp }
    }
}

/// `offset`, if it fits a rule. 0 encodes another case; no function saves a register in its
/// caller's frame.
fn saved_offset(offset: i64) -> Option<i32> {
    let most = 1 << (SAVED_BITS - 1);
    (offset != 0 && (-most..most).contains(&offset)).then_some(offset as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_does_not_fit_is_left_to_the_program() {
        assert_eq!(Rule::simple(Base::Sp, 1 << 31, None), Rule::Program);
        assert_eq!(Rule::simple(Base::Sp, 16, Some(1 << 23)), Rule::Program);
        assert_eq!(Rule::simple(Base::Sp, 16, Some(0)), Rule::Program);
    }

    proptest! {
        #[test]
        fn a_word_keeps_a_rule(
            base in prop_oneof![Just(Base::Sp), Just(Base::Fp)],
            cfa in any::<i32>(),
            fp in proptest::option::of((-(1_i64 << 23)..1 << 23).prop_filter("0 is none", |at| *at != 0)),
        ) {
            let rule = Rule::simple(base, cfa.into(), fp);
            prop_assert!(rule != Rule::Program, "{:?}", rule);
            prop_assert_eq!(Rule::of_word(rule.word()), rule);
        }
    }

    #[test]
    fn the_others_are_kept_too() {
        for rule in [Rule::End, Rule::Chain, Rule::Program] {
            assert_eq!(Rule::of_word(rule.word()), rule);
        }
    }
}
