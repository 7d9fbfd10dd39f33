//! `neap-lab prices` as a user runs it: every cell is present, and reports the right number of
//! pages.

use crate::stage::{folder, lab, parsed, text};
use std::process::Output;

use serde_json::Value;

const SIZES: [&str; 4] = ["64K", "128K", "256K", "1M"];

fn prices(arguments: &[&str]) -> Output {
    lab(&[&["prices"], arguments].concat())
}

/// The prices of a size, each with its way.
fn of_size<'a>(json: &'a Value, size: &str) -> Vec<(&'a str, Vec<&'a Value>)> {
    let figures = json["figures"].as_array().expect("no figures");
    let figures = figures.iter().filter(|figure| figure["peer"] == size);
    let mut prices: Vec<(&str, Vec<&Value>)> = Vec::new();
    for figure in figures {
        let way = figure["case"].as_str().expect("no case");
        match prices.last_mut() {
            Some((last, figures)) if *last == way => figures.push(figure),
            _ => prices.push((way, vec![figure])),
        }
    }
    prices
}

/// The number of pages that a price must report; `None` if it reports none.
fn pages(way: &str, bytes: u64) -> Option<u64> {
    // SAFETY: the call has no precondition.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    match way.split_once("; ")? {
        ("touch every page", _) => Some(bytes / page),
        ("PAGEMAP_SCAN" | "pread of the pagemap", populated) => match populated {
            "all" => Some(bytes / page),
            "first 64 KiB" => Some((64 << 10) / page),
            _ => Some(0),
        },
        _ => None,
    }
}

fn is_right(way: &str, figures: &[&Value]) -> bool {
    let find = |name: &str| figures.iter().find(|figure| figure["figure"] == name);
    if find("absent").is_some() {
        // A kernel before 6.7, or another processor.
        return way.starts_with("PAGEMAP_SCAN") || way.starts_with("streaming stores");
    }
    let number = |name: &str| find(name).and_then(|figure| figure["value"].as_f64());
    let is_price = number("least") > Some(0.0) && number("least") <= number("median");
    let told = number("pages").map(|pages| pages as u64);
    let must = number("bytes").and_then(|bytes| pages(way, bytes as u64));
    // The process may fault elsewhere meanwhile.
    let is_told = told == must || (way.starts_with("touch every page") && told >= must);
    is_price && is_told && number("readings") >= Some(1.0) && number("times") >= Some(1.0)
}

#[test]
fn a_quick_run_has_every_cell_with_its_pages() {
    let output = prices(&["--quick", "--json"]);
    let json = parsed(&output);
    assert!(json["head"]["kernel"].is_string() && json["head"]["revision"].is_string());
    assert_eq!(of_size(&json, "any size").len(), 3);
    for size in SIZES {
        let prices = of_size(&json, size);
        assert_eq!(prices.len(), 11, "{size}");
        for (way, figures) in prices {
            assert!(is_right(way, &figures), "{size} {way}: {figures:#?}");
        }
    }
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
    let prices = record
        .lines()
        .filter(|line| line.contains(",median,ns,") || line.contains(",absent,"));
    assert_eq!(prices.count(), 3 + 2 * 11, "{record}");
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
