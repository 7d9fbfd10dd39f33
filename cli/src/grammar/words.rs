//! What a verb, an operand and an option are.

use neap_shared::control::Group;

/// A verb of the command line.
pub struct Verb {
    /// Its name.
    pub name: &'static str,
    /// What it does: an imperative without a full stop.
    pub about: &'static str,
    /// What may follow its name, one form a line.
    pub usage: &'static [&'static str],
    /// Words without dashes, in order.
    pub operands: &'static [Operand],
    /// Its own options, most useful first within a group.
    pub options: &'static [Opt],
    /// Whether it has the library's options as well.
    pub library: Library,
    /// What help says after the options, one paragraph each.
    pub notes: &'static [&'static str],
}

/// Whether a verb has the library's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// It sets them for programs.
    Options,
    /// It has none of them.
    None,
}

/// A word without dashes.
#[derive(Clone, Copy)]
pub struct Operand {
    /// Its name, in capitals.
    pub name: &'static str,
    /// How often it stands, and where.
    pub count: Count,
    /// What it is: one phrase.
    pub help: &'static str,
}

/// How often an operand stands, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Exactly once.
    One,
    /// At most once.
    Optional,
    /// Any number of times.
    Any,
    /// A program and its arguments: all words from here on.
    Program,
    /// Like [`Count::Program`], and may be left out.
    OptionalProgram,
    /// Like [`Count::Program`], unless there is `--from`.
    ProgramOrFrom,
    /// A program and its arguments, which follow `--`, instead of another operand.
    ProgramAfterDashes,
    /// All words from here on, those with dashes as well.
    Rest,
}

/// An option.
#[derive(Clone, Copy)]
pub struct Opt {
    /// Its name, without the dashes.
    pub name: &'static str,
    /// Its letter.
    pub short: Option<char>,
    /// Its value.
    pub takes: Takes,
    /// The heading that it is under, where the verb has many.
    pub group: Option<Group>,
    /// Another option or operand that must be there as well.
    pub needs: Option<&'static str>,
    /// Options and operands that must not be there as well.
    pub excludes: &'static [&'static str],
    /// What it does: one phrase.
    pub help: &'static str,
}

/// What an option takes.
#[derive(Clone, Copy)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// The path of a file.
    File,
    /// The path of a file after an equals sign, or nothing.
    OptionalFile,
    /// The path of a directory.
    Directory,
    /// One of these words; the default, if there is one.
    Words(&'static [&'static str], Option<&'static str>),
    /// A time from the first to the second, in ms; the default, if there is one.
    Time(u64, u64, Option<&'static str>),
    /// Bytes between two samples.
    Rate,
    /// A number of at least 1.
    Number,
    /// A regular expression.
    Regex,
    /// An address and a port; the default.
    Address(&'static str),
}

/// The longest time on a command line, in ms: about eleven days.
pub const LONGEST_MS: u64 = 1_000_000_000;

#[rustfmt::skip]
impl Verb {
    /// A verb with nothing but its name.
    pub const fn new(name: &'static str, about: &'static str) -> Self {
        let (usage, operands, options, notes) = (&[], &[], &[], &[]);
        Self { name, about, usage, operands, options, library: Library::None, notes }
    }
}

#[rustfmt::skip]
impl Operand {
    /// An operand.
    pub const fn new(name: &'static str, count: Count, help: &'static str) -> Self {
        Self { name, count, help }
    }

    /// Another number of times.
    pub const fn times(self, count: Count) -> Self {
        Self { count, ..self }
    }

    /// With another help.
    pub const fn saying(self, help: &'static str) -> Self {
        Self { help, ..self }
    }
}

#[rustfmt::skip]
impl Opt {
    /// An option.
    pub const fn new(name: &'static str, takes: Takes, help: &'static str) -> Self {
        Self { name, short: None, takes, group: None, needs: None, excludes: &[], help }
    }

    /// With a letter.
    pub const fn short(self, letter: char) -> Self {
        Self { short: Some(letter), ..self }
    }

    /// Under the heading of `group`.
    pub const fn of(self, group: Group) -> Self {
        Self { group: Some(group), ..self }
    }

    /// Only with the option or operand `other`.
    pub const fn needs(self, other: &'static str) -> Self {
        Self { needs: Some(other), ..self }
    }

    /// Never with one of `others`.
    pub const fn without(self, others: &'static [&'static str]) -> Self {
        Self { excludes: others, ..self }
    }

    /// With another help.
    pub const fn saying(self, help: &'static str) -> Self {
        Self { help, ..self }
    }
}
