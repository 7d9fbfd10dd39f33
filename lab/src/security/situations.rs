//! The 116 situations as data: a wrong step, and the size of the block that it misuses.

use std::sync::LazyLock;

use serde::Deserialize;

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
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    class: Class,
    kinds: Vec<String>,
    sizes: Vec<String>,
}

#[derive(Deserialize)]
struct Families {
    family: Vec<Family>,
}

/// All situations, class by class, as `lab/security/situations.toml` lists them.
pub fn all() -> Vec<Situation> {
    static FAMILIES: LazyLock<Families> = LazyLock::new(|| {
        let text = include_str!("../../security/situations.toml");
        basic_toml::from_str(text).expect("the tests read this list")
    });
    let of_family = |family: &'static Family| {
        let class = family.class;
        let of_kind = move |kind: &'static String| {
            let situation = move |size: &'static String| Situation { class, kind, size };
            family.sizes.iter().map(situation)
        };
        family.kinds.iter().flat_map(of_kind)
    };
    FAMILIES.family.iter().flat_map(of_family).collect()
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
