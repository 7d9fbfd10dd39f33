//! Lines of styled text, and the tables and sparklines made of them.

use anstyle::{Ansi256Color, Style};
use std::fmt::Alignment;

/// Heights of an eighth to a whole of a line.
const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns between two blocks.
const GAP: usize = 2;

/// The colours of the screen.
pub const CYAN: Style = Style::new().fg_color(Some(anstyle::Color::Ansi256(Ansi256Color(6))));
pub const GREEN: Style = Style::new().fg_color(Some(anstyle::Color::Ansi256(Ansi256Color(2))));
pub const YELLOW: Style = Style::new().fg_color(Some(anstyle::Color::Ansi256(Ansi256Color(3))));
pub const PLAIN: Style = Style::new();
pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const REVERSED: Style = Style::new().invert();

/// A line of the screen: pieces of text in their styles.
pub type Line = Vec<(String, Style)>;

/// A line in one style.
pub fn line(text: impl Into<String>, style: Style) -> Line {
    vec![(text.into(), style)]
}

/// A column of a table: its width and its alignment.
pub type Column = (usize, Alignment);

/// The last column of a table, for any text, which the screen cuts.
pub const REST: Column = (usize::MAX, Alignment::Left);

/// A line of a table in one style.
pub fn row<S: AsRef<str>>(columns: &[Column], cells: &[S], style: Style) -> Line {
    line(aligned(columns, cells), style)
}

/// A line of a table. A cell that is wider than its column is cut.
pub fn aligned<S: AsRef<str>>(columns: &[Column], cells: &[S]) -> String {
    let cell = |(&(width, align), cell): (&Column, &S)| {
        let cell: String = cell.as_ref().chars().take(width).collect();
        match align {
            Alignment::Right => format!("{cell:>width$}"),
            _ if width == usize::MAX => cell,
            _ => format!("{cell:<width$}"),
        }
    };
    let cells: Vec<String> = columns.iter().zip(cells).map(cell).collect();
    cells.join(" ")
}

/// The newest of these values as bars. The largest fills all lines.
pub fn sparkline(values: &[u64], lines: usize, columns: usize, style: Style) -> Vec<Line> {
    let values = &values[values.len().saturating_sub(columns)..];
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let bars = (0..lines).rev().map(|below| {
        let bar = |value: &u64| {
            let eighths = u128::from(*value) * (lines as u128 * 8) / u128::from(most);
            match eighths.saturating_sub(below as u128 * 8) {
                0 => ' ',
                some => EIGHTHS[some.min(8) as usize - 1],
            }
        };
        line(values.iter().map(bar).collect::<String>(), style)
    });
    bars.collect()
}

/// Two blocks side by side, of which the left one is `width` columns wide.
pub fn beside(left: Vec<Line>, width: usize, right: Vec<Line>) -> Vec<Line> {
    let count = left.len().max(right.len());
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    let both = (0..count).map(|_| {
        let mut line = fitted(left.next().unwrap_or_default(), width);
        line.push((" ".repeat(GAP), PLAIN));
        line.extend(right.next().unwrap_or_default());
        line
    });
    both.collect()
}

/// The line, cut or filled to this width. A style covers the rest of its line, as it marks the
/// selected one.
fn fitted(mut line: Line, width: usize) -> Line {
    let mut left = width;
    for (text, _) in &mut line {
        *text = text.chars().take(left).collect();
        left -= text.chars().count();
    }
    let style = line.last().map_or(PLAIN, |(_, style)| *style);
    line.push((" ".repeat(left), style));
    line
}

/// Whether the terminal shows colours. It shows bold, dim and reversed text in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    Shown,
    /// The variable NO_COLOR is set.
    Refused,
}

/// The line, cut to this width, with control sequences for its styles.
pub fn sequences(line: Line, width: usize, colours: Colours) -> String {
    let piece = |(text, style): (String, Style)| {
        let style = match colours {
            Colours::Shown => style,
            Colours::Refused => style.fg_color(None),
        };
        format!("{style}{text}{style:#}")
    };
    let text: String = fitted(line, width).into_iter().map(piece).collect();
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: Vec<Line>, width: usize) -> String {
        let lines = lines.into_iter();
        let lines = lines.map(|line| sequences(line, width, Colours::Refused));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn tables_are_aligned_and_cut() {
        let columns = [(3, Alignment::Left), (4, Alignment::Right), REST];
        let rows = [["a", "12", "long text"], ["toolong", "1", ""]];
        let rows = rows.map(|cells| row(&columns, &cells, PLAIN)).to_vec();
        assert_eq!(text(rows, 12), "a     12 lon\ntoo    1");
    }

    #[test]
    fn a_sparkline_shows_the_newest_values() {
        let bars = sparkline(&[9, 0, 16, 8, 1], 2, 4, PLAIN);
        assert_eq!(text(bars, 4), " █\n ██▁");
        let bars = sparkline(&[u64::MAX], 2, 4, PLAIN);
        assert!(text(bars, 4).starts_with('█'));
    }

    #[test]
    fn styles_end_with_their_text() {
        let line = || beside(vec![line("ab", CYAN)], 1, vec![line("c", PLAIN)]).remove(0);
        let expected = "\x1b[38;5;6ma\x1b[0m";
        let shown = sequences(line(), 4, Colours::Shown);
        assert!(
            shown.starts_with(expected) && shown.ends_with("  c"),
            "{shown:?}"
        );
        assert_eq!(sequences(line(), 3, Colours::Refused), "a");
    }
}
