//! A screen of styled characters, and the areas, tables and sparklines drawn on it.

use anstyle::{Ansi256Color, Style};
use std::fmt::Write;

/// Heights of an eighth to a whole of a line.
const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns between two cells of a table.
const SPACING: u16 = 1;

/// The colours of the screen.
pub const CYAN: Style = Style::new().fg_color(Some(anstyle::Color::Ansi256(Ansi256Color(6))));
pub const GREEN: Style = Style::new().fg_color(Some(anstyle::Color::Ansi256(Ansi256Color(2))));
pub const YELLOW: Style = Style::new().fg_color(Some(anstyle::Color::Ansi256(Ansi256Color(3))));
pub const PLAIN: Style = Style::new();
pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const REVERSED: Style = Style::new().invert();

/// A rectangle of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    pub line: u16,
    pub column: u16,
    pub lines: u16,
    pub columns: u16,
}

impl Area {
    /// Splits off the first `lines` lines, or as many as there are.
    pub fn above(self, lines: u16) -> (Area, Area) {
        let lines = lines.min(self.lines);
        let below = Area {
            line: self.line + lines,
            lines: self.lines - lines,
            ..self
        };
        (Area { lines, ..self }, below)
    }

    /// Splits off the first `columns` columns, or as many as there are, and leaves out a gap.
    pub fn left(self, columns: u16, gap: u16) -> (Area, Area) {
        let columns = columns.min(self.columns);
        let gone = columns.saturating_add(gap).min(self.columns);
        let right = Area {
            column: self.column + gone,
            columns: self.columns - gone,
            ..self
        };
        (Area { columns, ..self }, right)
    }
}

/// Where a cell's text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// A column of a table: its width and its alignment.
pub type Column = (u16, Align);

/// A line of a table.
pub struct Row {
    pub cells: Vec<String>,
    pub style: Style,
}

impl Row {
    /// A line without a style.
    pub fn new<S: Into<String>>(cells: impl IntoIterator<Item = S>) -> Row {
        Row {
            cells: cells.into_iter().map(Into::into).collect(),
            style: PLAIN,
        }
    }

    /// The same in a style.
    pub fn styled(self, style: Style) -> Row {
        Row { style, ..self }
    }
}

/// The screen. What does not fit is cut.
pub struct Canvas {
    columns: u16,
    cells: Vec<(char, Style)>,
}

impl Canvas {
    /// An empty screen.
    pub fn new(lines: u16, columns: u16) -> Canvas {
        let count = usize::from(lines) * usize::from(columns);
        Canvas {
            columns,
            cells: vec![(' ', PLAIN); count],
        }
    }

    /// The whole screen.
    pub fn area(&self) -> Area {
        let lines = self.cells.len().checked_div(usize::from(self.columns));
        Area {
            line: 0,
            column: 0,
            lines: u16::try_from(lines.unwrap_or(0)).unwrap_or(u16::MAX),
            columns: self.columns,
        }
    }

    /// Writes text on the first line of an area, and returns the lines below.
    pub fn line(&mut self, area: Area, text: &str, style: Style) -> Area {
        let (first, below) = area.above(1);
        if first.lines == 1 {
            let at = usize::from(first.line) * usize::from(self.columns);
            let line = &mut self.cells[at + usize::from(first.column)..];
            let line = &mut line[..usize::from(first.columns)];
            for (cell, letter) in line.iter_mut().zip(text.chars()) {
                *cell = (letter, style);
            }
        }
        below
    }

    /// Writes the lines of a table.
    pub fn table(&mut self, area: Area, columns: &[Column], rows: impl IntoIterator<Item = Row>) {
        let mut left = area;
        for row in rows {
            if left.lines == 0 {
                return;
            }
            let text = aligned(columns, &row.cells);
            // A style covers the whole line, as it marks the selected one.
            let width = usize::from(left.columns);
            left = self.line(left, &format!("{text:width$}"), row.style);
        }
    }

    /// Draws the newest of these values as bars. The largest fills the area's height.
    pub fn sparkline(&mut self, area: Area, values: &[u64], style: Style) {
        let skipped = values.len().saturating_sub(usize::from(area.columns));
        let values = &values[skipped..];
        let most = values.iter().copied().max().unwrap_or(0).max(1);
        let whole = u128::from(area.lines) * 8;
        let mut left = area;
        for below in (0..area.lines).rev() {
            let bar = |value: &u64| {
                let eighths = u128::from(*value) * whole / u128::from(most);
                match eighths.saturating_sub(u128::from(below) * 8) {
                    0 => ' ',
                    some => EIGHTHS[some.min(8) as usize - 1],
                }
            };
            let text: String = values.iter().map(bar).collect();
            left = self.line(left, &text, style);
        }
    }

    /// Each line as text without styles.
    #[cfg(test)]
    pub fn text(&self) -> String {
        let lines = self.cells.chunks(usize::from(self.columns.max(1)));
        let text = |line: &[(char, Style)]| line.iter().map(|cell| cell.0).chain(['\n']).collect();
        lines.map(text).collect::<Vec<String>>().concat()
    }

    /// Each line with control sequences for its styles, without the spaces at its end.
    pub fn lines(&self, colours: Colours) -> Vec<String> {
        let lines = self.cells.chunks(usize::from(self.columns.max(1)));
        lines.map(|line| sequences(line, colours)).collect()
    }
}

/// Whether the terminal shows colours. It shows bold, dim and reversed text in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    Shown,
    /// The variable NO_COLOR is set.
    Refused,
}

fn sequences(line: &[(char, Style)], colours: Colours) -> String {
    let blank = (' ', PLAIN);
    let end = line.iter().rposition(|cell| *cell != blank);
    let mut text = String::new();
    let mut now = PLAIN;
    for &(letter, style) in &line[..end.map_or(0, |last| last + 1)] {
        let style = match colours {
            Colours::Shown => style,
            Colours::Refused => style.fg_color(None),
        };
        if style != now {
            // Writing to a string cannot fail.
            let _ = write!(text, "{now:#}{style}");
            now = style;
        }
        text.push(letter);
    }
    let _ = write!(text, "{now:#}");
    text
}

/// The cells side by side.
fn aligned(columns: &[Column], cells: &[String]) -> String {
    let mut text = String::new();
    for (index, (&(width, align), cell)) in columns.iter().zip(cells).enumerate() {
        if index > 0 {
            text.extend(std::iter::repeat_n(' ', usize::from(SPACING)));
        }
        let width = usize::from(width);
        let cell: String = cell.chars().take(width).collect();
        // Writing to a string cannot fail.
        let _ = match align {
            Align::Left if index + 1 == columns.len() => write!(text, "{cell}"),
            Align::Left => write!(text, "{cell:<width$}"),
            Align::Right => write!(text, "{cell:>width$}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_and_cut() {
        let mut canvas = Canvas::new(3, 12);
        let columns = [(3, Align::Left), (4, Align::Right), (9, Align::Left)];
        let rows = [
            ["a", "12", "long text"],
            ["toolong", "1", ""],
            ["b", "", ""],
        ];
        let (area, _) = canvas.area().above(2);
        canvas.table(area, &columns, rows.map(Row::new));
        assert_eq!(canvas.text(), "a     12 lon\ntoo    1    \n            \n");
    }

    #[test]
    fn a_sparkline_shows_the_newest_values() {
        let mut canvas = Canvas::new(2, 4);
        canvas.sparkline(canvas.area(), &[9, 0, 16, 8, 1], PLAIN);
        assert_eq!(canvas.text(), " █  \n ██▁\n");
        canvas.sparkline(canvas.area(), &[u64::MAX], PLAIN);
        assert!(canvas.text().starts_with('█'));
    }

    #[test]
    fn styles_end_with_their_text() {
        let mut canvas = Canvas::new(1, 5);
        let (left, right) = canvas.area().left(1, 1);
        canvas.line(left, "ab", CYAN);
        canvas.line(right, "c", BOLD);
        let expected = "\x1b[38;5;6ma\x1b[0m \x1b[1mc\x1b[0m";
        assert_eq!(canvas.lines(Colours::Shown), [expected]);
        assert_eq!(canvas.lines(Colours::Refused), ["a \x1b[1mc\x1b[0m"]);
    }
}
