//! The sizes that a program requested, in the steps in which the library counts them.

use crate::failure::{Failure, shown};
use crate::files;
use neap_shared::status_page::{SIZE_STEP, SIZES, SizeFigure};
use std::path::Path;

/// The first line of a file of sizes.
const FIRST_LINE: &str = "neap sizes 1";
/// Most bytes of such a file: every step, with the longest numbers.
const MOST_BYTES: u64 = 1 << 20;

/// How often each size was requested. Sums saturate, because the figures are unverified.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// The program's file name.
    pub program: String,
    /// By step (see [`neap_shared::status_page::SIZES`]); the last one counts sizes that no slab
    /// serves.
    figures: Vec<SizeFigure>,
}

impl Histogram {
    /// An empty histogram.
    pub fn new(program: &str) -> Self {
        Self {
            program: program.replace(char::is_control, "?"),
            figures: vec![SizeFigure::default(); SIZES],
        }
    }

    /// Adds a status page's table of sizes.
    pub fn add(&mut self, figures: &[SizeFigure]) {
        for (sum, figure) in self.figures.iter_mut().zip(figures) {
            sum.count = sum.count.saturating_add(figure.count);
            sum.bytes = sum.bytes.saturating_add(figure.bytes);
        }
    }

    /// The steps that slabs serve and that were requested: the step's largest size in bytes, and
    /// its figures.
    pub fn steps(&self) -> impl Iterator<Item = (usize, SizeFigure)> {
        let slabs = &self.figures[..SIZES - 1];
        let sizes = slabs
            .iter()
            .enumerate()
            .map(|(step, &figure)| (step * SIZE_STEP, figure));
        sizes.filter(|(_, figure)| figure.count > 0)
    }

    /// The requests that no slab serves.
    pub fn large(&self) -> SizeFigure {
        self.figures[SIZES - 1]
    }

    /// Allocations that slabs serve.
    pub fn allocations(&self) -> u64 {
        let count = |sum: u64, (_, figure): (usize, SizeFigure)| sum.saturating_add(figure.count);
        self.steps().fold(0, count)
    }

    /// The text of a histogram file.
    pub fn to_text(&self) -> String {
        let figures = |SizeFigure { count, bytes }| format!("{count} {bytes}\n");
        let steps = self
            .steps()
            .map(|(size, figure)| format!("{size} {}", figures(figure)));
        format!(
            "{FIRST_LINE}\nprogram {}\n# largest size (large: no class serves it): allocations, \
             requested bytes\n{}large {}",
            self.program,
            steps.collect::<String>(),
            figures(self.large())
        )
    }

    /// Reads a histogram file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is malformed.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = String::from_utf8(files::read(path, MOST_BYTES + 1)?).ok();
        text.as_deref()
            .ok_or_else(|| "it is not text".to_owned())
            .and_then(Self::parse)
            .map_err(|why| {
                failure!(
                    "{} is not a file that neap tune --save-sizes wrote: {why}",
                    shown(path)
                )
            })
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.len() as u64 > MOST_BYTES {
            return Err(format!("it is longer than {MOST_BYTES} bytes"));
        }
        let mut lines = (1..).zip(text.lines());
        if lines.next().map(|(_, line)| line) != Some(FIRST_LINE) {
            return Err(format!("its first line is not {FIRST_LINE:?}"));
        }
        let mut histogram = Self::new("");
        let mut ended = false;
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            if let Some(program) = line.strip_prefix("program ") {
                histogram.program = program.to_owned();
                continue;
            }
            let (step, figure) =
                entry(line).ok_or_else(|| format!("line {number} makes no sense"))?;
            histogram.figures[step] = figure;
            ended = step == SIZES - 1;
        }
        if ended {
            Ok(histogram)
        } else {
            Err("its end is missing".into())
        }
    }
}

/// Parses a line: the step and its figures.
fn entry(line: &str) -> Option<(usize, SizeFigure)> {
    let mut words = line.split(' ');
    let step = match words.next()? {
        "large" => SIZES - 1,
        size => size
            .parse::<usize>()
            .ok()
            .filter(|size| size.is_multiple_of(SIZE_STEP))
            .map(|size| size / SIZE_STEP)
            .filter(|&step| step < SIZES - 1)?,
    };
    let figure = SizeFigure {
        count: words.next()?.parse().ok()?,
        bytes: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some((step, figure))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_page(entries: &[(usize, u64, u64)]) -> Vec<SizeFigure> {
        let mut status_page = vec![SizeFigure::default(); SIZES];
        for &(step, count, bytes) in entries {
            status_page[step] = SizeFigure { count, bytes };
        }
        status_page
    }

    #[test]
    fn status_pages_add_up_and_survive_a_file() {
        let mut histogram = Histogram::new("py\nthon");
        histogram.add(&status_page(&[
            (0, 1, 0),
            (3, 10, 240),
            (SIZES - 1, 2, 100_000),
        ]));
        histogram.add(&status_page(&[(3, 5, 100), (4096, u64::MAX, u64::MAX)]));
        histogram.add(&status_page(&[(4096, 1, 1)]));
        assert_eq!(histogram.allocations(), u64::MAX);
        let again = Histogram::parse(&histogram.to_text()).unwrap();
        assert_eq!(again.to_text(), histogram.to_text());
        assert_eq!(again.program, "py?thon");
        let steps: Vec<(usize, u64)> = again.steps().map(|(size, f)| (size, f.count)).collect();
        assert_eq!(steps, [(0, 1), (24, 15), (32_768, u64::MAX)]);
        assert_eq!(again.large().bytes, 100_000);
    }

    #[test]
    fn what_is_no_file_of_sizes_is_refused() {
        let whole = Histogram::new("x").to_text();
        assert!(Histogram::parse(&whole).is_ok());
        let cut = &whole[..whole.len() - 10];
        for wrong in [
            "",
            "neap sizes 2\nlarge 0 0\n",
            cut,
            "neap sizes 1\n12 1 1\nlarge 0 0",
            "neap sizes 1\n32776 1 1\nlarge 0 0",
            "neap sizes 1\n16 1\nlarge 0 0",
            "neap sizes 1\n16 1 1 1\nlarge 0 0",
            "neap sizes 1\n16 -1 1\nlarge 0 0",
        ] {
            assert!(Histogram::parse(wrong).is_err(), "{wrong:?}");
        }
        let long = "#".repeat(MOST_BYTES as usize + 1);
        assert!(Histogram::parse(&long).unwrap_err().contains("longer"));
    }
}
