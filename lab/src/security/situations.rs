//! The 116 situations as data: a wrong step, and the size of the block that it misuses.

use crate::engine::campaign::Named;
use crate::names::named;

named! {
    /// A class of memory errors.
    pub enum Class {
        /// A block is freed twice.
        DoubleFree = "double free",
        /// What is no block's start is freed.
        InvalidFree = "invalid free",
        /// A write past the end of a block.
        Overflow = "overflow",
        /// A write before the start of a block.
        Underflow = "underflow",
        /// A write to a freed block.
        WriteAfterFree = "write after free",
        /// The next request gets the freed block.
        Reuse = "reuse",
        /// Old contents are readable.
        Zeroing = "zeroing",
        /// A byte of a block of no bytes is read or written.
        ZeroSize = "zero size",
        /// A C++ object is deleted by the wrong form.
        Mismatch = "mismatch",
        /// Code in a block is run, or a request exceeds memory.
        Other = "other",
    }
}

/// The program that carries out a situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `situation.c`.
    C,
    /// `mismatch.cc`.
    Cxx,
}

/// A situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// The class of the error.
    pub class: Class,
    /// What the program calls it.
    pub kind: &'static str,
    /// The size of the block, as the program's argument.
    pub size: &'static str,
}

impl Situation {
    /// The program that carries it out.
    pub fn program(&self) -> Program {
        match self.class {
            Class::Mismatch => Program::Cxx,
            _ => Program::C,
        }
    }
}

impl Named for Situation {
    fn name(&self) -> String {
        format!("{}: {} {}", self.class.name(), self.kind, self.size)
    }
}

/// Kinds of one class, each with all of the sizes.
type Family = (Class, &'static [&'static str], &'static [&'static str]);

/// Bytes of a small, a medium and a large block.
const SIZES: &[&str] = &["8", "4096", "262144"];
/// Blocks of no bytes: of malloc, calloc and realloc.
const OF_NO_BYTES: &[&str] = &["0", "1", "2"];
/// C++ objects have sizes of their own.
const OWN_SIZE: &[&str] = &["0"];

const FAMILIES: &[Family] = &[
    (
        Class::DoubleFree,
        &[
            "twice-at-once",
            "twice-around-another",
            "twice-after-others",
            "twice-and-on",
            "twice-with-a-new-owner",
        ],
        SIZES,
    ),
    (
        Class::InvalidFree,
        &[
            "free-of-a-low-address",
            "free-of-an-array",
            "free-of-stack-memory",
            "free-of-a-neighbour",
            "free-far-away",
            "free-of-an-odd-address",
            "free-past-the-start",
        ],
        SIZES,
    ),
    (
        Class::Overflow,
        &[
            "store-1-past",
            "store-32-past",
            "store-far-past",
            "copy-1-past",
            "copy-32-past",
            "copy-far-past",
        ],
        SIZES,
    ),
    (
        Class::Underflow,
        &[
            "store-1-before",
            "store-32-before",
            "store-far-before",
            "copy-1-before",
            "copy-32-before",
            "copy-far-before",
        ],
        SIZES,
    ),
    (
        Class::WriteAfterFree,
        &["write-freed", "write-freed-and-on"],
        SIZES,
    ),
    (
        Class::Reuse,
        &["reuse-at-once", "reuse-by-half", "reuse-of-moved"],
        SIZES,
    ),
    (Class::Zeroing, &["read-freed", "read-new"], SIZES),
    (
        Class::ZeroSize,
        &[
            "read-nothing",
            "read-nothing-and-free",
            "write-nothing",
            "write-nothing-and-free",
        ],
        OF_NO_BYTES,
    ),
    (
        Class::Mismatch,
        &[
            "as-a-larger-object",
            "object-as-array",
            "array-as-object",
            "text-as-array",
            "texts-as-one",
        ],
        OWN_SIZE,
    ),
    (Class::Other, &["run-a-block", "ask-for-too-much"], SIZES),
];

/// All situations, class by class.
pub fn all() -> Vec<Situation> {
    let of_family = |&(class, kinds, sizes): &Family| {
        let of_kind = move |&kind: &&'static str| {
            let situation = move |&size: &&'static str| Situation { class, kind, size };
            sizes.iter().map(situation)
        };
        kinds.iter().flat_map(of_kind)
    };
    FAMILIES.iter().flat_map(of_family).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::record::distinct;

    #[test]
    fn there_are_as_many_of_each_class_as_in_mimalloc_bench() {
        let all = all();
        let of = |class| all.iter().filter(|one| one.class == class).count();
        let counts = Class::ALL.map(of);
        assert_eq!(counts, [15, 21, 18, 18, 6, 9, 6, 12, 5, 6]);
        assert_eq!(counts.iter().sum::<usize>(), 116);
        let names = distinct(all.iter().map(Named::name));
        assert_eq!(names.len(), 116);
        assert!(names.iter().all(|name| !name.contains(',')));
    }
}
