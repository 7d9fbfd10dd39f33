//! The size classes of Go, as data with their source, and of a heap, as measured; what each table
//! wastes, and waste by size as a picture.

use crate::engine::plot::{Axis, Draw, Layout, Panel, Point, Series, Stroke, svg};
use crate::engine::record::{Figure, Record};

/// The sizes that tables are compared over; every table has a class for them.
pub const LARGEST: usize = 32 << 10;

/// An allocator's block sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassTable {
    /// Its name in the tables.
    pub name: String,
    /// Bytes of each block that the program cannot use.
    header: usize,
    /// Bytes of each class's block, including the header, ascending; the last holds [`LARGEST`].
    blocks: Vec<usize>,
}

impl ClassTable {
    /// The table of a heap whose blocks for 1 byte, 2 bytes and so on have these usable bytes.
    pub fn measured(name: &str, mut usable: Vec<usize>) -> ClassTable {
        usable.dedup();
        let header = if name == "glibc" { GLIBC_HEADER } else { 0 };
        ClassTable {
            name: name.to_string(),
            header,
            blocks: usable.iter().map(|usable| usable + header).collect(),
        }
    }

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

/// Of each block, says glibc's malloc.c.
const GLIBC_HEADER: usize = 8;

/// Go's tables: of 1.15, which had no class of 24 bytes, and of 1.16 to 1.26.
pub fn go() -> [ClassTable; 2] {
    let table = |name: &str, least: usize| ClassTable {
        name: name.to_string(),
        header: 0,
        blocks: GO.into_iter().filter(|&block| block != least).collect(),
    };
    [table("go-1.15", 24), table("go-1.16", 0)]
}

/// The source of Go's tables.
pub const GO_SOURCE: &str = "runtime/sizeclasses.go, since Go 1.24 internal/runtime/gc";

const GO: [usize; 67] = [
    8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352,
    384, 416, 448, 480, 512, 576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048,
    2304, 2688, 3072, 3200, 3456, 4096, 4864, 5376, 6144, 6528, 6784, 6912, 8192, 9472, 9728,
    10240, 10880, 12288, 13568, 14336, 16384, 18432, 19072, 20480, 21760, 24576, 27264, 28672,
    32768,
];

/// Small sizes, which programs request most.
const SMALL: usize = 1 << 10;
/// Below this many bytes the worst case is always the smallest size.
const WORST_FROM: usize = 65;

/// The table over every size from 1 B to 32 KiB, equally weighted.
pub fn of_all_sizes(table: &ClassTable) -> Vec<Figure> {
    let (worst, at) = worst(table);
    let blocks: Vec<String> = table.blocks.iter().map(usize::to_string).collect();
    vec![
        Figure::count("classes", table.blocks.len() as u64),
        Figure::share("lost of a block of 24 B", table.waste(24)),
        Figure::share("mean; 1 B to 1 KiB", mean(table, SMALL)),
        Figure::share("mean; 1 B to 32 KiB", mean(table, LARGEST)),
        Figure::share("worst; 1 B to 64 B", highest(table, 1..WORST_FROM).0),
        Figure::share("worst; 65 B to 32 KiB", worst),
        Figure::block_bytes("which is at", at as f64),
        Figure::text(BLOCKS, blocks.join(" ")),
    ]
}

/// The name of the figure that has every class, for the picture.
pub const BLOCKS: &str = "blocks";

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

/// The sizes of one program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// Its name, without commas.
    pub program: String,
    /// Sorted by size.
    pub steps: Vec<Step>,
}

/// Allocations of similar size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The largest size in bytes, a multiple of 8; the previous step ends at least 8 bytes earlier.
    /// [`usize::MAX`]: all sizes too large for a class.
    pub up_to: usize,
    /// Number of allocations.
    pub count: u64,
    /// Sum of their bytes.
    pub bytes: u64,
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

/// The tables of a record; none of one that has no classes.
fn of_record(record: &Record) -> Vec<ClassTable> {
    let table = |run: crate::engine::record::Run| {
        let blocks = run.text(BLOCKS)?.split(' ');
        let blocks: Option<Vec<usize>> = blocks.map(|block| block.parse().ok()).collect();
        let mut table = ClassTable::measured(run.peer(), vec![]);
        table.blocks = blocks?;
        Some(table)
    };
    record.runs().filter_map(table).collect()
}

/// An SVG document of all tables of a record.
pub fn picture(record: &Record) -> Option<String> {
    let tables = of_record(record);
    let title = "The part of a block that a request wastes, over the bytes asked for";
    let panels: Vec<Panel> = tables.iter().map(panel).collect();
    let layout = Layout(2, (400.0, 140.0), (50.0, 50.0));
    (!panels.is_empty()).then(|| svg(&[title], layout, &panels))
}

fn panel(table: &ClassTable) -> Panel {
    let sizes = [1, 8, 64, 512, 4_096, LARGEST].map(|size| (size as f64, bytes(size)));
    Panel {
        title: format!("{}: {} classes", table.name, table.blocks.len()),
        x: Axis::logarithmic((1.0, LARGEST as f64), sizes.into()),
        y: Axis::linear(MOST, |waste| format!("{:.0} %", 100.0 * waste)),
        marks: vec![],
        series: vec![Series::new("", INK, Draw::Line, teeth(table))],
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
    use crate::engine::record::tests::record;

    fn glibc() -> ClassTable {
        let usable = |size: usize| (size + 8).next_multiple_of(16).max(32) - 8;
        ClassTable::measured("glibc", (1..=LARGEST).map(usable).collect())
    }

    #[test]
    fn the_write_ups_24_bytes_lose_a_quarter_without_their_class() {
        let [old, new] = go();
        assert_eq!((old.waste(24), new.waste(24)), (0.25, 0.0));
        assert_eq!((old.blocks.len(), new.blocks.len()), (66, 67));
        assert!(mean(&new, SMALL) < mean(&old, SMALL));
        for table in [old, new, glibc()] {
            assert!(table.blocks.is_sorted_by(|a, b| a < b), "{}", table.name);
            assert!(table.usable(LARGEST) >= LARGEST, "{}", table.name);
        }
    }

    #[test]
    fn a_header_is_taken_but_not_usable() {
        let glibc = glibc();
        assert_eq!(
            [1, 24, 25, 40].map(|size| glibc.taken(size)),
            [32, 32, 48, 48]
        );
        assert_eq!(glibc.usable(24), 24);
    }

    #[test]
    fn waste_is_what_go_states() {
        // Go's own table states 29.24 % for 24 bytes with the tail of its span, so 17 in 24
        // without.
        let [_, go] = go();
        assert!((go.waste(17) - 7.0 / 24.0).abs() < 1e-12);
        assert_eq!(highest(&go, 1..65), (0.875, 1));
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
        let [old, new] = go().map(|table| of_program(&table, &sizes));
        assert_eq!((old.share, old.bytes), (90.0 / 320.0, 9.0));
        assert_eq!((new.share, new.bytes), (10.0 / 240.0, 1.0));
    }

    #[test]
    fn every_table_of_a_record_has_a_panel_and_every_class_a_tooth() {
        let [old, _] = go();
        let tables = [old, glibc()];
        let runs = tables
            .iter()
            .map(|table| ("waste", table.name.as_str(), 0, of_all_sizes(table)));
        let record = record(runs);
        assert_eq!(of_record(&record), tables);
        let drawn = picture(&record).unwrap();
        assert_eq!(drawn.matches("<polyline").count(), 2);
        assert!(drawn.contains(">go-1.15: 66 classes</text>") && !drawn.contains("NaN"));
        assert_eq!(teeth(&tables[0]).len(), 2 * tables[0].blocks.len());
        assert!(picture(&Record::default()).is_none());
    }
}
