//! The size classes of allocators, as data or as the rule that generates them, each with its
//! source; what each table wastes, and waste by size as a picture.

use std::ops::RangeInclusive;

use super::sizes::Sizes;
use crate::engine::plot::{Axis, Draw, Panel, Plot, Point, Series, Stroke};
use crate::engine::record::Figure;

/// The sizes that tables are compared over; every table has a class for them.
pub const LARGEST: usize = 32 << 10;

/// An allocator's block sizes.
#[derive(Clone, Debug)]
pub struct ClassTable {
    /// Its name in the tables.
    pub name: &'static str,
    /// Where the classes are documented.
    pub source: &'static str,
    /// The peers whose malloc must have exactly these classes.
    pub peers: &'static [&'static str],
    /// Bytes of each block that the program cannot use.
    pub header: usize,
    /// Bytes of each class's block, including the header, ascending; the last holds [`LARGEST`].
    pub blocks: Vec<usize>,
}

impl ClassTable {
    /// Bytes of the block for a request of `size` bytes, including the header.
    ///
    /// # Panics
    /// If `size` is over [`LARGEST`].
    pub fn taken(&self, size: usize) -> usize {
        assert!(size <= LARGEST, "no class for {size} bytes");
        self.blocks[self
            .blocks
            .partition_point(|&block| block < size + self.header)]
    }

    /// The usable bytes of that block.
    ///
    /// # Panics
    /// Same as [`ClassTable::taken`].
    pub fn usable(&self, size: usize) -> usize {
        self.taken(size) - self.header
    }

    /// The wasted fraction of that block.
    ///
    /// # Panics
    /// Same as [`ClassTable::taken`].
    pub fn waste(&self, size: usize) -> f64 {
        let taken = self.taken(size);
        (taken - size) as f64 / taken as f64
    }
}

/// All tables, in the order of the report.
pub fn all() -> Vec<ClassTable> {
    let table = |name, source, peers, header, blocks| ClassTable {
        name,
        source,
        peers,
        header,
        blocks,
    };
    vec![
        table("go-1.15", GO_SOURCE_OLD, &[], 0, go(Since::Go115)),
        table("go-1.16", GO_SOURCE, &[], 0, go(Since::Go116)),
        table("jemalloc", JEMALLOC_SOURCE, &["jemalloc"], 0, quarters(8)),
        table(
            "mimalloc",
            MIMALLOC_SOURCE,
            &["mimalloc2", "mimalloc3"],
            0,
            quarters(8),
        ),
        table("snmalloc", SNMALLOC_SOURCE, &["snmalloc"], 0, quarters(16)),
        table(
            "tcmalloc",
            TCMALLOC_SOURCE,
            &["tcmalloc"],
            0,
            TCMALLOC.to_vec(),
        ),
        table(
            "gperftools",
            GPERFTOOLS_SOURCE,
            &["gperftools"],
            0,
            gperftools(),
        ),
        table("glibc", GLIBC_SOURCE, &["glibc"], 8, glibc()),
        table("neap", NEAP_SOURCE, &["neap"], 0, eighths(16)),
        table("neap-rust", NEAP_RUST_SOURCE, &["neap-rust"], 0, eighths(8)),
    ]
}

/// The table with that name, for tests.
#[cfg(test)]
pub fn find(name: &str) -> Option<ClassTable> {
    all().into_iter().find(|table| table.name == name)
}

const GO_SOURCE: &str =
    "runtime/sizeclasses.go (since Go 1.24 internal/runtime/gc); the same from Go 1.16 to 1.26";
const GO_SOURCE_OLD: &str = "runtime/sizeclasses.go of Go 1.15: no class of 24 bytes";
const JEMALLOC_SOURCE: &str =
    "jemalloc 5.3 sc.h: a quantum of 16 bytes and a tiny class of 8; four classes a doubling";
const MIMALLOC_SOURCE: &str =
    "mimalloc page-queue.c, mi_bin: an even number of words up to 128 bytes; four bins a doubling";
const SNMALLOC_SOURCE: &str =
    "snmalloc sizeclasstable.h: two bits between powers of two, from 16 bytes";
const TCMALLOC_SOURCE: &str =
    "tcmalloc size_classes.cc, 8 KiB pages, alignment of new over 8; malloc takes multiples of 16";
const GPERFTOOLS_SOURCE: &str =
    "gperftools 2.10 common.cc, SizeMap::Init: 8 KiB pages, an eighth of a doubling, merged";
const GLIBC_SOURCE: &str =
    "glibc malloc.c: chunks of 32 bytes and every 16, of which 8 are the header";
const NEAP_SOURCE: &str = "heap/src/slab/class.rs at an alignment of 16, which C has";
const NEAP_RUST_SOURCE: &str =
    "heap/src/slab/class.rs at an alignment of 8, which Rust's Layout states";

/// A version of Go's table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    Go115,
    Go116,
}

const GO: [usize; 67] = [
    8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352,
    384, 416, 448, 480, 512, 576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048,
    2304, 2688, 3072, 3200, 3456, 4096, 4864, 5376, 6144, 6528, 6784, 6912, 8192, 9472, 9728,
    10240, 10880, 12288, 13568, 14336, 16384, 18432, 19072, 20480, 21760, 24576, 27264, 28672,
    32768,
];

fn go(since: Since) -> Vec<usize> {
    let there = |block: &usize| *block != 24 || since == Since::Go116;
    GO.into_iter().filter(there).collect()
}

/// The classes that malloc uses: the multiples of 16 in the list.
const TCMALLOC: [usize; 35] = [
    16, 32, 64, 80, 96, 112, 128, 160, 176, 208, 256, 288, 352, 448, 512, 576, 704, 896, 1024,
    1152, 1408, 1792, 2048, 2688, 3456, 4096, 4736, 6144, 8192, 9472, 12288, 16384, 20480, 28672,
    32768,
];

/// The `first` sizes, then `steps` classes per doubling.
fn doublings(first: impl Iterator<Item = usize>, steps: usize) -> Vec<usize> {
    let powers = (7..15).map(|power| 1 << power);
    let beyond =
        powers.flat_map(|power: usize| (1..=steps).map(move |step| power + step * (power / steps)));
    first.chain(beyond).collect()
}

/// Classes every 16 bytes up to 128 (and 8, if `least` is 8), then four per doubling.
fn quarters(least: usize) -> Vec<usize> {
    let tiny = (least < 16).then_some(least);
    doublings(tiny.into_iter().chain((16..=128).step_by(16)), 4)
}

/// Classes every `step` bytes up to 128, then eight per doubling.
fn eighths(step: usize) -> Vec<usize> {
    doublings((step..=128).step_by(step), 8)
}

fn glibc() -> Vec<usize> {
    (32..=LARGEST + 16).step_by(16).collect()
}

const GPERFTOOLS_PAGE: usize = 8 << 10;

/// One class per multiple of the alignment, merged where the same number of blocks fits into a span
/// of the same length.
fn gperftools() -> Vec<usize> {
    let mut classes: Vec<(usize, usize)> = Vec::new();
    let mut size = 8;
    while size <= LARGEST {
        let span = gperftools_span(size);
        match classes.last_mut() {
            Some(last) if last.1 == span && span / last.0 == span / size => last.0 = size,
            _ => classes.push((size, span)),
        }
        size += gperftools_alignment(size);
    }
    classes.into_iter().map(|(size, _)| size).collect()
}

fn gperftools_alignment(size: usize) -> usize {
    match size {
        0..16 => 8,
        16..128 => 16,
        _ => ((1 << size.ilog2()) / 8).min(GPERFTOOLS_PAGE),
    }
}

/// Whole pages with at most an eighth of waste and room for a quarter of the blocks moved at once.
fn gperftools_span(size: usize) -> usize {
    let moved = ((64 << 10) / size).clamp(2, 32);
    let fits = |pages: &usize| {
        let span = pages * GPERFTOOLS_PAGE;
        span % size <= span >> 3 && span / size >= moved / 4
    };
    (1..).find(fits).unwrap_or(1) * GPERFTOOLS_PAGE
}

/// The sizes at which `table` and the measurement differ: the first, the last, and their number.
pub fn difference(
    table: &ClassTable,
    measured: &[usize],
) -> Option<(RangeInclusive<usize>, usize)> {
    let differs = |size: &usize| table.usable(*size) != measured[size - 1];
    let sizes: Vec<usize> = (1..=measured.len()).filter(differs).collect();
    let (&first, &last) = (sizes.first()?, sizes.last()?);
    Some((first..=last, sizes.len()))
}

/// Small sizes, which programs request most.
const SMALL: usize = 1 << 10;
/// Below this many bytes the worst case is always the smallest size.
const WORST_FROM: usize = 65;

/// The table over every size from 1 B to 32 KiB, equally weighted.
pub fn of_all_sizes(table: &ClassTable) -> Vec<Figure> {
    let (worst, at) = worst(table);
    vec![
        Figure::count("classes", table.blocks.len() as u64),
        Figure::share("lost of a block of 24 B", table.waste(24)),
        Figure::share("mean; 1 B to 1 KiB", mean(table, SMALL)),
        Figure::share("mean; 1 B to 32 KiB", mean(table, LARGEST)),
        Figure::share("worst; 1 B to 64 B", highest(table, 1..WORST_FROM).0),
        Figure::share("worst; 65 B to 32 KiB", worst),
        Figure::block_bytes("which is at", at as f64),
    ]
}

/// The wasted fraction of the block, averaged over the sizes.
fn mean(table: &ClassTable, largest: usize) -> f64 {
    (1..=largest).map(|size| table.waste(size)).sum::<f64>() / largest as f64
}

fn worst(table: &ClassTable) -> (f64, usize) {
    highest(table, WORST_FROM..LARGEST + 1)
}

/// The largest waste, and the smallest size that has it.
fn highest(table: &ClassTable, sizes: std::ops::Range<usize>) -> (f64, usize) {
    let mut highest = (0.0, sizes.start);
    for size in sizes {
        if table.waste(size) > highest.0 {
            highest = (table.waste(size), size);
        }
    }
    highest
}

/// The waste of a table for a program's sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lost {
    /// The fraction of all blocks' bytes that was not requested.
    pub share: f64,
    /// Mean bytes of a block that were not requested.
    pub bytes: f64,
}

/// The table over a program's sizes, weighted by number of requests. This is exact, because all
/// classes are multiples of 8 bytes, as are the steps of the record.
pub fn of_program(table: &ClassTable, sizes: &Sizes) -> Lost {
    let (mut taken, mut asked, mut count) = (0, 0, 0);
    for step in sizes.steps.iter().filter(|step| step.up_to <= LARGEST) {
        taken += step.count * table.taken(step.up_to) as u64;
        asked += step.bytes;
        count += step.count;
    }
    let lost = taken.saturating_sub(asked) as f64;
    Lost {
        share: lost / taken.max(1) as f64,
        bytes: lost / count.max(1) as f64,
    }
}

/// Higher waste is drawn at the edge.
const MOST: f64 = 0.5;
const INK: Stroke = Stroke::of("#0072b2");

/// An SVG document of all tables.
pub fn svg() -> String {
    let panels = all().iter().map(panel).collect();
    let title = vec!["The part of a block that a request wastes, over the bytes asked for".into()];
    let (panel, left) = ((400.0, 140.0), (50.0, 50.0));
    Plot {
        title,
        across: 2,
        panel,
        left,
        panels,
    }
    .svg()
}

fn panel(table: &ClassTable) -> Panel {
    let sizes = [1, 8, 64, 512, 4_096, LARGEST].map(|size| (size as f64, bytes(size)));
    Panel {
        title: format!("{}: {} classes", table.name, table.blocks.len()),
        x: Axis::logarithmic((1.0, LARGEST as f64), sizes.into()),
        y: Axis::linear(MOST, |waste| format!("{:.0} %", 100.0 * waste)),
        marks: vec![],
        series: vec![Series {
            name: String::new(),
            stroke: INK,
            draw: Draw::Line,
            points: teeth(table),
        }],
    }
}

/// The first and the last size of every class, with their waste.
fn teeth(table: &ClassTable) -> Vec<Point> {
    let mut corners = Vec::new();
    let mut first = 1;
    while first <= LARGEST {
        let last = table.usable(first).min(LARGEST);
        corners.extend([first, last].map(|size| Point::at(size as f64, table.waste(size))));
        first = last + 1;
    }
    corners
}

fn bytes(size: usize) -> String {
    match size {
        0..1_024 => format!("{size} B"),
        _ => format!("{} KiB", size >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::sizes::Step;

    #[test]
    fn every_table_ascends_and_holds_all_sizes() {
        for table in all() {
            assert!(table.blocks.is_sorted_by(|a, b| a < b), "{}", table.name);
            assert!(table.usable(LARGEST) >= LARGEST, "{}", table.name);
            assert!(table.usable(1) >= 1 && table.waste(1) < 1.0);
        }
    }

    #[test]
    fn the_write_ups_24_bytes_lose_a_quarter_without_their_class() {
        assert_eq!(find("go-1.15").unwrap().waste(24), 0.25);
        assert_eq!(find("go-1.16").unwrap().waste(24), 0.0);
        assert_eq!(find("neap-rust").unwrap().waste(24), 0.0);
        assert_eq!(find("neap").unwrap().waste(24), 0.25);
        assert_eq!(
            (
                find("go-1.15").unwrap().blocks.len(),
                find("go-1.16").unwrap().blocks.len()
            ),
            (66, 67)
        );
    }

    #[test]
    fn a_header_is_taken_but_not_usable() {
        let glibc = find("glibc").unwrap();
        assert_eq!(
            [1, 24, 25, 40].map(|size| glibc.taken(size)),
            [32, 32, 48, 48]
        );
        assert_eq!(glibc.usable(24), 24);
    }

    #[test]
    fn rules_make_the_classes_that_are_known() {
        assert_eq!(find("jemalloc").unwrap().blocks.len(), 41);
        let some = [80, 96, 112, 128, 160, 192, 224, 256, 320];
        assert!(
            find("mimalloc")
                .unwrap()
                .blocks
                .windows(9)
                .any(|at| at == some)
        );
        assert_eq!(find("neap-rust").unwrap().blocks.len(), 80);
        let merged = [2816, 3072, 3328, 4096, 4608, 5120, 6144];
        assert!(
            find("gperftools")
                .unwrap()
                .blocks
                .windows(7)
                .any(|at| at == merged)
        );
    }

    #[test]
    fn a_difference_is_told_by_its_sizes() {
        let table = find("neap").unwrap();
        let mut measured: Vec<usize> = (1..=64).map(|size| table.usable(size)).collect();
        assert_eq!(difference(&table, &measured), None);
        measured[23] = 24;
        assert_eq!(difference(&table, &measured), Some((24..=24, 1)));
    }

    #[test]
    fn waste_is_what_neap_promises_and_go_states() {
        let neap = find("neap").unwrap();
        assert!(worst(&neap).0 < 0.125 + 1e-9 || worst(&neap).1 <= 128);
        // Go's own table states 29.24 % for 24 bytes with the tail of its span, so 17 in 24
        // without.
        let go = find("go-1.16").unwrap();
        assert!((go.waste(17) - 7.0 / 24.0).abs() < 1e-12);
        assert_eq!(highest(&go, 1..65), (0.875, 1));
    }

    #[test]
    fn more_classes_lose_less_in_the_mean() {
        let mean_of = |name| mean(&find(name).unwrap(), SMALL);
        assert!(mean_of("go-1.16") < mean_of("go-1.15"));
        assert!(mean_of("neap-rust") < mean_of("neap"));
        assert!(mean_of("neap") < mean_of("jemalloc"));
    }

    #[test]
    fn a_programs_loss_is_exact_and_leaves_large_sizes_out() {
        let step = |up_to, count, bytes| Step {
            up_to,
            count,
            bytes,
        };
        let sizes = Sizes {
            program: "p".into(),
            steps: vec![step(24, 10, 230), step(40_000, 1, 39_999)],
        };
        let lost = of_program(&find("go-1.15").unwrap(), &sizes);
        assert_eq!(
            lost,
            Lost {
                share: 90.0 / 320.0,
                bytes: 9.0
            }
        );
        let lost = of_program(&find("neap-rust").unwrap(), &sizes);
        assert_eq!(
            lost,
            Lost {
                share: 10.0 / 240.0,
                bytes: 1.0
            }
        );
    }

    #[test]
    fn every_table_has_a_panel_and_every_class_a_tooth() {
        let picture = svg();
        let tables = all();
        assert_eq!(picture.matches("<polyline").count(), tables.len());
        for table in &tables {
            assert!(picture.contains(&format!(">{}: ", table.name)));
        }
        let neap = find("neap").unwrap();
        assert_eq!(teeth(&neap).len(), 2 * neap.blocks.len());
        assert!(picture.starts_with("<svg") && !picture.contains("NaN"));
    }
}
