//! An SVG document, element by element.

use std::fmt::{Arguments, Write as _};

/// A document in the making.
pub struct Svg {
    text: String,
}

impl Svg {
    /// An empty page of that size.
    pub fn new((width, height): (f64, f64)) -> Svg {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" font-size=\"11\" fill=\"#222\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        Svg { text }
    }

    /// Adds an element.
    pub fn push(&mut self, element: Arguments) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.text, "{element}");
    }

    /// Adds words at a position; `anchor` is SVG's.
    pub fn words(&mut self, (x, y): (f64, f64), anchor: &str, words: &str) {
        let words = words.replace('&', "&amp;").replace('<', "&lt;");
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
        ));
    }

    /// Adds a line along SVG's `path`.
    pub fn line(&mut self, path: Arguments, stroke: &str) {
        self.push(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{stroke}\"/>"
        ));
    }

    /// The finished document.
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}
