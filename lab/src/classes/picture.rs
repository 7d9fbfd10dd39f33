//! Waste by size: one panel per table, with the size on a logarithmic axis.

use super::tables::{self, ClassTable, LARGEST};
use crate::engine::plot::{Axis, Draw, Panel, Plot, Point, Series, Stroke};

/// Higher waste is drawn at the edge.
const MOST: f64 = 0.5;
const INK: Stroke = Stroke::of("#0072b2");

/// An SVG document of all tables.
pub fn svg() -> String {
    let panels = tables::all().iter().map(panel).collect();
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
