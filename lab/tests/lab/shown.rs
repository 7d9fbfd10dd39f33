//! `neap-lab show` of the records in `lab/records`. Each must show what it showed when the figures
//! cited in the documents were read: `lab/tests/shown` has that text, without the tables' lines.

use crate::stage::{lab, text};
use std::path::Path;

/// A table's text, with one bar between two cells.
fn cells(text: &str) -> String {
    let is_border = |line: &&str| line.is_empty() || line.starts_with(['┌', '╞', '└']);
    let row = |line: &str| {
        let Some(cells) = line.strip_prefix('│') else {
            return line.trim_end().to_string();
        };
        let cells = cells.trim_end_matches('│').trim().split("  ");
        let cells = cells.map(str::trim).filter(|cell| !cell.is_empty());
        cells.collect::<Vec<_>>().join(" | ")
    };
    let lines = text.lines().filter(|line| !is_border(line));
    lines.map(row).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_record_shows_what_the_documents_cite() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shown = std::fs::read_dir(folder.join("tests/shown")).expect("no folder");
    let mut count = 0;
    for expected in shown.map(|entry| entry.expect("an entry").path()) {
        let name = expected
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let record = folder.join(format!("records/{name}.csv"));
        let output = lab(&["show", record.to_str().expect("a path of text")]);
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let expected = std::fs::read_to_string(&expected).expect("no text");
        assert_eq!(cells(&text(&output.stdout)), expected.trim_end(), "{name}");
        count += 1;
    }
    assert_eq!(count, 13);
}

#[test]
fn records_of_prices_and_sizes_are_shown_as_well() {
    for (name, part) in [
        ("2026-11-21-prices", "MADV_DONTNEED; all"),
        ("2026-11-21-sizes", "sqlite3"),
    ] {
        let record = format!("{}/records/{name}.csv", env!("CARGO_MANIFEST_DIR"));
        let shown = text(&lab(&["show", &record]).stdout);
        assert!(shown.contains(part), "{shown}");
    }
}
