//! Waste by size: one panel per table, with the size on a logarithmic axis.

use super::tables::{self, ClassTable, LARGEST};
use crate::plot::{push, text};

const COLUMNS: usize = 2;
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 150.0;
const MARGIN: f64 = 50.0;
const TOP: f64 = 40.0;
/// Higher waste is drawn at the edge.
const MOST: f64 = 0.5;
const INK: &str = "#0072b2";

/// An SVG document of all tables.
pub fn svg() -> String {
    let tables = tables::all();
    let rows = tables.len().div_ceil(COLUMNS);
    let width = COLUMNS as f64 * (WIDTH + MARGIN) + MARGIN;
    let height = TOP + rows as f64 * (HEIGHT + MARGIN) + 10.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let title = "The part of a block that a request wastes, over the bytes asked for";
    text(&mut out, width / 2.0, 20.0, "middle", title);
    for (place, table) in tables.iter().enumerate() {
        let (column, row) = (place % COLUMNS, place / COLUMNS);
        let left = MARGIN + column as f64 * (WIDTH + MARGIN);
        let top = TOP + row as f64 * (HEIGHT + MARGIN);
        panel(&mut out, table, (left, top));
    }
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, table: &ClassTable, (left, top): (f64, f64)) {
    let title = format!("{}: {} classes", table.name, table.blocks.len());
    text(out, left, top - 4.0 + 8.0, "start", &title);
    let top = top + 12.0;
    for size in [1, 8, 64, 512, 4_096, LARGEST] {
        let x = left + across(size);
        push(
            out,
            format_args!(
                "<path d=\"M{x:.1} {top:.1}v{:.1}\" stroke=\"#ddd\"/>",
                HEIGHT - 12.0
            ),
        );
        text(out, x, top + HEIGHT + 2.0, "middle", &bytes(size));
    }
    for percent in [0, 25, 50] {
        let y = top + down(f64::from(percent) / 100.0);
        push(
            out,
            format_args!("<path d=\"M{left:.1} {y:.1}h{WIDTH:.1}\" stroke=\"#ddd\"/>"),
        );
        text(out, left - 4.0, y + 4.0, "end", &format!("{percent} %"));
    }
    let corners: Vec<String> = teeth(table)
        .into_iter()
        .map(|(size, waste)| format!("{:.1},{:.1}", left + across(size), top + down(waste)))
        .collect();
    let points = corners.join(" ");
    push(
        out,
        format_args!("<polyline points=\"{points}\" fill=\"none\" stroke=\"{INK}\"/>"),
    );
}

/// The first and the last size of every class, with their waste.
fn teeth(table: &ClassTable) -> Vec<(usize, f64)> {
    let mut corners = Vec::new();
    let mut first = 1;
    while first <= LARGEST {
        let last = table.usable(first).min(LARGEST);
        corners.extend([(first, table.waste(first)), (last, table.waste(last))]);
        first = last + 1;
    }
    corners
}

fn across(size: usize) -> f64 {
    WIDTH * (size as f64).log2() / (LARGEST as f64).log2()
}

fn down(waste: f64) -> f64 {
    (HEIGHT - 12.0) * (1.0 - waste.min(MOST) / MOST)
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

    #[test]
    fn every_table_has_a_panel_and_every_class_a_tooth() {
        let picture = svg();
        let tables = tables::all();
        assert_eq!(picture.matches("<polyline").count(), tables.len());
        for table in &tables {
            assert!(picture.contains(&format!(">{}: ", table.name)));
        }
        let neap = tables::find("neap").unwrap();
        assert_eq!(teeth(&neap).len(), 2 * neap.blocks.len());
        assert!(picture.starts_with("<svg") && !picture.contains("NaN"));
    }
}
