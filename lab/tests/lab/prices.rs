//! `neap-lab prices` as a user runs it: every cell is present, and reports the right number of
//! pages.

use crate::stage::{folder, lab, parsed, text};
use std::process::Output;

use serde_json::Value;

const SIZES: [&str; 4] = ["64K", "128K", "256K", "1M"];

fn prices(arguments: &[&str]) -> Output {
    lab(&[&["prices"], arguments].concat())
}

/// The number of pages that a price must report; `None` if it reports none.
fn pages(price: &Value) -> Option<u64> {
    // SAFETY: the call has no precondition.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let bytes = price["bytes"].as_u64()?;
    match (price["way"].as_str()?, price["populated"].as_str()?) {
        ("touch every page", _) => Some(bytes / page),
        ("PAGEMAP_SCAN" | "pread of the pagemap", populated) => match populated {
            "all" => Some(bytes / page),
            "first 64 KiB" => Some((64 << 10) / page),
            _ => Some(0),
        },
        _ => None,
    }
}

fn is_right(price: &Value) -> bool {
    if price["absent"].is_string() {
        // A kernel before 6.7, or another processor.
        return ["PAGEMAP_SCAN", "streaming stores"].contains(&price["way"].as_str().unwrap_or(""));
    }
    let number = |key: &str| price[key].as_f64().unwrap_or(0.0);
    let is_price = number("ns_least") > 0.0 && number("ns_least") <= number("ns_median");
    let told = price["pages"].as_u64();
    let is_told = match price["way"].as_str() {
        // The process may fault elsewhere meanwhile.
        Some("touch every page") => told >= pages(price),
        _ => told == pages(price),
    };
    is_price && is_told && number("readings") >= 1.0 && number("times") >= 1.0
}

#[test]
fn a_quick_run_has_every_cell_with_its_pages() {
    let output = prices(&["--quick", "--json"]);
    let json = parsed(&output);
    assert!(json["head"]["kernel"].is_string() && json["head"]["revision"].is_string());
    let prices = json["prices"].as_array().expect("no prices");
    assert_eq!(prices.len(), 3 + 11 * SIZES.len());
    for size in SIZES {
        let of_size = prices.iter().filter(|price| price["size"] == size).count();
        assert_eq!(of_size, 11, "{size}");
    }
    let wrong: Vec<&Value> = prices.iter().filter(|price| !is_right(price)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_record_has_a_line_for_every_cell_of_the_table() {
    let folder = folder("prices-records");
    let path = folder.to_str().expect("a path of text");
    let output = prices(&["--quick", "--only", "64K,1M", "--records", path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert_eq!(table.matches("MADV_DONTNEED").count(), 4, "{table}");
    assert!(!table.contains("128K") && !table.contains('–'), "{table}");
    let files: Vec<_> = std::fs::read_dir(&folder)
        .expect("no folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(text(files[0].as_os_str().as_encoded_bytes()).ends_with("-prices.csv"));
    let record = std::fs::read_to_string(&files[0]).expect("no record");
    assert!(record.contains("\n# kernel: ") && record.contains("\n# processor: "));
    let rows = record.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(rows, 1 + 3 + 2 * 11, "{record}");
}

#[test]
fn an_unknown_size_is_refused_and_no_time_leaves_cells_that_say_so() {
    let output = prices(&["--only", "11M"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no size \"11M\""));
    let output = prices(&["--only", "64K", "--seconds", "0"]);
    assert!(output.status.success());
    // Two figures for each of three calls and eleven ways.
    assert_eq!(text(&output.stdout).matches("time is up").count(), 28);
}
