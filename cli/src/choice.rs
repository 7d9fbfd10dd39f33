//! Choices by a word: the lists and the help of the command line come from these enumerations, and
//! so do the names that the command shows.

/// An enumeration whose items have words.
pub trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// The items, in the order of the help.
    const ALL: &'static [Self];
    /// Their words.
    const WORDS: &'static [&'static str];

    /// Its place in [`Self::ALL`].
    fn place(self) -> usize {
        let place = Self::ALL.iter().position(|item| *item == self);
        place.expect("the macro lists every item")
    }

    /// Its word.
    fn word(self) -> &'static str {
        Self::WORDS[self.place()]
    }

    /// The item after this one; after the last, the first.
    fn next(self) -> Self {
        Self::ALL[(self.place() + 1) % Self::ALL.len()]
    }

    /// The item of a word.
    fn of_word(word: &str) -> Option<Self> {
        let place = Self::WORDS.iter().position(|known| *known == word);
        place.map(|place| Self::ALL[place])
    }
}

/// Declares an enumeration and the word of each item.
macro_rules! choice {
    (
        $(#[$meta:meta])*
        $vis:vis enum $type:ident { $($(#[$doc:meta])* $item:ident = $word:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $type { $($(#[$doc])* $item,)+ }

        impl $crate::choice::Choice for $type {
            const ALL: &'static [Self] = &[$(Self::$item),+];
            const WORDS: &'static [&'static str] = &[$($word),+];
        }
    };
}
