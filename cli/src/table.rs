//! Findings, as a table for people or as JSON for programs.

use anstyle::{AnsiColor, Style};
use rustix::termios::tcgetwinsize;
use serde::Serialize;
use std::fmt::Write;
use std::io;
use textwrap::{Options, WordSplitter, wrap};

/// One item of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The item's name.
    pub name: &'static str,
    /// How it is.
    pub state: State,
    /// What it is, or why it is absent; may be empty.
    pub value: String,
    /// What it means for the user.
    pub meaning: String,
}

/// The state of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works.
    Ok,
    /// A promise that holds.
    Full,
    /// A promise that holds, at a cost.
    Slower,
    /// It does not work, or does not hold.
    Absent,
    /// A value that is neither good nor bad.
    Is,
}

impl Finding {
    /// A finding.
    pub fn new(
        name: &'static str,
        state: State,
        value: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Self {
        let (value, meaning) = (value.into(), meaning.into());
        Self {
            name,
            state,
            value,
            meaning,
        }
    }

    /// The result of a trial, with what the item does.
    pub fn tried(name: &'static str, tried: io::Result<()>, meaning: &'static str) -> Self {
        match tried {
            Ok(()) => Self::ok(name, "", meaning),
            Err(error) => Self::absent(name, error.to_string(), meaning),
        }
    }

    /// It is there, or as it should be.
    pub fn ok(name: &'static str, value: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(name, State::Ok, value, meaning)
    }

    /// It is not.
    pub fn absent(name: &'static str, why: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(name, State::Absent, why, meaning)
    }

    /// It has this value, or cannot be read.
    pub fn read(name: &'static str, value: Option<String>, otherwise: &str, meaning: &str) -> Self {
        match value {
            Some(value) => Self::is(name, value, meaning),
            None => Self::absent(name, otherwise, meaning),
        }
    }

    /// It has this value, which is neither good nor bad.
    pub fn is(name: &'static str, value: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(name, State::Is, value, meaning)
    }

    /// The cell beside the name.
    fn text(&self) -> String {
        let word = match self.state {
            State::Is => return self.value.clone(),
            State::Ok => "OK",
            State::Full => "full",
            State::Slower => "slower",
            State::Absent => "absent",
        };
        match self.value.as_str() {
            "" => word.to_owned(),
            value => format!("{word}: {value}"),
        }
    }

    fn style(&self) -> Style {
        match self.state {
            State::Is => Style::new(),
            State::Ok | State::Full => AnsiColor::BrightGreen.on_default(),
            State::Slower | State::Absent => AnsiColor::BrightYellow.on_default(),
        }
    }
}

/// In a terminal, a name is folded if it takes more than a third of the width, and more than this.
const LONG_NAME: usize = 20;
/// The least width for folding; a terminal that does not know its width may report less.
const NARROWEST: usize = 40;
/// Columns before the first cell, between two cells, and after the last one.
const MARGINS: usize = 6;

/// The findings as a table with a title. Lines are folded only for a terminal.
pub fn table(title: &str, findings: &[Finding]) -> String {
    of_width(title, findings, width_of_terminal())
}

/// The columns of the terminal that standard output leads to.
fn width_of_terminal() -> Option<usize> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width >= NARROWEST)
}

fn of_width(title: &str, findings: &[Finding], width: Option<usize>) -> String {
    let widest = |text: fn(&Finding) -> String| {
        let lengths = findings.iter().map(|finding| text(finding).chars().count());
        lengths.max().unwrap_or(0)
    };
    let mut name = widest(|finding| finding.name.to_owned());
    let (mut state, mut meaning) = (widest(Finding::text), usize::MAX);
    if let Some(width) = width {
        name = name.min(LONG_NAME.max(width / 3));
        let left = width.saturating_sub(name + MARGINS).max(2);
        let least = widest(|finding| finding.meaning.clone()).min(left / 2);
        state = state.min(left - least);
        meaning = left - state;
    }
    let bold = Style::new().bold();
    let mut out = format!("{bold}{title}{bold:#}\n");
    for finding in findings {
        let cells = [
            folded(finding.name, name),
            folded(&finding.text(), state),
            folded(&finding.meaning, meaning),
        ];
        for index in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let [first, second, third] =
                [0, 1, 2].map(|cell| cells[cell].get(index).map_or("", String::as_str));
            let style = match second {
                "" => Style::new(),
                _ => finding.style(),
            };
            let pad = " ".repeat(state.saturating_sub(second.chars().count()));
            let line = format!(" {first:<name$}  {style}{second}{style:#}{pad}  {third}");
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
    out
}

/// The lines of a text at most `width` columns wide. Words that are longer are broken.
pub fn folded(text: &str, width: usize) -> Vec<String> {
    let options = Options::new(width).word_splitter(WordSplitter::NoHyphenation);
    let lines = wrap(text, options).into_iter();
    lines.map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_folded_between_words_and_long_words_are_broken() {
        for (text, width, lines) in [
            ("one two three", 7, &["one two", "three"][..]),
            ("one two three", usize::MAX, &["one two three"]),
            ("a/long/path of", 6, &["a/long", "/path", "of"]),
            ("ab", 0, &["a", "b"]),
            ("", 5, &[""]),
        ] {
            assert_eq!(folded(text, width), lines, "{text:?} in {width}");
        }
    }

    #[test]
    fn cells_beside_short_names_and_long_names_are_folded() {
        let findings = [
            Finding::is("name", "4 KiB", "what it means for you"),
            Finding::absent("n", "", "short"),
        ];
        let table =
            |width| anstream::adapter::strip_str(&of_width("T", &findings, width)).to_string();
        let wide = "T\n name  4 KiB   what it means for you\n n     absent  short\n";
        assert_eq!(table(None), wide);
        let narrow =
            "T\n name  4 KiB   what it means\n               for you\n n     absent  short\n";
        assert_eq!(table(Some(31)), narrow);
        let findings = [Finding::new(
            "a promise of more than twenty letters",
            State::Slower,
            "",
            "x",
        )];
        let text = of_width("T", &findings, Some(60));
        assert_eq!(
            anstream::adapter::strip_str(&text).to_string(),
            "T\n a promise of more     slower  x\n than twenty letters\n"
        );
    }
}
